//! The data folder of release 0.1: this version opens it and continues its sessions and runs.
//!
//! `samples/home-0.1` was made by the released binary and is frozen; its `README.md` describes the content and how it
//! was made. Each test works on a copy with the path of the project replaced. Waits and gates of the fixture are either
//! over for good or end in 2126, so that the tests hold at any later date. A test that fails here breaks the data of
//! users.

use crate::mock_server::wait_for;
use crate::run_driver::Run;
use crate::support::{CommandResult, HANG_TIMEOUT, Outlast};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples/home-0.1");
/// The path of the project when the fixture was made, padded with `x`. A path of the same length can take its place in any
/// file, databases included.
const PROJECT_PREFIX: &str = "/tmp/outlast-0.1-";
const PROJECT_LENGTH: usize = 100;
const GREETING: &str = "Hello from the scripted provider: no network, no key, no cost. You said:";

/// A copy of the fixture.
struct ReleasedHome {
    outlast: Outlast,
    project: PathBuf,
}

impl ReleasedHome {
    fn copy() -> Self {
        let outlast = Outlast::in_real_time();
        let folder = outlast.folder.path().canonicalize().unwrap();
        let padding = PROJECT_LENGTH.checked_sub(folder.as_os_str().len() + 1);
        let padding = padding.filter(|length| *length > 0);
        let Some(padding) = padding else {
            panic!("set TMPDIR to a shorter path than {}", folder.display());
        };
        let name = "p".repeat(padding);
        let project = folder.join(name);
        let original = format!("{PROJECT_PREFIX:x<PROJECT_LENGTH$}");
        let (old, new) = (original.as_bytes(), project.to_str().unwrap().as_bytes());
        let fixture = Path::new(FIXTURE);
        copy(&fixture.join("home"), &outlast.home(), old, new);
        copy(&fixture.join("project"), &project, old, new);
        Self { outlast, project }
    }

    /// Creates a command in the folder of the project.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.outlast.with_path(arguments);
        command.current_dir(&self.project);
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(&mut self.command(arguments))
    }

    /// Returns the stdout of a command that must succeed.
    fn succeed(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        ran.stdout
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.succeed(arguments)).unwrap()
    }

    fn lines_of(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.project.join(file)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    // --- sessions ---

    /// Returns the ids of the sessions with that title, the newest first.
    fn sessions(&self, title: &str) -> Vec<String> {
        let all = self.json(&["sessions", "list", "--json"]);
        let all = all.as_array().unwrap().iter();
        let titled = all.filter(|session| session["title"] == title);
        titled.map(|session| text(&session["id"])).collect()
    }

    fn session(&self, title: &str) -> String {
        let mut ids = self.sessions(title);
        assert_eq!(ids.len(), 1, "{title}");
        ids.remove(0)
    }

    fn entries(&self, session: &str) -> Vec<Value> {
        let lines = self.succeed(&["sessions", "export", session, "--format", "jsonl"]);
        let lines = lines.lines().skip(1);
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    // --- runs ---

    fn run_id(&self, name: &str) -> String {
        let lines = self.succeed(&["runs"]);
        let line = lines.lines().find(|line| line.ends_with(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    }

    fn written_run(&self, id: &str) -> Run {
        Run::read(&self.run(&["runs", "show", id, "--json"]))
    }
}

/// Copies a folder and replaces a path in all of its files; only the user can read the copy, as the original.
fn copy(from: &Path, to: &Path, old_path: &[u8], new_path: &[u8]) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to, old_path, new_path);
            continue;
        }
        let mut bytes = fs::read(&from).unwrap();
        replace(&mut bytes, old_path, new_path);
        fs::write(&to, bytes).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| position(rest, old)) {
        at += found;
        bytes[at..at + new.len()].copy_from_slice(new);
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Returns how many entries are of that kind.
fn count(entries: &[Value], kind: &str) -> usize {
    entries.iter().filter(|entry| entry["kind"] == kind).count()
}

fn contains(entries: &[Value], part: &str) -> bool {
    entries.iter().any(|entry| entry.to_string().contains(part))
}

/// Returns the entries that `after` has in addition to `before`, which must be unchanged.
fn added<'a>(before: &[Value], after: &'a [Value]) -> &'a [Value] {
    assert_eq!(&after[..before.len()], before);
    &after[before.len()..]
}

// --- sessions ---

