//! `outlast runs`: finding, showing, following and deleting runs in the journal.

use crate::support::{CommandResult, Outlast};
use crate::written::{answer, completed, prompt, typed};
use outlast_kernel::Timestamp;
use outlast_pipeline::entry::Entry;
use outlast_pipeline::run_store::mailbox::{Mailbox, RunRequest};
use outlast_store::journal::{NewSession, RawEntry, SessionLock};
use outlast_store::{Artifacts, Journal};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;

const FIRST: &str = "01900000-0000-7000-8000-000000000001";
const SECOND: &str = "01900000-0000-7000-8000-000000000002";
const SESSION: &str = "01900000-0000-7000-8000-00000000000a";

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + 1000 * seconds)
}

/// The files of a home into which runs are written.
struct Written<'a> {
    outlast: &'a Outlast,
    runtime: Runtime,
    runs: Journal,
    steps: Journal,
}

impl<'a> Written<'a> {
    fn new(outlast: &'a Outlast) -> Self {
        let home = outlast.home();
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("VERSION"), "1\n").unwrap();
        let open = |name| Journal::open(&home.join(name)).unwrap().journal;
        Self {
            outlast,
            runtime: Runtime::new().unwrap(),
            runs: open("runs.db"),
            steps: open("steps.db"),
        }
    }

    fn begin(&self, journal: &Journal, id: &str) -> SessionLock {
        let new = NewSession {
            id: id.to_owned(),
            directory: "/project".to_owned(),
            title: "implement".to_owned(),
            now: at(0),
        };
        self.runtime.block_on(journal.create(new)).unwrap()
    }

    fn add(&self, hold: &SessionLock, entries: &[(u64, Value)]) {
        let line = |(seconds, json): &(u64, Value)| {
            let entry: Entry = serde_json::from_value(json.clone()).unwrap();
            RawEntry {
                turn: 1,
                kind: entry.kind().to_owned(),
                time: at(*seconds),
                body: serde_json::to_string(&entry).unwrap(),
            }
        };
        let lines = entries.iter().map(line).collect();
        self.runtime
            .block_on(self.runs.append(hold, lines))
            .unwrap();
    }

    /// Writes a run whose process has released it.
    fn run(&self, id: &str, entries: &[(u64, Value)]) {
        let hold = self.begin(&self.runs, id);
        self.add(&hold, entries);
        self.runtime.block_on(self.runs.release(hold)).unwrap();
    }

    /// Writes the session of a step.
    fn session(&self) {
        let hold = self.begin(&self.steps, SESSION);
        let entries = [prompt("What?", typed("ok")), answer("That."), completed()];
        let line = |entry: &outlast_engine::journal::Entry| RawEntry {
            turn: 1,
            kind: entry.kind().to_owned(),
            time: at(2),
            body: serde_json::to_string(entry).unwrap(),
        };
        let lines = entries.iter().map(line).collect();
        self.runtime
            .block_on(self.steps.append(&hold, lines))
            .unwrap();
        self.runtime.block_on(self.steps.release(hold)).unwrap();
    }

    fn is_there(&self, hash: &str) -> bool {
        self.artifacts().path(hash).unwrap().exists()
    }

    fn artifacts(&self) -> Artifacts {
        Artifacts::open(&self.outlast.home().join("artifacts")).unwrap()
    }

    /// Stores an artifact with an old timestamp, and returns its hash.
    fn make(&self, content: &str) -> String {
        let artifacts = self.artifacts();
        let (hash, _) = artifacts.put(content.as_bytes()).unwrap();
        let file = File::open(artifacts.path(&hash).unwrap()).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(86_400);
        file.set_modified(long_ago).unwrap();
        hash
    }
}

fn started() -> (u64, Value) {
    let json = json!({"type": "run_started", "name": "implement", "file": "/project/implement.yaml", "folder": "/project",
        "source": "", "inputs": {"topic": "birds"}});
    (0, json)
}

