//! Runs the command of a step to its end: a shell line, or a program.
//!
//! Invariants: captured output is bounded; when the command is stopped or its future dropped, all of its processes are
//! killed. Artifacts reach a command by its environment and its input, never as part of its line. Not here: process
//! groups and signals (see `outlast_session::process::command`), and the meaning of an exit (see `failure`).

use super::contract::last_lines;
use super::definition::CommandLine;
use super::entry::Problem;
use super::failure::error_output;
use outlast_engine::CancellationToken;
use outlast_kernel::text;
use outlast_kernel::verdict::Cause;
use outlast_session::process::output::{HeadTailBuffer, sanitize, trim_partial_start};
use std::path::Path;

pub(crate) use outlast_session::process::output::Stream;

/// Maximum bytes kept of the beginning and of the end of the standard output.
const OUTPUT_LIMITS: (usize, usize) = (4 << 20, 12 << 20);
/// Maximum bytes kept of the end of the output.
const TAIL_LIMIT: usize = 4096;

/// The command to run, and its environment.
pub(crate) struct Spec<'a> {
    /// The command.
    pub(crate) line: &'a CommandLine,
    /// The working directory.
    pub(crate) directory: &'a Path,
    /// Environment variables to add to ours.
    pub(crate) env: &'a [(String, String)],
    /// Variables of our environment that the command must not see.
    pub(crate) hidden_variables: &'a [String],
    /// The data for its standard input; `None` means empty.
    pub(crate) input: Option<&'a [u8]>,
}

/// Callbacks that observe a process.
pub(crate) struct ProcessObserver<'a> {
    /// The first process has started: its process id, and its start time as the system reports it (0 if the system does
    /// not).
    pub(crate) on_start: &'a mut (dyn FnMut(u32, u64) + Send),
    /// The command has printed something.
    pub(crate) on_output: &'a mut (dyn FnMut(Stream, &[u8]) + Send),
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessResult {
    /// The exit code; `None` if the command was killed.
    pub(crate) code: Option<i32>,
    /// The signal that killed the command.
    pub(crate) signal: Option<i32>,
    /// The standard output; of long output, the beginning and the end.
    pub(crate) stdout: Vec<u8>,
    /// The end of the standard error, made safe to show.
    pub(crate) errors: String,
    /// The end of both streams, made safe to show.
    pub(crate) tail: String,
    /// Whether we stopped the command.
    pub(crate) was_stopped: bool,
}

impl ProcessResult {
    /// Returns whether the command succeeded.
    pub(crate) fn is_success(&self) -> bool {
        self.code == Some(0) && !self.was_stopped
    }
}

/// Runs the command to its end, or until it is stopped: its processes are gone within 230 milliseconds then. Returns a
/// problem if the command could not be started, also by the shell.
#[cfg(unix)]
pub(crate) async fn run(
    spec: Spec<'_>,
    watching: ProcessObserver<'_>,
    stop: &CancellationToken,
) -> Result<ProcessResult, Problem> {
    use outlast_session::process::command::{
        Capture, Command, CommandKind, RunningCommand, process_start_time,
    };
    use std::os::unix::process::ExitStatusExt;

    if stop.is_cancelled() {
        let was_stopped = true;
        return Ok(ProcessResult {
            was_stopped,
            ..ProcessResult::default()
        });
    }
    let kind = match spec.line {
        CommandLine::Shell(line) => CommandKind::Shell(line),
        CommandLine::Program(program) => CommandKind::Program(program),
    };
    let mut running = RunningCommand::start(&Command {
        kind,
        directory: spec.directory,
        hidden_variables: spec.hidden_variables,
        variables: spec.env,
        input: spec.input,
        capture: Capture::Separate,
    })
    .map_err(|error| start_failure(&spec, &error))?;
    if let Some(id) = running.id() {
        (watching.on_start)(id, process_start_time(id).unwrap_or_default());
    }
    let mut said = CapturedOutput::default();
    let mut take = |stream, bytes: &[u8]| {
        said.push(stream, bytes);
        (watching.on_output)(stream, bytes);
    };
    let ended = tokio::select! {
        biased;
        ended = running.finish(&mut take) => Some(ended),
        () = stop.cancelled() => None,
    };
    let status = match ended {
        Some(Ok(status)) => Some(status),
        Some(Err(error)) => {
            let why = format!(
                "the end of {} was not seen: {error}",
                display_name(spec.line)
            );
            return Err(Problem::new(Cause::Internal, why));
        }
        None => {
            running.kill(&mut take).await;
            None
        }
    };
    let ran = ProcessResult {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        was_stopped: status.is_none(),
        ..said.into_result()
    };
    shell_start_failure(spec.line, &ran).map_or(Ok(ran), Err)
}

