//! `outlast rpc` as a process of its own, and both ends of the lines to it.
//!
//! Every line that comes must be a JSON object. Events are waited for from where the last wait has ended; replies are found
//! wherever they came.

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

/// A client of `outlast rpc`; the process ends with it.
pub(crate) struct Rpc {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    frames: Vec<Value>,
    /// From where on events are waited for.
    place: usize,
    ids: u32,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// What was left of a process.
pub(crate) struct Left {
    pub(crate) code: Option<i32>,
    pub(crate) frames: Vec<Value>,
    pub(crate) stderr: String,
}

impl Rpc {
    /// The pi dialect, with the scripted provider.
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
            place: 0,
            ids: 0,
            stderr,
            readers: vec![reading, listening],
        }
    }

    // --- What is sent ---

    /// One line, as it is.
    pub(crate) fn line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        let sent = input.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = sent {
            panic!("{line} could not be sent ({error}):\n{}", self.story());
        }
    }

    /// A command; it is given an id, which is handed back.
    pub(crate) fn send(&mut self, mut command: Value) -> String {
        self.ids += 1;
        let id = format!("c{}", self.ids);
        command["id"] = json!(id);
        self.line(&command.to_string());
        id
    }

    /// A command without fields.
    pub(crate) fn say(&mut self, name: &str) -> String {
        self.send(json!({ "type": name }))
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    // --- What comes ---

    /// The next frame; `None` when no more come, or not in time.
    fn next(&mut self, until: Instant) -> Option<&Value> {
        let left = until.saturating_duration_since(Instant::now());
        let line = self.lines.recv_timeout(left).ok()?;
        self.frames.push(read(&line));
        self.frames.last()
    }

    /// The first frame from there on that is wanted.
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

    /// The next event that is wanted; what came before it is behind.
    pub(crate) fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let Some(place) = self.find(self.place, is_it) else {
            panic!("no {what} came:\n{}", self.story());
        };
        self.place = place + 1;
        self.frames[place].clone()
    }

    /// The next event of that kind.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        self.wait(kind, |frame| frame["type"] == kind)
    }

    /// The reply to what has that id.
    pub(crate) fn reply(&mut self, id: &str) -> Value {
        let is_it = |frame: &Value| frame["type"] == "response" && frame["id"] == id;
        let Some(place) = self.find(0, is_it) else {
            panic!("no reply to {id} came:\n{}", self.story());
        };
        self.frames[place].clone()
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn ask(&mut self, command: Value) -> Value {
        let id = self.send(command);
        self.reply(&id)
    }

    /// Asks something that must be done; the answer is its data.
    pub(crate) fn data(&mut self, command: Value) -> Value {
        let asked = command.to_string();
        let reply = self.ask(command);
        assert_eq!(reply["success"], true, "{asked}: {reply}");
        reply["data"].clone()
    }

    /// What an asked command without fields answers.
    pub(crate) fn get(&mut self, name: &str) -> Value {
        self.data(json!({ "type": name }))
    }

    /// Prompts and waits until it is accepted; what came before that is behind.
    pub(crate) fn prompt(&mut self, message: &str) {
        let data = self.data(json!({ "type": "prompt", "message": message }));
        assert_eq!(data["disposition"], "started");
        let is_reply = |frame: &Value| frame["type"] == "response";
        let reply = self.frames.iter().rposition(is_reply);
        self.place = reply.unwrap_or_default();
    }

    /// What has come until now is behind.
    pub(crate) fn forget(&mut self) {
        self.place = self.frames.len();
    }

    /// Prompts and waits for the completion.
    pub(crate) fn prompt_and_wait(&mut self, message: &str) -> Value {
        self.prompt(message);
        self.event("agent_settled")
    }

    /// The state when nothing is under way any more.
    pub(crate) fn idle(&mut self) -> Value {
        let until = Instant::now() + HANG_TIMEOUT;
        loop {
            let state = self.get("get_state");
            if state["isRunning"] == false && state["isCompacting"] == false {
                return state;
            }
            let story = || self.story();
            assert!(
                Instant::now() < until,
                "it does not end: {state}\n{}",
                story()
            );
        }
    }

    /// All frames until now.
    pub(crate) fn frames(&self) -> &[Value] {
        &self.frames
    }

    /// How many frames of that kind have come until now.
    pub(crate) fn count(&self, kind: &str) -> usize {
        let frames = self.frames.iter();
        frames.filter(|frame| frame["type"] == kind).count()
    }

    /// All texts of the conversation, in order, each with who said it.
    pub(crate) fn conversation(&mut self) -> Vec<(String, String)> {
        let messages = self.get("get_messages")["messages"].clone();
        let messages = messages.as_array().unwrap().iter();
        messages.map(|it| (word(&it["role"]), text(it))).collect()
    }

    /// Checks what must be true of everything that came until now, when all has been answered: each command once, and one
    /// completion for each run.
    pub(crate) fn check(&self) {
        for number in 1..=self.ids {
            let id = format!("c{number}");
            let is_it = |frame: &&Value| frame["type"] == "response" && frame["id"] == *id;
            let count = self.frames.iter().filter(is_it).count();
            assert_eq!(count, 1, "replies to {id}:\n{}", self.story());
        }
        let mut run = None;
        for frame in &self.frames {
            let is_fine = is_in_place(frame, &mut run);
            assert!(is_fine, "{frame}, out of place in:\n{}", self.story());
        }
        assert_eq!(run, None, "a run is not over:\n{}", self.story());
    }

    /// What came, in a few words each, for people.
    fn story(&self) -> String {
        let frames = self.frames.iter().rev().take(60).rev();
        let mut story: Vec<String> = frames
            .map(|frame| frame.to_string().chars().take(300).collect())
            .collect();
        story.push(format!("stderr: {}", self.stderr.lock().unwrap()));
        story.join("\n")
    }

    // --- The end ---

    /// Closes its input and waits until it has gone.
    pub(crate) fn finish(mut self) -> Left {
        self.close_input();
        self.gone()
    }

    /// Waits until it has gone.
    pub(crate) fn gone(&mut self) -> Left {
        let until = Instant::now() + HANG_TIMEOUT;
        while self.next(until).is_some() {}
        let code = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status.code(),
                None => assert!(Instant::now() < until, "it does not end:\n{}", self.story()),
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

    /// Ends it at once, as a crash does.
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

/// How far a run has come.
#[derive(Debug, PartialEq, Eq)]
enum Run {
    /// Its prompt is accepted.
    Accepted,
    Begun,
    /// Something was said in it.
    Said,
    Ended,
}

/// Whether a frame may come there: a run begins once, says something, ends once and is settled.
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

/// A frame as it was written. A field that is nested deeper than is read here (a tree is as deep as it is long) is kept as
/// its text.
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

/// A text as such.
pub(crate) fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What a message says.
pub(crate) fn text(message: &Value) -> String {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.map(|block| word(&block["text"])).collect()
}

/// One in real time whose first retry is an hour away: it does not come while a test looks at the wait.
pub(crate) fn with_long_waits() -> Outlast {
    let outlast = in_real_time();
    let settings = "[retry]\nbase_delay_ms = 3600000\nmax_delay = \"2h\"\n";
    outlast.write("home/outlast.toml", settings);
    outlast
}

/// A command that runs as fast as the clock on the wall.
pub(crate) fn in_real_time() -> Outlast {
    let scale = "1";
    Outlast {
        scale,
        ..Outlast::new()
    }
}
