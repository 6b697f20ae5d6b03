//! A recorded dialogue, played again: every line that the client sent then is sent now, and whatever it found in the
//! frames that came back it must find in ours.
//!
//! What differs on purpose: a run ends once, when its retries are over, and is then settled; an unknown command is answered
//! with its id; the words of errors.

use crate::rpc_driver::{Rpc, in_real_time, word};
use crate::support::Outlast;
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("../../../serve/tests/golden-0.73.1.jsonl");
const ID: &str = "01900000-0000-7000-8000-000000000001";
/// What stands in for the recorded model until it failed, and from there on.
const ANSWERS: &str = "ok:agent,times=always";
const FAILS: &str = "error:429,times=1+hold:86400,times=always";
/// What a provider may tell and we do not keep.
const NOT_KEPT: &str = "responseId";

/// A line of the recording: whether the client sent it, and what it was.
fn recorded() -> Vec<(bool, String)> {
    let lines = RECORDED.lines();
    lines
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["dir"] == "in", word(&line["line"]))
        })
        .collect()
}

/// What is missing in the second of what the first has: fields, and their types.
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
        // What was not known then may be known now.
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

/// What a reply must have in common with the recorded one, beside its fields.
fn head(reply: &Value) -> [Value; 3] {
    ["command", "success", "type"].map(|key| reply[key].clone())
}

/// The dialogue, as far as it has come.
struct Replay {
    rpc: Rpc,
    /// The folder in whose place the recording has another one.
    folder: String,
    /// The entry that the recording forks from, in ours.
    entry: String,
    differences: Vec<String>,
}

impl Replay {
    /// A recorded line in the words of this run.
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

    /// Waits for the reply that the recording has here.
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

    /// Waits for the event that the recording has here.
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
fn whatever_a_client_found_in_a_recorded_dialogue_it_finds_in_ours() {
    let outlast = in_real_time();
    // The recorded conversation could be made smaller; ours has to be worth a summary.
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
            // A run that is retried is not over.
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

/// What a frame is, with what it updates; updates of the same kind are one.
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
fn the_frames_of_a_prompt_come_in_the_recorded_order_and_then_it_is_settled() {
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
fn a_field_that_is_missing_or_of_another_type_is_found_out() {
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