/// Refuses to run commands on systems where we cannot keep track of a command's processes.
#[cfg(not(unix))]
pub(crate) async fn run(
    _: Spec<'_>,
    _: ProcessObserver<'_>,
    _: &CancellationToken,
) -> Result<ProcessResult, Problem> {
    let refused = "commands cannot be run on this system";
    std::future::ready(Err(Problem::new(Cause::Misconfigured, refused))).await
}

/// Kills the leftovers of a command of an earlier process: its first process, if the start time matches, and all that
/// belongs to it. If the first process has ended, nothing counts as left over: background processes live on, as after
/// any command.
#[cfg(unix)]
pub(crate) fn kill_orphan(process: u32, born: u64) {
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;
    use outlast_session::process::command::{process_start_time as born_at, signal_session};

    // Without a start time, the process id may belong to another process by now.
    if born == 0 || born_at(process) != Some(born) {
        return;
    }
    if let Ok(process) = i32::try_from(process) {
        signal_session(Pid::from_raw(process), Signal::SIGKILL);
    }
}

/// Does nothing, since no command was started.
#[cfg(not(unix))]
pub(crate) fn kill_orphan(_: u32, _: u64) {}

/// Returns the command as it may be shown.
pub(super) fn display_name(line: &CommandLine) -> String {
    let name = match line {
        CommandLine::Shell(line) => line.trim(),
        CommandLine::Program(program) => program.first().map_or("", String::as_str),
    };
    let name = text::plain(name).replace(['\n', '\t'], " ");
    format!("`{}`", text::bounded(&text::without_secrets(&name), 120))
}

fn start_failure(spec: &Spec<'_>, error: &std::io::Error) -> Problem {
    use std::io::ErrorKind;
    let (name, directory) = (display_name(spec.line), spec.directory.display());
    // The system reports the same error for a missing folder.
    if !spec.directory.is_dir() {
        let why = format!("{name} could not be started: there is no folder {directory}");
        return Problem::new(Cause::Misconfigured, why);
    }
    let cause = match error.kind() {
        ErrorKind::NotFound => Cause::MissingBinary,
        ErrorKind::PermissionDenied => Cause::Permission,
        ErrorKind::ArgumentListTooLong => Cause::PayloadTooLarge,
        _ => Cause::Misconfigured,
    };
    Problem::new(cause, format!("{name} could not be started: {error}"))
}

/// Returns the problem if the exit code of a shell says that it could not start the program of its line.
fn shell_start_failure(line: &CommandLine, ran: &ProcessResult) -> Option<Problem> {
    let cause = match (line, ran.code) {
        (CommandLine::Shell(_), Some(127)) => Cause::MissingBinary,
        (CommandLine::Shell(_), Some(126)) => Cause::Permission,
        _ => return None,
    };
    let last = error_output::last_line(ran);
    let why = last.map_or_else(
        || format!("{} could not be started", display_name(line)),
        str::to_owned,
    );
    Some(Problem::new(cause, why))
}

/// The captured output of a command.
struct CapturedOutput {
    output: HeadTailBuffer,
    errors: Tail,
    both: Tail,
}

impl Default for CapturedOutput {
    fn default() -> Self {
        Self {
            output: HeadTailBuffer::with_limits(OUTPUT_LIMITS.0, OUTPUT_LIMITS.1),
            errors: Tail::default(),
            both: Tail::default(),
        }
    }
}

impl CapturedOutput {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.output.push(bytes),
            Stream::Stderr => self.errors.push(bytes),
        }
        self.both.push(bytes);
    }

    fn into_result(self) -> ProcessResult {
        ProcessResult {
            stdout: self.output.into_bytes(),
            errors: self.errors.text(),
            tail: self.both.text(),
            ..ProcessResult::default()
        }
    }
}

/// The end of the output.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    /// Maximum bytes kept before terminal escapes are removed.
    const RAW_LIMIT: usize = 4 * TAIL_LIMIT;

    fn push(&mut self, bytes: &[u8]) {
        let end = bytes.len().saturating_sub(Self::RAW_LIMIT);
        self.0.extend_from_slice(&bytes[end..]);
        // Not at every push: the bytes in between pay for the move.
        if self.0.len() > 3 * Self::RAW_LIMIT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let excess = self.0.len().saturating_sub(Self::RAW_LIMIT);
        self.0.drain(..excess);
    }

    /// Returns the last lines, safe to show.
    fn text(mut self) -> String {
        self.shorten();
        let said = String::from_utf8_lossy(trim_partial_start(&self.0));
        let said = sanitize_and_redact(&said);
        last_lines(said.trim_end(), TAIL_LIMIT).to_owned()
    }
}

/// Makes the text of a command safe to show and store.
pub(super) fn sanitize_and_redact(said: &str) -> String {
    text::without_secrets(&sanitize(said)).into_owned()
}

pub(crate) mod orphans;
#[cfg(test)]
#[cfg(unix)]
#[path = "process_tests.rs"]
pub(super) mod tests;
