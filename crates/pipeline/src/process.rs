//! Runs what a step says to its end: a line of a shell, or a program.
//!
//! Invariants: what is kept is bounded, whatever is printed; when it is stopped, or its future is dropped, all of its
//! processes are killed. What a step has made reaches a command by its environment and its input, and never as a part of
//! its line.
//! Not here: keeping hold of processes (see `tools::running`), and what an exit means (see `failing`).

use super::definition::CommandLine;
use super::entry::Problem;
use super::failure::error_output;
use outlast_engine::CancellationToken;
use outlast_kernel::text;
use outlast_kernel::verdict::Cause;
use outlast_session::process::output::{HeadTailBuffer, printed, without_cut_start};
use std::path::Path;

pub(crate) use outlast_session::process::output::Stream;

/// The most that is kept of what was printed to the standard output: of its beginning, and of its end.
const OUTPUT_LIMITS: (usize, usize) = (4 << 20, 12 << 20);
/// The most that is kept of the end of what was printed, in bytes.
const TAIL_LIMIT: usize = 4096;

/// What is run, and where.
pub(crate) struct Spec<'a> {
    /// What is run.
    pub(crate) line: &'a CommandLine,
    /// Where.
    pub(crate) directory: &'a Path,
    /// Variables that it finds beside ours.
    pub(crate) env: &'a [(String, String)],
    /// Variables of our environment that it must not see.
    pub(crate) hidden_variables: &'a [String],
    /// What it can read; nothing without it.
    pub(crate) input: Option<&'a [u8]>,
}

/// Who is told what happens.
pub(crate) struct ProcessObserver<'a> {
    /// Its first process has begun: the number of the process, and when the system says that it was born (0 where it
    /// does not say).
    pub(crate) on_start: &'a mut (dyn FnMut(u32, u64) + Send),
    /// It has printed something.
    pub(crate) on_output: &'a mut (dyn FnMut(Stream, &[u8]) + Send),
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessResult {
    /// The code that it ended with; none when it was killed.
    pub(crate) code: Option<i32>,
    /// The signal that killed it.
    pub(crate) signal: Option<i32>,
    /// What it printed to the standard output; of very much, the beginning and the end.
    pub(crate) stdout: Vec<u8>,
    /// The end of what it printed to the standard error, made safe to show.
    pub(crate) errors: String,
    /// The end of what it printed to either, made safe to show.
    pub(crate) tail: String,
    /// Whether we stopped it.
    pub(crate) stopped: bool,
}

impl ProcessResult {
    /// Whether it ended well.
    pub(crate) fn is_success(&self) -> bool {
        self.code == Some(0) && !self.stopped
    }
}

/// Runs it to its end, or until it is to be stopped: its processes are gone within 230 milliseconds then. It is a problem
/// when it could not be started, also by the shell.
#[cfg(unix)]
pub(crate) async fn run(
    spec: Spec<'_>,
    watching: ProcessObserver<'_>,
    stop: &CancellationToken,
) -> Result<ProcessResult, Problem> {
    use outlast_session::process::command::{Capture, Command, CommandKind, RunningCommand, born};
    use std::os::unix::process::ExitStatusExt;

    if stop.is_cancelled() {
        let stopped = true;
        return Ok(ProcessResult {
            stopped,
            ..ProcessResult::default()
        });
    }
    let line = match spec.line {
        CommandLine::Shell(line) => CommandKind::Shell(line),
        CommandLine::Program(program) => CommandKind::Program(program),
    };
    let mut running = RunningCommand::start(&Command {
        line,
        directory: spec.directory,
        hidden_variables: spec.hidden_variables,
        variables: spec.env,
        input: spec.input,
        streams: Capture::Apart,
    })
    .map_err(|error| not_started(&spec, &error))?;
    if let Some(id) = running.id() {
        (watching.on_start)(id, born(id).unwrap_or_default());
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
            let why = format!("the end of {} was not seen: {error}", name(spec.line));
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
        stopped: status.is_none(),
        ..said.ran()
    };
    shell_start_failure(spec.line, &ran).map_or(Ok(ran), Err)
}

/// Without the means to keep hold of a command's processes none is started.
#[cfg(not(unix))]
pub(crate) async fn run(
    _: Spec<'_>,
    _: ProcessObserver<'_>,
    _: &CancellationToken,
) -> Result<ProcessResult, Problem> {
    let refused = "commands cannot be run on this system";
    std::future::ready(Err(Problem::new(Cause::Misconfigured, refused))).await
}

