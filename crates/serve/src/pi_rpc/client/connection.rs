//! The connection to a server: its two streams and its process; one task reads, one writes.
//!
//! Invariants: a request is written completely, even if its caller is gone; a server that does not read can still be
//! heard; when the last client is dropped, the server is killed.

use super::error::ClientError;
use super::inbox::Inbox;
use crate::lines::{Line, LineReader};
use serde_json::Value;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 256 << 20;
/// Maximum number of commands that wait to be written.
const MAX_QUEUED_COMMANDS: usize = 64;
/// Time that a server gets to exit by itself after its input has closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to read the remaining output of a process that has exited: a child of it may hold its output open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection, shared by all clones of a client.
pub(super) struct Connection {
    pub(super) inbox: Arc<Inbox>,
    commands: mpsc::Sender<Vec<u8>>,
    state: Arc<ConnectionState>,
    /// Ends both tasks when the last client is dropped.
    _tasks_guard: DropGuard,
}

/// The end of a connection.
#[derive(Default)]
struct ConnectionState {
    /// Cancelled when nothing more will be written.
    closing: CancellationToken,
    /// Cancelled when the server is gone.
    disconnected: CancellationToken,
    /// The exit status of the server's process.
    status: OnceLock<ExitStatus>,
}

impl Connection {
    /// Connects to a server over two streams; `child` is its process, if it was spawned here.
    pub(super) fn from_streams<R, W>(reader: R, writer: W, child: Option<Child>) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let inbox = Arc::new(Inbox::new());
        let state = Arc::new(ConnectionState::default());
        let left = CancellationToken::new();
        let (commands, waiting) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let writing = write(writer, waiting, inbox.clone(), state.clone());
        let keeping = supervise(reader, child, inbox.clone(), state.clone());
        tokio::spawn(left.clone().run_until_cancelled_owned(writing));
        tokio::spawn(left.clone().run_until_cancelled_owned(keeping));
        let _tasks_guard = left.drop_guard();
        Self {
            inbox,
            commands,
            state,
            _tasks_guard,
        }
    }

    /// Queues a line for writing.
    pub(super) async fn write(&self, line: Vec<u8>) -> Result<(), ClientError> {
        let sent = self.commands.send(line).await;
        sent.map_err(|_| self.inbox.closed_error())
    }

    /// Closes the server's input and waits until the server is gone; kills it if it does not exit.
    pub(super) async fn close(&self) -> Option<ExitStatus> {
        self.state.closing.cancel();
        self.state.disconnected.cancelled().await;
        self.state.status.get().copied()
    }
}

/// Writes queued commands until the connection closes.
async fn write(
    mut out: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Vec<u8>>,
    inbox: Arc<Inbox>,
    state: Arc<ConnectionState>,
) {
    loop {
        let line = tokio::select! {
            line = waiting.recv() => line,
            () = state.closing.cancelled() => {
                waiting.close();
                waiting.recv().await
            }
        };
        let Some(line) = line else { break };
        if let Err(error) = put(&mut out, &line).await {
            inbox.end(&connection_error(error));
            return;
        }
    }
    // The error does not matter: a server that is gone no longer reads.
    out.shutdown().await.ok();
}

async fn put(out: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    out.write_all(line).await?;
    out.flush().await
}

/// Reads until the server is gone, then waits for its process.
async fn supervise(
    reader: impl AsyncRead + Unpin,
    mut child: Option<Child>,
    inbox: Arc<Inbox>,
    state: Arc<ConnectionState>,
) {
    let (why, grace) = {
        let lines = LineReader::new(reader, MAX_LINE_BYTES);
        let mut reading = pin!(read(lines, &inbox));
        tokio::select! {
            why = &mut reading => (why, SHUTDOWN_TIMEOUT),
            () = child_exited(child.as_mut()) => {
                let last = timeout(DRAIN_TIMEOUT, reading).await;
                (last.unwrap_or(ClientError::Closed), SHUTDOWN_TIMEOUT)
            }
            () = shutdown_timeout(&state) => (ClientError::Closed, Duration::ZERO),
        }
    };
    inbox.end(&why);
    state.closing.cancel();
    if let Some(child) = child
        && let Some(status) = reap_child(child, grace).await
    {
        state.status.get_or_init(|| status);
    }
    state.disconnected.cancel();
}

/// Waits for the process to exit; kills it after the grace period.
async fn reap_child(mut child: Child, grace: Duration) -> Option<ExitStatus> {
    if timeout(grace, child.wait()).await.is_err() {
        // Fails only if the process has exited, and its exit is the goal.
        child.start_kill().ok();
    }
    child.wait().await.ok()
}

/// Reads all frames into the inbox. Returns the reason why reading ended.
pub(super) async fn read<R>(mut lines: LineReader<R>, inbox: &Inbox) -> ClientError
where
    R: AsyncRead + Unpin,
{
    loop {
        match lines.next().await {
            Ok(Some(Line::Complete(line))) => {
                // Ignores lines that are not frames: a wrapper around the server may print a greeting.
                if let Ok(frame @ Value::Object(_)) = serde_json::from_str(&line) {
                    inbox.dispatch(frame);
                }
            }
            Ok(Some(Line::InvalidUtf8)) => {}
            Ok(Some(Line::TooLong { bytes })) => return ClientError::TooLong { bytes },
            Ok(None) => return ClientError::Closed,
            Err(error) => return connection_error(error),
        }
    }
}

/// Waits for the process to exit; never returns if there is none.
async fn child_exited(child: Option<&mut Child>) {
    match child {
        Some(child) => drop(child.wait().await),
        None => std::future::pending().await,
    }
}

/// Waits until a closing server should have exited.
async fn shutdown_timeout(state: &ConnectionState) {
    state.closing.cancelled().await;
    sleep(SHUTDOWN_TIMEOUT).await;
}

/// Maps an I/O error: a broken pipe means that the server has closed.
fn connection_error(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Closed,
        _ => error.into(),
    }
}
