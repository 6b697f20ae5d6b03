//! Runs `outlast rpc` as a process, and reads and writes its lines.
//!
//! Every received line must be a JSON object. A wait for an event starts after the last one; replies are found
//! anywhere.

use crate::support::{HANG_TIMEOUT, Outlast};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A client of `outlast rpc`; dropping it ends the process.
pub(crate) struct Rpc {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    frames: Vec<Value>,
    /// Index of the first frame that the next wait for an event looks at.
    next_frame: usize,
    ids: u32,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// The exit code and stderr of a process that has ended.
pub(crate) struct Left {
    pub(crate) code: Option<i32>,
    pub(crate) frames: Vec<Value>,
    pub(crate) stderr: String,
}

impl Rpc {
    /// Starts the pi dialect with the scripted provider.
    pub(crate) fn start(outlast: &Outlast, model: &str) -> Self {
        Self::with(outlast, &["--model", model])
    }

    pub(crate) fn with(outlast: &Outlast, arguments: &[&str]) -> Self {
        Self::spawn(outlast.command(&[&["rpc"], arguments].concat()))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8(line).unwrap_or_else(|_| "not UTF-8".to_owned());
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::<Mutex<String>>::default();
        let said = Arc::clone(&stderr);
        let listening = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                said.lock().unwrap().push_str(&text);
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
            frames: Vec::new(),
            next_frame: 0,
            ids: 0,
            stderr,
            readers: vec![reading, listening],
        }
    }

    // --- Sending ---

