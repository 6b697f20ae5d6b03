//! The end of the process: signals, clients that leave or die, and closed readers.

use super::client::{Client, Ended, is_running, kill};
use super::provider::Provider;
use super::{in_real_time, start};
use crate::mock_server::wait_for;
use crate::support::Outlast;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};

const AGENT: &str = "ok:agent,times=always";

/// Ways to end the process, and the resulting exit codes.
const ENDS: [(&str, i32); 3] = [("-TERM", 143), ("-HUP", 129), ("end of input", 0)];

fn request_exit(client: &mut Client, end: &str) {
    match end {
        "end of input" => client.close_input(),
        signal => client.signal(signal),
    }
}

/// Returns a command that records its processes, and ends by itself only much later.
fn long_command() -> &'static str {
    "trap '' TERM HUP INT; sleep 1000 & echo $$ $! > processes; echo begun; wait"
}

fn processes(outlast: &Outlast) -> Vec<String> {
    let noted = fs::read_to_string(outlast.folder.path().join("processes"));
    let noted = noted.unwrap_or_default();
    match noted.ends_with('\n') {
        true => noted.split_whitespace().map(str::to_owned).collect(),
        false => Vec::new(),
    }
}

fn states(outlast: &Outlast) -> Vec<String> {
    let ran = outlast.run(&["sessions", "list", "--json"]);
    let rows: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let rows = rows.as_array().into_iter().flatten();
    rows.map(|row| row["state"].as_str().unwrap().to_owned())
        .collect()
}

fn assert_whole(ended: &Ended) {
    assert!(ended.rest.is_empty() || ended.rest.ends_with('\n'));
    for line in ended.rest.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

// --- Termination requests ---

/// Work that goes on for minutes: its model, the command that starts it, the event that shows its start, and the state
/// that it leaves.
struct Work {
    model: &'static str,
    asked: Value,
    begun: &'static str,
    left: &'static [&'static str],
}

fn works() -> Vec<Work> {
    let prompt = |message: &str| json!({"type": "prompt", "message": message});
    let tool = format!("call bash {}", json!({ "command": long_command() }));
    let work = |model, asked, (begun, left)| Work {
        model,
        asked,
        begun,
        left,
    };
    vec![
        work("ok", json!({"type": "get_state"}), ("response", &[])),
        work(
            "drip:50,of=long",
            prompt("hi"),
            ("message_update", &["unfinished"]),
        ),
        work(
            "rate-limited:retry-after=250",
            prompt("hi"),
            ("auto_retry_start", &["unfinished"]),
        ),
        work(
            "ok",
            json!({"type": "bash", "command": long_command()}),
            ("bash_execution_update", &[]),
        ),
        work(
            AGENT,
            prompt(&tool),
            ("tool_execution_start", &["unfinished"]),
        ),
    ]
}

#[test]
fn exit_during_any_work_leaves_no_process() {
    for work in works() {
        for (end, code) in ENDS {
            let outlast = in_real_time();
            let arguments = ["--model", work.model, "--allow", "bash"];
            let mut client = Client::start(&outlast, &arguments);
            client.send(&work.asked.to_string());
            client.until_kind(work.begun);
            if work.asked.to_string().contains("processes") {
                wait_for("process", || !processes(&outlast).is_empty());
            }
            request_exit(&mut client, end);
            let ended = client.wait();
            let what = format!("{} at {end}: {}", work.asked, ended.stderr);
            assert_eq!(ended.code, code, "{what}");
            assert_whole(&ended);
            wait_for("end of the processes", || {
                !processes(&outlast).iter().any(|id| is_running(id))
            });
            assert_eq!(states(&outlast), work.left, "{what}");
        }
    }
}

#[test]
fn exit_during_compaction_leaves_conversation_unchanged() {
    for end in ENDS {
        // The last replies have a fifth of a second: only a machine that is too busy misses that, and not every time.
        let is_answered = (0..10).any(|_| ends_in_a_compaction(end.0, end.1));
        assert!(is_answered, "{end:?}");
    }
}

