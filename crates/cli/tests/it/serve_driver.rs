//! Runs `outlast serve` as a process, and offers its HTTP API as methods.

pub(crate) mod http;
pub(crate) mod socket;
pub(crate) mod transcript;

use crate::mock_server::wait_for;
use crate::support::{HANG_TIMEOUT, Outlast};
use http::{HttpResponse, Lines, Messages, RequestBuilder};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Settings in which the first wait of a retry chain is an hour.
pub(crate) const AN_HOUR: &str =
    "[retry]\nbase_delay_ms = 3600000\nmax_delay = \"2h\"\n[serve]\npolicy = \"session\"\n";

/// A running server; dropping it ends the process.
pub(crate) struct Serve {
    pub(crate) address: String,
    child: Child,
    stderr: Arc<Mutex<String>>,
    listening: Option<JoinHandle<()>>,
}

impl Serve {
    /// Starts a server whose sessions use the scripted provider.
    pub(crate) fn start(outlast: &Outlast, model: &str) -> Self {
        Self::with(outlast, &["--model", model])
    }

    pub(crate) fn with(outlast: &Outlast, arguments: &[&str]) -> Self {
        let before = ["serve", "--listen", "127.0.0.1:0"];
        let mut command = outlast.command(&[&before, arguments].concat());
        Self::spawn(command.env("PATH", "/usr/bin:/bin"))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let stderr = Arc::<Mutex<String>>::default();
        let said = Arc::clone(&stderr);
        let listening = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                said.lock().unwrap().push_str(&text);
            }
        });
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let Some(address) = address.map(str::to_owned) else {
            child.wait().unwrap();
            listening.join().unwrap();
            panic!("{line:?} {}", stderr.lock().unwrap());
        };
        Self {
            address,
            child,
            stderr,
            listening: Some(listening),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    // --- Requests ---

    pub(crate) fn ask(&self, method: &'static str, path: &str) -> RequestBuilder {
        RequestBuilder::new(&self.address, method, path)
    }

    /// Sends a GET request that must succeed, and returns the body.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path).send().well()
    }

    /// Sends a POST request that must succeed, and returns the body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", path).json(body).send().well()
    }

    // --- Sessions ---

    /// Creates a session with the given settings, and returns its id.
    pub(crate) fn begin(&self, wishes: &Value) -> String {
        let session = self.post("/api/sessions", wishes);
        session["id"].as_str().unwrap().to_owned()
    }

    /// Creates a session with default settings.
    pub(crate) fn session(&self) -> String {
        self.begin(&json!({}))
    }

    /// Sends a prompt, and follows the turn that it begins.
    pub(crate) fn prompt_and_follow(&self, id: &str, text: &str) -> Lines {
        let path = format!("/api/sessions/{id}/prompt");
        let ask = self.ask("POST", &path).json(&json!({ "text": text }));
        ask.with("accept", "application/x-ndjson").send().lines()
    }

    /// Sends a prompt without following the turn, and returns the reply.
    pub(crate) fn leave(&self, id: &str, text: &str) -> Value {
        let path = format!("/api/sessions/{id}/prompt");
        self.post(&path, &json!({ "text": text }))["disposition"].clone()
    }

    /// Sends a command such as `abort` for the turn of a session.
    pub(crate) fn order(&self, id: &str, order: &str) {
        let path = format!("/api/sessions/{id}/{order}");
        let answer = self.ask("POST", &path).send();
        let (status, said) = (answer.status, answer.text());
        assert_eq!((status, said.as_str()), (204, ""), "{order}");
    }

    pub(crate) fn show(&self, id: &str) -> Value {
        self.get(&format!("/api/sessions/{id}"))
    }

    pub(crate) fn snapshot(&self, id: &str) -> Value {
        self.get(&format!("/api/sessions/{id}/snapshot"))
    }

    /// Returns the cursor after all events so far.
    pub(crate) fn current_cursor(&self, id: &str) -> String {
        self.snapshot(id)["place"].as_str().unwrap().to_owned()
    }

    /// Returns the events of a snapshot.
    pub(crate) fn snapshot_events(&self, id: &str) -> Vec<Value> {
        let snapshot = self.snapshot(id);
        assert_eq!(snapshot["truncated"], false);
        snapshot["events"].as_array().unwrap().clone()
    }

    /// Opens the server-sent events of a session after a cursor, or from a snapshot on.
    pub(crate) fn sse(&self, id: &str, last: Option<&str>) -> Messages {
        let path = format!("/api/sessions/{id}/events");
        let ask = self.ask("GET", &path).with("accept", "text/event-stream");
        let answer = match last {
            Some(last) => ask.with("last-event-id", last).send(),
            None => ask.send(),
        };
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        answer.messages()
    }

    /// Opens the event lines of a session after a cursor, each with its own cursor.
    pub(crate) fn envelopes(&self, id: &str, after: &str) -> Lines {
        self.follow(id, &format!("envelope=true&after={after}"))
            .lines()
    }

    pub(crate) fn follow(&self, id: &str, query: &str) -> HttpResponse {
        self.ask("GET", &format!("/api/sessions/{id}/events?{query}"))
            .send()
    }

    /// Waits until the state of a session satisfies the condition, and returns it.
    pub(crate) fn when(&self, id: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + HANG_TIMEOUT;
        loop {
            let session = self.show(id);
            if is_it(&session) {
                return session;
            }
            assert!(Instant::now() < until, "{session}\n{}", self.complaints());
            // The server limits an address to 1000 requests a second.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn when_idle(&self, id: &str) -> Value {
        self.when(id, |session| session["state"] == "idle")
    }

    /// Waits until a session waits before a retry.
    pub(crate) fn when_waiting(&self, id: &str) -> Value {
        self.when(id, |session| session["state"] == "waiting")
    }

    // --- The end ---

    /// Returns the stderr output so far.
    pub(crate) fn complaints(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Returns the stderr output as soon as it is a whole line.
    pub(crate) fn complaint(&self) -> String {
        wait_for("complaint", || self.complaints().ends_with('\n'));
        self.complaints()
    }

    /// Kills the server, as a crash does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end of the server, and returns its exit code and stderr.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.listening.take().unwrap().join().unwrap();
        (code, self.complaints())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns the types of events in order; consecutive pieces of one text count once.
pub(crate) fn kinds(events: &[Value]) -> Vec<String> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    let mut kinds: Vec<String> = kinds.map(str::to_owned).collect();
    kinds.dedup_by(|next, last| next == last && next.ends_with("-delta"));
    kinds
}

/// Returns the events of the given type.
pub(crate) fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let events = events.iter();
    events.filter(|event| event["type"] == kind).collect()
}
