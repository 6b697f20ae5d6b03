//! A running command, with everything that it starts.
//!
//! The command leads an OS session of its own: it has no terminal for password prompts, and all of its processes can be found,
//! also those that made groups of their own, as `timeout` does. Invariant: dropping a running command kills its processes.
//! The end of the first process is the end of the command: another process that keeps the output open delays no caller.
//! Not here: which part of the output is kept; it is passed on as it arrives.

use super::output::Stream;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessSession};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

/// How long the output is read after the command has ended.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for processes to clean up after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_millis(120);
/// Time for the system to reap a killed process.
const REAP_TIMEOUT: Duration = Duration::from_millis(30);

/// The OS sessions of all running commands.
static PROCESS_SESSIONS: Mutex<BTreeSet<Pid>> = Mutex::new(BTreeSet::new());

fn lock_process_sessions() -> MutexGuard<'static, BTreeSet<Pid>> {
    PROCESS_SESSIONS.lock()
}

/// Kills all running commands, with everything that they started. Call it before the process exits: a runtime that is shut
/// down with a time limit may give up tasks before it has dropped them, and their commands would run on.
pub fn kill_all_commands() {
    for session in std::mem::take(&mut *lock_process_sessions()) {
        signal_session(session, Signal::SIGKILL);
    }
}

/// A command to start, with its environment.
pub struct Command<'a> {
    /// The command line.
    pub kind: CommandKind<'a>,
    /// The working directory.
    pub directory: &'a Path,
    /// Variables of our environment that are hidden from the command.
    pub hidden_variables: &'a [String],
    /// Variables that are added to our environment.
    pub variables: &'a [(String, String)],
    /// The standard input; empty if absent.
    pub input: Option<&'a [u8]>,
    /// The output streams to capture.
    pub capture: Capture,
}

/// The way to start a command.
#[derive(Clone, Copy, Debug)]
pub enum CommandKind<'a> {
    /// By bash, or by `sh` where there is no bash.
    Shell(&'a str),
    /// A program and its arguments.
    Program(&'a [String]),
}

/// The output streams that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Both as one, in the order in which they were printed.
    Merged,
    /// Standard error only; standard output is discarded.
    StderrOnly,
    /// Each by itself; output printed at the same time may be reported in another order.
    Separate,
}

/// Receives output as it arrives.
pub type OnOutput<'a> = &'a mut (dyn FnMut(Stream, &[u8]) + Send);

/// A running command.
pub struct RunningCommand {
    child: Box<dyn ChildWrapper>,
    session: Option<Pid>,
    output: OutputPipe,
    errors: OutputPipe,
    status: Option<ExitStatus>,
    /// The task that writes the standard input.
    _input: Option<AbortOnDropHandle<()>>,
}

impl RunningCommand {
    /// Starts the command.
    pub fn start(command: &Command<'_>) -> io::Result<Self> {
        match command.kind {
            CommandKind::Shell(line) => match Self::start_with("bash", &["-c", line], command) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Self::start_with("sh", &["-c", line], command)
                }
                result => result,
            },
            CommandKind::Program([program, arguments @ ..]) => {
                Self::start_with(program, arguments, command)
            }
            CommandKind::Program([]) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn start_with(
        program: &str,
        arguments: &[impl AsRef<OsStr>],
        what: &Command<'_>,
    ) -> io::Result<Self> {
        let ends = OutputPipes::new(what.capture)?;
        let mut command = CommandWrap::with_new(program, |command| {
            command
                .args(arguments)
                .current_dir(what.directory)
                .stdin(match what.input {
                    Some(_) => Stdio::piped(),
                    None => Stdio::null(),
                })
                .stdout(ends.stdout)
                .stderr(ends.stderr);
            for name in what.hidden_variables {
                command.env_remove(name);
            }
            for (name, value) in what.variables {
                command.env(name, value);
            }
        });
        command.wrap(ProcessSession).wrap(KillOnDrop);
        let mut child = command.spawn()?;
        // Close our copies of the writing ends: as long as one is open, the output has no end.
        drop(command);
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let session = id.map(Pid::from_raw);
        lock_process_sessions().extend(session);
        let input = child.stdin().take().zip(what.input);
        Ok(Self {
            session,
            _input: input.map(|(stdin, input)| write(stdin, input.to_vec())),
            child,
            output: ends.output,
            errors: ends.errors,
            status: None,
        })
    }

    /// Returns the id of the first process.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Reads until the command has ended, and for 200 ms longer if another process keeps the output open. Can be called again
    /// after its future was dropped.
    pub async fn finish(&mut self, tell: OnOutput<'_>) -> io::Result<ExitStatus> {
        let status = loop {
            if let Some(status) = self.status {
                break status;
            }
            self.read_or_wait(tell).await?;
        };
        if status.signal().is_some() {
            // Killed by a signal, the command cannot clean up after itself: kill the rest of its processes.
            self.signal(Signal::SIGKILL);
        }
        let until = Instant::now() + OUTPUT_DRAIN_TIMEOUT;
        // Check the clock as well: a timeout does not end a read that is always ready.
        while self.is_open() && Instant::now() < until {
            timeout_at(until, self.read(tell)).await.ok();
        }
        self.release();
        Ok(status)
    }

    /// Asks all processes to end, and kills them soon after.
    pub async fn kill(&mut self, tell: OnOutput<'_>) {
        self.signal(Signal::SIGTERM);
        let end = async {
            while self.is_open() || self.status.is_none() {
                if self.read_or_wait(tell).await.is_err() {
                    break;
                }
            }
        };
        // The result does not matter: SIGKILL follows.
        timeout(TERMINATE_TIMEOUT, end).await.ok();
        self.signal(Signal::SIGKILL);
        timeout(REAP_TIMEOUT, self.wait()).await.ok();
        self.release();
    }

