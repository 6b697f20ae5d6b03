//! Tests of the request log: its content and its bounds.

use super::*;
use crate::observe::log::sample::record;
use crate::observe::log::{Record, WaitReason};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const START: Timestamp = Timestamp::from_millis(1_794_715_200_000);

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Tells about a request that arrives; returns it as its events name it.
fn start(traffic: &RequestLog, id: &str) -> RequestRef<'static> {
    start_with(traffic, id, "gpt-5.1", "/v1/responses?key=0123456789abcdef")
}

fn start_with(traffic: &RequestLog, id: &str, model: &str, path: &str) -> RequestRef<'static> {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let request = RequestRef {
        key: KEYS.fetch_add(1, Ordering::Relaxed),
        id,
        client: "codex",
        dialect: (!model.is_empty()).then_some(Dialect::OpenaiResponses),
    };
    let received = EventKind::Received {
        model,
        path,
        is_resent: false,
    };
    tell(traffic, request, START, received);
    RequestRef { id: "", ..request }
}

fn tell(traffic: &RequestLog, request: RequestRef<'_>, at: Timestamp, kind: EventKind<'_>) {
    let request = Some(request);
    traffic.emit(&Event { at, request, kind });
}

fn begin_attempt(traffic: &RequestLog, request: RequestRef<'_>, attempt: u32, at: Timestamp) {
    let body_bytes = 1;
    let kind = EventKind::AttemptStarted {
        attempt,
        body_bytes,
    };
    tell(traffic, request, at, kind);
}

fn failed(attempt: u32, message: &str) -> EventKind<'_> {
    EventKind::AttemptFailed {
        cause: Cause::Overloaded,
        attempt,
        status: Some(529),
        account: Some("work"),
        message,
    }
}

fn waits(attempt: u32, wake: u64) -> EventKind<'static> {
    EventKind::Waiting {
        cause: Cause::Overloaded,
        attempt,
        reason: WaitReason::Schedule,
        wake: Some(at(wake)),
    }
}

fn ended(outcome: Outcome) -> Record<'static> {
    Record {
        outcome,
        ..record()
    }
}

fn shown(changes: &Changes) -> Vec<Value> {
    let mut requests = serde_json::to_value(&changes.requests).unwrap();
    let requests = requests.as_array_mut().unwrap();
    for request in &mut *requests {
        // A test of its own covers the numbering.
        request.as_object_mut().unwrap().remove("seq").unwrap();
    }
    requests.clone()
}

/// Returns the size of all requests in bytes, computed from scratch.
fn weighed(traffic: &RequestLog) -> usize {
    let ring = traffic.0.lock();
    let bytes = ring.requests.values().map(|one| one.size()).sum();
    assert_eq!(ring.bytes, bytes);
    assert!(
        ring.finished
            .iter()
            .all(|ticket| ring.requests.contains_key(ticket))
    );
    bytes
}

#[test]
fn request_log_records_all_attempts_and_outcome() {
    let traffic = RequestLog::new(START);
    let ticket = start(&traffic, "r-1");
    tell(&traffic, ticket, at(0), waits(0, 1));
    begin_attempt(&traffic, ticket, 1, at(1));
    tell(&traffic, ticket, at(2), failed(1, "Overloaded"));
    tell(&traffic, ticket, at(2), waits(1, 9));
    let moved = EventKind::WaitMoved {
        cause: Cause::Overloaded,
        attempt: 1,
        wake: Some(at(7)),
    };
    tell(&traffic, ticket, at(3), moved);
    begin_attempt(&traffic, ticket, 2, at(7));
    tell(&traffic, ticket, at(9), EventKind::Finished(&record()));
    let expected = json!([{
        "id": "r-1", "client": "codex", "dialect": "openai-responses", "model": "gpt-5.1", "account": "work",
        "path": "/v1/responses", "begun": at(0), "ended": at(9), "outcome": "answered", "status": 200,
        "attempts": [
            { "attempt": 0, "cause": "overloaded", "wake": at(1) },
            {
                "attempt": 1, "began": at(1), "failed_at": at(2), "cause": "overloaded", "status": 529,
                "message": "Overloaded", "wake": at(7),
            },
            { "attempt": 2, "began": at(7) },
        ],
    }]);
    assert_eq!(json!(shown(&traffic.changes_since(0, at(9)))), expected);
}

#[test]
fn unknown_fields_are_omitted_and_resends_shown() {
    let traffic = RequestLog::new(START);
    let ticket = start_with(&traffic, "r-1", "", "/v1/files");
    let taken_up = EventKind::Resumed {
        attempts: 4,
        resent: 2,
        since: at(0),
    };
    tell(&traffic, ticket, at(5), taken_up);
    let expected = json!([{
        "id": "r-1", "client": "codex", "path": "/v1/files", "begun": at(0),
        "resent": 2, "since": at(0), "attempts": [],
    }]);
    assert_eq!(json!(shown(&traffic.changes_since(0, at(9)))), expected);
}

#[test]
fn broken_response_marks_its_attempt_failed() {
    let traffic = RequestLog::new(START);
    let end = |outcome| {
        let ticket = start(&traffic, "r-1");
        begin_attempt(&traffic, ticket, 1, at(1));
        let cause = Some(Cause::TruncatedStream);
        let record = Record {
            cause,
            ..ended(outcome)
        };
        tell(&traffic, ticket, at(4), EventKind::Finished(&record));
        let changes = traffic.changes_since(0, at(9));
        changes.requests.last().unwrap().attempts[0].clone()
    };
    let broken = end(Outcome::Broken);
    assert_eq!(broken.failed_at, Some(at(4)));
    assert_eq!(broken.cause, Some(Cause::TruncatedStream));
    // A client that leaves says nothing about the attempt.
    assert_eq!(end(Outcome::Left).failed_at, None);
}

