//! Turns over HTTP: the turn stream, and the commands for a turn.

use crate::rpc_driver::in_real_time;
use crate::serve_driver::{AN_HOUR, Serve, kinds, of_kind};
use crate::support::Outlast;
use serde_json::{Value, json};

const HELLO: &str = "Hello from the scripted provider: no network, no key, no cost. You said: hi";
const DOWN: &str = "error:503,times=always";

/// Starts a server whose first retry is an hour away, with a session whose turn waits.
fn waiting(model: &str) -> (Outlast, Serve, String) {
    let outlast = in_real_time();
    outlast.write("home/outlast.toml", AN_HOUR);
    let server = Serve::start(&outlast, model);
    let id = server.session();
    (outlast, server, id)
}

#[test]
fn successful_turn_streams_all_events_to_seal() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:reasoning,times=always");
    let id = server.session();
    let events = server.prompt_and_follow(&id, "hi").all();
    let expected = [
        "start",
        "input",
        "usage",
        "reasoning-delta",
        "text-delta",
        "usage",
        "step-complete",
        "done",
        "sealed",
    ];
    assert_eq!(kinds(&events), expected);
    let turn = &events[0]["turnId"];
    for event in &events {
        assert_eq!(
            (&event["conversationId"], &event["turnId"]),
            (&json!(id), turn)
        );
    }
    let deltas = of_kind(&events, "text-delta").into_iter();
    let text: String = deltas.map(|it| it["delta"].as_str().unwrap()).collect();
    assert_eq!(text, HELLO);
    let exactly = |kind: &str, mut fields: Value| {
        (fields["type"], fields["conversationId"]) = (json!(kind), json!(id));
        fields["turnId"] = turn.clone();
        let all = of_kind(&events, kind);
        assert_eq!(**all.last().unwrap(), fields);
    };
    let model = "ok:reasoning,times=always";
    exactly("start", json!({ "provider": "mock", "model": model }));
    exactly("input", json!({ "text": "hi" }));
    exactly(
        "step-complete",
        json!({ "model": model, "finishReason": "end_turn" }),
    );
    exactly("done", json!({ "finishReason": "end_turn" }));
    exactly("sealed", json!({ "status": "completed" }));
}

#[test]
fn each_retry_is_one_event_with_exact_fields() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "overloaded:2");
    let id = server.session();
    let events = server.prompt_and_follow(&id, "hi").all();
    let retry = |attempt: u32, delay: u32| {
        json!({
            "type": "provider-retry", "conversationId": id, "turnId": events[0]["turnId"],
            "attempt": attempt, "delayMs": delay, "message": "Overloaded", "code": "529",
        })
    };
    let retries: Vec<Value> = of_kind(&events, "provider-retry")
        .into_iter()
        .cloned()
        .collect();
    assert_eq!(retries, [retry(0, 5000), retry(1, 10_000)]);
    let expected = [
        "start",
        "input",
        "provider-retry",
        "provider-retry",
        "usage",
        "text-delta",
        "usage",
        "step-complete",
        "done",
        "sealed",
    ];
    assert_eq!(kinds(&events), expected);
}

#[test]
fn retry_is_announced_before_wait_and_retry_now_ends_it() {
    let (_outlast, server, id) = waiting("overloaded:1");
    let mut turn = server.prompt_and_follow(&id, "hi");
    let retry = turn.until("provider-retry").pop().unwrap();
    assert_eq!(
        (&retry["attempt"], &retry["delayMs"]),
        (&json!(0), &json!(3_600_000))
    );
    let session = server.when_waiting(&id);
    let time = |value: &Value| -> jiff::Timestamp { value.as_str().unwrap().parse().unwrap() };
    let left = time(&session["retry"]["wake_at"]).duration_since(time(&session["now"]));
    assert!(left.as_secs() > 3500, "{session}");
    assert_eq!(session["retry"]["attempt"], 1);
    assert_eq!(session["turn_id"], retry["turnId"]);
    server.order(&id, "retry_now");
    let rest = turn.all();
    assert_eq!(
        kinds(&rest),
        [
            "usage",
            "text-delta",
            "usage",
            "step-complete",
            "done",
            "sealed"
        ]
    );
    let session = server.when_idle(&id);
    assert_eq!(
        (&session["retry"], &session["last_seal"]),
        (&Value::Null, &json!("completed"))
    );
}

