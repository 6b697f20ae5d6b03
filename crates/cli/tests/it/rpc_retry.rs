//! The retry surface of `outlast rpc`: its events about retries, and the commands that control them.

use crate::mock_server::{MockServer, PLANTED};
use crate::rpc_driver::{Rpc, in_real_time, text, with_long_waits, word};
use crate::support::{CommandResult, Outlast};
use crate::written;
use serde_json::{Value, json};

const ID: &str = "01900000-0000-7000-8000-000000000001";
/// Fails; its first retry is two seconds away.
const DOWN: &str = "error:503,times=always";

/// Returns the fields that both kinds of clients know, of all frames of that type.
fn shared_fields(frames: &[Value], kind: &str) -> Vec<Value> {
    let frames = frames.iter().filter(|frame| frame["type"] == kind);
    let known = |frame: &Value| {
        let mut frame = frame.clone();
        frame.as_object_mut().unwrap().remove("outlast");
        frame
    };
    frames.map(known).collect()
}

fn retry(rpc: &mut Rpc) -> Value {
    rpc.get("get_state")["retry"].clone()
}

fn moment(value: &Value) -> jiff::Timestamp {
    let text = word(value);
    text.parse()
        .unwrap_or_else(|_| panic!("{value} is no time"))
}

const ERROR: &str = "The scripted provider answers with status 503.";

#[test]
fn failing_turn_retries_after_two_four_and_eight_seconds() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, DOWN);
    let settled = rpc.prompt_and_wait("hello");
    let start = |attempt: u32, delay: u32| {
        json!({
            "type": "auto_retry_start", "attempt": attempt, "maxAttempts": 3, "delayMs": delay, "errorMessage": ERROR,
        })
    };
    let starts = shared_fields(rpc.frames(), "auto_retry_start");
    assert_eq!(starts, [start(1, 2000), start(2, 4000), start(3, 8000)]);
    let end =
        json!({ "type": "auto_retry_end", "success": false, "attempt": 3, "finalError": ERROR });
    assert_eq!(shared_fields(rpc.frames(), "auto_retry_end"), [end]);
    assert_eq!(settled["aborted"], false);
    assert_eq!(retry(&mut rpc), json!({ "enabled": true, "attempt": 0 }));
    let left = rpc.finish();
    let ends = shared_fields(&left.frames, "agent_end");
    assert_eq!(ends.len(), 1, "a run that is retried is not over");
    assert_eq!(ends[0]["willRetry"], false);
    assert_eq!(shared_fields(&left.frames, "agent_settled").len(), 1);
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
}

#[test]
fn successful_retry_ends_with_attempt_and_no_error() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "error:503,times=2+ok:text,times=always");
    rpc.prompt_and_wait("hello");
    let end = json!({ "type": "auto_retry_end", "success": true, "attempt": 2 });
    assert_eq!(shared_fields(rpc.frames(), "auto_retry_end"), [end]);
    let answer = word(&rpc.get("get_last_assistant_text")["text"]);
    assert!(answer.ends_with("You said: hello"), "{answer}");
    assert_eq!(retry(&mut rpc), json!({ "enabled": true, "attempt": 0 }));
}

#[test]
fn state_shows_pending_retry_until_it_is_aborted() {
    let outlast = with_long_waits();
    let mut rpc = Rpc::start(&outlast, DOWN);
    assert_eq!(retry(&mut rpc), json!({ "enabled": true, "attempt": 0 }));
    rpc.prompt("hello");
    let start = rpc.event("auto_retry_start");
    let state = rpc.get("get_state");
    let during = &state["retry"];
    let expected = json!({
        "enabled": true, "attempt": 1, "maxAttempts": 3, "cause": "overloaded", "errorMessage": ERROR,
        "wakeAt": start["outlast"]["retryAt"],
    });
    assert_eq!(*during, expected);
    let wait = moment(&during["wakeAt"]).duration_since(jiff::Timestamp::now());
    let hour = jiff::SignedDuration::from_hours(1);
    assert!(wait.is_positive() && wait <= hour, "{wait:?}");
    let flags = ["isStreaming", "isRetrying", "autoRetryEnabled"];
    assert_eq!(flags.map(|flag| state[flag] == true), [false, true, true]);
    let aborted = rpc.send_command("abort");
    assert_eq!(rpc.reply(&aborted)["success"], true);
    assert_eq!(retry(&mut rpc), json!({ "enabled": true, "attempt": 0 }));
    assert_eq!(rpc.get("get_state")["isRetrying"], false);
}

