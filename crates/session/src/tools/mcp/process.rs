//! A server's process, with everything that it starts.
//!
//! It leads an OS session of its own, as commands do. Invariants: dropping it kills its processes; only the end of its
//! standard error is kept; the length of a single response is bounded.

use super::ServerConfig;
use super::server_handle::LaunchContext;
use crate::process::command::signal_session;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use parking_lot::Mutex;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessSession};
use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum length of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// Number of bytes kept of a server's standard error.
const MAX_STDERR_BYTES: usize = 1024;
/// Time for a server to end by itself after its input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_millis(50);
/// Time for its processes to clean up after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_millis(70);
/// Time for the system to reap a killed process.
const REAP_TIMEOUT: Duration = Duration::from_millis(30);

/// The process.
pub(super) struct Process {
    child: Box<dyn ChildWrapper>,
    session: Option<Pid>,
    stderr: ChildStderr,
    stderr_tail: StderrTail,
}

/// The two pipes that carry messages.
pub(super) type Pipes = (BoundedReader<ChildStdout>, ChildStdin);

impl Process {
    /// Starts the server's program.
    pub(super) fn start(server: &ServerConfig, place: &LaunchContext) -> io::Result<(Self, Pipes)> {
        let mut command = CommandWrap::with_new(&server.program, |command| {
            command
                .args(&server.arguments)
                .current_dir(&place.directory)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            for name in &place.hidden_variables {
                command.env_remove(name);
            }
            command.envs(&server.variables);
        });
        command.wrap(ProcessSession).wrap(KillOnDrop);
        let mut child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let missing = || io::Error::other("it has no pipes");
        let output = child.stdout().take().ok_or_else(missing)?;
        let input = child.stdin().take().ok_or_else(missing)?;
        let stderr_tail = StderrTail::default();
        let process = Self {
            stderr: child.stderr().take().ok_or_else(missing)?,
            session: id.map(Pid::from_raw),
            child,
            stderr_tail: stderr_tail.clone(),
        };
        let line_length = 0;
        let output = BoundedReader {
            output,
            line_length,
            stderr_tail,
        };
        Ok((process, (output, input)))
    }

    /// Returns the tail of its standard error.
    pub(super) fn stderr_tail(&self) -> StderrTail {
        self.stderr_tail.clone()
    }

    /// Reads its standard error until `stop` is cancelled, and stops the process.
    pub(super) async fn supervise(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.read_stderr() => stop.cancelled().await,
        }
        self.stop().await;
        // Read its last output, unless another process keeps the pipe open.
        timeout(REAP_TIMEOUT, self.read_stderr()).await.ok();
    }

    /// Waits for its end, asks it to end and kills it, with a short time in between.
    async fn stop(&mut self) {
        if timeout(EXIT_TIMEOUT, self.child.inner_mut().wait())
            .await
            .is_err()
        {
            self.signal(Signal::SIGTERM);
            timeout(TERMINATE_TIMEOUT, self.child.inner_mut().wait())
                .await
                .ok();
        }
        self.signal(Signal::SIGKILL);
        timeout(REAP_TIMEOUT, self.child.inner_mut().wait())
            .await
            .ok();
        self.session = None;
    }

    async fn read_stderr(&mut self) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = self.stderr.read(&mut buffer).await {
            self.stderr_tail.push(&buffer[..count]);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(session) = self.session {
            signal_session(session, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// The end of a server's standard error.
#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<Vec<u8>>>);

impl StderrTail {
    /// Returns the kept output as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).trim().to_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock();
        kept.extend_from_slice(bytes);
        let excess = kept.len().saturating_sub(MAX_STDERR_BYTES);
        kept.drain(..excess);
    }
}

/// Reads a server's responses line by line. A line that is too long ends the stream: if it were skipped, the call would wait
/// for it in vain.
pub(super) struct BoundedReader<R> {
    output: R,
    /// The length of the line so far.
    line_length: usize,
    stderr_tail: StderrTail,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.output).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        self.line_length = match memchr::memrchr(b'\n', read) {
            Some(end) => read.len() - end - 1,
            None => self.line_length + read.len(),
        };
        if self.line_length <= MAX_RESPONSE_BYTES {
            return Poll::Ready(Ok(()));
        }
        let problem = format!("its answer is longer than {MAX_RESPONSE_BYTES} bytes");
        self.stderr_tail.push(problem.as_bytes());
        Poll::Ready(Err(io::Error::other(problem)))
    }
}
