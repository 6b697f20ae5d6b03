//! Sessions of a server, on a paused clock: when they are open, and what those hear who watch meanwhile.

use crate::kinds::NOW;
use outlast_agent::Session;
use outlast_agent::session::Setup;
use outlast_agent::tools::shell::Shell;
use outlast_dialect::Dialect;
use outlast_engine::clock::TimerClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::budget::Limits;
use outlast_kernel::event::{Body, Event};
use outlast_kernel::policy::Policy;
use outlast_mock::Scripted;
use outlast_server::host::{Card, Host, Hosted, House, HouseError, Model, Opened, Wishes};
use outlast_server::sessions::{Heard, Place, Room, Said, Sessions, Told};
use outlast_store::Journal;
use outlast_store::journal::State;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// One model, no settings.
struct Plain;

fn model() -> Model {
    Model {
        id: "m".to_owned(),
        name: "m".to_owned(),
        api: "anthropic-messages".to_owned(),
        provider: "mock".to_owned(),
        base_url: String::new(),
        reasoning: false,
        input: Vec::new(),
        cost: outlast_server::host::ModelCost::default(),
        context_window: 1000,
        max_tokens: 1000,
    }
}

fn not_here<T>() -> Result<T, String> {
    Err("not here".to_owned())
}

impl Host for Plain {
    fn begin(&self) -> BoxFuture<'_, Result<Opened, String>> {
        Box::pin(async { not_here() })
    }

    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Opened, String>> {
        Box::pin(async { not_here() })
    }

    fn fork<'a>(&'a self, _: &'a Session, _: Option<u64>) -> BoxFuture<'a, Result<Opened, String>> {
        Box::pin(async { not_here() })
    }

    fn models(&self) -> Vec<Model> {
        vec![model()]
    }

    fn choose<'a>(
        &'a self,
        _: Arc<Setup>,
        _: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>> {
        Box::pin(async { not_here() })
    }

    fn choose_policy(&self, _: &Setup, _: &str) -> Result<Setup, String> {
        not_here()
    }

    fn policy(&self) -> Option<Policy> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn options(&self) -> Value {
        Value::Null
    }

    fn file(&self) -> Option<String> {
        None
    }

    fn folder(&self) -> PathBuf {
        PathBuf::new()
    }

    fn shell(&self, command: &str) -> Shell {
        Shell {
            command: command.to_owned(),
            directory: PathBuf::new(),
            hidden_variables: Vec::new(),
        }
    }

    fn leave(&self, _: &Session) {}

    fn warn(&self, _: &str) {}
}

struct Small {
    journal: Journal,
    clock: Arc<dyn Clock>,
    script: &'static str,
    _folder: TempDir,
}

impl Small {
    fn new(script: &'static str) -> Arc<Self> {
        let folder = TempDir::new().unwrap();
        Arc::new(Self {
            journal: Journal::open(&folder.path().join("s.db")).unwrap().journal,
            clock: Arc::new(TimerClock::new(NOW)),
            script,
            _folder: folder,
        })
    }

    fn setup(&self) -> Setup {
        let transport = Scripted::new(self.script.parse().unwrap(), Arc::clone(&self.clock));
        let adapter = Adapter::new(
            Dialect::Anthropic,
            Arc::new(transport),
            Arc::clone(&self.clock),
        );
        let policy = Policy::named("session").unwrap();
        Setup {
            retry: Some(Arc::new(PolicyRetry::new(policy, Arc::clone(&self.clock)))),
            retry_enabled: true,
            ..Setup::new(Arc::new(adapter), "m", Arc::clone(&self.clock))
        }
    }
}

