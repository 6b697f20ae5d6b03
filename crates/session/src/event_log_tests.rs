#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use super::*;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{ToolCall, TurnStatus, VERSION};
use outlast_kernel::verdict::Cause;

fn event(turn: &str, attempt: u32, body: Body) -> Event {
    Event {
        v: VERSION,
        // The session's own number, which starts anew whenever it is opened.
        seq: 1,
        time: Timestamp::from_millis(1_800_000_000_000),
        session_id: "s".to_owned(),
        turn_id: turn.to_owned(),
        attempt_id: (attempt > 0).then(|| format!("{turn}.{attempt}")),
        body,
    }
}

fn start() -> Body {
    Body::Start {
        provider: "p".to_owned(),
        model: "m".to_owned(),
    }
}

fn input(text: &str) -> Body {
    let text = text.to_owned();
    Body::Input { text }
}

fn text(text: &str) -> Body {
    let text = text.to_owned();
    Body::TextDelta { text }
}

fn retry() -> Body {
    Body::RetryScheduled {
        attempt: 1,
        max_attempts: None,
        delay_ms: 5000,
        retry_at: Timestamp::from_millis(1_800_000_005_000),
        cause: Cause::Overloaded,
        message: "Overloaded".to_owned(),
        code: None,
    }
}

const SEALED: Body = Body::Sealed {
    status: TurnStatus::Completed,
};

fn push_all(log: &EventLog, bodies: impl IntoIterator<Item = (u32, Body)>) {
    for (attempt, body) in bodies {
        log.push(&event("t", attempt, body), 1);
    }
}

/// Describes the live turn in words.
fn live(log: &EventLog) -> Vec<String> {
    let live = log.snapshot().live;
    let said = |event: Event| match event.body {
        Body::TextDelta { text } => format!("text {text}"),
        Body::Input { text } => format!("input {text}"),
        body => body.kind().to_owned(),
    };
    let events = live.map(|live| live.events).unwrap_or_default();
    events.into_iter().map(said).collect()
}

#[test]
fn event_numbers_continue_after_reopen() {
    let log = EventLog::default();
    log.open(0, 0, false);
    push_all(&log, [(0, start()), (0, input("a")), (0, SEALED)]);
    assert_eq!(log.newest(), 3);
    log.close();
    assert_eq!(log.since(3, 9).unwrap(), []);
    assert!(log.since(2, 9).is_err());
    log.open(1, 5, false);
    push_all(&log, [(0, start())]);
    let next: Vec<u64> = log
        .since(3, 9)
        .unwrap()
        .iter()
        .map(|event| event.seq)
        .collect();
    assert_eq!(next, [4]);
}

#[test]
fn live_events_merge_deltas_and_omit_transient_ones() {
    let log = EventLog::default();
    log.open(0, 0, false);
    let attempt = Body::AttemptStarted { attempt: 1 };
    push_all(
        &log,
        [
            (0, start()),
            (0, input("hi")),
            (1, attempt),
            (1, text("a")),
            (1, text("b")),
            (
                1,
                Body::Warning {
                    message: "w".to_owned(),
                },
            ),
            (1, text("c")),
        ],
    );
    let expected = ["start", "input hi", "text ab", "warning", "text c"];
    assert_eq!(live(&log), expected);
    push_all(&log, [(1, SEALED)]);
    assert!(log.snapshot().live.is_none());
    assert_eq!(log.snapshot().persisted.turns, Some(1));
}

#[test]
fn snapshot_omits_retracted_text() {
    let log = EventLog::default();
    log.open(0, 0, false);
    push_all(
        &log,
        [
            (0, start()),
            (0, input("hi")),
            (1, text("half")),
            (1, Body::Retracted { attempt: 1 }),
            (2, text("whole")),
        ],
    );
    assert_eq!(live(&log), ["start", "input hi", "text whole"]);
}

#[test]
fn snapshot_shows_wait_until_it_is_resolved() {
    let log = EventLog::default();
    log.open(0, 0, false);
    push_all(&log, [(0, start()), (1, retry())]);
    assert_eq!(log.snapshot().wait.unwrap().body, retry());
    push_all(&log, [(2, Body::AttemptStarted { attempt: 2 })]);
    assert!(log.snapshot().wait.is_some(), "the retry is under way");
    push_all(&log, [(2, text("a"))]);
    assert!(log.snapshot().wait.is_none());
    let held = Body::Held {
        until: Timestamp::from_millis(1_800_000_005_000),
        cause: None,
    };
    push_all(&log, [(2, held)]);
    assert!(log.snapshot().wait.is_some());
    push_all(&log, [(3, Body::AttemptStarted { attempt: 3 })]);
    assert!(log.snapshot().wait.is_none(), "it was let through");
}

