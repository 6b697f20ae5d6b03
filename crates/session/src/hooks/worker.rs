//! Runs one hook for one event after the other, each run within the hook's time limit.

use super::payload::Payload;
use super::{Hook, ProblemReporter};
use outlast_kernel::text;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;

/// Maximum length of a command in a message, in bytes.
const MAX_NAME_BYTES: usize = 80;

/// An event in a hook's queue.
pub(super) struct QueuedEvent {
    pub(super) payload: Arc<Payload>,
    /// Number of events dropped before this one.
    pub(super) dropped: u64,
}

/// The line that a hook reads.
#[derive(Serialize)]
struct PayloadLine<'a> {
    #[serde(flatten)]
    payload: &'a Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

impl QueuedEvent {
    fn to_json_line(&self) -> Result<String, String> {
        let line = PayloadLine {
            payload: &self.payload,
            dropped: Some(self.dropped).filter(|count| *count > 0),
        };
        let line = serde_json::to_string(&line);
        let line = line.map_err(|error| format!("what happened cannot be said: {error}"))?;
        Ok(line + "\n")
    }
}

/// The working folder of commands, and the environment variables hidden from them.
type LaunchContext = Arc<(PathBuf, Vec<String>)>;

/// Runs one hook.
pub(super) struct Worker {
    hook: Hook,
    launch_context: LaunchContext,
    report: ProblemReporter,
    /// The last problem: the same one is not reported twice in a row.
    last_problem: Option<String>,
}

/// Returns a command as one short line that is safe to show.
pub(super) fn name(command: &str) -> String {
    let line = text::plain(command).replace(['\n', '\t'], " ");
    text::bounded(&text::without_secrets(&line), MAX_NAME_BYTES).into_owned()
}

impl Worker {
    pub(super) const fn new(
        hook: Hook,
        launch_context: LaunchContext,
        report: ProblemReporter,
    ) -> Self {
        Self {
            hook,
            launch_context,
            report,
            last_problem: None,
        }
    }

    /// Runs the hook on all queued events until the queue is closed.
    pub(super) async fn run(mut self, mut events: Receiver<QueuedEvent>) {
        while let Some(event) = events.recv().await {
            let moment = event.payload.event.as_str();
            let problem = match event.to_json_line() {
                Ok(line) => self.run_on(&line).await.err(),
                Err(problem) => Some(problem),
            };
            if problem.is_some() && problem != self.last_problem {
                let problem = problem.as_deref().unwrap_or_default();
                let name = name(&self.hook.command);
                (self.report)(&format!("hook `{name}` on {moment}: {problem}"));
            }
            self.last_problem = problem;
        }
    }

    /// Runs the hook on one event; the error says what went wrong.
    #[cfg(unix)]
    async fn run_on(&self, line: &str) -> Result<(), String> {
        use crate::process::command::{Capture, Command, CommandKind, RunningCommand};
        let started = RunningCommand::start(&Command {
            kind: CommandKind::Shell(&self.hook.command),
            directory: &self.launch_context.0,
            hidden_variables: &self.launch_context.1,
            variables: &[],
            input: Some(line.as_bytes()),
            capture: Capture::StderrOnly,
        });
        let mut running = started.map_err(|error| format!("it could not be started: {error}"))?;
        let mut said = StderrTail::default();
        let mut keep = |_, bytes: &[u8]| said.push(bytes);
        let ended = tokio::time::timeout(self.hook.timeout, running.finish(&mut keep)).await;
        let how = match ended {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => crate::tools::describe_exit(status),
            Ok(Err(error)) => format!("its end was not seen: {error}"),
            Err(_) => {
                running.kill(&mut keep).await;
                let limit = self.hook.timeout.as_secs_f32();
                format!("killed, since it took longer than {limit} s")
            }
        };
        Err(said.append_to(how))
    }

    /// Refuses to start a command, since its processes could not be controlled on this system.
    #[cfg(not(unix))]
    async fn run_on(&self, _: &str) -> Result<(), String> {
        let refused = "commands cannot be run on this system".to_owned();
        std::future::ready(Err(refused)).await
    }
}

/// The end of a hook's standard error.
#[cfg(unix)]
#[derive(Default)]
struct StderrTail(Vec<u8>);

#[cfg(unix)]
impl StderrTail {
    /// Number of bytes that are kept.
    const MAX_BYTES: usize = 1024;

    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(Self::MAX_BYTES);
        self.0.drain(..excess);
    }

    /// Returns the exit reason, followed by the last lines of standard error.
    fn append_to(&self, how: String) -> String {
        let said = String::from_utf8_lossy(&self.0).replace('\r', "\n");
        let said = text::plain(&said);
        let said = text::without_secrets(&said);
        let lines = said.lines().map(str::trim);
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => how,
            false => format!("{how}: {}", lines.join(" / ")),
        }
    }
}