#[test]
fn cancelled_wait_ends_with_retry_cancelled() {
    for (command, aborted) in [("abort_retry", false), ("abort", true)] {
        let outlast = with_long_waits();
        let mut rpc = Rpc::start(&outlast, "error:503,times=1+ok:text,times=always");
        rpc.prompt("hello");
        rpc.event("auto_retry_start");
        let id = rpc.send_command(command);
        let end = rpc.event("auto_retry_end");
        let expected = json!({
            "type": "auto_retry_end", "success": false, "attempt": 1, "finalError": "Retry cancelled",
        });
        assert_eq!(end, expected);
        assert_eq!(rpc.event("agent_settled")["aborted"], aborted, "{command}");
        assert_eq!(rpc.reply(&id)["success"], true);
        assert_eq!(retry(&mut rpc)["attempt"], 0);
        rpc.prompt_and_wait("again");
        let answer = word(&rpc.get("get_last_assistant_text")["text"]);
        assert!(answer.ends_with("You said: again"), "{answer}");
    }
}

#[test]
fn abort_retry_and_retry_now_do_nothing_without_retry() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok:text,times=always");
    for command in ["abort_retry", "retry_now"] {
        rpc.get(command);
    }
    rpc.prompt_and_wait("hello");
    for command in ["abort_retry", "retry_now"] {
        rpc.get(command);
    }
    rpc.prompt_and_wait("hello");
    assert_eq!(
        (rpc.count("auto_retry_end"), rpc.count("agent_start")),
        (0, 2)
    );
}

#[test]
fn set_auto_retry_affects_only_its_session() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, DOWN);
    rpc.data(json!({ "type": "set_auto_retry", "enabled": false }));
    assert_eq!(retry(&mut rpc), json!({ "enabled": false, "attempt": 0 }));
    rpc.prompt_and_wait("hello");
    assert_eq!(rpc.count("auto_retry_start"), 0);
    assert_eq!(rpc.count("auto_retry_end"), 0);
    // Another process of the same home is not affected.
    let mut other = Rpc::start(&outlast, "ok");
    assert_eq!(retry(&mut other)["enabled"], true);
    rpc.data(json!({ "type": "set_auto_retry", "enabled": true }));
    assert_eq!(retry(&mut rpc)["enabled"], true);
    rpc.prompt_and_wait("hello");
    assert_eq!(rpc.count("auto_retry_start"), 3);
    let files = std::fs::read_dir(outlast.home()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let settings: Vec<String> = names.filter(|name| name.ends_with("toml")).collect();
    assert_eq!(settings, [""; 0]);
    assert!(!outlast.folder.path().join("outlast.toml").exists());
}

#[test]
fn retry_now_ends_wait_early() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, "rate-limited:retry-after=250");
    rpc.prompt("hello");
    let first = rpc.event("auto_retry_start");
    assert_eq!(
        (&first["attempt"], &first["delayMs"]),
        (&json!(1), &json!(250_000))
    );
    rpc.get("retry_now");
    assert_eq!(rpc.event("auto_retry_start")["attempt"], 2);
    rpc.get("abort");
    assert_eq!(rpc.count("auto_retry_end"), 1);
}

#[test]
fn context_overflow_is_compacted_and_not_retried() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", "compaction.keep = 1000\n");
    written::long_session(&outlast, ID, "overflow");
    let mut rpc = Rpc::with(&outlast, &["--session", ID]);
    rpc.prompt("hello");
    let start = rpc.event("compaction_start");
    assert_eq!(start["reason"], "overflow");
    let end = rpc.event("compaction_end");
    assert_eq!(
        (&end["aborted"], &end["willRetry"]),
        (&json!(false), &json!(true)),
        "{end}"
    );
    rpc.event("agent_settled");
    assert_eq!(rpc.count("auto_retry_start"), 0);
    assert_eq!(rpc.count("agent_end"), 1);
    let answer = word(&rpc.get("get_last_assistant_text")["text"]);
    assert!(answer.ends_with("You said: hello"), "{answer}");
}

