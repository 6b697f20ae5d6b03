//! Every command of `outlast rpc` in every situation: it gets one reply, with its id, and never blocks an abort.

use crate::rpc_driver::{Rpc, in_real_time, word};
use crate::support::Outlast;
use crate::written;
use serde_json::{Value, json};

const ID: &str = "01900000-0000-7000-8000-000000000001";
/// Commands that reply only when their work has ended.
const TAKE_LONG: [&str; 3] = ["compact", "prompt", "resume"];

/// Returns every command with valid fields; the last two are extensions of outlast.
fn commands(entry: &str) -> Vec<Value> {
    vec![
        json!({ "type": "prompt", "message": "p" }),
        json!({ "type": "steer", "message": "s" }),
        json!({ "type": "follow_up", "message": "f" }),
        json!({ "type": "abort" }),
        json!({ "type": "clear_queue" }),
        json!({ "type": "new_session" }),
        json!({ "type": "get_state" }),
        json!({ "type": "set_model", "provider": "nope", "modelId": "m" }),
        json!({ "type": "cycle_model" }),
        json!({ "type": "get_available_models" }),
        json!({ "type": "set_thinking_level", "level": "high" }),
        json!({ "type": "cycle_thinking_level" }),
        json!({ "type": "get_available_thinking_levels" }),
        json!({ "type": "set_steering_mode", "mode": "all" }),
        json!({ "type": "set_follow_up_mode", "mode": "all" }),
        json!({ "type": "compact" }),
        json!({ "type": "set_auto_compaction", "enabled": true }),
        json!({ "type": "set_auto_retry", "enabled": true }),
        json!({ "type": "abort_retry" }),
        json!({ "type": "bash", "command": "true" }),
        json!({ "type": "abort_bash" }),
        json!({ "type": "get_session_stats" }),
        json!({ "type": "export_html", "outputPath": "out.html" }),
        json!({ "type": "switch_session", "sessionPath": "no-such-file.jsonl" }),
        json!({ "type": "fork", "entryId": entry }),
        json!({ "type": "clone" }),
        json!({ "type": "get_fork_messages" }),
        json!({ "type": "get_last_assistant_text" }),
        json!({ "type": "set_session_name", "name": "n" }),
        json!({ "type": "get_messages" }),
        json!({ "type": "get_entries" }),
        json!({ "type": "get_tree" }),
        json!({ "type": "get_commands" }),
        json!({ "type": "retry_now" }),
        json!({ "type": "resume" }),
    ]
}

// --- In every situation ---

/// The work under way when a command arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    Idle,
    /// No completion has begun.
    Asking,
    Streaming,
    Waiting,
    Compacting,
    Bash,
}

impl Situation {
    /// Returns a script that stays in the situation.
    const fn script(self) -> &'static str {
        match self {
            Self::Streaming => "drip:30,of=long,times=always",
            Self::Waiting => "error:503,times=always",
            Self::Idle | Self::Asking | Self::Compacting | Self::Bash => {
                "hold:86400,of=agent,times=always"
            }
        }
    }

    /// Starts a client of a session with a conversation long enough for a summary. A retry is an hour away.
    fn start(self, outlast: &Outlast) -> Rpc {
        let settings =
            "compaction.keep = 1000\n[retry]\nbase_delay_ms = 3600000\nmax_delay = \"2h\"\n";
        outlast.write("home/outlast.toml", settings);
        written::long_session(outlast, ID, self.script());
        Rpc::with(outlast, &["--session", ID])
    }

    /// Enters the situation; returns the id of the command that began it.
    fn enter(self, rpc: &mut Rpc) -> Option<String> {
        let (command, event) = match self {
            Self::Idle => return None,
            Self::Asking => ("prompt", "agent_start"),
            Self::Streaming => ("prompt", "message_update"),
            Self::Waiting => ("prompt", "auto_retry_start"),
            Self::Compacting => ("compact", "compaction_start"),
            Self::Bash => ("bash", "bash_execution_update"),
        };
        let command = json!({ "type": command, "message": "go", "command": "echo; sleep 1000" });
        let id = rpc.send(command);
        rpc.event(event);
        Some(id)
    }
}

/// Whether the reply to the command may come only when its work has ended.
fn takes_long(situation: Situation, name: &str) -> bool {
    use Situation::{Bash, Compacting, Idle};
    TAKE_LONG.contains(&name)
        && match situation {
            Idle | Bash => name == "compact",
            situation => situation == Compacting,
        }
}

/// Ends the work under way.
fn end(rpc: &mut Rpc, begun: Option<&str>) {
    rpc.get("abort");
    rpc.get("abort_bash");
    if let Some(id) = begun {
        rpc.reply(id);
    }
}

