//! Live sessions on a paused clock: when they are open, and which events their watchers get meanwhile.

mod test_factory;

use crate::kinds::NOW;
use outlast_dialect::Message;
use outlast_engine::journal::Entry;
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{Body, Event};
use outlast_serve::live_sessions::State::{Elsewhere, Idle};
use outlast_serve::live_sessions::{
    EventBatch, EventCursor, LiveSession, LiveSessions, SettingsChange, SnapshotEvents,
};
use outlast_session::factory::SessionOptions;
use outlast_session::{Delivery, Session};
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

fn spawn_housekeeping(sessions: &Arc<LiveSessions>) {
    let keeper = Arc::clone(sessions);
    tokio::spawn(async move { keeper.run_housekeeping().await });
}

/// Sends a prompt, and waits for the end of the turn.
async fn prompt(house: &TestFactory, room: &Arc<LiveSession>, text: &str) -> Vec<Event> {
    let (mut news, mut place) = (room.watch_newest_seq(), room.cursor());
    let prompt = room.prompt(Message::user(text), Delivery::NextTurn);
    prompt.await.unwrap();
    let mut heard = Vec::new();
    while !heard
        .last()
        .is_some_and(|event: &Event| matches!(event.body, Body::Sealed { .. }))
    {
        match room.events_after(place) {
            EventBatch::Events(events) if events.is_empty() => tokio::select! {
                changed = news.changed() => changed.unwrap(),
                () = house.advance_second() => {}
            },
            EventBatch::Events(events) => {
                place = room.cursor_of(events.last().unwrap());
                heard.extend(events);
            }
            EventBatch::Stale => panic!("whoever listens all the time misses nothing"),
        }
    }
    heard
}

async fn snapshot_bodies(room: &Arc<LiveSession>) -> (EventCursor, Vec<Body>) {
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
    while house.journal.summary(id).await.unwrap().availability != Availability::Free {
        house.advance_second().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idle_session_is_released_and_continues_later() {
    let (_still, house, sessions) = opened("overloaded:1");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    let heard = prompt(&house, &room, "one").await;
    let before = snapshot_bodies(&room).await;
    assert_eq!(before.0, room.cursor_of(heard.last().unwrap()));
    spawn_housekeeping(&sessions);
    wait_until_free(&house, room.id()).await;
    assert_eq!(
        snapshot_bodies(&room).await,
        before,
        "it is told from what is written down"
    );
    assert_eq!(room.events_after(before.0), EventBatch::Events(Vec::new()));
    let earlier = room.cursor_of(&heard[0]);
    assert_eq!(room.events_after(earlier), EventBatch::Stale);
    let more = prompt(&house, &room, "two").await;
    assert_eq!(more[0].seq, before.0.seq + 1);
    let (_, all) = snapshot_bodies(&room).await;
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
async fn unwatched_live_session_is_recreated() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    prompt(&house, &room, "one").await;
    let (place, before) = snapshot_bodies(&room).await;
    let id = room.id().to_owned();
    spawn_housekeeping(&sessions);
    wait_until_free(&house, &id).await;
    drop(room);
    // The cleanup task has removed the unwatched session.
    house.seconds(400).await;
    let room = sessions.find(&id).await.unwrap();
    assert_ne!(room.cursor().log_id, place.log_id);
    assert_eq!(room.events_after(place), EventBatch::Stale);
    assert_eq!(snapshot_bodies(&room).await.1, before);
}

#[tokio::test(start_paused = true)]
async fn empty_session_stays_live_without_journal_entry() {
    let (_still, house, sessions) = opened("ok");
    let id = {
        let room = sessions.create(SessionOptions::default()).await.unwrap();
        room.id().to_owned()
    };
    spawn_housekeeping(&sessions);
    house.seconds(3600).await;
    assert!(
        house.journal.summary(&id).await.is_err(),
        "it is not written down"
    );
    let room = sessions.find(&id).await.unwrap();
    assert!(!prompt(&house, &room, "late").await.is_empty());
    assert_eq!(house.journal.summary(&id).await.unwrap().turns, 1);
}

/// A client that watches a session which another process continues gets its events, although nothing happened here.
#[tokio::test(start_paused = true)]
async fn watcher_sees_changes_of_another_process() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    prompt(&house, &room, "here").await;
    spawn_housekeeping(&sessions);
    wait_until_free(&house, room.id()).await;
    let (before, _) = snapshot_bodies(&room).await;
    let place = before;
    for text in ["there", "there again"] {
        let other = Session::open(&house.journal, room.id(), house.setup());
        let other = other.await.unwrap();
        let ask = outlast_session::PromptRequest {
            message: Some(Message::user(text)),
            ..Default::default()
        };
        other.prompt(ask).await.unwrap();
        other.close().await.unwrap();
    }
    wait_until_stale(&house, &room, place).await;
    let (place, bodies) = snapshot_bodies(&room).await;
    assert_ne!(place, before);
    assert!(format!("{bodies:?}").contains("there again"));
    assert_eq!(room.events_after(place), EventBatch::Events(Vec::new()));
    // The same holds when the session is opened before any poll has seen the change.
    let other = Session::open(&house.journal, room.id(), house.setup());
    let other = other.await.unwrap();
    other.rename("elsewhere").await.unwrap();
    let note = Message::user("a note");
    other.add_note(note).await.unwrap();
    other.close().await.unwrap();
    let prompt = room.prompt(Message::user("here again"), Delivery::NextTurn);
    prompt.await.unwrap();
    assert_eq!(room.events_after(place), EventBatch::Stale);
}

/// A client can follow from its snapshot, even if that snapshot is the first to show changes of another process.
#[tokio::test(start_paused = true)]
async fn snapshot_with_external_changes_can_be_followed() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    prompt(&house, &room, "here").await;
    let id = room.id().to_owned();
    // Another server, which only watches.
    let others = LiveSessions::new(house.clone());
    let watched = others.find(&id).await.unwrap();
    let (first, _) = snapshot_bodies(&watched).await;
    prompt(&house, &room, "here again").await;
    let (second, bodies) = snapshot_bodies(&watched).await;
    assert!(format!("{bodies:?}").contains("here again"));
    assert_eq!(watched.events_after(first), EventBatch::Stale);
    assert_eq!(watched.events_after(second), EventBatch::Events(Vec::new()));
}

