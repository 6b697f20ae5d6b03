//! Live sessions on a paused clock: when they are open, and which events their watchers get meanwhile.

mod test_factory;

use crate::kinds::NOW;
use outlast_engine::journal::Entry;
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{Body, Event};
use outlast_serve::live_sessions::State::{Elsewhere, Idle};
use outlast_serve::live_sessions::{
    EventBatch, EventCursor, LiveSession, LiveSessions, SettingsChange, SnapshotEvents, UserMessage,
};
use outlast_session::Session;
use outlast_session::factory::SessionOptions;
use outlast_store::journal::{Availability, NewSession, RawEntry};
use serde_json::Value;
use std::sync::Arc;
use test_factory::{TestFactory, TimeHold, hold_time};
use tokio::sync::Semaphore;

/// Creates a test factory with a held clock, and its live sessions.
fn opened(script: &'static str) -> (TimeHold, Arc<TestFactory>, Arc<LiveSessions>) {
    let (still, house) = (hold_time(), TestFactory::new(script));
    let sessions = LiveSessions::new(house.clone());
    (still, house, sessions)
}

fn keep_house(sessions: &Arc<LiveSessions>) {
    let keeper = Arc::clone(sessions);
    tokio::spawn(async move { keeper.keep_house().await });
}

/// Sends a prompt, and waits for the end of the turn.
async fn say(house: &TestFactory, room: &Arc<LiveSession>, text: &str) -> Vec<Event> {
    let (mut news, mut place) = (room.news(), room.place());
    let said = UserMessage {
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
            EventBatch::Events(events) if events.is_empty() => tokio::select! {
                changed = news.changed() => changed.unwrap(),
                () = house.second() => {}
            },
            EventBatch::Events(events) => {
                place = room.place_of(events.last().unwrap());
                heard.extend(events);
            }
            EventBatch::Stale => panic!("whoever listens all the time misses nothing"),
        }
    }
    heard
}

async fn told(room: &Arc<LiveSession>) -> (EventCursor, Vec<Body>) {
    let snapshot = room.snapshot(true).await.unwrap();
    let SnapshotEvents::Native(events) = snapshot.events else {
        panic!("other words than were asked for");
    };
    let bodies = events.into_iter().map(|event| event.body);
    // Only live events name the provider and the model of a turn's start.
    let bodies = bodies.filter(|body| !matches!(body, Body::Start { .. }));
    (snapshot.place.parse().unwrap(), bodies.collect())
}

/// Waits until the session's lock is released.
async fn wait_until_free(house: &TestFactory, id: &str) {
    while house.journal.summary(id).await.unwrap().state != Availability::Free {
        house.second().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_needs_is_given_back_and_goes_on_where_it_was() {
    let (_still, house, sessions) = opened("overloaded:1");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    let heard = say(&house, &room, "one").await;
    let before = told(&room).await;
    assert_eq!(before.0, room.place_of(heard.last().unwrap()));
    keep_house(&sessions);
    wait_until_free(&house, room.id()).await;
    assert_eq!(
        told(&room).await,
        before,
        "it is told from what is written down"
    );
    assert_eq!(room.since(before.0), EventBatch::Events(Vec::new()));
    let earlier = room.place_of(&heard[0]);
    assert_eq!(room.since(earlier), EventBatch::Stale);
    let more = say(&house, &room, "two").await;
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

/// Forgetting a live session loses nothing: the new one has other event numbers, and an old cursor leads to a snapshot.
#[tokio::test(start_paused = true)]
async fn a_room_that_nobody_watches_is_made_anew() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    say(&house, &room, "one").await;
    let (place, before) = told(&room).await;
    let id = room.id().to_owned();
    keep_house(&sessions);
    wait_until_free(&house, &id).await;
    drop(room);
    // The cleanup task has removed the unwatched session.
    house.seconds(400).await;
    let room = sessions.room(&id).await.unwrap();
    assert_ne!(room.place().log, place.log);
    assert_eq!(room.since(place), EventBatch::Stale);
    assert_eq!(told(&room).await.1, before);
}

#[tokio::test(start_paused = true)]
async fn a_session_in_which_nothing_was_said_stays_as_long_as_the_server() {
    let (_still, house, sessions) = opened("ok");
    let id = {
        let room = sessions.create(SessionOptions::default()).await.unwrap();
        room.id().to_owned()
    };
    keep_house(&sessions);
    house.seconds(3600).await;
    assert!(
        house.journal.summary(&id).await.is_err(),
        "it is not written down"
    );
    let room = sessions.room(&id).await.unwrap();
    assert!(!say(&house, &room, "late").await.is_empty());
    assert_eq!(house.journal.summary(&id).await.unwrap().turns, 1);
}

/// A client that watches a session which another process continues gets its events, although nothing happened here.
#[tokio::test(start_paused = true)]
async fn what_is_said_elsewhere_is_told_to_those_who_watch_here() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    say(&house, &room, "here").await;
    keep_house(&sessions);
    wait_until_free(&house, room.id()).await;
    let (before, _) = told(&room).await;
    let place = before;
    for text in ["there", "there again"] {
        let other = Session::open(&house.journal, room.id(), house.setup());
        let other = other.await.unwrap();
        let ask = outlast_session::PromptRequest {
            message: Some(outlast_dialect::Message::user(text)),
            ..Default::default()
        };
        other.prompt(ask).await.unwrap();
        other.close().await.unwrap();
    }
    wait_until_stale(&house, &room, place).await;
    let (place, bodies) = told(&room).await;
    assert_ne!(place, before);
    assert!(format!("{bodies:?}").contains("there again"));
    assert_eq!(room.since(place), EventBatch::Events(Vec::new()));
    // The same holds when the session is opened before any poll has seen the change.
    let other = Session::open(&house.journal, room.id(), house.setup());
    let other = other.await.unwrap();
    other.rename("elsewhere").await.unwrap();
    let note = outlast_dialect::Message::user("a note");
    other.note(note).await.unwrap();
    other.close().await.unwrap();
    let said = UserMessage {
        text: "here again".to_owned(),
        images: Vec::new(),
    };
    room.prompt(said, None).await.unwrap();
    assert_eq!(room.since(place), EventBatch::Stale);
}

/// A client can follow from its snapshot, even if that snapshot is the first to show changes of another process.
#[tokio::test(start_paused = true)]
async fn a_snapshot_of_what_was_said_elsewhere_can_be_followed() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    say(&house, &room, "here").await;
    let id = room.id().to_owned();
    // Another server, which only watches.
    let others = LiveSessions::new(house.clone());
    let watched = others.room(&id).await.unwrap();
    let (first, _) = told(&watched).await;
    say(&house, &room, "here again").await;
    let (second, bodies) = told(&watched).await;
    assert!(format!("{bodies:?}").contains("here again"));
    assert_eq!(watched.since(first), EventBatch::Stale);
    assert_eq!(watched.since(second), EventBatch::Events(Vec::new()));
}