#[test]
fn released_sessions_are_listed_with_their_states() {
    let home = ReleasedHome::copy();
    let all = home.json(&["sessions", "list", "--json"]);
    let all = all.as_array().unwrap().iter();
    let row = |row: &Value| format!("{} {} {}", row["title"], row["state"], row["turns"]);
    let expected = [
        r#""Wait with a queue" "unfinished" 1"#,
        r#""Original one" "finished" 2"#,
        r#""Original one" "finished" 2"#,
        r#""Work and wait" "unfinished" 1"#,
        r#""First part" "finished" 2"#,
        r#""This takes too long" "failed" 1"#,
        r#""This cannot work" "failed" 1"#,
        r#""Look at the notes" "finished" 2"#,
    ];
    assert_eq!(all.map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn finished_session_shows_its_whole_transcript() {
    let home = ReleasedHome::copy();
    let shown = home.succeed(&["sessions", "show", &home.session("Look at the notes")]);
    let parts = [
        "Look at the notes",
        "529",
        "echo finished >> tools-run; cat tools-run",
        "The notes of the project.",
        "Done after 2 steps.",
        "Thank you",
        "You are welcome.",
    ];
    let mut rest = shown.as_str();
    for part in parts {
        let found = rest.split_once(part);
        rest = found.unwrap_or_else(|| panic!("no {part}: {shown}")).1;
    }
}

#[test]
fn finished_session_continues_with_its_history() {
    let home = ReleasedHome::copy();
    let id = home.session("Look at the notes");
    let before = home.entries(&id);
    let prompt = "Read it again\ncall read {\"path\":\"notes.txt\"}";
    let said = home.succeed(&["-p", prompt, "--session", &id]);
    assert_eq!(said, "Done after 1 steps. The notes of the project.\n");
    let after = home.entries(&id);
    let added = added(&before, &after);
    assert_eq!((count(added, "prompt"), count(added, "settled")), (1, 1));
    // The provider numbers its calls by the prompts that it receives: this was the third.
    assert!(contains(added, "call_3_0_0"), "{added:#?}");
    assert_eq!(home.lines_of("tools-run"), ["finished", "waited"]);
}

#[test]
fn failed_sessions_say_why_and_continue() {
    let home = ReleasedHome::copy();
    let table = [
        ("This cannot work", "401", "auth"),
        ("This takes too long", "529", "overloaded"),
    ];
    for (title, status, cause) in table {
        let id = home.session(title);
        let shown = home.succeed(&["sessions", "show", &id]);
        assert!(shown.contains(status), "{shown}");
        let before = home.entries(&id);
        let settled = before.last().unwrap();
        assert_eq!(settled["kind"], "settled", "{settled}");
        assert!(settled.to_string().contains(cause), "{settled}");
        let said = home.succeed(&["-p", "And now?", "--session", &id, "--model", "ok"]);
        assert_eq!(said, format!("{GREETING} And now?\n"));
        assert_eq!(count(added(&before, &home.entries(&id)), "settled"), 1);
    }
}

#[test]
fn waiting_session_resumes_without_running_its_tool_again() {
    let home = ReleasedHome::copy();
    let id = home.session("Work and wait");
    let before = home.entries(&id);
    assert_eq!(count(&before, "tool_finished"), 1, "{before:#?}");
    assert_eq!(home.succeed(&["resume", &id]), "It is done.\n");
    let after = home.entries(&id);
    let added = added(&before, &after);
    let kinds: Vec<&str> = added
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["wait_ended", "attempt_started", "message", "settled"]
    );
    assert_eq!(added[3]["seal"], "completed");
    assert_eq!(home.lines_of("tools-run"), ["finished", "waited"]);
}

#[test]
fn queued_messages_are_sent_when_their_session_resumes() {
    let home = ReleasedHome::copy();
    let id = home.session("Wait with a queue");
    let before = home.entries(&id);
    let said = home.succeed(&["resume", &id]);
    assert_eq!(
        said,
        format!("{GREETING} Steered\n{GREETING} Followed up\n")
    );
    let after = home.entries(&id);
    let added = added(&before, &after);
    assert_eq!((count(added, "said"), count(added, "settled")), (2, 2));
}

#[test]
fn resume_continues_every_unfinished_session() {
    let home = ReleasedHome::copy();
    home.succeed(&["resume"]);
    let states = home.json(&["sessions", "list", "--json"]);
    for title in ["Work and wait", "Wait with a queue"] {
        let session = states.as_array().unwrap().iter();
        let session = session.clone().find(|session| session["title"] == title);
        assert_eq!(session.unwrap()["state"], "finished", "{title}");
    }
    assert_eq!(home.lines_of("tools-run"), ["finished", "waited"]);
}

#[test]
fn compacted_session_continues_from_its_summary() {
    let home = ReleasedHome::copy();
    let id = home.session("First part");
    let before = home.entries(&id);
    assert_eq!(count(&before, "compacted"), 1);
    let said = home.succeed(&["-p", "Third part\nsay Three.", "--session", &id]);
    assert_eq!(said, "Three.\n");
    let after = home.entries(&id);
    let settled = added(&before, &after).last().unwrap();
    assert_eq!(settled["seal"], "completed");
    // The summary replaces a thousand words.
    let read = settled["usage"]["input"].as_u64().unwrap();
    assert!(read < 1000, "{settled}");
}

#[test]
fn forked_session_continues_apart_from_its_original() {
    let home = ReleasedHome::copy();
    let ids = home.sessions("Original one");
    let [fork, original] = ids.as_slice() else {
        panic!("{ids:?}");
    };
    let (entries, others) = (home.entries(fork), home.entries(original));
    assert!(contains(&entries, "Original one") && contains(&others, "Original one"));
    assert!(contains(&entries, "Forked two") && !contains(&entries, "Original two"));
    assert!(contains(&others, "Original two") && !contains(&others, "Forked two"));
    let said = home.succeed(&["-p", "Forked three", "--session", fork]);
    assert_eq!(said, format!("{GREETING} Forked three\n"));
    assert_eq!(home.entries(original), others);
}

#[test]
fn doctor_finds_released_home_sound() {
    let home = ReleasedHome::copy();
    let said = home.succeed(&["doctor"]);
    let lines: Vec<&str> = said.lines().collect();
    for check in ["files", "sessions", "settings"] {
        let is_ok = |line: &&str| line.split_whitespace().take(2).eq(["ok", check]);
        assert!(lines.iter().any(is_ok), "{check}: {said}");
    }
}

// --- runs ---

#[test]
fn released_runs_are_listed_with_their_states() {
    let home = ReleasedHome::copy();
    let lines = home.succeed(&["runs"]);
    let states: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split_whitespace().skip(2).collect())
        .collect();
    let expected = [
        ["unfinished", "gated"],
        ["unfinished", "waiting"],
        ["failed", "failed"],
        ["completed", "finished"],
    ];
    assert_eq!(states, expected);
}