async fn wait_until_stale(house: &TestFactory, room: &LiveSession, place: EventCursor) {
    while room.events_after(place) != EventBatch::Stale {
        house.advance_second().await;
    }
}

/// A process that only holds a session open keeps others from continuing it, although it writes nothing.
#[tokio::test(start_paused = true)]
async fn open_and_close_elsewhere_change_session_state() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    prompt(&house, &room, "here").await;
    spawn_housekeeping(&sessions);
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
async fn settings_changed_while_opening_are_kept() {
    let (_still, house, sessions) = opened("ok");
    let room = sessions.create(SessionOptions::default()).await.unwrap();
    house.open_permits.forget_permits(Semaphore::MAX_PERMITS);
    let opening = tokio::spawn({
        let (house, room) = (Arc::clone(&house), Arc::clone(&room));
        async move { prompt(&house, &room, "one").await }
    });
    house.advance_second().await;
    let changing = tokio::spawn({
        let room = Arc::clone(&room);
        let settings = SettingsChange {
            auto_retry: Some(false),
            ..SettingsChange::default()
        };
        async move { room.change(settings).await }
    });
    house.advance_second().await;
    house.open_permits.add_permits(1);
    opening.await.unwrap();
    changing.await.unwrap().unwrap();
    assert!(!room.settings().await.unwrap().auto_retry);
}

/// A lock may outlive the process that held it by a moment.
#[tokio::test(start_paused = true)]
async fn just_abandoned_turn_is_resumed() {
    let (_still, house, sessions) = opened("ok");
    let id = "0190d0f0-0000-7000-8000-000000000001";
    let new = NewSession {
        id: id.to_owned(),
        directory: String::new(),
        title: String::new(),
        now: NOW,
    };
    let hold = house.journal.create(new).await.unwrap();
    let prompt = Entry::Prompt {
        chosen: false,
        turn_id: "turn".to_owned(),
        message: Some(Message::user("left")),
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
    let carrying_on = tokio::spawn(async move { keeper.resume_unfinished().await });
    house.advance_second().await;
    house.journal.release(hold).await.unwrap();
    while house.journal.unfinished().await.unwrap().len() == 1 {
        house.advance_second().await;
    }
    assert!(carrying_on.await.unwrap().unwrap().is_empty());
}