/// A turn that is carried on says again what it is about, which is told from what is written down.
#[test]
fn replayed_events_of_resumed_turn_are_omitted() {
    let log = EventLog::default();
    log.open(1, 9, true);
    let call = Body::ToolCall(ToolCall::default());
    push_all(&log, [(0, start()), (0, input("hi")), (0, call.clone())]);
    assert_eq!(log.newest(), 0);
    assert!(log.snapshot().live.unwrap().is_resumed);
    let result = Body::ToolResult {
        id: String::new(),
        output: String::new(),
        is_error: false,
    };
    push_all(&log, [(0, result), (1, call)]);
    assert_eq!(live(&log), ["tool_result", "tool_call"]);
    push_all(&log, [(1, SEALED), (0, start()), (0, input("next"))]);
    assert_eq!(live(&log), ["start", "input next"]);
    assert!(!log.snapshot().live.unwrap().is_resumed);
}

#[test]
fn invalidated_log_makes_cursor_stale() {
    let log = EventLog::default();
    log.open(0, 0, false);
    push_all(&log, [(0, start()), (0, SEALED)]);
    log.close();
    assert_eq!(log.since(2, 9).unwrap(), []);
    log.invalidate();
    assert!(log.since(2, 9).is_err());
    assert_eq!(log.since(log.newest(), 9).unwrap(), []);
}

// --- The stored events ---

fn push_text(log: &EventLog, part: &str) {
    log.push(&event("t", 1, text(part)), 0);
}

/// Creates a log with that many events.
fn log_of(events: usize) -> EventLog {
    let log = EventLog::default();
    (0..events).for_each(|_| push_text(&log, "x"));
    log
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

#[test]
fn events_after_cursor_are_returned_in_order() {
    let log = log_of(5);
    assert_eq!(numbers(&log.since(0, usize::MAX).unwrap()), [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&log.since(3, usize::MAX).unwrap()), [4, 5]);
    assert_eq!(numbers(&log.since(5, usize::MAX).unwrap()), [] as [u64; 0]);
}

#[test]
fn stale_cursor_is_refused_with_oldest_kept() {
    let log = log_of(MAX_EVENTS + 10);
    let more = log.newest();
    let stale = StaleCursor {
        after: 9,
        oldest: 11,
        newest: more,
    };
    assert_eq!(log.since(9, usize::MAX), Err(stale));
    let kept = log.since(10, usize::MAX).unwrap();
    assert_eq!(kept.len(), MAX_EVENTS);
    assert_eq!(kept[0].seq, 11);
}

#[test]
fn event_log_is_bounded_by_bytes() {
    let log = log_of(0);
    let megabyte = "x".repeat(1 << 20);
    for _ in 1..=10 {
        push_text(&log, &megabyte);
    }
    // Four of them and their numbers are a little more than that; the longest is not counted.
    let oldest = log.since(0, usize::MAX).unwrap_err().oldest;
    assert_eq!((oldest, MAX_BYTES), (7, 4 << 20));
    assert_eq!(numbers(&log.since(6, usize::MAX).unwrap()), [7, 8, 9, 10]);
}

#[test]
fn oversized_event_evicts_neither_itself_nor_earlier_ones() {
    let log = log_of(2);
    let large = "x".repeat(MAX_BYTES);
    push_text(&log, &large);
    push_text(&log, "x");
    assert_eq!(numbers(&log.since(1, usize::MAX).unwrap()), [2, 3, 4]);
    // The next long event drives out the first one.
    push_text(&log, &large);
    assert_eq!(log.since(2, usize::MAX).unwrap_err().oldest, 4);
    assert_eq!(numbers(&log.since(3, usize::MAX).unwrap()), [4, 5]);
}

#[test]
fn cursor_beyond_newest_event_is_refused() {
    // A process that resumes a session counts from 1 again: a number from before means nothing to it.
    let stale = log_of(5).since(6, usize::MAX).unwrap_err();
    assert_eq!((stale.oldest, stale.newest), (1, 5));
    assert!(log_of(0).since(1, usize::MAX).is_err());
    assert!(log_of(0).since(u64::MAX, usize::MAX).is_err());
}