/// Returns the entries of the first step, which needs two attempts.
fn planned() -> Vec<(u64, Value)> {
    vec![
        started(),
        (
            1,
            json!({"type": "step_started", "step": "plan", "visit": 1}),
        ),
        (
            1,
            json!({"type": "attempt_started", "step": "plan", "visit": 1, "attempt": 1, "session": SESSION}),
        ),
        (
            2,
            json!({"type": "attempt_ended", "step": "plan", "visit": 1, "attempt": 1,
            "problem": {"class": "contract_failure", "cause": "schema_mismatch", "message": "at /a: is \u{1b}[31mred\u{1b}[0m"},
            "next": {"do": "again"}}),
        ),
        (
            2,
            json!({"type": "attempt_started", "step": "plan", "visit": 1, "attempt": 2, "session": SESSION}),
        ),
        (
            9,
            json!({"type": "attempt_ended", "step": "plan", "visit": 1, "attempt": 2, "next": {"do": "finish"}}),
        ),
    ]
}

fn plan_ended(hash: &str) -> (u64, Value) {
    let artifacts = json!({"output": {"hash": hash, "size": 5}});
    let json = json!({"type": "step_ended", "step": "plan", "visit": 1, "outcome": "completed", "artifacts": artifacts});
    (9, json)
}

fn test_waits() -> Vec<(u64, Value)> {
    vec![
        (
            10,
            json!({"type": "step_started", "step": "test", "visit": 1}),
        ),
        (
            10,
            json!({"type": "attempt_started", "step": "test", "visit": 1, "attempt": 1}),
        ),
        (
            11,
            json!({"type": "attempt_ended", "step": "test", "visit": 1, "attempt": 1,
            "problem": {"class": "transient", "cause": "network", "message": "connection reset"},
            "next": {"do": "wait", "since": at(11), "until": at(41)}}),
        ),
    ]
}

fn ended(outcome: &str) -> (u64, Value) {
    let json = json!({"type": "run_ended", "outcome": outcome, "reason": "step test failed"});
    (60, json)
}