// --- When the process ends in the middle of a wait ---

fn with_key(mock: &MockServer, arguments: &[&str]) -> Rpc {
    let url = mock.url();
    let all = [
        &["rpc", "--provider", "openai", "--base-url", &url],
        arguments,
    ]
    .concat();
    let mut command = mock.outlast.command(&all);
    command.env("OPENAI_API_KEY", PLANTED);
    Rpc::spawn(command)
}

#[test]
fn resume_after_kill_keeps_original_wake_time() {
    let mock = MockServer::start_in(with_long_waits());
    let mut rpc = with_key(&mock, &["--model", "overloaded:1"]);
    rpc.prompt("hello");
    rpc.event("auto_retry_start");
    let state = rpc.get("get_state");
    let (id, wake_at) = (word(&state["sessionId"]), state["retry"]["wakeAt"].clone());
    rpc.kill();
    let mut rpc = with_key(&mock, &["--session", &id]);
    let state = rpc.get("get_state");
    assert_eq!(state["unfinishedTurn"], true, "{state}");
    let resumed = rpc.send_command("resume");
    let again = rpc.event("auto_retry_start");
    assert_eq!(
        (&again["attempt"], &again["outlast"]["retryAt"]),
        (&json!(1), &wake_at)
    );
    let state = retry(&mut rpc);
    assert_eq!((&state["attempt"], &state["wakeAt"]), (&json!(1), &wake_at));
    assert_eq!(rpc.reply(&resumed)["success"], true);
    let requests = || mock.requests().matches(r#""number":"#).count();
    assert_eq!(requests(), 1, "the rest of the wait is waited for");
    rpc.get("retry_now");
    rpc.event("agent_settled");
    let answer = word(&rpc.get("get_last_assistant_text")["text"]);
    assert!(answer.ends_with("You said: hello"), "{answer}");
    assert_eq!(requests(), 2);
    assert_eq!(rpc.get("get_state")["unfinishedTurn"], false);
    let refused = rpc.ask(json!({ "type": "resume" }));
    assert_eq!(
        refused["success"], false,
        "there is nothing left to carry on"
    );
}

#[test]
fn client_exit_during_wait_leaves_turn_resumable() {
    let mut outlast = with_long_waits();
    let mut rpc = Rpc::start(&outlast, "overloaded:1+ok:text,times=always");
    rpc.prompt("hello");
    rpc.event("auto_retry_start");
    let id = word(&rpc.get("get_state")["sessionId"]);
    // It does not wait: an hour is longer than a test may take.
    let left = rpc.finish();
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    let ends = left
        .frames
        .iter()
        .filter(|frame| frame["type"] == "agent_settled");
    assert_eq!(ends.count(), 0, "nothing has ended");
    outlast.scale = "600";
    outlast.write("home/outlast.toml", "");
    let ran: CommandResult = outlast.run(&["resume", &id]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.ends_with("You said: hello\n"), "{}", ran.stdout);
}

#[test]
fn resume_of_failed_turn_does_not_repeat_prompt() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "error:503,times=4+ok:text,times=always");
    rpc.prompt_and_wait("hello");
    assert_eq!(rpc.count("auto_retry_end"), 1);
    rpc.get("resume");
    rpc.event("agent_settled");
    let said = rpc.conversation();
    let users = said.iter().filter(|(role, _)| role == "user");
    assert_eq!(users.count(), 1, "{said:?}");
    let end = rpc
        .frames()
        .iter()
        .rfind(|frame| frame["type"] == "agent_end");
    let last = end.unwrap()["messages"].as_array().unwrap().last().unwrap();
    assert!(text(last).ends_with("You said: hello"), "{last}");
}