#[test]
fn finished_run_prints_its_outputs() {
    let home = ReleasedHome::copy();
    let id = home.run_id("finished");
    let output = |step| home.succeed(&["runs", "output", &id, step]);
    assert_eq!(output("one"), "one\n");
    assert_eq!(
        output("two").trim_end(),
        format!("{GREETING} Repeat this: one")
    );
    let report = home.succeed(&["runs", "report", &id, "--format", "markdown"]);
    assert!(report.contains("two"), "{report}");
}

#[test]
fn failed_run_says_why_and_retries_only_what_failed() {
    let home = ReleasedHome::copy();
    let id = home.run_id("failed");
    let shown = home.succeed(&["runs", "show", &id]);
    assert!(shown.contains("fatal: not a git repository"), "{shown}");
    let before = home.written_run(&id);
    assert_eq!(before.outcomes("broken"), ["failed"]);
    let run = home.run(&["run", "--resume", &id]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let after = home.written_run(&id);
    assert_eq!(
        after.of("broken", "attempt_started").len(),
        2,
        "{}",
        after.dump()
    );
    assert_eq!(
        after.of("first", "attempt_started").len(),
        1,
        "{}",
        after.dump()
    );
}

#[test]
fn gated_run_finishes_after_approval_without_repeating_steps() {
    let home = ReleasedHome::copy();
    let id = home.run_id("gated");
    assert_eq!(home.lines_of("steps-run"), ["before", "prepared"]);
    let session = home.succeed(&["runs", "show", &id, "--step", "draft"]);
    assert!(
        session.contains("529") && session.contains("notes about fixtures"),
        "{session}"
    );
    home.succeed(&["runs", "approve", &id, "--choice", "y"]);
    let said = home.succeed(&["run", "--resume", &id]);
    let draft = format!("{GREETING} Write about this: notes about fixtures");
    assert_eq!(said.trim_end(), draft);
    let run = home.written_run(&id);
    assert_eq!(run.outcome(), "completed", "{}", run.dump());
    assert_eq!(run.of("approve", "gate_closed")[0]["choice"], "y");
    for step in ["prepare", "draft", "publish"] {
        let attempts = run.of(step, "attempt_started").len();
        assert_eq!(attempts, 1, "{step}: {}", run.dump());
    }
    let lines = ["before", "prepared", "published"];
    assert_eq!(home.lines_of("steps-run"), lines);
}

#[test]
fn waiting_run_makes_its_second_attempt() {
    let home = ReleasedHome::copy();
    let id = home.run_id("waiting");
    home.succeed(&["run", "--resume", &id]);
    let run = home.written_run(&id);
    assert_eq!(run.outcome(), "completed", "{}", run.dump());
    assert_eq!(run.attempts("fetch"), ["rate_limited: wait", "finish"]);
    let lines = ["before", "prepared", "fetched"];
    assert_eq!(home.lines_of("steps-run"), lines);
}

// --- accounts, gates and holds ---

/// Returns the accounts and their states from the user's settings: those of the project use none.
fn accounts(home: &ReleasedHome) -> Vec<(String, String)> {
    let ran = home.outlast.run(&["accounts", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows: Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (text(&row["name"]), text(&row["state"])))
        .collect()
}

fn named(main: &str) -> Vec<(String, String)> {
    let row = |name: &str, state: &str| (format!("{name}@provider.invalid"), state.to_owned());
    vec![row("main", main), row("spare", "free")]
}

#[test]
fn blocked_account_is_listed_until_it_is_unblocked() {
    let home = ReleasedHome::copy();
    assert_eq!(accounts(&home), named("blocked"));
    let ran = home.outlast.run(&["accounts", "--json"]);
    assert!(ran.stdout.contains("2126-10-25T"), "{}", ran.stdout);
    assert!(ran.stdout.contains("usage_limit"), "{}", ran.stdout);
    let ran = home.outlast.run(&["accounts", "--unblock", "main"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(accounts(&home), named("free"));
}

#[test]
fn prompt_uses_free_account_while_other_is_blocked() {
    let home = ReleasedHome::copy();
    // The address of the provider does not exist: this proxy receives the requests.
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut socket, _) = proxy.accept().unwrap();
        let head = head(&mut socket);
        let body = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(answer.as_bytes()).unwrap();
        head
    });
    let mut command = home.outlast.command(&["-p", "Say hello", "--no-stream"]);
    command
        .env("HTTP_PROXY", &url)
        .env("MAIN_KEY", "key-of-main")
        .env("SPARE_KEY", "key-of-spare");
    let ran = CommandResult::of(&mut command);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "Hello\n"),
        "{}",
        ran.stderr
    );
    let head = asked.join().unwrap();
    assert!(head.contains("key-of-spare"), "{head}");
    assert!(head.contains("http://provider.invalid/v1/"), "{head}");
}