    async fn read_or_wait(&mut self, tell: OnOutput<'_>) -> io::Result<()> {
        if self.status.is_some() {
            self.read(tell).await;
            return Ok(());
        }
        if !self.is_open() {
            return self.wait().await;
        }
        // Not the wrapper's own `wait`, which waits for the whole group.
        let child = self.child.inner_mut();
        tokio::select! {
            () = read_either(&mut self.output, &mut self.errors, tell) => {}
            status = child.wait() => self.status = Some(status?),
        }
        Ok(())
    }

    async fn wait(&mut self) -> io::Result<()> {
        self.status = Some(self.child.inner_mut().wait().await?);
        Ok(())
    }

    async fn read(&mut self, tell: OnOutput<'_>) {
        read_either(&mut self.output, &mut self.errors, tell).await;
    }

    const fn is_open(&self) -> bool {
        self.output.is_open() || self.errors.is_open()
    }

    fn signal(&self, signal: Signal) {
        if let Some(session) = self.session {
            signal_session(session, signal);
        }
    }

    /// Stops tracking the processes that the command left running.
    fn release(&mut self) {
        if let Some(session) = self.session.take() {
            lock_process_sessions().remove(&session);
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        self.release();
    }
}

/// The output pipes of a command: the ends it writes to, and the ends we read.
struct OutputPipes {
    stdout: Stdio,
    stderr: Stdio,
    output: OutputPipe,
    errors: OutputPipe,
}

impl OutputPipes {
    fn new(streams: Capture) -> io::Result<Self> {
        let (output, writer) = OutputPipe::new()?;
        Ok(match streams {
            // One pipe for both streams keeps the order in which they were printed.
            Capture::Merged => Self {
                stdout: writer.try_clone()?.into(),
                stderr: writer.into(),
                output,
                errors: OutputPipe::CLOSED,
            },
            Capture::StderrOnly => Self {
                stdout: Stdio::null(),
                stderr: writer.into(),
                output: OutputPipe::CLOSED,
                errors: output,
            },
            Capture::Separate => {
                let (errors, stderr) = OutputPipe::new()?;
                Self {
                    stdout: writer.into(),
                    stderr: stderr.into(),
                    output,
                    errors,
                }
            }
        })
    }
}

/// The reading end of a pipe, until the end of the output.
struct OutputPipe {
    pipe: Option<pipe::Receiver>,
    buffer: Vec<u8>,
}

impl OutputPipe {
    const CLOSED: Self = Self {
        pipe: None,
        buffer: Vec::new(),
    };

    fn new() -> io::Result<(Self, io::PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        let reading = Self {
            pipe: Some(pipe::Receiver::from_owned_fd(reader.into())?),
            buffer: vec![0; 64 * 1024],
        };
        Ok((reading, writer))
    }

    const fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Returns the next output; `None` at the end.
    async fn next(&mut self) -> Option<&[u8]> {
        match self.pipe.as_mut()?.read(&mut self.buffer).await {
            Ok(count @ 1..) => Some(&self.buffer[..count]),
            Ok(0) | Err(_) => {
                self.pipe = None;
                None
            }
        }
    }
}

/// Reads from the stream that is ready first, if one of them is open.
async fn read_either(output: &mut OutputPipe, errors: &mut OutputPipe, tell: OnOutput<'_>) {
    let (stream, bytes) = tokio::select! {
        bytes = output.next(), if output.is_open() => (Stream::Stdout, bytes),
        bytes = errors.next(), if errors.is_open() => (Stream::Stderr, bytes),
        else => return,
    };
    if let Some(bytes) = bytes {
        tell(stream, bytes);
    }
}

/// Writes the input in a task of its own: a command that reads little or late delays no caller, and one that reads nothing
/// is fine.
fn write(mut stdin: ChildStdin, input: Vec<u8>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        stdin.write_all(&input).await.ok();
    }))
}

/// Sends a signal to all processes of an OS session.
pub fn signal_session(session: Pid, signal: Signal) {
    for group in groups(session) {
        // The group may have ended in the meantime.
        killpg(group, signal).ok();
    }
}

/// Returns the process groups of an OS session: that of its first process, and the others that `/proc` lists.
fn groups(session: Pid) -> BTreeSet<Pid> {
    let mut groups = BTreeSet::from([session]);
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return groups;
    };
    let named_by_number = |name: &std::ffi::OsString| {
        let first = name.as_encoded_bytes().first();
        first.is_some_and(u8::is_ascii_digit)
    };
    let names = processes.filter_map(|entry| Some(entry.ok()?.file_name()));
    for name in names.filter(named_by_number) {
        let stat = Path::new("/proc").join(name).join("stat");
        let stat = std::fs::read(stat).unwrap_or_default();
        if let Some((group, of)) = group_and_session(&String::from_utf8_lossy(&stat))
            && of == session
        {
            groups.insert(group);
        }
    }
    groups
}

/// Returns the start time of a process in the system's units; `None` where `/proc` is not available.
pub fn process_start_time(process: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The 22nd field. The name, which may contain anything, is the second.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Parses the fields of `/proc/<pid>/stat` after the name, which may contain anything: state, parent, group, session.
fn group_and_session(stat: &str) -> Option<(Pid, Pid)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(2);
    let mut next = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
    Some((next()?, next()?))
}