#[test]
fn runs_list_is_empty_and_show_fails_without_runs() {
    let outlast = Outlast::new();
    let ran = outlast.run(&["runs"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "No runs yet.\n"));
    assert_eq!(outlast.run(&["runs", "--json"]).stdout, "[]\n");
    let ran = outlast.run(&["runs", "show"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (
            2,
            "error: there is no run yet; `outlast run FILE` begins one\n"
        )
    );
    assert!(!outlast.home().exists(), "looking makes nothing");
}

#[test]
fn runs_list_shows_one_row_per_run() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let run = |number: u32, entries: &[(u64, Value)]| {
        written.run(
            &format!("01900000-0000-7000-8000-00000000000{number}"),
            entries,
        );
    };
    run(1, &[started(), ended("completed")]);
    run(2, &[started(), ended("failed")]);
    run(3, &[started(), ended("canceled")]);
    run(4, &[started()]);
    let at_work = written.begin(&written.runs, "01900000-0000-7000-8000-000000000005");
    written.add(&at_work, &[started()]);
    let ran = outlast.run(&["runs"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(outlast.run(&["runs", "list"]).stdout, ran.stdout);
    let rows: Value =
        serde_json::from_str(&outlast.run(&["runs", "list", "--json"]).stdout).unwrap();
    assert_eq!(rows[0]["state"], "running");
    assert_eq!(rows[4]["pipeline"], "implement");
}

#[test]
fn show_reports_failures_of_run() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let mut entries = planned();
    entries.push(plan_ended("ab"));
    entries.extend(test_waits());
    entries.push((20, json!({"type": "run_resumed"})));
    written.run(FIRST, &entries);
    let ran = outlast.run(&["runs", "show", "0190"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(outlast.run(&["runs", "show"]).stdout, ran.stdout);
}

#[test]
fn show_json_prints_journal_entries() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    written.run(FIRST, &[started(), ended("failed")]);
    let ran = outlast.run(&["runs", "show", "--json"]);
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    let expected = json!({"v": 1, "seq": 2, "time": at(60), "run_id": FIRST, "type": "run_ended", "outcome": "failed",
        "reason": "step test failed"});
    assert_eq!(lines[1], expected);
}

#[test]
fn show_step_prints_its_session() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    written.session();
    let mut entries = planned();
    entries.extend(test_waits());
    written.run(FIRST, &entries);
    let ran = outlast.run(&["runs", "show", "--step", "plan"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("What?") && ran.stdout.contains("That."),
        "{}",
        ran.stdout
    );
    let ran = outlast.run(&["runs", "show", "--step", "test"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = outlast.run(&["runs", "show", "--step", "paln"]);
    let problem = "error: no step paln has begun; there are: plan, test\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, problem));
}

#[test]
fn watch_follows_run_until_it_ends() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let hold = written.begin(&written.runs, FIRST);
    written.add(&hold, &planned());
    let mut command = outlast.command(&["runs", "show", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    // Earlier entries are printed at once.
    assert!(lines.next().unwrap().contains(FIRST));
    let last = lines.find(|line| line.contains("attempt 1 failed"));
    assert!(last.is_some());
    written.add(&hold, &[plan_ended("ab")]);
    let next = lines.next();
    assert_eq!(
        next.as_deref(),
        Some("✓ plan: completed after 2 attempts in 8s")
    );
    let mut rest = test_waits();
    rest.push(ended("failed"));
    written.add(&hold, &rest);
    let rest: Vec<String> = lines.collect();
    let expected = [
        "▶ test",
        "⚠ test: Connection failed, retrying in 30s… (attempt 2): connection reset",
        "✗ implement: failed after 1m: step test failed",
    ];
    assert_eq!(rest, expected);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    // On a finished run the command prints everything and does not wait.
    let ran = outlast.run(&["runs", "show", "--watch", "--json"]);
    assert_eq!(
        (ran.code, ran.stdout.lines().count()),
        (1, 11),
        "{}",
        ran.stdout
    );
}

#[test]
fn watch_ends_when_no_process_executes_run() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    written.run(FIRST, &planned());
    let ran = outlast.run(&["runs", "show", "--watch"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stdout
            .ends_with("○ no process is at work on it any more\n"),
        "{}",
        ran.stdout
    );
}

#[test]
fn unknown_or_ambiguous_run_id_is_an_error() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    written.run(FIRST, &[started()]);
    written.run(SECOND, &[started()]);
    for (name, problem) in [
        (
            "0200",
            "error: there is no run 0200; `outlast runs` lists them\n",
        ),
        (
            "0190",
            "error: 2 runs begin with `0190`; give more of the name\n",
        ),
        (
            "",
            "error: the name of a run is empty; `outlast runs` lists them\n",
        ),
    ] {
        let ran = outlast.run(&["runs", "show", name]);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, problem));
    }
}

#[test]
fn delete_removes_own_artifacts_and_keeps_shared_ones() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let (own, shared) = (written.make("own"), written.make("shared"));
    written.session();
    let mut entries = planned();
    entries.extend([plan_ended(&own), plan_ended(&shared), ended("failed")]);
    written.run(FIRST, &entries);
    written.run(SECOND, &[started(), plan_ended(&shared)]);
    let ran = outlast.run(&["runs", "delete", FIRST]);
    let expected = format!("Deleted {FIRST}.\n");
    assert_eq!((ran.code, ran.stderr), (0, expected));
    assert_eq!(
        (written.is_there(&own), written.is_there(&shared)),
        (false, true)
    );
    let sessions = written.runtime.block_on(written.steps.sessions()).unwrap();
    assert_eq!(sessions, []);
    assert!(outlast.run(&["runs"]).stdout.starts_with(SECOND));
}

#[test]
fn delete_by_age_skips_running_and_unfinished_runs() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let made = written.make("made");
    let at_work = written.begin(&written.runs, FIRST);
    written.add(&at_work, &[started()]);
    written.run(SECOND, &[started()]);
    let old = "01900000-0000-7000-8000-000000000003";
    written.run(old, &[started(), ended("completed")]);
    let ran = outlast.run(&["runs", "delete", "--older-than", "30d"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "Deleted 1.\n"));
    assert_eq!(outlast.run(&["runs"]).stdout.lines().count(), 2);
    assert!(written.is_there(&made), "whoever is at work may need it");
    let ran: CommandResult = outlast.run(&["runs", "delete", FIRST]);
    let expected =
        format!("error: run {FIRST} is at work; `outlast runs cancel {FIRST}` ends it\n");
    assert_eq!((ran.code, ran.stderr), (2, expected));
}

// --- Run requests ---