#[test]
fn changes_since_returns_each_change_once() {
    let traffic = RequestLog::new(START);
    let first = start(&traffic, "r-1");
    let second = start(&traffic, "r-2");
    let ids = |changes: &Changes| -> Vec<String> {
        changes
            .requests
            .iter()
            .map(|one| one.id.to_string())
            .collect()
    };
    let all = traffic.changes_since(0, at(0));
    assert_eq!(ids(&all), ["r-1", "r-2"]);
    assert_eq!(all.seq, all.requests[1].seq);
    assert_eq!(traffic.changes_since(all.seq, at(0)).requests, []);
    tell(&traffic, first, at(1), failed(1, "no"));
    let changed = traffic.changes_since(all.seq, at(1));
    assert_eq!(ids(&changed), ["r-1"]);
    assert!(changed.seq > all.seq);
    begin_attempt(&traffic, second, 1, at(2));
    begin_attempt(&traffic, first, 2, at(3));
    assert_eq!(ids(&traffic.changes_since(all.seq, at(3))), ["r-2", "r-1"]);
    assert_eq!(
        ids(&traffic.changes_since(changed.seq, at(3))),
        ["r-2", "r-1"]
    );
    // Higher numbers come from another gateway.
    assert_eq!(ids(&traffic.changes_since(u64::MAX, at(3))), ["r-2", "r-1"]);
    let next = RequestLog::new(at(60));
    start(&next, "r-3");
    assert_eq!(ids(&next.changes_since(changed.seq, at(60))), ["r-3"]);
}

#[test]
fn request_log_keeps_first_and_last_attempts() {
    let traffic = RequestLog::new(START);
    let ticket = start(&traffic, "r-1");
    for attempt in 1..=100 {
        begin_attempt(&traffic, ticket, attempt, at(1));
        tell(&traffic, ticket, at(2), failed(attempt, "no"));
    }
    let kept = &traffic.changes_since(0, at(2)).requests[0].attempts;
    let kept: Vec<u32> = kept.iter().map(|one| one.attempt).collect();
    let expected: Vec<u32> = (1..=8).chain(77..=100).collect();
    assert_eq!(kept, expected);
    weighed(&traffic);
}

#[test]
fn untrusted_request_text_is_sanitized_and_cut() {
    let traffic = RequestLog::new(START);
    let long = "x".repeat(5000);
    let ticket = start_with(&traffic, "r-1", &long, &long);
    let said = format!("\u{1b}[31mbearer {} {long}", "0123456789abcdef");
    tell(&traffic, ticket, at(1), failed(1, &said));
    let request = &traffic.changes_since(0, at(1)).requests[0];
    let message = request.attempts[0].message.as_deref().unwrap();
    assert!(message.starts_with("bearer [secret] xxx"), "{message}");
    let texts = [message, &request.path, request.model.as_deref().unwrap()];
    for text in texts {
        assert!((500..=512).contains(&text.len()), "{}", text.len());
    }
}

#[test]
fn finished_requests_are_evicted_first() {
    let traffic = RequestLog::new(START);
    let waits_long = start(&traffic, "waits");
    let over: Vec<RequestRef<'_>> = (1..=MAX_REQUESTS)
        .map(|number| {
            let ticket = start(&traffic, &format!("r-{number}"));
            tell(&traffic, ticket, at(1), EventKind::Finished(&record()));
            ticket
        })
        .collect();
    let kept = traffic.changes_since(0, at(1)).requests;
    assert_eq!(kept.len(), MAX_REQUESTS);
    assert_eq!((&*kept[0].id, &*kept[1].id), ("waits", "r-2"));
    // Events of a request that is gone are ignored.
    let before = traffic.changes_since(0, at(1));
    tell(&traffic, over[0], at(2), failed(1, "no"));
    tell(&traffic, over[0], at(2), EventKind::Finished(&record()));
    assert_eq!(traffic.changes_since(0, at(1)), before);
    weighed(&traffic);
    for number in 1..MAX_REQUESTS {
        start(&traffic, &format!("s-{number}"));
    }
    tell(&traffic, waits_long, at(3), failed(1, "no"));
    let kept = traffic.changes_since(0, at(3)).requests;
    assert!(kept.iter().all(|one| one.ended.is_none()));
    // If no request is over, the oldest makes room.
    start(&traffic, "last");
    let kept = traffic.changes_since(0, at(3)).requests;
    assert_eq!(kept.len(), MAX_REQUESTS);
    assert!(kept.iter().all(|one| &*one.id != "waits"));
    weighed(&traffic);
}

#[test]
fn request_log_memory_is_bounded_by_bytes() {
    let traffic = RequestLog::new(START);
    let message = "no".repeat(400);
    let mut most = 0;
    for number in 0..400 {
        let ticket = start(&traffic, &format!("r-{number}"));
        for attempt in 1..=34 {
            begin_attempt(&traffic, ticket, attempt, at(1));
            tell(&traffic, ticket, at(1), failed(attempt, &message));
            tell(&traffic, ticket, at(1), waits(attempt, 9));
        }
        if number % 20 == 19 {
            most = most.max(weighed(&traffic));
        }
    }
    assert!(most <= MAX_BYTES, "{most}");
    // The bound of bytes is the one that is reached here, and it is used.
    let kept = traffic.changes_since(0, at(1)).requests;
    assert!(most > MAX_BYTES / 2 && kept.len() < MAX_REQUESTS);
    assert_eq!(&*kept[kept.len() - 1].id, "r-399");
}
