//! Sessions and models of `outlast rpc`: sessions of earlier processes, model selection, and addresses.

use crate::mock_server::{MockServer, PLANTED};
use crate::rpc_driver::{Rpc, in_real_time, word};
use crate::support::Outlast;
use serde_json::{Value, json};

const RECOVERS: &str = "overloaded:1+ok:text,times=always";

/// Kills a process during a wait with these messages queued, and returns the id of its session.
fn killed_in_a_wait(outlast: &Outlast, waiting: &[(&str, &str)]) -> String {
    let arguments = ["--model", RECOVERS, "--policy", "overnight"];
    let mut rpc = Rpc::with(outlast, &arguments);
    rpc.prompt("first");
    rpc.event("auto_retry_start");
    for (name, message) in waiting {
        rpc.data(json!({ "type": name, "message": message }));
    }
    let id = word(&rpc.get("get_state")["sessionId"]);
    rpc.kill();
    id
}

fn users(rpc: &mut Rpc) -> Vec<String> {
    let all = rpc.conversation().into_iter();
    all.filter(|(role, _)| role == "user")
        .map(|(_, text)| text)
        .collect()
}

#[test]
fn prompt_in_interrupted_session_runs_after_resumed_turn() {
    let mut outlast = in_real_time();
    let id = killed_in_a_wait(&outlast, &[]);
    outlast.scale = "600";
    let mut rpc = Rpc::with(&outlast, &["--session", &id]);
    let queued = rpc.data(json!({ "type": "prompt", "message": "second" }));
    assert_eq!(queued["disposition"], "queued");
    rpc.event("agent_settled");
    assert_eq!(users(&mut rpc), ["first", "second"]);
    assert_eq!(rpc.count("agent_end"), 1);
    rpc.check();
}

#[test]
fn abort_settles_turn_of_earlier_process() {
    let outlast = in_real_time();
    let id = killed_in_a_wait(&outlast, &[]);
    let mut rpc = Rpc::with(&outlast, &["--session", &id]);
    rpc.get("abort");
    let state = rpc.idle();
    assert_eq!(state["unfinishedTurn"], false, "{state}");
    rpc.forget();
    rpc.prompt_and_wait("second");
    assert_eq!(users(&mut rpc), ["first", "second"]);
}

#[test]
fn abort_right_after_resume_settles_turn() {
    for _ in 0..5 {
        let outlast = in_real_time();
        let id = killed_in_a_wait(&outlast, &[]);
        let mut rpc = Rpc::with(&outlast, &["--session", &id]);
        let resumed = rpc.send_command("resume");
        let aborted = rpc.send_command("abort");
        assert_eq!(rpc.reply(&aborted)["success"], true);
        rpc.reply(&resumed);
        let state = rpc.idle();
        assert_eq!(state["unfinishedTurn"], false, "{state}");
    }
}

#[test]
fn resume_command_sends_messages_queued_before_kill() {
    let mut outlast = in_real_time();
    let waiting = [
        ("follow_up", "later"),
        ("steer", "now"),
        ("follow_up", "last"),
    ];
    let id = killed_in_a_wait(&outlast, &waiting);
    outlast.scale = "600";
    let ran = outlast.run(&["resume", &id]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        ran.stdout.matches("You said: ").count(),
        3,
        "{}",
        ran.stdout
    );
    let mut rpc = Rpc::with(&outlast, &["--session", &id]);
    assert_eq!(users(&mut rpc), ["first", "now", "later", "last"]);
    assert_eq!(rpc.get("get_state")["pendingMessageCount"], 0);
}

#[test]
fn resume_without_turn_sends_queued_message() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok:text,times=always");
    rpc.data(json!({ "type": "steer", "message": "waits" }));
    let id = word(&rpc.get("get_state")["sessionId"]);
    rpc.finish();
    let mut rpc = Rpc::with(&outlast, &["--session", &id]);
    rpc.get("resume");
    rpc.event("agent_settled");
    assert_eq!(users(&mut rpc), ["waits"]);
}

#[test]
fn prompt_during_compaction_is_queued_at_once() {
    let outlast = in_real_time();
    let model = "ok:text,times=2+hold:60,times=1+ok:text,times=always";
    let mut rpc = Rpc::start(&outlast, model);
    let long = "and so on ".repeat(600);
    rpc.prompt_and_wait(&format!("one {long}"));
    rpc.forget();
    rpc.prompt_and_wait(&format!("two {long}"));
    rpc.forget();
    let compact = rpc.send_command("compact");
    rpc.event("compaction_start");
    let queued = rpc.data(json!({ "type": "prompt", "message": "three" }));
    assert_eq!(queued["disposition"], "queued");
    rpc.get("abort");
    assert_eq!(rpc.reply(&compact)["success"], false);
    assert_eq!(rpc.idle()["pendingMessageCount"], 1, "an abort keeps it");
}

#[test]
fn prompt_after_compact_does_not_overtake_it() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok:text,times=always");
    for number in 0..3 {
        rpc.prompt_and_wait(&format!("{number} {}", "and so on ".repeat(200)));
        rpc.forget();
    }
    for _ in 0..10 {
        let compact = rpc.send_command("compact");
        let prompt = rpc.send(json!({ "type": "prompt", "message": "and so on ".repeat(300) }));
        let why = word(&rpc.reply(&compact)["error"]);
        assert!(!why.contains("a turn is running"), "{why}");
        assert_eq!(rpc.reply(&prompt)["success"], true);
        rpc.event("agent_settled");
        rpc.forget();
    }
}

