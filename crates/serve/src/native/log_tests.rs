//! The events that a client of the native dialect gets.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use super::{FollowRequest, NativeLog};
use crate::native::FollowError;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, VERSION};
use outlast_session::event_log::EventLog;
use serde_json::json;
use std::sync::Arc;

fn event(seq: u64, body: Body) -> Event {
    Event {
        v: VERSION,
        seq,
        time: Timestamp::from_millis(1_800_000_000_000),
        session_id: "session".to_owned(),
        turn_id: "turn".to_owned(),
        attempt_id: None,
        body,
    }
}

fn text(seq: u64, text: &str) -> Event {
    let text = text.to_owned();
    event(seq, Body::TextDelta { text })
}

fn warning(seq: u64) -> Event {
    let message = "careful".to_owned();
    event(seq, Body::Warning { message })
}

/// Creates a log with that many events.
fn log_of(events: u64) -> NativeLog {
    let log = NativeLog::default();
    delivered(&log, (1..=events).map(|seq| text(seq, "x")));
    log
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

fn follow(command: &serde_json::Value) -> FollowRequest {
    FollowRequest::parse(command).unwrap()
}

/// Pushes an event as a session does: to the session's log first.
fn push(log: &NativeLog, event: &Event, write: impl FnOnce(&Event)) {
    let events = Arc::clone(&log.state.lock().log);
    events.push(event, 0);
    log.push(event, write);
}

/// Pushes events, and returns the numbers of those that the client follows.
fn delivered(log: &NativeLog, events: impl IntoIterator<Item = Event>) -> Vec<u64> {
    let mut heard = Vec::new();
    for event in events {
        push(log, &event, |event| heard.push(event.seq));
    }
    heard
}

#[test]
fn new_session_drops_previous_events() {
    let log = log_of(5);
    log.begin(Arc::new(EventLog::after(2)));
    let follow_after = |after| follow(&json!({ "after": after }));
    let stale = log.follow(follow_after(1), |_, _| unreachable!("it is stale"));
    assert_eq!(stale.unwrap_err().oldest, 3);
    log.follow(follow_after(2), |followed, events| {
        assert_eq!((followed.events, events.len()), (2, 0));
    })
    .unwrap();
}

/// The session's own log is a step ahead while an event is delivered.
#[test]
fn replay_ends_with_the_last_event_that_was_pushed() {
    let log = log_of(2);
    log.state.lock().log.push(&text(3, "x"), 0);
    log.follow(follow(&json!({ "after": 0 })), |followed, events| {
        assert_eq!((followed.events, numbers(&events)), (2, vec![1, 2]));
    })
    .unwrap();
    let mut heard = Vec::new();
    log.push(&text(3, "x"), |event| heard.push(event.seq));
    assert_eq!(heard, [3]);
}

#[test]
fn without_follow_all_events_are_delivered() {
    let log = log_of(0);
    assert_eq!(delivered(&log, [text(1, "x"), warning(2)]), [1, 2]);
}

#[test]
fn only_followed_kinds_are_delivered() {
    let log = log_of(0);
    let only = follow(&json!({ "type": "follow", "only": ["warning"] }));
    log.follow(only, |_, events| assert!(events.is_empty()))
        .unwrap();
    assert_eq!(
        delivered(&log, [text(1, "x"), warning(2), text(3, "x")]),
        [2]
    );

    // Events that the client did not follow are kept all the same.
    let mut again = None;
    let rest = follow(&json!({ "type": "follow", "after": 0, "only": ["text_delta"] }));
    log.follow(rest, |followed, events| {
        again = Some((followed.events, numbers(&events)));
    })
    .unwrap();
    assert_eq!(again, Some((3, vec![1, 3])));
    assert_eq!(delivered(&log, [text(4, "x"), warning(5)]), [4]);

    log.follow(FollowRequest::default(), |_, events| {
        assert!(events.is_empty())
    })
    .unwrap();
    assert_eq!(delivered(&log, [text(6, "x"), warning(7)]), [6, 7]);
}

#[test]
fn a_follow_that_is_refused_changes_nothing() {
    let log = log_of(3);
    let refused = follow(&json!({ "after": 9, "only": ["warning"] }));
    let told = log.follow(refused, |_, _| unreachable!("it is refused"));
    assert!(told.is_err());
    assert_eq!(delivered(&log, [text(4, "x")]), [4]);
}

#[test]
fn follow_and_replay_are_atomic() {
    let log = log_of(2);
    // Every other producer waits for the same lock.
    let others_wait = || log.state.try_lock().is_none();
    let (mut while_followed, mut while_pushed) = (false, false);
    log.follow(follow(&json!({ "after": 0 })), |_, _| {
        while_followed = others_wait()
    })
    .unwrap();
    push(&log, &text(3, "x"), |_| while_pushed = others_wait());
    assert!(while_followed && while_pushed);
}

#[test]
fn invalid_follow_error_names_the_problem() {
    let table = [
        (
            json!({ "only": ["text_delta", "texts"] }),
            "unknown_kind",
            "`texts`",
        ),
        (json!({ "after": -1 }), "invalid_command", "-1"),
        (json!({ "after": "7" }), "invalid_command", "\"7\""),
        (json!({ "only": "warning" }), "invalid_command", "sequence"),
    ];
    for (command, code, word) in table {
        let error = FollowRequest::parse(&command).unwrap_err();
        assert_eq!((error.code(), error.oldest()), (code, None), "{command}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let beyond = follow(&json!({ "after": 6 }));
    let stale = log_of(5).follow(beyond, |_, _| unreachable!("it is refused"));
    let stale = FollowError::from(stale.unwrap_err());
    assert_eq!((stale.code(), stale.oldest()), ("stale", Some(1)));
}

#[test]
fn unknown_follow_fields_are_ignored() {
    let command = json!({ "id": "7", "type": "follow", "after": 3, "only": null, "new": true });
    let known = FollowRequest {
        after: Some(3),
        only: None,
    };
    assert_eq!(follow(&command), known);
}
