//! Random commands at random times: each gets one reply, and each run is completed once.

use crate::rpc_driver::Rpc;
use crate::support::Outlast;
use serde_json::{Value, json};

/// Scripts whose runs succeed at once, fail, wait, hang, and call tools.
const SCRIPTS: [&str; 4] = [
    "ok:text,times=always",
    "error:503,times=1+ok:text,times=2+error:400,times=1+overloaded:9",
    "ok:agent,times=1+hold:86400,of=agent,times=always",
    "drip:600,of=text,times=always",
];
const SEQUENCES: usize = 50;

fn any(random: &mut fastrand::Rng) -> Value {
    let message = random.choice(["m", "call bash {\"command\": \"true\"}"]);
    let name = random.choice([
        "prompt",
        "prompt",
        "prompt",
        "steer",
        "follow_up",
        "abort",
        "abort",
        "abort_retry",
        "retry_now",
        "resume",
        "clear_queue",
        "new_session",
        "clone",
        "fork",
        "switch_session",
        "get_state",
        "get_messages",
        "get_session_stats",
        "compact",
        "bash",
        "abort_bash",
        "set_auto_retry",
        "set_follow_up_mode",
        "set_session_name",
        "nonsense",
    ]);
    let mut command = json!({
        "type": name, "message": message, "command": "echo hi", "enabled": random.bool(), "mode": "all", "name": "n",
        "entryId": "00000001", "sessionPath": "no-such-file",
    });
    if name == Some("prompt") && random.bool() {
        command["streamingBehavior"] = json!(random.choice(["steer", "followUp"]));
    }
    command
}

fn sequences(script: &str, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let outlast = Outlast::new();
    let mut rpc = Rpc::with(&outlast, &["--model", script, "--allow", "bash"]);
    for _ in 0..SEQUENCES {
        let mut ids = Vec::new();
        for _ in 0..random.usize(2..12) {
            ids.push(rpc.send(any(&mut random)));
            if random.u8(0..4) == 0 {
                // Let something happen before the next command.
                rpc.get("get_state");
            }
        }
        rpc.get("abort");
        rpc.get("abort_bash");
        for id in ids {
            rpc.reply(&id);
        }
        rpc.get("clear_queue");
        rpc.get("abort");
        let state = rpc.idle();
        assert_eq!(state["pendingMessageCount"], 0, "seed {seed}: {state}");
        rpc.check();
    }
    assert!(rpc.count("agent_start") > SEQUENCES / 5, "little was tried");
    assert_eq!(rpc.finish().code, Some(0));
}

#[test]
fn random_commands_complete_once_with_fast_provider() {
    sequences(SCRIPTS[0], 1);
}

#[test]
fn random_commands_complete_once_with_failing_provider() {
    sequences(SCRIPTS[1], 2);
}

#[test]
fn random_commands_complete_once_with_hanging_provider() {
    sequences(SCRIPTS[2], 3);
}

#[test]
fn random_commands_complete_once_with_slow_provider() {
    sequences(SCRIPTS[3], 4);
}