#[test]
fn failed_switch_or_fork_keeps_turn_running() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, "overloaded:9");
    rpc.prompt("first");
    rpc.event("auto_retry_start");
    rpc.data(json!({ "type": "steer", "message": "steered" }));
    for command in [
        json!({ "type": "switch_session", "sessionPath": "deadbeef" }),
        json!({ "type": "fork", "entryId": "deadbeef" }),
    ] {
        let refused = rpc.ask(command);
        assert_eq!(refused["success"], false, "{refused}");
        assert_eq!(rpc.get("get_state")["isRunning"], true);
    }
    rpc.get("abort");
}

#[test]
fn steering_messages_are_not_fork_points() {
    let outlast = in_real_time();
    let mut rpc = Rpc::start(&outlast, RECOVERS);
    rpc.prompt("first");
    rpc.event("auto_retry_start");
    rpc.data(json!({ "type": "steer", "message": "steered" }));
    rpc.data(json!({ "type": "follow_up", "message": "followed" }));
    rpc.event("agent_settled");
    let offered = rpc.get("get_fork_messages");
    let offered = offered["messages"].as_array().unwrap();
    let texts: Vec<String> = offered.iter().map(|one| word(&one["text"])).collect();
    assert_eq!(texts, ["first", "followed"]);
    let entry = offered[1]["entryId"].clone();
    let forked = rpc.data(json!({ "type": "fork", "entryId": entry }));
    assert_eq!(forked["text"], "followed");
    assert_eq!(users(&mut rpc), ["first", "steered"]);
}

// --- Models ---

fn with_keys(mock: &MockServer, arguments: &[&str]) -> Rpc {
    let url = mock.url();
    let place = ["rpc", "--provider", "openai", "--base-url", &url];
    let mut command = mock.outlast.command(&[&place, arguments].concat());
    command.env("OPENAI_API_KEY", PLANTED);
    command.env("ANTHROPIC_API_KEY", PLANTED);
    Rpc::spawn(command)
}

fn model_and_url(model: &Value) -> (String, String) {
    (word(&model["id"]), word(&model["baseUrl"]))
}

#[test]
fn base_url_applies_only_to_its_provider() {
    let mock = MockServer::start();
    let fallbacks = ["--fallback", "small", "--fallback", "anthropic:claude"];
    let mut rpc = with_keys(&mock, &[&["--model", "ok"], &fallbacks[..]].concat());
    let url = mock.url();
    let there = |id: &str| (id.to_owned(), url.clone());
    let models = rpc.get("get_available_models");
    let models = models["models"].as_array().unwrap();
    assert_eq!(model_and_url(&models[0]), there("ok"));
    assert_eq!(model_and_url(&models[1]), there("small"));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(model_and_url(&rpc.get("cycle_model")["model"]));
    }
    let elsewhere = ("claude".to_owned(), "https://api.anthropic.com".to_owned());
    assert_eq!(
        seen,
        [there("small"), elsewhere, there("ok"), there("small")]
    );
    rpc.data(json!({ "type": "set_model", "provider": "anthropic", "modelId": "claude" }));
    rpc.data(json!({ "type": "set_model", "provider": "openai", "modelId": "ok" }));
    let models = rpc.get("get_available_models");
    assert_eq!(models["models"].as_array().unwrap().len(), 3, "{models}");
    rpc.prompt_and_wait("hello");
    assert_eq!(mock.requests().matches(r#""number":"#).count(), 1);
    rpc.get("new_session");
    let model = rpc.get("get_state")["model"].clone();
    assert_eq!(model_and_url(&model), there("ok"));
}

// --- Refused commands ---

#[test]
fn invalid_command_values_are_refused_by_name() {
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok");
    let picture = json!({ "type": "image", "data": "!!!", "mimeType": "image/png" });
    let table = [
        (
            json!({ "type": "prompt", "message": "m", "images": [picture] }),
            "base 64",
        ),
        (
            json!({ "type": "switch_session", "sessionPath": "nix" }),
            "nix",
        ),
        (
            json!({ "type": "switch_session", "sessionPath": "" }),
            "no session",
        ),
        (
            json!({ "type": "export_html", "outputPath": "/dev/null" }),
            "no file",
        ),
    ];
    for (command, named) in table {
        let refused = rpc.ask(command);
        assert_eq!(refused["success"], false, "{refused}");
        let why = word(&refused["error"]);
        assert!(why.contains(named), "{why}");
    }
    let id = word(&rpc.get("get_state")["sessionId"]);
    let same = rpc.data(json!({ "type": "switch_session", "sessionPath": id }));
    assert_eq!(same["cancelled"], false);
    assert_eq!(rpc.get("get_state")["sessionId"], id.as_str());
    rpc.data(json!({ "type": "set_session_name", "name": " a\nname \u{1b}[31m" }));
    assert_eq!(rpc.get("get_state")["sessionName"], "a name");
}