/// Restores the state in which the next case begins.
fn go_back(rpc: &mut Rpc) {
    rpc.get("clear_queue");
    let state = rpc.idle();
    if state["sessionId"] != ID {
        rpc.data(json!({ "type": "switch_session", "sessionPath": ID }));
    }
    rpc.forget();
}

/// Sends a command in a situation and requires its reply before or together with that of the abort. The work under way
/// would last longer than the limit for a reply, so neither the command nor the abort waits for its end.
fn case(situation: Situation, rpc: &mut Rpc, command: &Value, at_once: bool) {
    let begun = situation.enter(rpc);
    let id = rpc.send(command.clone());
    if !at_once && !takes_long(situation, command["type"].as_str().unwrap()) {
        rpc.reply(&id);
    }
    end(rpc, begun.as_deref());
    let reply = rpc.reply(&id);
    assert_eq!(reply["command"], command["type"]);
    assert!(reply["success"].is_boolean(), "{reply}");
    go_back(rpc);
}

fn every_command_in(situation: Situation) {
    let outlast = in_real_time();
    let mut rpc = situation.start(&outlast);
    let entry = word(&rpc.get("get_fork_messages")["messages"][0]["entryId"]);
    let commands = commands(&entry);
    assert_eq!(commands.len(), 33 + 2);
    for command in &commands {
        for at_once in [false, true] {
            case(situation, &mut rpc, command, at_once);
        }
    }
    // No run ended by itself: only a cancelled wait ends without an abort.
    let settled = |frame: &&Value| frame["type"] == "agent_settled" && frame["aborted"] == false;
    let ended = rpc.frames().iter().filter(settled).count();
    assert!(
        ended == 0 || situation == Situation::Waiting,
        "{ended} ended"
    );
    let ok = json!({ "type": "set_model", "provider": "mock", "modelId": "ok:text,times=always" });
    rpc.data(ok);
    rpc.prompt_and_wait("still there?");
    let text = word(&rpc.get("get_last_assistant_text")["text"]);
    assert!(text.ends_with("You said: still there?"), "{text}");
    rpc.check();
    assert_eq!(rpc.finish().code, Some(0));
}

#[test]
fn every_command_gets_reply_when_idle() {
    every_command_in(Situation::Idle);
}

#[test]
fn every_command_gets_reply_while_provider_is_silent() {
    every_command_in(Situation::Asking);
}

#[test]
fn every_command_gets_reply_while_streaming() {
    every_command_in(Situation::Streaming);
}

#[test]
fn every_command_gets_reply_during_retry_wait() {
    every_command_in(Situation::Waiting);
}

#[test]
fn every_command_gets_reply_during_compaction() {
    every_command_in(Situation::Compacting);
}

#[test]
fn every_command_gets_reply_while_bash_runs() {
    every_command_in(Situation::Bash);
}

// --- Invalid commands ---

#[test]
fn missing_or_invalid_field_is_named_and_changes_nothing() {
    let required = [
        ("prompt", "message"),
        ("steer", "message"),
        ("follow_up", "message"),
        ("set_model", "provider"),
        ("set_model", "modelId"),
        ("set_thinking_level", "level"),
        ("set_steering_mode", "mode"),
        ("set_follow_up_mode", "mode"),
        ("set_auto_compaction", "enabled"),
        ("set_auto_retry", "enabled"),
        ("bash", "command"),
        ("switch_session", "sessionPath"),
        ("fork", "entryId"),
        ("set_session_name", "name"),
    ];
    let optional = [
        ("prompt", "images"),
        ("prompt", "streamingBehavior"),
        ("steer", "images"),
        ("follow_up", "images"),
        ("compact", "customInstructions"),
        ("bash", "excludeFromContext"),
        ("export_html", "outputPath"),
        ("get_entries", "since"),
    ];
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok");
    let all = commands("e");
    let right = |name: &str| all.iter().find(|it| it["type"] == name).unwrap().clone();
    let before = rpc.get("get_state");
    let mut refused = |command: Value, field: &str| {
        let reply = rpc.ask(command.clone());
        assert_eq!(reply["success"], false, "{command}");
        let error = word(&reply["error"]);
        assert!(error.contains(&format!("`{field}`")), "{command}: {error}");
    };
    for (name, field) in required {
        let mut command = right(name);
        command.as_object_mut().unwrap().remove(field);
        refused(command, field);
    }
    for (name, field) in required.into_iter().chain(optional) {
        for wrong in [json!(5), json!({ "a": 1 }), json!([[]])] {
            let mut command = right(name);
            command[field] = wrong;
            refused(command, field);
        }
    }
    let after = rpc.get("get_state");
    assert_eq!(before, after);
    rpc.check();
}