#[test]
fn exhausted_retries_end_with_one_error() {
    let outlast = Outlast::new();
    let server = Serve::with(&outlast, &["--model", DOWN, "--policy", "session"]);
    let id = server.session();
    let events = server.prompt_and_follow(&id, "hi").all();
    let expected = [
        "start",
        "input",
        "provider-retry",
        "provider-retry",
        "provider-retry",
        "error",
        "sealed",
    ];
    assert_eq!(kinds(&events), expected);
    let delays: Vec<&Value> = of_kind(&events, "provider-retry")
        .into_iter()
        .map(|it| &it["delayMs"])
        .collect();
    assert_eq!(delays, [2000, 4000, 8000]);
    let [error] = of_kind(&events, "error")[..] else {
        panic!("{events:?}")
    };
    let expected = json!({
        "type": "error", "conversationId": id, "turnId": events[0]["turnId"],
        "message": "The scripted provider answers with status 503.", "code": "503",
        "class": "transient", "cause": "overloaded", "reason": "gave up after 3 retries",
    });
    assert_eq!(*error, expected);
    assert_eq!(events[6]["status"], "error");
}

#[test]
fn abort_retry_ends_with_error_and_abort_without() {
    let (_outlast, server, _) = waiting(DOWN);
    let table = [
        ("abort", &["sealed"][..], "aborted"),
        ("abort_retry", &["error", "sealed"], "error"),
    ];
    for (order, expected, seal) in table {
        let id = server.session();
        let mut turn = server.prompt_and_follow(&id, "hi");
        turn.until("provider-retry");
        server.order(&id, order);
        let rest = turn.all();
        assert_eq!(kinds(&rest), expected, "{order}");
        assert_eq!(rest.last().unwrap()["status"], seal, "{order}");
        assert_eq!(server.when_idle(&id)["last_seal"], seal);
        if let [error, _] = &rest[..] {
            let expected = "The scripted provider answers with status 503.";
            assert_eq!(
                (&error["message"], &error["code"]),
                (&json!(expected), &json!("503"))
            );
        }
    }
}

#[test]
fn turn_commands_without_turn_do_nothing() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    for order in ["abort", "abort_retry", "retry_now"] {
        server.order(&id, order);
    }
    assert_eq!(server.show(&id)["state"], "new");
    server.prompt_and_follow(&id, "hi").all();
    for order in ["abort", "abort_retry", "retry_now"] {
        server.order(&id, order);
    }
    assert_eq!(server.show(&id)["turns"], 1);
}

#[test]
fn client_disconnect_does_not_end_turn() {
    let (_outlast, server, id) = waiting("overloaded:1+drip:20,times=always");
    // During the wait, and in the middle of a completion.
    let mut turn = server.prompt_and_follow(&id, "hi");
    turn.until("provider-retry");
    drop(turn);
    server.order(&id, "retry_now");
    server.when_idle(&id);
    let mut turn = server.prompt_and_follow(&id, "again");
    turn.until("text-delta");
    drop(turn);
    let session = server.when(&id, |it| it["state"] == "idle" && it["turns"] == 2);
    assert_eq!(session["last_seal"], "completed");
    let events = server.snapshot_events(&id);
    let seals = of_kind(&events, "sealed");
    assert!(seals.iter().all(|seal| seal["status"] == "completed"));
    let texts = of_kind(&events, "text-delta");
    assert_eq!(texts[0]["delta"], HELLO);
    assert_eq!(texts[1]["delta"], HELLO.replace("hi", "again"));
}
