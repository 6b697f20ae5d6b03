//! The native event log: its contents, how long it keeps them, and the events that a client gets.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use super::{FollowRequest, NativeLog, StaleCursor};
use crate::native::FollowError;
use crate::native::event_buffer::{MAX_BYTES, MAX_EVENTS};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, VERSION};
use serde_json::json;

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
    log.begin("session", 0);
    for seq in 1..=events {
        log.push(&text(seq, "x"), |_| ());
    }
    log
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

fn follow(command: &serde_json::Value) -> FollowRequest {
    FollowRequest::parse(command).unwrap()
}

/// Pushes events, and returns the numbers of those that the client follows.
fn delivered(log: &NativeLog, events: impl IntoIterator<Item = Event>) -> Vec<u64> {
    let mut heard = Vec::new();
    for event in events {
        log.push(&event, |event| heard.push(event.seq));
    }
    heard
}

#[test]
fn events_after_cursor_are_returned_in_order() {
    let log = log_of(5);
    assert_eq!(numbers(&log.since(0).unwrap()), [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&log.since(3).unwrap()), [4, 5]);
    assert_eq!(numbers(&log.since(5).unwrap()), [] as [u64; 0]);
}

#[test]
fn stale_cursor_is_refused_with_oldest_kept() {
    let more = u64::try_from(MAX_EVENTS).unwrap() + 10;
    let log = log_of(more);
    let stale = StaleCursor {
        after: 9,
        oldest: 11,
        newest: more,
    };
    assert_eq!(log.since(9), Err(stale));
    let kept = log.since(10).unwrap();
    assert_eq!(kept.len(), MAX_EVENTS);
    assert_eq!(kept[0].seq, 11);
}

#[test]
fn event_log_is_bounded_by_bytes() {
    let log = log_of(0);
    let megabyte = "x".repeat(1 << 20);
    for seq in 1..=10 {
        log.push(&text(seq, &megabyte), |_| ());
    }
    // Four of them and their numbers are a little more than that; the longest is not counted.
    let oldest = log.since(0).unwrap_err().oldest;
    assert_eq!((oldest, MAX_BYTES), (7, 4 << 20));
    assert_eq!(numbers(&log.since(6).unwrap()), [7, 8, 9, 10]);
}

#[test]
fn oversized_event_evicts_neither_itself_nor_earlier_ones() {
    let log = log_of(2);
    let large = |seq| text(seq, &"x".repeat(MAX_BYTES));
    assert_eq!(delivered(&log, [large(3), text(4, "x")]), [3, 4]);
    assert_eq!(numbers(&log.since(1).unwrap()), [2, 3, 4]);
    // The next long event drives out the first one.
    assert_eq!(delivered(&log, [large(5)]), [5]);
    assert_eq!(log.since(2).unwrap_err().oldest, 4);
    assert_eq!(numbers(&log.since(3).unwrap()), [4, 5]);
}

#[test]
fn cursor_beyond_newest_event_is_refused() {
    // A process that resumes a session counts from 1 again: a number from before means nothing to it.
    let stale = log_of(5).since(6).unwrap_err();
    assert_eq!((stale.oldest, stale.newest), (1, 5));
    assert!(log_of(0).since(1).is_err());
    assert!(log_of(0).since(u64::MAX).is_err());
}

#[test]
fn new_session_drops_previous_events() {
    let log = log_of(5);
    log.begin("another", 2);
    assert_eq!(log.since(1).unwrap_err().oldest, 3);
    assert!(log.since(2).unwrap().is_empty());

    // The same holds without `begin`, even if the number would fit.
    let log = log_of(5);
    let first = Event {
        session_id: "another".to_owned(),
        ..text(6, "x")
    };
    log.push(&first, |_| ());
    assert_eq!(numbers(&log.since(5).unwrap()), [6]);
    assert!(log.since(4).is_err());
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
    log.push(&text(3, "x"), |_| while_pushed = others_wait());
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
    let stale = FollowError::from(log_of(5).since(6).unwrap_err());
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