/// Kills what is left of a command that a process of ours started which is no more: its first process, if it is the one
/// that was born then, and all that belongs to it. Once that has ended, nothing is left of the command: what it has put
/// into the background lives on, as after any command.
#[cfg(unix)]
pub(crate) fn end_leftover(process: u32, born: u64) {
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;
    use outlast_session::process::command::{born as born_at, signal_session};

    // Where the system did not say when, nobody knows whose number it is now.
    if born == 0 || born_at(process) != Some(born) {
        return;
    }
    if let Ok(process) = i32::try_from(process) {
        signal_session(Pid::from_raw(process), Signal::SIGKILL);
    }
}

/// Nothing was started.
#[cfg(not(unix))]
pub(crate) fn end_leftover(_: u32, _: u64) {}

/// What is run, as it may be shown.
pub(super) fn name(line: &CommandLine) -> String {
    let name = match line {
        CommandLine::Shell(line) => line.trim(),
        CommandLine::Program(program) => program.first().map_or("", String::as_str),
    };
    let name = text::plain(name).replace(['\n', '\t'], " ");
    format!("`{}`", text::bounded(&text::without_secrets(&name), 120))
}

fn not_started(spec: &Spec<'_>, error: &std::io::Error) -> Problem {
    use std::io::ErrorKind;
    let (name, directory) = (name(spec.line), spec.directory.display());
    // The system says the same of a folder that is not there.
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

/// A shell says by its exit that it could not start what its line names.
fn shell_start_failure(line: &CommandLine, ran: &ProcessResult) -> Option<Problem> {
    let cause = match (line, ran.code) {
        (CommandLine::Shell(_), Some(127)) => Cause::MissingBinary,
        (CommandLine::Shell(_), Some(126)) => Cause::Permission,
        _ => return None,
    };
    let last = error_output::last_line(ran);
    let why = last.map_or_else(
        || format!("{} could not be started", name(line)),
        str::to_owned,
    );
    Some(Problem::new(cause, why))
}

/// What is kept of what was printed.
struct CapturedOutput {
    output: HeadTailBuffer,
    errors: Tail,
    both: Tail,
}

impl Default for CapturedOutput {
    fn default() -> Self {
        Self {
            output: HeadTailBuffer::of(OUTPUT_LIMITS.0, OUTPUT_LIMITS.1),
            errors: Tail::default(),
            both: Tail::default(),
        }
    }
}

impl CapturedOutput {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Output => self.output.push(bytes),
            Stream::Errors => self.errors.push(bytes),
        }
        self.both.push(bytes);
    }

    fn ran(self) -> ProcessResult {
        ProcessResult {
            stdout: self.output.into_bytes(),
            errors: self.errors.text(),
            tail: self.both.text(),
            ..ProcessResult::default()
        }
    }
}

/// The end of what was printed.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    /// The most that is kept before what only a terminal understands is taken out, in bytes.
    const RAW_LIMIT: usize = 4 * TAIL_LIMIT;

    fn push(&mut self, bytes: &[u8]) {
        let end = bytes.len().saturating_sub(Self::RAW_LIMIT);
        self.0.extend_from_slice(&bytes[end..]);
        // Not at every push: what is moved then is paid for by what came in between.
        if self.0.len() > 3 * Self::RAW_LIMIT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let excess = self.0.len().saturating_sub(Self::RAW_LIMIT);
        self.0.drain(..excess);
    }

    /// The last lines, safe to show.
    fn text(mut self) -> String {
        self.shorten();
        let said = String::from_utf8_lossy(without_cut_start(&self.0));
        let said = clean(&said);
        let said = said.trim_end();
        let Some(mut start) = said.len().checked_sub(TAIL_LIMIT) else {
            return said.to_owned();
        };
        while !said.is_char_boundary(start) {
            start += 1;
        }
        let said = &said[start..];
        let line = said.find('\n').map_or(0, |end| end + 1);
        said[line..].to_owned()
    }
}

/// Text of a command as it may be shown and kept.
pub(super) fn clean(said: &str) -> String {
    text::without_secrets(&printed(said)).into_owned()
}

pub(crate) mod orphans;
#[cfg(test)]
#[cfg(unix)]
#[path = "process_tests.rs"]
pub(super) mod tests;