async fn wait_until_stale(house: &TestFactory, room: &LiveSession, place: EventCursor) {
    while room.since(place) != EventBatch::Stale {
        house.second().await;
    }
}

/// A process that only holds a session open keeps others from continuing it, although it writes nothing.
#[tokio::test(start_paused = true)]
async fn who_comes_to_a_session_and_leaves_it_elsewhere_is_told_of() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    say(&house, &room, "here").await;
    keep_house(&sessions);
    wait_until_free(&house, room.id()).await;
    let state = async || {
        let snapshot = room.snapshot(true).await.unwrap();
        let place: EventCursor = snapshot.place.parse().unwrap();
        (place, snapshot.session.row.state)
    };
    let (place, before) = state().await;
    let other = Session::open(&house.journal, room.id(), house.setup());
    let other = other.await.unwrap();
    wait_until_stale(&house, &room, place).await;
    let (place, meanwhile) = state().await;
    other.close().await.unwrap();
    wait_until_stale(&house, &room, place).await;
    let (_, after) = state().await;
    let states = [before, meanwhile, after];
    assert_eq!(states, [Idle, Elsewhere, Idle]);
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_while_a_session_is_opened_holds() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    house.doors.forget_permits(Semaphore::MAX_PERMITS);
    let opening = tokio::spawn({
        let (house, room) = (Arc::clone(&house), Arc::clone(&room));
        async move { say(&house, &room, "one").await }
    });
    house.second().await;
    let changing = tokio::spawn({
        let room = Arc::clone(&room);
        let settings = SettingsChange {
            auto_retry: Some(false),
            ..SettingsChange::default()
        };
        async move { room.change(settings).await }
    });
    house.second().await;
    house.doors.add_permits(1);
    opening.await.unwrap();
    changing.await.unwrap().unwrap();
    assert!(!room.settings().await.unwrap().auto_retry);
}

/// A lock may outlive the process that held it by a moment.
#[tokio::test(start_paused = true)]
async fn a_turn_that_was_left_just_now_is_carried_on_too() {
    let (_still, house, sessions) = opened("ok");
    let id = "0190d0f0-0000-7000-8000-000000000001";
    let new = NewSession {
        id: id.to_owned(),
        directory: String::new(),
        title: String::new(),
        now: NOW,
    };
    let hold = house.journal.begin(new).await.unwrap();
    let prompt = Entry::Prompt {
        chosen: false,
        turn_id: "turn".to_owned(),
        message: Some(outlast_dialect::Message::user("left")),
        budget: Prompt::default(),
        options: Value::Null,
    };
    let line = RawEntry {
        turn: 1,
        kind: prompt.kind().to_owned(),
        time: NOW,
        body: serde_json::to_string(&prompt).unwrap(),
    };
    house.journal.append(&hold, vec![line]).await.unwrap();
    let keeper = Arc::clone(&sessions);
    let carrying_on = tokio::spawn(async move { keeper.carry_on().await });
    house.second().await;
    house.journal.release(hold).await.unwrap();
    while house.journal.unfinished().await.unwrap().len() == 1 {
        house.second().await;
    }
    assert!(carrying_on.await.unwrap().unwrap().is_empty());
}
