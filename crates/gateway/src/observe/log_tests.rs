//! Tests of the written events, and of reporting without waiting.

use super::sample::record;
use super::*;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, mpsc};

#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SharedBuffer {
    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn at() -> Timestamp {
    Timestamp::from_millis(1_794_715_200_123)
}

fn written_lines(lowest: Level, all: &[EventKind<'_>]) -> Vec<Value> {
    let paper = SharedBuffer::default();
    let sink = LineSink::new(paper.clone(), lowest, super::json).unwrap();
    for what in all {
        sink.emit(&Event {
            at: at(),
            request: Some(RequestRef {
                id: "r-1",
                ..RequestRef::default()
            }),
            kind: *what,
        });
    }
    drop(sink);
    paper.lines()
}

fn one_of_each<'a>(record: &'a Record<'a>) -> [EventKind<'a>; 8] {
    [
        EventKind::Listening {
            address: "127.0.0.1:8080".parse().unwrap(),
            version: "0.1.0",
        },
        EventKind::AttemptFailed {
            cause: Cause::Overloaded,
            attempt: 1,
            status: Some(529),
            account: None,
            message: "Overloaded",
        },
        EventKind::Waiting {
            cause: Cause::Overloaded,
            attempt: 1,
            reason: WaitReason::Schedule,
            wake: Some(at() + Duration::from_secs(5)),
        },
        EventKind::Resumed {
            attempts: 4,
            resent: 1,
            since: at(),
        },
        EventKind::Finished(record),
        EventKind::Refused {
            status: 403,
            kind: "unknown_host",
            message: "no",
        },
        EventKind::Reload { problem: None },
        EventKind::Drain {
            in_flight: 3,
            held: 2,
        },
    ]
}

#[test]
fn log_line_has_time_level_event_and_request() {
    let record = record();
    let lines = written_lines(Level::Info, &one_of_each(&record));
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["event"].as_str().unwrap(),
                line["level"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("listening", "info"),
            ("attempt_failed", "warn"),
            ("waiting", "warn"),
            ("resumed", "info"),
            ("finished", "info"),
            ("refused", "warn"),
            ("reload", "info"),
            ("drain", "info"),
        ]
    );
    for line in &lines {
        assert_eq!(line["time"], "2026-11-15T04:00:00.123Z");
        assert_eq!(line["request"], "r-1");
    }
    assert_eq!(lines[2]["wake"], "2026-11-15T04:00:05.123Z");
    // The old name of a renamed event stands beside the new one.
    let formerly: Vec<_> = lines.iter().map(|line| line["formerly"].as_str()).collect();
    let renamed = [None, None, None, Some("taken_up"), None, None, None, None];
    assert_eq!(formerly, renamed);
}

#[test]
fn finished_event_logs_all_fields_but_query() {
    let record = record();
    let lines = written_lines(Level::Info, &[EventKind::Finished(&record)]);
    assert_eq!(
        lines[0],
        json!({
            "time": "2026-11-15T04:00:00.123Z", "level": "info", "request": "r-1", "event": "finished",
            "client": "claude-code", "dialect": "anthropic", "model": "claude-opus-5", "account": "work",
            "method": "POST", "path": "/v1/messages", "status": 200, "attempts": 3, "waited_ms": 15_000,
            "duration_ms": 21_500, "first_byte_ms": 16_250, "bytes_in": 4096, "bytes_out": 12_345,
            "outcome": "answered",
        })
    );
}

#[test]
fn untrusted_log_text_is_sanitized_and_bounded() {
    let message = format!(
        "\u{1b}[31mIncorrect API key provided: sk-proj-abcdefghijklmnop1234\n{}",
        "x".repeat(1_000_000)
    );
    let lines = written_lines(
        Level::Info,
        &[EventKind::AttemptFailed {
            cause: Cause::Auth,
            attempt: 1,
            status: Some(401),
            account: Some("a\u{1b}[2Jb"),
            message: &message,
        }],
    );
    assert_eq!(lines.len(), 1, "a line break within stays within");
    let kept = lines[0]["message"].as_str().unwrap();
    assert!(
        kept.starts_with("Incorrect API key provided: [secret]\nxxx"),
        "{kept}"
    );
    assert!(kept.len() <= TEXT_LIMIT);
    assert_eq!(lines[0]["account"], "ab");
}

#[test]
fn log_level_follows_request_outcome() {
    let levels: Vec<_> = sample::OUTCOMES
        .into_iter()
        .map(|outcome| Record {
            outcome,
            ..record()
        })
        .map(|record| (record.outcome, EventKind::Finished(&record).level()))
        .collect();
    let worse = |level| {
        let at_level = levels.iter().filter(|(_, found)| *found == Some(level));
        at_level.map(|(outcome, _)| *outcome).collect::<Vec<_>>()
    };
    assert_eq!(worse(Level::Error), [Outcome::Failed, Outcome::Broken]);
    assert_eq!(worse(Level::Warn), [Outcome::SentBack]);
    let broken = Some("outlast.toml:3: no such setting");
    assert_eq!(
        EventKind::Reload { problem: broken }.level(),
        Some(Level::Error)
    );
}

#[test]
fn events_below_the_wanted_level_are_not_written() {
    let record = record();
    let quiet = EventKind::Finished(&record);
    let loud = EventKind::Refused {
        status: 403,
        kind: "cross_site",
        message: "no",
    };
    let lines = written_lines(Level::Warn, &[quiet, loud, quiet]);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["kind"], "cross_site");
}

#[test]
fn outcome_names_match_their_json() {
    for outcome in sample::OUTCOMES {
        assert_eq!(json!(outcome), outcome.as_str());
    }
}

/// A writer that blocks until it is released, like a pipe that nobody reads.
struct BlockedWriter(mpsc::Receiver<()>, SharedBuffer);

impl Write for BlockedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.recv().ok();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn blocked_log_writer_drops_events_without_waiting() {
    let (release_token, wait) = mpsc::channel();
    let paper = SharedBuffer::default();
    let sink = LineSink::new(BlockedWriter(wait, paper.clone()), Level::Info, super::json).unwrap();
    let event = Event {
        at: at(),
        request: None,
        kind: EventKind::Reload { problem: None },
    };
    // More than twice the lines that can wait, and those that the writer may have taken already.
    let mut said: u64 = 100_000;
    for _ in 0..said {
        sink.emit(&event);
    }
    drop(release_token);
    // Once there is room again, the number of dropped events is reported; some may have been before, if the writer began late.
    let reported = |lines: &[Value]| {
        let lines = lines.iter();
        let dropped = lines.filter(|line| line["event"] == "events_dropped");
        dropped.filter_map(|line| line["events"].as_u64()).sum()
    };
    let most = said / 2;
    while { reported(&paper.lines()) } <= most {
        sink.emit(&event);
        said += 1;
        std::thread::yield_now();
    }
    drop(sink);
    let lines = paper.lines();
    let dropped: u64 = reported(&lines);
    let kept = lines
        .iter()
        .filter(|line| line["event"] == "reload")
        .count();
    assert_eq!(dropped + u64::try_from(kept).unwrap(), said);
}

/// A pipe whose reader is gone.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn closed_log_writer_is_ignored() {
    let sink = LineSink::new(Closed, Level::Info, super::json).unwrap();
    for _ in 0..1000 {
        sink.emit(&Event {
            at: at(),
            request: None,
            kind: EventKind::Reload { problem: None },
        });
    }
    drop(sink);
}