/// Returns the entries of a run that waits at two gates and a timer.
fn at_gates() -> Vec<(u64, Value)> {
    let mut entries = vec![started()];
    for step in ["approve", "name-it"] {
        entries.push((1, json!({"type": "step_started", "step": step, "visit": 1})));
        entries.push((
            1,
            json!({"type": "gate_opened", "step": step, "visit": 1, "message": "Ship it?",
            "choices": ["y: Go on", "n: Stop"], "until": at(86_400)}),
        ));
    }
    entries.push((
        1,
        json!({"type": "step_started", "step": "cool", "visit": 1}),
    ));
    entries.push((
        1,
        json!({"type": "gate_opened", "step": "cool", "visit": 1, "until": at(86_400)}),
    ));
    entries
}

#[test]
fn run_requests_are_left_in_mailbox() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let hold = written.begin(&written.runs, FIRST);
    written.add(&hold, &at_gates());
    for arguments in [
        ["approve", "0190", "approve", "--choice", "n"].as_slice(),
        &["approve", FIRST, "name-it"],
        &["retry-now", FIRST],
        &["retry-now", FIRST, "cool"],
        &["cancel", FIRST],
    ] {
        let arguments = [&["runs"], arguments].concat();
        let ran = outlast.run(&arguments);
        let told = format!("Told run {FIRST}.\n");
        assert_eq!((ran.code, ran.stderr), (0, told), "{arguments:?}");
    }
    let letters = Mailbox::new(&outlast.home().join("mail")).take(FIRST);
    let letters: Vec<RunRequest> = letters.unwrap().into_iter().map(Result::unwrap).collect();
    let text = |text: &str| Some(text.to_owned());
    let answer = |step, choice| RunRequest::Answer { step, choice };
    let expected = [
        answer(text("approve"), text("n")),
        answer(text("name-it"), None),
        RunRequest::RetryNow { step: None },
        RunRequest::RetryNow { step: text("cool") },
        RunRequest::Cancel {},
    ];
    assert_eq!(letters, expected);
}

#[test]
fn invalid_run_requests_are_refused() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    written.run(FIRST, &at_gates());
    written.run(SECOND, &[started(), ended("failed")]);
    let table: [(&[&str], &str); 6] = [
        (
            &["approve", FIRST],
            "several steps ask; name one of: approve, name-it",
        ),
        (
            &["approve", FIRST, "cool"],
            "step cool asks nothing; `outlast runs show` says what does",
        ),
        (
            &["approve", FIRST, "approve", "--choice", "x"],
            "`x` is no answer to approve; there are: y: Go on, n: Stop",
        ),
        (
            &["retry-now", FIRST, "plan"],
            "step plan is not under way; `outlast runs show 01900000-0000-7000-8000-000000000001` says what is",
        ),
        (
            &["cancel", SECOND],
            "run 01900000-0000-7000-8000-000000000002 is over; `outlast runs show 01900000-0000-7000-8000-000000000002` says how it ended",
        ),
        (
            &["cancel", ""],
            "the name of a run is empty; `outlast runs` lists them",
        ),
    ];
    for (arguments, problem) in table {
        let ran = outlast.run(&[&["runs"], arguments].concat());
        let expected = format!("error: {problem}\n");
        assert_eq!((ran.code, ran.stderr), (2, expected), "{arguments:?}");
    }
    assert!(!outlast.home().join("mail").exists());
    // No process runs; the request is left for the next one.
    let ran = outlast.run(&["runs", "approve", FIRST, "approve"]);
    let expected = format!(
        "No process is at work on run {FIRST}; `outlast run --resume {FIRST}` carries it on, and is told.\n"
    );
    assert_eq!((ran.code, ran.stderr), (0, expected));
}

// --- Reports ---

#[test]
fn report_is_printed_as_html_or_markdown() {
    let outlast = Outlast::new();
    let written = Written::new(&outlast);
    let mut entries = planned();
    entries.push(ended("failed"));
    written.run(FIRST, &entries);
    let report = |format: &str| {
        let ran = outlast.run(&["runs", "report", "--format", format]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    assert!(report("html").starts_with("<!DOCTYPE html>"));
    let ran = outlast.run(&["runs", "report", "0190"]);
    assert_eq!(ran.stdout, report("markdown"));
    assert!(
        ran.stdout
            .starts_with("# implement\n\nFailed after 1m: step test failed.")
    );
}