/// Reads a request and returns its head.
fn head(socket: &mut TcpStream) -> String {
    socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let lower = head.to_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    head
}

/// A gateway of this version that takes over the file of the released one; dropping it ends the process.
struct Gateway<'a> {
    home: &'a ReleasedHome,
    address: String,
    child: Child,
}

impl<'a> Gateway<'a> {
    /// The holds of a gateway are in the file of its port, so the file is named after one that is free here. Another
    /// process may take the port before the gateway does; then the next one is tried.
    fn start(home: &'a ReleasedHome, upstream: &str) -> Self {
        let file = |port| home.outlast.home().join(format!("gateway-{port}.db"));
        let mut named = 4180;
        for _ in 0..10 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            drop(listener);
            fs::rename(file(named), file(address.port())).unwrap();
            named = address.port();
            let address = address.to_string();
            let arguments = ["gateway", "--listen", &address, "--upstream", upstream];
            let mut command = home.command(&[&arguments[..], &["--log", "off"]].concat());
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let stdout = child.stdout.as_mut().unwrap();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            let gateway = Self {
                home,
                address,
                child,
            };
            if line == format!("listening on http://{}\n", gateway.address) {
                return gateway;
            }
        }
        panic!("the gateway does not start");
    }

    fn status(&self) -> Value {
        self.home.json(&["gateway", "status", "--json"])
    }

    /// Returns the requests that are held for the model which is closed until 2126; others of the fixture have expired.
    fn held_requests(&self) -> Vec<Value> {
        let status = self.status();
        let all = status["waiting"].as_array().unwrap().iter();
        let held = all.filter(|held| held["model"] == "closed");
        held.cloned().collect()
    }

    /// Returns the held request whose client is connected.
    fn live_request(&self) -> Option<Value> {
        let mut held = self.held_requests().into_iter();
        held.find(|held| held["left"].is_null())
    }

    /// Sends a request of the fixture again, as its client would.
    fn resend(&self, content: &str) -> TcpStream {
        let body = format!(
            r#"{{"model": "closed", "messages": [{{"role": "user", "content": "{content}"}}]}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             authorization: Bearer key-of-client\r\nuser-agent: fixture\r\nx-outlast-client: codex\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        socket
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn gateway_reports_released_holds_and_gates() {
    let home = ReleasedHome::copy();
    let gateway = Gateway::start(&home, "mock:ok");
    let held = gateway.held_requests();
    let rows: Vec<(u64, &str, &str)> = held
        .iter()
        .map(|held| {
            assert!(held["wake"].as_str().unwrap().starts_with("2126-10-25T"));
            assert!(held["left"].is_string(), "{held}");
            let attempts = held["attempts"].as_u64().unwrap();
            let cause = held["cause"].as_str().unwrap_or_default();
            (attempts, held["client"].as_str().unwrap(), cause)
        })
        .collect();
    assert_eq!(rows, [(1, "codex", "usage_limit"), (0, "codex", "")]);
    // The first start of this version drops what 0.1 knew of its gates.
    assert_eq!(gateway.status()["gates"], Value::Array(Vec::new()));
}

#[test]
fn gateway_resumes_released_hold_when_its_request_is_sent_again() {
    let home = ReleasedHome::copy();
    let gateway = Gateway::start(&home, "mock:ok");
    let mut socket = gateway.resend("Held 1");
    wait_for("request that waits", || gateway.live_request().is_some());
    let held = gateway.live_request().unwrap();
    assert_eq!(
        (&held["attempts"], &held["resent"]),
        (&1.into(), &1.into()),
        "{held}"
    );
    // The wait of the released gateway lasts until 2126, unless a person ends it.
    home.succeed(&["gateway", "retry-now", held["id"].as_str().unwrap()]);
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // One attempt of the released gateway, and one of this version.
    assert!(answer.contains("x-outlast-attempts: 2\r\n"), "{answer}");
    assert!(answer.contains("You said: Held 1"), "{answer}");
    assert_eq!(gateway.status()["counters"]["taken_up"], 1);
    wait_for("end of the hold", || gateway.held_requests().len() == 1);
}

#[test]
fn gateway_holds_request_at_released_gate() {
    let home = ReleasedHome::copy();
    // Nothing listens there: an attempt would be counted.
    let gateway = Gateway::start(&home, "http://provider.invalid");
    let mut socket = gateway.resend("Held 2");
    wait_for("request that waits", || gateway.live_request().is_some());
    let held = gateway.live_request().unwrap();
    assert_eq!(
        (&held["attempts"], &held["resent"]),
        (&0.into(), &1.into()),
        "{held}"
    );
    assert!(
        held["wake"].as_str().unwrap().starts_with("2126-10-25T"),
        "{held}"
    );
    home.succeed(&["gateway", "cancel", held["id"].as_str().unwrap()]);
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

// --- trust and settings ---

/// A prompt that runs a command, which only a trusted project allows.
const COMMAND: &str = "call bash {\"command\":\"echo trusted >> tools-run\"}\nsay Asked.";

#[test]
fn released_trust_lets_project_allow_tools() {
    let home = ReleasedHome::copy();
    let listed = home.succeed(&["trust", "--list"]);
    assert_eq!(listed, format!("{}\n", home.project.display()));
    let ran = home.run(&["-p", COMMAND]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "Asked.\n"),
        "{}",
        ran.stderr
    );
    let lines = ["finished", "waited", "trusted"];
    assert_eq!(home.lines_of("tools-run"), lines);
    home.succeed(&["trust", "--remove"]);
    let ran = home.run(&["-p", COMMAND]);
    assert!(ran.stderr.contains("tools.allow"), "{}", ran.stderr);
    assert_eq!(home.lines_of("tools-run"), lines);
}

#[test]
fn released_settings_of_user_and_project_are_read() {
    let home = ReleasedHome::copy();
    home.succeed(&["config", "check"]);
    let shown = home.succeed(&["config", "show"]);
    let table = [
        ("provider", "mock", "project"),
        ("model", "ok:agent,times=always", "project"),
        ("tools.allow", "bash", "project"),
        ("retry.policy", "overnight", "user"),
        ("retry.wait_for_reset", "true", "user"),
        (
            "providers.openai.base_url",
            "http://provider.invalid/v1",
            "user",
        ),
        ("accounts.main.api_key_env", "MAIN_KEY", "user"),
        ("accounts.spare.max_in_flight", "4", "user"),
    ];
    for (name, value, origin) in table {
        let row = shown
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        let row = row.unwrap_or_else(|| panic!("no {name}: {shown}"));
        let row: Vec<&str> = row.split_whitespace().skip(1).take(2).collect();
        assert_eq!(row, [value, origin], "{name}");
    }
}