/// Ends a server during a compaction; returns whether the client received the reply.
fn ends_in_a_compaction(end: &str, code: i32) -> bool {
    let outlast = in_real_time();
    let script = "ok:text,times=3+hold:86400,times=always";
    let mut client = Client::start(&outlast, &["--model", script]);
    for _ in 0..3 {
        client.prompt(&"hi ".repeat(2000));
        client.until_kind("agent_settled");
    }
    client.send(r#"{"id":1,"type":"compact"}"#);
    client.until_kind("compaction_start");
    request_exit(&mut client, end);
    let ended = client.wait();
    assert_eq!(ended.code, code, "{end}: {}", ended.stderr);
    assert_whole(&ended);
    // The conversation is unchanged.
    let mut client = Client::start(&outlast, &["--continue", "--model", "ok"]);
    assert_eq!(client.state()["messageCount"], 6);
    client.prompt("again");
    client.until_kind("agent_settled");
    let last = ended.rest.lines().last();
    let last = last.map_or(Value::Null, |last| last.parse().unwrap());
    (&last["id"], &last["success"]) == (&json!(1), &json!(false))
}

#[test]
fn killed_client_leaves_no_process_and_resumable_turn() {
    let outlast = in_real_time();
    let tool = format!("call bash {}", json!({ "command": long_command() }));
    let prompt = json!({"type": "prompt", "message": tool}).to_string();
    // The client is a shell that holds the other end of the pipe; only its death tells the server that the client is
    // gone.
    let script = "mkfifo pipe; \"$0\" \"$@\" <pipe >out 2>errors & exec 3>pipe; echo $! >server; echo \"$PROMPT\" >&3; wait";
    let inner = outlast.command(&["rpc", "--model", AGENT, "--allow", "bash"]);
    let mut client = Command::new("/bin/sh");
    client
        .args(["-c", script])
        .arg(inner.get_program())
        .args(inner.get_args());
    let variables = inner
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    client
        .env_clear()
        .envs(variables)
        .env("PATH", "/usr/bin:/bin");
    client
        .env("PROMPT", prompt)
        .current_dir(outlast.folder.path());
    let mut client = client.stdin(Stdio::null()).spawn().unwrap();
    wait_for("tool", || !processes(&outlast).is_empty());
    let server = fs::read_to_string(outlast.folder.path().join("server")).unwrap();
    let all = [vec![server.trim().to_owned()], processes(&outlast)].concat();
    assert!(all.iter().all(|id| is_running(id)), "{all:?}");
    kill("-9", client.id());
    client.wait().unwrap();
    wait_for("end of all", || !all.iter().any(|id| is_running(id)));
    let out = fs::read_to_string(outlast.folder.path().join("out")).unwrap();
    assert!(out.ends_with('\n') && out.lines().all(|line| line.parse::<Value>().is_ok()));
    let mut client = Client::start(&outlast, &["--continue"]);
    assert_eq!(client.state()["unfinishedTurn"], true);
    let resumed = client.ask(r#"{"type":"resume"}"#);
    assert_eq!(resumed["success"], true, "{resumed}");
    let end = client.until_kind("agent_end").to_string();
    assert!(end.contains("may have partly run"), "{end}");
    client.until_kind("agent_settled");
    assert_eq!(client.end().code, 0);
    assert_eq!(states(&outlast), ["finished"]);
}

// --- Closed or stopped readers ---

#[test]
fn closed_stdout_ends_server_and_leaves_turn_unfinished() {
    let outlast = in_real_time();
    let mut client = Client::start(&outlast, &["--model", "drip:20,of=long"]);
    client.prompt("hi");
    client.until_kind("message_update");
    client.close_output();
    let ended = client.wait();
    let said = "error: nobody reads what is answered\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (1, said));
    assert_eq!(states(&outlast), ["unfinished"]);
}

#[test]
fn stalled_reader_does_not_prevent_exit() {
    for (end, code) in ENDS {
        // More commands than the queue holds, none of which can be answered.
        for commands in [0, 200] {
            let provider = Provider::start(60_000, 400);
            let outlast = in_real_time();
            let mut client = start(&outlast, &provider, "rpc");
            client.prompt("go");
            wait_for("provider that is held up", || provider.is_held_up());
            (0..commands).for_each(|_| client.send(r#"{"type":"get_state"}"#));
            request_exit(&mut client, end);
            let ended = client.wait();
            assert_eq!(ended.code, code, "{end}, {commands}: {}", ended.stderr);
            assert_eq!(states(&outlast), ["unfinished"]);
        }
    }
}

#[test]
fn abort_works_while_reader_is_stalled() {
    let provider = Provider::start(60_000, 400);
    let outlast = in_real_time();
    let mut client = start(&outlast, &provider, "rpc");
    client.prompt("go");
    wait_for("provider that is held up", || provider.is_held_up());
    (0..200).for_each(|_| client.send(r#"{"type":"get_state"}"#));
    client.send(r#"{"id":"stop","type":"abort"}"#);
    wait_for("end of the call", || provider.is_unwanted());
    client.until(|frame| frame["id"] == "stop");
    assert_eq!(client.end().code, 0);
    assert_eq!(states(&outlast), ["cancelled"]);
}

#[test]
fn last_command_before_end_of_input_gets_reply() {
    let table = [
        json!({"id": 1, "type": "get_state"}),
        json!({"id": 1, "type": "get_messages"}),
        json!({"id": 1, "type": "prompt", "message": "hi"}),
        json!({"id": 1, "type": "bash", "command": "sleep 100"}),
        json!({"id": 1, "type": "compact"}),
        json!({"id": 1, "type": "abort"}),
        json!({"id": 1, "type": "nonsense"}),
    ];
    for asked in table {
        let outlast = in_real_time();
        let mut client = Client::start(&outlast, &["--model", "drip:50,of=long"]);
        client.send(&asked.to_string());
        let ended = client.end();
        assert_eq!(ended.code, 0, "{asked}: {}", ended.stderr);
        assert_whole(&ended);
        let frames = ended
            .rest
            .lines()
            .map(|line| line.parse::<Value>().unwrap());
        let replies = frames.filter(|frame| frame["type"] == "response" && frame["id"] == 1);
        assert_eq!(replies.count(), 1, "{asked}: {}", ended.rest);
    }
}
