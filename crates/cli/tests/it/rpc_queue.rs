//! Input to `outlast rpc` while it is busy: the queued messages, the order of delivery, and the effect of an abort.

use crate::rpc_driver::{Rpc, in_real_time, text, with_long_waits, word};
use crate::support::Outlast;
use serde_json::{Value, json};

/// Streams a little, stalls, and responds normally from then on.
const STALLS_ONCE: &str = "stall:3,times=1+ok:text,times=always";

fn user_message(message: &str) -> (String, String) {
    ("user".to_owned(), message.to_owned())
}

/// A command that keeps a turn busy until `go_on` releases it.
const WAITS: &str = r#"call bash {"command": "until [ -e go ]; do sleep 0.02; done; echo gone"}"#;

/// Starts a client whose turn is in the middle of a tool call.
fn busy(outlast: &Outlast) -> Rpc {
    let arguments = ["--model", "ok:agent,times=always", "--allow", "bash"];
    let mut rpc = Rpc::with(outlast, &arguments);
    rpc.prompt(WAITS);
    rpc.event("tool_execution_start");
    rpc
}

fn go_on(outlast: &Outlast) {
    outlast.write("go", "");
}

/// Returns the user messages, in order.
fn users(rpc: &mut Rpc) -> Vec<String> {
    let all = rpc.conversation().into_iter();
    all.filter(|(role, _)| role == "user")
        .map(|(_, text)| text)
        .collect()
}

fn send(rpc: &mut Rpc, name: &str, message: &str) {
    let data = rpc.data(json!({ "type": name, "message": message }));
    assert_eq!(data["disposition"], "queued");
}

fn set(rpc: &mut Rpc, name: &str, mode: &str) {
    rpc.data(json!({ "type": name, "mode": mode }));
}

// --- Prompts ---

#[test]
fn prompt_during_turn_needs_streaming_behavior() {
    let outlast = in_real_time();
    let mut rpc = busy(&outlast);
    let refused = rpc.ask(json!({ "type": "prompt", "message": "two" }));
    assert_eq!(refused["success"], false);
    let why = word(&refused["error"]);
    assert!(why.contains("`streamingBehavior`"), "{why}");
    let three = json!({ "type": "prompt", "message": "three", "streamingBehavior": "followUp" });
    assert_eq!(rpc.data(three)["disposition"], "queued");
    go_on(&outlast);
    rpc.event("agent_settled");
    rpc.prompt_and_wait("two");
    assert_eq!(users(&mut rpc), [WAITS, "three", "two"]);
    rpc.check();
}

#[test]
fn prompt_during_wait_runs_after_abort_retry() {
    let outlast = with_long_waits();
    let mut rpc = Rpc::start(&outlast, "overloaded:1+ok:text,times=always");
    rpc.prompt("one");
    rpc.event("auto_retry_start");
    let queued = rpc.data(json!({ "type": "prompt", "message": "two" }));
    assert_eq!(queued["disposition"], "queued");
    rpc.get("abort_retry");
    assert_eq!(rpc.event("auto_retry_end")["finalError"], "Retry cancelled");
    rpc.event("agent_settled");
    rpc.event("agent_start");
    rpc.event("agent_settled");
    assert_eq!(users(&mut rpc), ["one", "two"]);
    let answer = word(&rpc.get("get_last_assistant_text")["text"]);
    assert!(answer.ends_with("You said: two"), "{answer}");
    assert_eq!(rpc.get("get_state")["pendingMessageCount"], 0);
    rpc.check();
}

#[test]
fn prompt_right_after_abort_starts_its_own_turn() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, STALLS_ONCE);
    rpc.prompt("one");
    rpc.event("message_update");
    let abort = json!({ "type": "abort", "id": "a" });
    let prompt = json!({ "type": "prompt", "id": "p", "message": "two" });
    rpc.line(&format!("{abort}\n{prompt}"));
    assert_eq!(rpc.event("agent_settled")["aborted"], true);
    assert_eq!(rpc.event("agent_settled")["aborted"], false);
    assert_eq!(rpc.reply("a")["success"], true);
    assert_eq!(rpc.reply("p")["data"]["disposition"], "started");
    let answer = word(&rpc.get("get_last_assistant_text")["text"]);
    assert!(answer.ends_with("You said: two"), "{answer}");
    rpc.check();
}

// --- Steering and follow-ups ---

#[test]
fn steering_joins_next_call_and_follow_up_comes_last() {
    let outlast = in_real_time();
    let mut rpc = busy(&outlast);
    send(&mut rpc, "follow_up", "and then");
    send(&mut rpc, "steer", "left");
    let update = rpc.wait("queue with both", |it| it["steering"] == json!(["left"]));
    assert_eq!(update["followUp"], json!(["and then"]));
    assert_eq!(rpc.get("get_state")["pendingMessageCount"], 2);
    go_on(&outlast);
    let settled = rpc.event("agent_settled");
    assert_eq!(settled["aborted"], false);
    let roles: Vec<(String, String)> = rpc.conversation();
    let roles: Vec<&str> = roles.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "toolResult",
            "user",
            "assistant",
            "user",
            "assistant"
        ]
    );
    assert_eq!(users(&mut rpc), [WAITS, "left", "and then"]);
    let ends = rpc.frames().iter().filter(|it| it["type"] == "agent_end");
    let ends: Vec<&Value> = ends.collect();
    assert_eq!(ends.len(), 1, "all of it is one run");
    let messages = ends[0]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 7);
    assert!(
        text(&messages[4]).ends_with("You said: left"),
        "{}",
        messages[4]
    );
    assert!(text(&messages[6]).ends_with("You said: and then"));
    rpc.check();
}