impl House for Small {
    fn journal(&self) -> Option<&Journal> {
        Some(&self.journal)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn folder(&self) -> PathBuf {
        PathBuf::new()
    }

    fn look<'a>(
        &'a self,
        _: Option<&'a str>,
        _: &'a Wishes,
    ) -> BoxFuture<'a, Result<Card, HouseError>> {
        Box::pin(async {
            Ok(Card {
                model: model(),
                models: vec![model()],
                policy: "session".to_owned(),
            })
        })
    }

    fn open<'a>(
        &'a self,
        name: &'a str,
        _: &'a Wishes,
    ) -> BoxFuture<'a, Result<Hosted, HouseError>> {
        Box::pin(async move {
            let session = match self.journal.summary(name).await {
                Ok(_) => Session::open(&self.journal, name, self.setup()).await,
                Err(_) => {
                    let place = (name.to_owned(), ("", ""));
                    Session::begin_as(&self.journal, place.0, place.1, self.setup()).await
                }
            };
            let session = session.map_err(|error| HouseError::Failed(error.to_string()))?;
            Ok(Hosted {
                opened: Opened {
                    session: Arc::new(session),
                    model: model(),
                },
                host: Arc::new(Plain),
            })
        })
    }
}

/// Says something, and waits for the end of the turn.
async fn say(room: &Arc<Room>, text: &str) -> Vec<Event> {
    let (mut news, mut place) = (room.news(), room.place());
    let said = Said {
        text: text.to_owned(),
        images: Vec::new(),
    };
    room.prompt(said, None).await.unwrap();
    let mut heard = Vec::new();
    while !heard
        .last()
        .is_some_and(|event: &Event| matches!(event.body, Body::Sealed { .. }))
    {
        match room.since(place) {
            Heard::Events(events) if events.is_empty() => news.changed().await.unwrap(),
            Heard::Events(events) => {
                place = room.place_of(events.last().unwrap());
                heard.extend(events);
            }
            Heard::Stale => panic!("whoever listens all the time misses nothing"),
        }
    }
    heard
}

async fn told(room: &Arc<Room>) -> (Place, Vec<Body>) {
    let snapshot = room.snapshot(true).await.unwrap();
    let Told::Native(events) = snapshot.events else {
        panic!("other words than were asked for");
    };
    let bodies = events.into_iter().map(|event| event.body);
    // Who is called is known to those alone who were there.
    let bodies = bodies.filter(|body| !matches!(body, Body::Start { .. }));
    (snapshot.place.parse().unwrap(), bodies.collect())
}

