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

fn journal_status(entries: u64) -> JournalStatus {
    let is_open_elsewhere = false;
    JournalStatus {
        entries,
        is_open_elsewhere,
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

fn push_all(record: &mut EventLog, bodies: impl IntoIterator<Item = (u32, Body)>) {
    for (attempt, body) in bodies {
        record.push(&event("t", attempt, body), 1);
    }
}

/// What is under way, in words.
fn live(record: &EventLog) -> Vec<String> {
    let live = record.snapshot().live;
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
    let mut record = EventLog::default();
    record.open(0, 0, false);
    push_all(&mut record, [(0, start()), (0, input("a")), (0, SEALED)]);
    assert_eq!(record.newest(), 3);
    record.close("s", Some(journal_status(5)));
    assert_eq!(record.since(3).unwrap(), []);
    assert!(record.since(2).is_err());
    record.open(1, 5, false);
    push_all(&mut record, [(0, start())]);
    let next: Vec<u64> = record
        .since(3)
        .unwrap()
        .iter()
        .map(|event| event.seq)
        .collect();
    assert_eq!(next, [4]);
}

#[test]
fn live_events_merge_deltas_and_omit_transient_ones() {
    let mut record = EventLog::default();
    record.open(0, 0, false);
    let attempt = Body::AttemptStarted { attempt: 1 };
    push_all(
        &mut record,
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
    assert_eq!(live(&record), expected);
    push_all(&mut record, [(1, SEALED)]);
    assert!(record.snapshot().live.is_none());
    assert_eq!(record.snapshot().persisted.turns, Some(1));
}

#[test]
fn snapshot_omits_retracted_text() {
    let mut record = EventLog::default();
    record.open(0, 0, false);
    push_all(
        &mut record,
        [
            (0, start()),
            (0, input("hi")),
            (1, text("half")),
            (1, Body::Retracted { attempt: 1 }),
            (2, text("whole")),
        ],
    );
    assert_eq!(live(&record), ["start", "input hi", "text whole"]);
}

#[test]
fn snapshot_shows_wait_until_it_is_resolved() {
    let mut record = EventLog::default();
    record.open(0, 0, false);
    push_all(&mut record, [(0, start()), (1, retry())]);
    assert_eq!(record.snapshot().wait.unwrap().body, retry());
    push_all(&mut record, [(2, Body::AttemptStarted { attempt: 2 })]);
    assert!(record.snapshot().wait.is_some(), "the retry is under way");
    push_all(&mut record, [(2, text("a"))]);
    assert!(record.snapshot().wait.is_none());
    let held = Body::Held {
        until: Timestamp::from_millis(1_800_000_005_000),
        cause: None,
    };
    push_all(&mut record, [(2, held)]);
    assert!(record.snapshot().wait.is_some());
    push_all(&mut record, [(3, Body::AttemptStarted { attempt: 3 })]);
    assert!(record.snapshot().wait.is_none(), "it was let through");
}

/// A turn that is carried on says again what it is about, which is told from what is written down.
#[test]
fn replayed_events_of_resumed_turn_are_omitted() {
    let mut record = EventLog::default();
    record.open(1, 9, true);
    let call = Body::ToolCall(ToolCall::default());
    push_all(
        &mut record,
        [(0, start()), (0, input("hi")), (0, call.clone())],
    );
    assert_eq!(record.newest(), 0);
    assert!(record.snapshot().live.unwrap().is_resumed);
    let result = Body::ToolResult {
        id: String::new(),
        output: String::new(),
        is_error: false,
    };
    push_all(&mut record, [(0, result), (1, call)]);
    assert_eq!(live(&record), ["tool_result", "tool_call"]);
    push_all(&mut record, [(1, SEALED), (0, start()), (0, input("next"))]);
    assert_eq!(live(&record), ["start", "input next"]);
    assert!(!record.snapshot().live.unwrap().is_resumed);
}

#[test]
fn external_journal_change_makes_cursor_stale() {
    let mut record = EventLog::default();
    record.open(0, 0, false);
    push_all(&mut record, [(0, start()), (0, SEALED)]);
    record.close("s", Some(journal_status(5)));
    assert!(!record.update_journal_status("s", journal_status(5)));
    assert_eq!(record.since(2).unwrap(), []);
    assert!(record.update_journal_status("s", journal_status(6)));
    assert!(record.since(2).is_err());
    assert_eq!(record.since(record.newest()).unwrap(), []);
    assert!(!record.update_journal_status("s", journal_status(6)));
    // So does one that comes, and one that leaves.
    for is_open_elsewhere in [true, false] {
        let newest = record.newest();
        assert!(record.update_journal_status(
            "s",
            JournalStatus {
                is_open_elsewhere,
                ..journal_status(6)
            }
        ));
        assert!(record.since(newest).is_err());
        assert!(!record.update_journal_status(
            "s",
            JournalStatus {
                is_open_elsewhere,
                ..journal_status(6)
            }
        ));
    }
}
