//! Replays a recorded dialogue: sends every line that the client sent, and requires every field of the recorded frames
//! in the current ones.
//!
//! Intended differences: a run ends once, after its retries, and is then settled; the reply to an unknown command
//! carries its id; error messages are worded differently.

use crate::rpc_driver::{Rpc, in_real_time, word};
use crate::support::Outlast;
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("../../../serve/tests/golden-0.73.1.jsonl");
const ID: &str = "01900000-0000-7000-8000-000000000001";
/// Scripts in place of the recorded model: until it failed, and from then on.
const ANSWERS: &str = "ok:agent,times=always";
const FAILS: &str = "error:429,times=1+hold:86400,times=always";
/// A field that a provider may report and that is not kept.
const NOT_KEPT: &str = "responseId";

/// Returns the lines of the recording, each with whether the client sent it.
fn recorded() -> Vec<(bool, String)> {
    let lines = RECORDED.lines();
    lines
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["dir"] == "in", word(&line["line"]))
        })
        .collect()
}

/// Returns the fields of `wanted` that `found` lacks or holds with another type.
fn missing(wanted: &Value, found: &Value, path: &str) -> Vec<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted
            .iter()
            .filter(|(key, _)| *key != NOT_KEPT)
            .flat_map(|(key, value)| {
                let path = format!("{path}.{key}");
                match found.get(key) {
                    Some(found) => missing(value, found, &path),
                    None => vec![format!("{path} is not there")],
                }
            })
            .collect(),
        (Value::Array(wanted), Value::Array(found)) => match (wanted.first(), found.first()) {
            (Some(wanted), Some(found)) => missing(wanted, found, &format!("{path}[]")),
            (Some(_), None) => vec![format!("{path} is empty")],
            (None, _) => Vec::new(),
        },
        // A value that was null in the recording may be set now.
        (Value::Null, _) => Vec::new(),
        (wanted, found) if kind(wanted) == kind(found) => Vec::new(),
        (wanted, found) => vec![format!("{path}: {found} instead of {wanted}")],
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Returns the fields of a reply that must equal the recorded ones.
fn head(reply: &Value) -> [Value; 3] {
    ["command", "success", "type"].map(|key| reply[key].clone())
}

/// The dialogue as far as it has been replayed.
struct Replay {
    rpc: Rpc,
    /// The current folder; the recording names another one.
    folder: String,
    /// The current entry in place of the one that the recording forks from.
    entry: String,
    differences: Vec<String>,
}

impl Replay {
    /// Translates a recorded line to the folder and entry of this run.
    fn translated(&self, line: &str) -> String {
        let line = line.replace("/home/user", &self.folder);
        line.replace("\"m1\"", &format!("\"{ANSWERS}\""))
            .replace("b2dfb6b3", &self.entry)
    }

    fn send(&mut self, line: &str) {
        if line.contains("retry me") {
            let fails = json!({ "type": "set_model", "provider": "mock", "modelId": FAILS });
            self.rpc.data(fails);
        }
        let line = self.translated(line);
        self.rpc.line(&line);
    }

    /// Waits for the reply that the recording expects next.
    fn reply(&mut self, wanted: &Value) {
        let ours = match wanted["id"].as_str() {
            Some(id) => self.rpc.reply(id),
            None if wanted["command"] == "bogus_command" => self.rpc.reply("g33"),
            None => {
                let error = word(&wanted["error"]);
                let start: String = error.chars().take(15).collect();
                let is_it = |frame: &Value| {
                    frame.get("id").is_none() && word(&frame["error"]).starts_with(&start)
                };
                self.rpc.wait("answer to a line that is no command", is_it)
            }
        };
        let name = format!("{} {}", wanted["id"], wanted["command"]);
        if head(&ours) != head(wanted) {
            self.differences.push(format!("{name}: {ours}"));
            return;
        }
        let missing = missing(wanted, &ours, &name);
        self.differences.extend(missing);
        if wanted["id"] == "g29" {
            self.entry = word(&ours["data"]["messages"][0]["entryId"]);
        }
    }