/// Waits until the session has been given back.
async fn until_free(house: &Small, id: &str) {
    while house.journal.summary(id).await.unwrap().state != State::Free {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_needs_is_given_back_and_goes_on_where_it_was() {
    let house = Small::new("overloaded:1");
    let sessions = Sessions::new(house.clone());
    let room = sessions.create(Wishes::default()).await.unwrap();
    let heard = say(&room, "one").await;
    let before = told(&room).await;
    assert_eq!(before.0, room.place_of(heard.last().unwrap()));
    let keeper = Arc::clone(&sessions);
    tokio::spawn(async move { keeper.keep_house().await });
    until_free(&house, room.id()).await;
    assert_eq!(
        told(&room).await,
        before,
        "it is told from what is written down"
    );
    assert_eq!(room.since(before.0), Heard::Events(Vec::new()));
    let earlier = room.place_of(&heard[0]);
    assert_eq!(room.since(earlier), Heard::Stale);
    let more = say(&room, "two").await;
    assert_eq!(more[0].seq, before.0.seq + 1);
    let (_, all) = told(&room).await;
    assert_eq!(all[..before.1.len()], before.1);
    let inputs = |bodies: &[Body]| {
        let said = bodies.iter().filter_map(|body| match body {
            Body::Input { text } => Some(text.clone()),
            _ => None,
        });
        said.collect::<Vec<String>>()
    };
    assert_eq!(inputs(&all), ["one", "two"]);
}

/// Nothing is lost by forgetting: the numbers are others, and the place of before leads to a snapshot.
#[tokio::test(start_paused = true)]
async fn a_room_that_nobody_watches_is_made_anew() {
    let house = Small::new("ok");
    let sessions = Sessions::new(house.clone());
    let room = sessions.create(Wishes::default()).await.unwrap();
    say(&room, "one").await;
    let (place, before) = told(&room).await;
    let id = room.id().to_owned();
    let keeper = Arc::clone(&sessions);
    tokio::spawn(async move { keeper.keep_house().await });
    until_free(&house, &id).await;
    drop(room);
    // Whoever looks after rooms has come by.
    tokio::time::sleep(Duration::from_secs(400)).await;
    let room = sessions.room(&id).await.unwrap();
    assert_ne!(room.place().log, place.log);
    assert_eq!(room.since(place), Heard::Stale);
    assert_eq!(told(&room).await.1, before);
}

#[tokio::test(start_paused = true)]
async fn a_session_in_which_nothing_was_said_stays_as_long_as_the_server() {
    let house = Small::new("ok");
    let sessions = Sessions::new(house.clone());
    let id = {
        let room = sessions.create(Wishes::default()).await.unwrap();
        room.id().to_owned()
    };
    let keeper = Arc::clone(&sessions);
    tokio::spawn(async move { keeper.keep_house().await });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(
        house.journal.summary(&id).await.is_err(),
        "it is not written down"
    );
    let room = sessions.room(&id).await.unwrap();
    assert!(!say(&room, "late").await.is_empty());
    assert_eq!(house.journal.summary(&id).await.unwrap().turns, 1);
}

/// Whoever watches a session that another process goes on with is told, although nothing of it has happened here.
#[tokio::test(start_paused = true)]
async fn what_is_said_elsewhere_is_told_to_those_who_watch_here() {
    let house = Small::new("ok");
    let sessions = Sessions::new(house.clone());
    let room = sessions.create(Wishes::default()).await.unwrap();
    say(&room, "here").await;
    let keeper = Arc::clone(&sessions);
    tokio::spawn(async move { keeper.keep_house().await });
    until_free(&house, room.id()).await;
    let (before, _) = told(&room).await;
    let place = before;
    for text in ["there", "there again"] {
        let other = Session::open(&house.journal, room.id(), house.setup());
        let other = other.await.unwrap();
        let ask = outlast_agent::session::Ask {
            message: Some(outlast_dialect::Message::user(text)),
            ..Default::default()
        };
        other.prompt(ask).await.unwrap();
        other.close().await.unwrap();
    }
    while room.since(place) != Heard::Stale {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (place, bodies) = told(&room).await;
    assert_ne!(place, before);
    assert!(format!("{bodies:?}").contains("there again"));
    assert_eq!(room.since(place), Heard::Events(Vec::new()));
    // Also when the room is entered before anybody has looked.
    let other = Session::open(&house.journal, room.id(), house.setup());
    let other = other.await.unwrap();
    other.rename("elsewhere").await.unwrap();
    let note = outlast_dialect::Message::user("a note");
    other.note(note).await.unwrap();
    other.close().await.unwrap();
    say(&room, "here again").await;
    assert_eq!(room.since(place), Heard::Stale);
}

/// Whoever takes a snapshot can follow from it, also when it is the first to see what was said elsewhere.
#[tokio::test(start_paused = true)]
async fn a_snapshot_of_what_was_said_elsewhere_can_be_followed() {
    let house = Small::new("ok");
    let sessions = Sessions::new(house.clone());
    let room = sessions.create(Wishes::default()).await.unwrap();
    say(&room, "here").await;
    let id = room.id().to_owned();
    // Another server, which only looks.
    let others = Sessions::new(house.clone());
    let watched = others.room(&id).await.unwrap();
    let (first, _) = told(&watched).await;
    say(&room, "here again").await;
    let (second, bodies) = told(&watched).await;
    assert!(format!("{bodies:?}").contains("here again"));
    assert_eq!(watched.since(first), Heard::Stale);
    assert_eq!(watched.since(second), Heard::Events(Vec::new()));
}