    /// Sends one line unchanged.
    pub(crate) fn line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        let sent = input.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = sent {
            panic!(
                "{line} could not be sent ({error}):\n{}",
                self.recent_frames()
            );
        }
    }

    /// Sends a command with a new id, and returns the id.
    pub(crate) fn send(&mut self, mut command: Value) -> String {
        self.ids += 1;
        let id = format!("c{}", self.ids);
        command["id"] = json!(id);
        self.line(&command.to_string());
        id
    }

    /// Sends a command without fields.
    pub(crate) fn send_command(&mut self, name: &str) -> String {
        self.send(json!({ "type": name }))
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    // --- Receiving ---

    /// Returns the next frame; `None` at the end of the output or at the deadline.
    fn next(&mut self, until: Instant) -> Option<&Value> {
        let left = until.saturating_duration_since(Instant::now());
        let line = self.lines.recv_timeout(left).ok()?;
        self.frames.push(read(&line));
        self.frames.last()
    }

    /// Returns the index of the first matching frame at or after `from`.
    fn find(&mut self, from: usize, is_it: impl Fn(&Value) -> bool) -> Option<usize> {
        let until = Instant::now() + HANG_TIMEOUT;
        let known = self.frames.iter().skip(from).position(&is_it);
        if let Some(place) = known {
            return Some(from + place);
        }
        while let Some(frame) = self.next(until) {
            if is_it(frame) {
                return Some(self.frames.len() - 1);
            }
        }
        None
    }

    /// Waits for the next matching event; later waits start after it.
    pub(crate) fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let Some(place) = self.find(self.next_frame, is_it) else {
            panic!("no {what} came:\n{}", self.recent_frames());
        };
        self.next_frame = place + 1;
        self.frames[place].clone()
    }

    /// Waits for the next event of the given type.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        self.wait(kind, |frame| frame["type"] == kind)
    }

    /// Waits for the reply with the given id.
    pub(crate) fn reply(&mut self, id: &str) -> Value {
        let is_it = |frame: &Value| frame["type"] == "response" && frame["id"] == id;
        let Some(place) = self.find(0, is_it) else {
            panic!("no reply to {id} came:\n{}", self.recent_frames());
        };
        self.frames[place].clone()
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn ask(&mut self, command: Value) -> Value {
        let id = self.send(command);
        self.reply(&id)
    }

    /// Sends a command that must succeed, and returns the data of its reply.
    pub(crate) fn data(&mut self, command: Value) -> Value {
        let asked = command.to_string();
        let reply = self.ask(command);
        assert_eq!(reply["success"], true, "{asked}: {reply}");
        reply["data"].clone()
    }

    /// Sends a command without fields, and returns the data of its reply.
    pub(crate) fn get(&mut self, name: &str) -> Value {
        self.data(json!({ "type": name }))
    }

    /// Sends a prompt and waits until it is accepted; later waits start after that.
    pub(crate) fn prompt(&mut self, message: &str) {
        let data = self.data(json!({ "type": "prompt", "message": message }));
        assert_eq!(data["disposition"], "started");
        let is_reply = |frame: &Value| frame["type"] == "response";
        let reply = self.frames.iter().rposition(is_reply);
        self.next_frame = reply.unwrap_or_default();
    }

    /// Makes later waits ignore all frames so far.
    pub(crate) fn forget(&mut self) {
        self.next_frame = self.frames.len();
    }

    /// Sends a prompt and waits for the completion.
    pub(crate) fn prompt_and_wait(&mut self, message: &str) -> Value {
        self.prompt(message);
        self.event("agent_settled")
    }

    /// Waits until nothing is running, and returns the state.
    pub(crate) fn idle(&mut self) -> Value {
        let until = Instant::now() + HANG_TIMEOUT;
        loop {
            let state = self.get("get_state");
            if state["isRunning"] == false && state["isCompacting"] == false {
                return state;
            }
            let story = || self.recent_frames();
            assert!(
                Instant::now() < until,
                "it does not end: {state}\n{}",
                story()
            );
        }
    }

    /// Returns all frames so far.
    pub(crate) fn frames(&self) -> &[Value] {
        &self.frames
    }

    /// Returns how many frames of the given type have arrived.
    pub(crate) fn count(&self, kind: &str) -> usize {
        let frames = self.frames.iter();
        frames.filter(|frame| frame["type"] == kind).count()
    }

    /// Returns all texts of the conversation, in order, each with its role.
    pub(crate) fn conversation(&mut self) -> Vec<(String, String)> {
        let messages = self.get("get_messages")["messages"].clone();
        let messages = messages.as_array().unwrap().iter();
        messages.map(|it| (word(&it["role"]), text(it))).collect()
    }

    /// Checks the frames of a dialogue whose commands all have replies: one reply for each command, one completion for
    /// each run.
    pub(crate) fn check(&self) {
        for number in 1..=self.ids {
            let id = format!("c{number}");
            let is_it = |frame: &&Value| frame["type"] == "response" && frame["id"] == *id;
            let count = self.frames.iter().filter(is_it).count();
            assert_eq!(count, 1, "replies to {id}:\n{}", self.recent_frames());
        }
        let mut run = None;
        for frame in &self.frames {
            let is_fine = is_in_place(frame, &mut run);
            assert!(
                is_fine,
                "{frame}, out of place in:\n{}",
                self.recent_frames()
            );
        }
        assert_eq!(run, None, "a run is not over:\n{}", self.recent_frames());
    }

    /// Summarises the last frames for a failed assertion.
    fn recent_frames(&self) -> String {
        let frames = self.frames.iter().rev().take(60).rev();
        let mut story: Vec<String> = frames
            .map(|frame| frame.to_string().chars().take(300).collect())
            .collect();
        story.push(format!("stderr: {}", self.stderr.lock().unwrap()));
        story.join("\n")
    }

    // --- The end ---

    /// Closes the input and waits until the process has ended.
    pub(crate) fn finish(mut self) -> Left {
        self.close_input();
        self.gone()
    }

    /// Waits until the process has ended.
    pub(crate) fn gone(&mut self) -> Left {
        let until = Instant::now() + HANG_TIMEOUT;
        while self.next(until).is_some() {}
        let code = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status.code(),
                None => assert!(
                    Instant::now() < until,
                    "it does not end:\n{}",
                    self.recent_frames()
                ),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        Left {
            code,
            frames: self.frames.clone(),
            stderr: self.stderr.lock().unwrap().clone(),
        }
    }

    /// Kills the process, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The progress of a run.
#[derive(Debug, PartialEq, Eq)]
enum Run {
    /// Its prompt is accepted.
    Accepted,
    Begun,
    /// It has produced a message.
    Said,
    Ended,
}

/// Whether the frame is valid at this point: a run begins once, produces a message, ends once and is settled.
fn is_in_place(frame: &Value, run: &mut Option<Run>) -> bool {
    let is_running = matches!(run, Some(Run::Begun | Run::Said));
    let (may_come, then) = match frame["type"].as_str().unwrap() {
        "response" if frame["data"]["disposition"] == "started" => {
            (run.is_none(), Some(Run::Accepted))
        }
        "agent_start" => (matches!(run, None | Some(Run::Accepted)), Some(Run::Begun)),
        "turn_start" => (is_running, Some(Run::Said)),
        "turn_end" | "message_start" | "message_update" | "message_end" => return is_running,
        "agent_end" => (*run == Some(Run::Said), Some(Run::Ended)),
        "agent_settled" => (*run == Some(Run::Ended), None),
        _ => return true,
    };
    *run = then;
    may_come
}

/// Parses a frame. A field that is nested too deeply for the parser (a tree is as deep as it is long) is kept as its
/// text.
fn read(line: &str) -> Value {
    if let Ok(frame @ Value::Object(_)) = serde_json::from_str(line) {
        return frame;
    }
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line)
        .unwrap_or_else(|error| panic!("a line is no object ({error}): {line}"));
    let value =
        |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| json!(raw.get()));
    fields
        .iter()
        .map(|(key, raw)| (key.clone(), value(raw)))
        .collect()
}

/// Returns a string value as an owned string.
pub(crate) fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the text of a message.
pub(crate) fn text(message: &Value) -> String {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.map(|block| word(&block["text"])).collect()
}

/// Creates a command in real time whose first retry is an hour away, so that it does not happen while a test looks at
/// the wait.
pub(crate) fn with_long_waits() -> Outlast {
    let outlast = in_real_time();
    let settings = "[retry]\nbase_delay_ms = 3600000\nmax_delay = \"2h\"\n";
    outlast.write("home/outlast.toml", settings);
    outlast
}

/// Creates a command whose clock runs in real time.
pub(crate) fn in_real_time() -> Outlast {
    let scale = "1";
    Outlast {
        scale,
        ..Outlast::new()
    }
}
