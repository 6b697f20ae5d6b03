//! Unwritable files, several processes at once, and the content of stdout.

use super::client::Client;
use super::in_real_time;
use crate::support::{Outlast, run_script_before};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const MESSAGES: &str = r#"{"type":"get_messages"}"#;

fn answers(client: &mut Client, message: &str) {
    client.prompt(message);
    let end = client.until_kind("agent_end").to_string();
    assert!(end.contains(&format!("You said: {message}")), "{end}");
    client.until_kind("agent_settled");
}

fn texts(client: &mut Client) -> Vec<String> {
    let told = client.ask(MESSAGES);
    let messages = told["data"]["messages"].as_array().cloned();
    let text = |message: &Value| message["content"][0]["text"].as_str().unwrap().to_owned();
    messages.unwrap_or_default().iter().map(text).collect()
}

// --- Files ---

#[test]
fn unwritable_journal_warns_and_prompts_still_work() {
    let outlast = Outlast::new();
    let inner = outlast.command(&["rpc", "--model", "ok"]);
    let full = run_script_before("ulimit -f 1", &inner);
    let mut nowhere = outlast.command(&["rpc", "--model", "ok"]);
    nowhere.env("OUTLAST_HOME", "/dev/null/home");
    for mut command in [full, nowhere] {
        let mut client = Client::of(&mut command);
        answers(&mut client, "hi");
        assert_eq!(client.state().get("sessionFile"), None);
        assert_eq!(texts(&mut client).len(), 2);
        assert_eq!(client.ask(r#"{"type":"new_session"}"#)["success"], true);
        answers(&mut client, "again");
        let ended = client.end();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stderr.starts_with("warning: "), "{}", ended.stderr);
    }
}

/// Limits or unlimits the file size of a process.
fn limit_files(client: &Client, limit: &str) {
    let id = client.id().to_string();
    let limit = format!("--fsize={limit}:");
    let mut command = Command::new("prlimit");
    let done = command.args(["--pid", &id, &limit]).status();
    assert!(done.unwrap().success());
}

#[test]
fn messages_survive_temporarily_full_disk() {
    let outlast = Outlast::new();
    let mut client = Client::start(&outlast, &["--model", "ok"]);
    answers(&mut client, "one");
    limit_files(&client, "512");
    client.prompt("two");
    let warned = client.until_kind("extension_ui_request").to_string();
    assert!(warned.contains("cannot be written down"), "{warned}");
    client.until_kind("agent_settled");
    // A message that would be lost with the process is not reported as queued.
    let queued = client.ask(r#"{"type":"follow_up","message":"later"}"#);
    assert_eq!(queued["success"], false, "{queued}");
    limit_files(&client, "unlimited");
    answers(&mut client, "three");
    let said = texts(&mut client);
    assert_eq!(said.len(), 6, "{said:?}");
    client.signal("-KILL");
    client.wait();
    let mut client = Client::start(&outlast, &["--continue"]);
    assert_eq!(texts(&mut client), said);
}

#[test]
fn deleted_home_does_not_stop_open_or_new_session() {
    let outlast = Outlast::new();
    let mut client = Client::start(&outlast, &["--model", "ok"]);
    answers(&mut client, "hi");
    fs::remove_dir_all(outlast.home()).unwrap();
    // The session continues without a journal.
    answers(&mut client, "still there");
    assert_eq!(client.ask(r#"{"type":"new_session"}"#)["success"], true);
    answers(&mut client, "again");
    let ended = client.end();
    assert_eq!(ended.code, 0);
    assert!(
        ended.stderr.contains("not written down"),
        "{}",
        ended.stderr
    );
}

// --- Several at once ---

#[test]
fn second_server_for_same_session_is_refused() {
    let outlast = Outlast::new();
    let mut first = Client::start(&outlast, &["--model", "ok"]);
    answers(&mut first, "hi");
    let id = first.state()["sessionId"].as_str().unwrap().to_owned();
    let second = Client::start(&outlast, &["--session", &id]).wait();
    assert_eq!((second.code, second.rest.as_str()), (1, ""));
    assert!(second.stderr.contains("is in use by another process"));
    let mut third = Client::start(&outlast, &["--model", "ok"]);
    let switch = json!({"type": "switch_session", "sessionPath": id}).to_string();
    let refused = third.ask(&switch);
    assert_eq!(refused["success"], false, "{refused}");
    answers(&mut third, "mine goes on");
    let deleted = outlast.run(&["sessions", "delete", &id]);
    assert_eq!(deleted.code, 1, "{}", deleted.stderr);
    answers(&mut first, "and so does this");
    assert_eq!(first.end().code, 0);
    assert_eq!(third.ask(&switch)["success"], true);
    assert_eq!(texts(&mut third).len(), 4);
}

#[test]
fn ten_servers_share_one_home() {
    let outlast = Outlast::new();
    let begin = |_| Client::start(&outlast, &["--model", "overloaded:1"]);
    let mut clients: Vec<Client> = (0..10).map(begin).collect();
    clients.iter_mut().for_each(|client| client.prompt("hi"));
    let mut unwritten = 0;
    for mut client in clients {
        let end = client.until_kind("agent_end").to_string();
        assert!(end.contains("You said: hi"), "{end}");
        client.until_kind("agent_settled");
        let ended = client.end();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        // On a busy machine, a process that could not lock the file for seconds continues without it and
        // reports that.
        unwritten += usize::from(ended.stderr.contains("written down"));
    }
    let ran = outlast.run(&["sessions", "list", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(rows.len() + unwritten, 10, "{rows:?}");
    // A process that waited too long for the lock at its end has only not recorded that its response was
    // delivered.
    let is_settled = |row: &Value| row["state"] == "finished" || row["state"] == "undelivered";
    assert!(rows.iter().all(is_settled), "{rows:?}");
}

// --- stdout ---

#[test]
fn only_frames_reach_stdout_despite_noisy_commands() {
    let noise = "echo noise; echo noise >&2; echo noise >/proc/self/fd/1; true";
    let outlast = in_real_time();
    let hook =
        format!("[[hooks]]\non = \"tool_start, tool_end, turn_end\"\ncommand = '''{noise}'''\n");
    outlast.write("home/outlast.toml", hook);
    let arguments = ["--model", "ok:agent,times=always", "--allow", "bash"];
    let mut client = Client::start(&outlast, &arguments);
    client.prompt(&format!("call bash {}", json!({ "command": noise })));
    client.until_kind("agent_settled");
    let ran = client.ask(&json!({"type": "bash", "command": noise}).to_string());
    assert_eq!(ran["data"]["exitCode"], 0, "{ran}");
    let ended = client.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.rest.lines().all(|line| line.parse::<Value>().is_ok()));
}

#[test]
fn startup_errors_go_to_stderr_only() {
    let table: [(&[&str], i32); 8] = [
        (&["rpc", "--bogus"], 2),
        (&["rpc", "--mode", "bogus"], 2),
        (&["--mode", "rpc", "-p", "hi"], 2),
        (&["rpc", "--provider", "bogus"], 2),
        (&["rpc", "--model", "bogus"], 2),
        (&["rpc", "--session", "ffff"], 2),
        (&["rpc", "--continue"], 2),
        (&["--mode", "rpc", "--provider", "openai"], 2),
    ];
    for (arguments, code) in table {
        let ran = Outlast::new().run_with_stdin(arguments, "");
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{arguments:?}");
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
}