#[test]
fn follow_up_mode_decides_how_many_are_sent_at_once() {
    for (mode, answers) in [("one-at-a-time", 2), ("all", 1)] {
        let outlast = in_real_time();
        let mut rpc = busy(&outlast);
        set(&mut rpc, "set_follow_up_mode", mode);
        assert_eq!(rpc.get("get_state")["followUpMode"], mode);
        send(&mut rpc, "follow_up", "two");
        send(&mut rpc, "follow_up", "three");
        go_on(&outlast);
        rpc.event("agent_settled");
        assert_eq!(users(&mut rpc), [WAITS, "two", "three"]);
        let roles = rpc.conversation();
        let all = roles.iter().filter(|(role, _)| role == "assistant");
        assert_eq!(all.count(), 2 + answers, "{mode}");
        rpc.check();
    }
}

#[test]
fn messages_queued_while_idle_are_sent_with_next_prompt() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok:text,times=always");
    send(&mut rpc, "steer", "s");
    send(&mut rpc, "follow_up", "f");
    assert_eq!(rpc.get("get_state")["isRunning"], false);
    assert_eq!(rpc.count("agent_start"), 0, "nobody asked for a turn");
    rpc.prompt_and_wait("p");
    let mut said = users(&mut rpc);
    said.sort();
    assert_eq!(said, ["f", "p", "s"]);
    rpc.check();
}

#[test]
fn abort_keeps_queue_and_clear_queue_returns_it() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, STALLS_ONCE);
    rpc.prompt("one");
    rpc.event("message_update");
    send(&mut rpc, "steer", "s");
    send(&mut rpc, "follow_up", "f");
    rpc.get("abort");
    assert_eq!(rpc.event("agent_settled")["aborted"], true);
    let state = rpc.get("get_state");
    assert_eq!(
        (&state["pendingMessageCount"], &state["isRunning"]),
        (&json!(2), &json!(false))
    );
    let taken = rpc.get("clear_queue");
    assert_eq!(taken, json!({ "steering": ["s"], "followUp": ["f"] }));
    rpc.wait("empty queue", |it| {
        it["type"] == "queue_update" && it["steering"] == json!([])
    });
    assert_eq!(
        rpc.get("clear_queue"),
        json!({ "steering": [], "followUp": [] })
    );
    rpc.prompt_and_wait("two");
    assert_eq!(users(&mut rpc), ["one", "two"]);
    rpc.check();
}

#[test]
fn queued_message_survives_kill_and_is_sent_once() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, STALLS_ONCE);
    rpc.prompt("one");
    rpc.event("message_update");
    send(&mut rpc, "follow_up", "two");
    let id = word(&rpc.get("get_state")["sessionId"]);
    rpc.kill();
    let mut rpc = Rpc::with(
        &outlast,
        &["--session", &id, "--model", "ok:text,times=always"],
    );
    assert_eq!(rpc.get("get_state")["pendingMessageCount"], 1);
    rpc.get("resume");
    rpc.event("agent_settled");
    assert_eq!(users(&mut rpc), ["one", "two"]);
    assert_eq!(rpc.get("get_state")["pendingMessageCount"], 0);
    rpc.check();
}

// --- Other sessions ---

#[test]
fn changing_session_aborts_running_turn_first() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, "ok");
    rpc.prompt_and_wait("one");
    let hangs = "hold:86400,times=always";
    rpc.data(json!({ "type": "set_model", "provider": "mock", "modelId": hangs }));
    let entry = rpc.get("get_fork_messages")["messages"][0]["entryId"].clone();
    let first = rpc.get("get_state")["sessionId"].clone();
    let table = [
        (json!({ "type": "clone" }), vec![user_message("one")]),
        (json!({ "type": "fork", "entryId": entry }), vec![]),
        (json!({ "type": "new_session" }), vec![]),
        (
            json!({ "type": "switch_session", "sessionPath": first }),
            vec![user_message("one")],
        ),
    ];
    for (command, begins_with) in table {
        let before = rpc.get("get_state")["sessionId"].clone();
        rpc.prompt("hang");
        let reply = rpc.ask(command.clone());
        assert_eq!(reply["data"]["cancelled"], false, "{command}: {reply}");
        let place = |kind: &str| rpc.frames().iter().rposition(|it| it["type"] == kind);
        assert!(place("agent_settled") < place("response"), "{command}");
        assert_eq!(rpc.event("agent_settled")["aborted"], true, "{command}");
        let state = rpc.get("get_state");
        assert_eq!(
            (&state["isRunning"], &state["unfinishedTurn"]),
            (&json!(false), &json!(false))
        );
        assert_ne!(state["sessionId"], before, "{command}");
        let conversation = rpc.conversation();
        let first = conversation.first().cloned();
        assert_eq!(
            first.into_iter().collect::<Vec<_>>(),
            begins_with,
            "{command}"
        );
        if command["type"] == "fork" {
            assert_eq!(reply["data"]["text"], "one");
        }
    }
    rpc.check();
    rpc.finish();
    let listed = outlast.run(&["sessions", "list", "--json"]).stdout;
    let rows: Value = serde_json::from_str(&listed).unwrap();
    for row in rows.as_array().unwrap() {
        assert!(
            row["state"] != "in use" && row["state"] != "unfinished",
            "{row}"
        );
    }
}
