//! Runs pipelines through the real binary, and reads their journals.

use crate::support::{CommandResult, HANG_TIMEOUT, Outlast};
use outlast_kernel::Timestamp;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The file name of every pipeline under test.
pub(crate) const FILE: &str = "pipeline.yaml";

/// A run, or its events so far.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stderr: String,
    /// Every line that it printed with `--json`.
    pub(crate) lines: Vec<Value>,
}

impl Run {
    pub(crate) fn read(ran: &CommandResult) -> Self {
        let lines = ran.stdout.lines();
        Self {
            code: ran.code,
            stderr: ran.stderr.clone(),
            lines: lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.lines[0]["run_id"].as_str().unwrap()
    }

    /// Returns the entries of the given type.
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        let lines = self.lines.iter();
        lines.filter(|line| line["type"] == kind).collect()
    }

    /// Returns the entries of the given type for one step.
    pub(crate) fn of(&self, step: &str, kind: &str) -> Vec<&Value> {
        let mut lines = self.all(kind);
        lines.retain(|line| line["step"] == step);
        lines
    }

    /// Returns how the attempts of a step ended: the cause of each failure and the action taken.
    pub(crate) fn attempts(&self, step: &str) -> Vec<String> {
        let ended = self.of(step, "attempt_ended");
        ended.into_iter().map(attempt).collect()
    }

    /// Returns the waits before the further attempts of a step.
    pub(crate) fn waits(&self, step: &str) -> Vec<Duration> {
        let ended = self.of(step, "attempt_ended");
        let next = ended.into_iter().map(|entry| &entry["next"]);
        next.filter(|next| next["do"] == "wait")
            .map(|next| time(&next["until"]).since(time(&next["since"])))
            .collect()
    }

    /// Returns the waits between the model calls in the turns of a step.
    pub(crate) fn waits_of_turns(&self, step: &str) -> Vec<Duration> {
        let events = self.events(step, "retry_scheduled");
        let delays = events
            .into_iter()
            .map(|event| event["delay_ms"].as_u64().unwrap());
        delays.map(Duration::from_millis).collect()
    }

    /// Returns the events of the given type in the sessions of a step.
    pub(crate) fn events(&self, step: &str, kind: &str) -> Vec<&Value> {
        let events = self
            .of(step, "session")
            .into_iter()
            .map(|line| &line["event"]);
        events.filter(|event| event["type"] == kind).collect()
    }

    /// Returns the prompts that the models of a step received.
    pub(crate) fn prompts(&self, step: &str) -> Vec<&str> {
        let said = self.events(step, "input").into_iter();
        said.map(|event| event["text"].as_str().unwrap()).collect()
    }

    /// Returns the outcomes of the visits of a step.
    pub(crate) fn outcomes(&self, step: &str) -> Vec<&str> {
        let ended = self.of(step, "step_ended").into_iter();
        ended
            .map(|entry| entry["outcome"].as_str().unwrap())
            .collect()
    }

    /// Returns the reason for the last outcome of a step.
    pub(crate) fn reason(&self, step: &str) -> &str {
        let ended = self.of(step, "step_ended");
        ended.last().unwrap()["reason"].as_str().unwrap_or_default()
    }

    /// Returns the problem of an attempt of a step, counted from 0 over all visits.
    pub(crate) fn problem(&self, step: &str, attempt: usize) -> &Value {
        &self.of(step, "attempt_ended")[attempt]["problem"]
    }

    /// Returns the outcome of the run.
    pub(crate) fn outcome(&self) -> &str {
        let ended = self.all("run_ended");
        ended
            .last()
            .map_or("", |entry| entry["outcome"].as_str().unwrap())
    }

    /// Returns the text that a failed assertion shows.
    pub(crate) fn dump(&self) -> String {
        let is_told = |line: &&Value| line["source"].is_null() && line["type"] != "process_started";
        let mut dump = format!("exit {}\n{}", self.code, self.stderr);
        for line in self.lines.iter().filter(is_told) {
            let mut line = line.as_object().unwrap().clone();
            for field in ["v", "run_id", "usage", "cost", "artifacts"] {
                line.remove(field);
            }
            dump += &format!("\n{}", Value::Object(line));
        }
        dump
    }
}

fn attempt(entry: &Value) -> String {
    let next = entry["next"]["do"].as_str().unwrap();
    let next = match entry["next"]["to"].as_str() {
        Some(to) => format!("{next} {to}"),
        None => next.to_owned(),
    };
    match entry["problem"]["cause"].as_str() {
        Some(cause) => format!("{cause}: {next}"),
        None => next,
    }
}

/// Parses a timestamp of the journal.
pub(crate) fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

pub(crate) fn seconds(delays: &[f64]) -> Vec<Duration> {
    let delays = delays.iter();
    delays
        .map(|delay| Duration::from_secs_f64(*delay))
        .collect()
}

impl Outlast {
    /// Creates a command whose clock runs in real time.
    pub(crate) fn in_real_time() -> Self {
        Self {
            scale: "1",
            ..Self::new()
        }
    }

    /// Runs a pipeline to its end.
    pub(crate) fn pipeline(&self, source: &str) -> Run {
        self.pipeline_with(source, &[])
    }

    pub(crate) fn pipeline_with(&self, source: &str, arguments: &[&str]) -> Run {
        Run::read(&CommandResult::of(
            &mut self.pipeline_command(source, arguments),
        ))
    }

    pub(crate) fn pipeline_command(&self, source: &str, arguments: &[&str]) -> Command {
        self.write(FILE, source);
        self.with_path(&[&["run", FILE, "--json"], arguments].concat())
    }

    /// Starts a pipeline and leaves it running.
    pub(crate) fn begin(&self, source: &str) -> Child {
        let mut command = self.pipeline_command(source, &[]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Resumes the only run, or the named one.
    pub(crate) fn resume(&self, arguments: &[&str]) -> Run {
        let arguments = [&["run", "--json", "--resume"], arguments].concat();
        Run::read(&CommandResult::of(&mut self.with_path(&arguments)))
    }

    /// Reads the journal of the newest run.
    pub(crate) fn written(&self) -> Run {
        Run::read(&self.run(&["runs", "show", "--json"]))
    }

    /// Waits until the journal of the newest run has an entry of the given type for a step.
    pub(crate) fn wait_for_entry(&self, step: &str, kind: &str) {
        let start = Instant::now();
        while self
            .home()
            .join("runs.db")
            .exists()
            .then(|| self.written())
            .is_none_or(|run| run.of(step, kind).is_empty())
        {
            assert!(start.elapsed() < HANG_TIMEOUT, "no {kind} of {step}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the lines that the commands of a pipeline appended to a file.
    pub(crate) fn notes(&self, file: &str) -> Vec<String> {
        let noted = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        noted.lines().map(str::to_owned).collect()
    }

    pub(crate) fn with_path(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }
}

pub(crate) fn signal(name: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Waits for a process to end and reads its output.
pub(crate) fn ended(child: Child) -> Run {
    Run::read(&CommandResult::ended(child))
}
