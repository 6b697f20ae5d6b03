//! `outlast rpc --mode native`: unchanged events with numbers and absolute times, repeated on request.

use crate::rpc_driver::{Rpc, with_long_waits, word};
use crate::support::Outlast;
use serde_json::{Value, json};

fn native(outlast: &Outlast, model: &str) -> Rpc {
    Rpc::with(outlast, &["--mode", "native", "--model", model])
}

/// Returns the events, without replies and completions.
fn events(rpc: &Rpc) -> Vec<Value> {
    let frames = rpc.frames().iter();
    frames.filter(|it| it["seq"].is_u64()).cloned().collect()
}

fn numbers(events: &[Value]) -> Vec<u64> {
    let numbers = events.iter().map(|event| event["seq"].as_u64());
    numbers.map(Option::unwrap).collect()
}

fn prompt(rpc: &mut Rpc, message: &str) {
    rpc.data(json!({ "type": "prompt", "message": message }));
    rpc.event("settled");
}

#[test]
fn events_have_gapless_numbers_and_absolute_times() {
    let outlast = Outlast::new();
    let mut rpc = native(&outlast, "error:503,times=2+ok:text,times=always");
    prompt(&mut rpc, "one");
    rpc.data(json!({ "type": "set_session_name", "name": "n" }));
    rpc.data(json!({ "type": "follow_up", "message": "later" }));
    prompt(&mut rpc, "two");
    let events = events(&rpc);
    let expected: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(numbers(&events), expected);
    let session = word(&rpc.get("get_state")["sessionId"]);
    let mut last = jiff::Timestamp::MIN;
    for event in &events {
        assert_eq!(
            (&event["v"], &event["session_id"]),
            (&json!(1), &json!(session))
        );
        let time: jiff::Timestamp = word(&event["time"]).parse().unwrap();
        assert!(time >= last, "{event}");
        last = time;
    }
    let retries = events.iter().filter(|it| it["type"] == "retry_scheduled");
    let times: Vec<(Value, u64)> = retries
        .map(|it| {
            let (at, delay) = (word(&it["retry_at"]), it["delay_ms"].as_u64().unwrap());
            let at: jiff::Timestamp = at.parse().unwrap();
            let scheduled: jiff::Timestamp = word(&it["time"]).parse().unwrap();
            let wait = at.as_millisecond() - scheduled.as_millisecond();
            assert!(wait.unsigned_abs().abs_diff(delay) <= 1000, "{it}");
            (it["attempt"].clone(), delay)
        })
        .collect();
    assert_eq!(times, [(json!(1), 2000), (json!(2), 4000)]);
    assert_eq!(rpc.count("settled"), 2);
    let kinds = ["renamed", "queue_changed", "sealed"].map(|kind| rpc.count(kind) > 0);
    assert_eq!(kinds, [true; 3]);
}

#[test]
fn snapshot_shows_retry_and_follow_replays_later_events() {
    let outlast = with_long_waits();
    let mut rpc = native(&outlast, "error:503,times=1+ok:text,times=always");
    rpc.data(json!({ "type": "prompt", "message": "one" }));
    let scheduled = rpc.event("retry_scheduled");
    let snapshot = rpc.get("snapshot");
    assert_eq!(snapshot["events"], scheduled["seq"]);
    let retry = &snapshot["retry"];
    let expected = json!({
        "attempt": 1, "max_attempts": 3, "cause": "overloaded", "message": scheduled["message"],
        "wake_at": scheduled["retry_at"],
    });
    assert_eq!(*retry, expected);
    assert_eq!(snapshot["turn_id"], scheduled["turn_id"]);
    rpc.get("retry_now");
    rpc.event("settled");
    let all = events(&rpc);
    let after = snapshot["events"].as_u64().unwrap();
    rpc.forget();
    let followed = rpc.data(json!({ "type": "follow", "after": after }));
    let newest = all.last().unwrap()["seq"].clone();
    assert_eq!(followed["events"], newest);
    rpc.wait("last event again", |it| it["seq"] == newest);
    let again = events(&rpc)[all.len()..].to_vec();
    let expected: Vec<Value> = all
        .into_iter()
        .filter(|it| it["seq"].as_u64() > Some(after))
        .collect();
    assert_eq!(again, expected);
    assert_eq!(rpc.get("snapshot").get("retry"), None);
}

#[test]
fn follow_only_filters_events_but_not_settled() {
    let outlast = Outlast::new();
    let mut rpc = native(&outlast, "error:503,times=1+ok:text,times=always");
    rpc.data(json!({ "type": "follow", "only": ["retry_scheduled", "sealed"] }));
    prompt(&mut rpc, "one");
    let events_of_one = events(&rpc);
    let kinds: Vec<String> = events_of_one.iter().map(|it| word(&it["type"])).collect();
    assert_eq!(kinds, ["retry_scheduled", "sealed"]);
    let refused = rpc.ask(json!({ "type": "follow", "only": ["nonsense"] }));
    assert_eq!(
        (&refused["success"], &refused["code"]),
        (&json!(false), &json!("unknown_kind"))
    );
    rpc.data(json!({ "type": "follow" }));
    prompt(&mut rpc, "two");
    let numbers = numbers(&events(&rpc)[2..]);
    let first = numbers[0];
    let expected: Vec<u64> = (first..first + numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "from there on all are said");
}

#[test]
fn follow_from_evicted_event_fails_with_oldest_number() {
    let outlast = Outlast::new();
    let mut rpc = native(&outlast, "ok:long,times=always");
    prompt(&mut rpc, "one");
    prompt(&mut rpc, "two");
    let stale = rpc.ask(json!({ "type": "follow", "after": 1 }));
    assert_eq!(
        (&stale["success"], &stale["code"]),
        (&json!(false), &json!("stale"))
    );
    let oldest = stale["oldest"].as_u64().unwrap();
    assert!(oldest > 2, "{stale}");
    let followed = rpc.data(json!({ "type": "follow", "after": oldest - 1 }));
    rpc.forget();
    let newest = followed["events"].clone();
    let first = rpc.wait("oldest event", |it| it["seq"].is_u64());
    assert_eq!(first["seq"], oldest);
    rpc.wait("newest event", |it| it["seq"] == newest);
    let future = rpc.ask(json!({ "type": "follow", "after": 1_000_000 }));
    assert_eq!(future["code"], "stale");
}

#[test]
fn new_session_numbers_events_from_one() {
    let outlast = Outlast::new();
    let mut rpc = native(&outlast, "ok:text,times=always");
    prompt(&mut rpc, "one");
    rpc.get("new_session");
    let before = events(&rpc).len();
    prompt(&mut rpc, "two");
    let after = events(&rpc)[before..].to_vec();
    assert_eq!(after[0]["seq"], 1);
    assert_ne!(after[0]["session_id"], events(&rpc)[0]["session_id"]);
}

#[test]
fn snapshot_and_follow_are_refused_outside_native_mode() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok");
    for name in ["snapshot", "follow"] {
        let refused = rpc.ask(json!({ "type": name }));
        assert_eq!(refused["success"], false);
        assert!(word(&refused["error"]).contains("native"), "{refused}");
    }
}