    /// Waits for the event that the recording expects next.
    fn event(&mut self, wanted: &Value) {
        let ours = self.rpc.event(wanted["type"].as_str().unwrap());
        self.differences.extend(missing(
            wanted,
            &ours,
            wanted["type"].as_str().unwrap_or_default(),
        ));
    }
}

#[test]
fn replayed_dialogue_has_every_recorded_field() {
    let outlast = in_real_time();
    // The recorded conversation was compacted; the current one must be long enough for a summary.
    let long = "The first half of the work is done. ".repeat(4000);
    let turn = vec![
        prompt("hello there", typed(ANSWERS)),
        answer(&long),
        completed(),
    ];
    written::session(&outlast, ID, &[turn], LeftAs::Free);
    let mut replay = Replay {
        rpc: Rpc::with(&outlast, &["--session", ID]),
        folder: outlast.folder.path().to_str().unwrap().to_owned(),
        entry: String::new(),
        differences: Vec::new(),
    };
    let lines = recorded();
    for (place, (is_sent, line)) in lines.iter().enumerate() {
        if *is_sent {
            replay.send(line);
            continue;
        }
        let wanted: Value = serde_json::from_str(line).unwrap();
        let is_retried = |(_, next): &(bool, String)| next.contains("auto_retry_start");
        match wanted["type"].as_str().unwrap() {
            "response" => replay.reply(&wanted),
            // A run that is retried has not ended.
            "agent_end" if lines.get(place + 1).is_some_and(is_retried) => {}
            _ => replay.event(&wanted),
        }
    }
    assert!(
        replay.differences.is_empty(),
        "{}",
        replay.differences.join("\n")
    );
    assert_eq!(replay.rpc.event("agent_settled")["aborted"], true);
    assert_eq!(replay.rpc.finish().code, Some(0));
}

/// Returns the types of the frames, each with the type of its update; consecutive equal updates count once.
fn kinds(frames: &[Value]) -> Vec<String> {
    let events = frames
        .iter()
        .filter(|frame| frame["type"] != "response" && frame["type"] != "extension_ui_request");
    let kind = |frame: &Value| {
        let role = word(&frame["message"]["role"]);
        let update = word(&frame["assistantMessageEvent"]["type"]);
        format!("{} {role} {update}", word(&frame["type"]))
    };
    let mut kinds: Vec<String> = events.map(kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn prompt_frames_keep_recorded_order_then_settle() {
    let recorded = recorded();
    let frames: Vec<Value> = recorded
        .iter()
        .skip_while(|(is_sent, line)| !is_sent || !line.contains("hello there"))
        .skip(1)
        .take_while(|(is_sent, _)| !is_sent)
        .map(|(_, line)| serde_json::from_str(line).unwrap())
        .collect();
    let mut wanted = kinds(&frames);
    assert_eq!(wanted.len(), 11);
    wanted.push("agent_settled  ".to_owned());
    let outlast = Outlast::new();
    let mut rpc = Rpc::start(&outlast, "ok");
    rpc.prompt_and_wait("hello there");
    assert_eq!(rpc.frames()[0]["type"], "response", "it is accepted first");
    assert_eq!(kinds(rpc.frames()), wanted);
}

#[test]
fn comparison_detects_missing_and_mistyped_fields() {
    let wanted = json!({ "a": [{ "b": 1 }], "c": "x", "d": null, "responseId": "r" });
    let table = [
        (json!({ "a": [{ "b": 2, "more": 1 }], "c": "y", "d": 7 }), 0),
        (json!({ "a": [{}], "c": "y", "d": 7 }), 1),
        (json!({ "a": [], "c": 1 }), 3),
    ];
    for (found, count) in table {
        assert_eq!(missing(&wanted, &found, "").len(), count, "{found}");
    }
}
