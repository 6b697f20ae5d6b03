//! The two streams to the server and its process: one task reads, one writes.
//!
//! Invariants: what a request writes is written whole, also when who asked has gone; a server that does not read stops
//! nobody from hearing it; when the last client is dropped, so is the server.

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

/// The longest line that is read, in bytes.
const MAX_LINE_BYTES: usize = 256 << 20;
/// How many commands may wait to be written.
const MAX_QUEUED_COMMANDS: usize = 64;
/// What a server gets to end by itself when nothing more is said to it.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// What is waited for the last words of a process that has ended: one that it started may hold its output open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection, as its clients hold it.
pub(super) struct Connection {
    pub(super) inbox: Arc<Inbox>,
    commands: mpsc::Sender<Vec<u8>>,
    state: Arc<ConnectionState>,
    /// Ends both tasks when the last client is dropped.
    _left: DropGuard,
}

/// How it ends.
#[derive(Default)]
struct ConnectionState {
    /// Nothing more is written.
    closing: CancellationToken,
    /// The server is gone.
    gone: CancellationToken,
    /// How its process ended.
    status: OnceLock<ExitStatus>,
}

impl Connection {
    /// Talks to a server over two streams; `child` is its process, if it is ours.
    pub(super) fn over<R, W>(reader: R, writer: W, child: Option<Child>) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let inbox = Arc::new(Inbox::new());
        let state = Arc::new(ConnectionState::default());
        let left = CancellationToken::new();
        let (commands, waiting) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let writing = write(writer, waiting, inbox.clone(), state.clone());
        let keeping = keep(reader, child, inbox.clone(), state.clone());
        tokio::spawn(left.clone().run_until_cancelled_owned(writing));
        tokio::spawn(left.clone().run_until_cancelled_owned(keeping));
        let _left = left.drop_guard();
        Self {
            inbox,
            commands,
            state,
            _left,
        }
    }

    /// Has a line written.
    pub(super) async fn write(&self, line: Vec<u8>) -> Result<(), ClientError> {
        let sent = self.commands.send(line).await;
        sent.map_err(|_| self.inbox.over())
    }

    /// Says nothing more and waits until the server is gone; makes it go when it does not.
    pub(super) async fn close(&self) -> Option<ExitStatus> {
        self.state.closing.cancel();
        self.state.gone.cancelled().await;
        self.state.status.get().copied()
    }
}

/// Writes what is asked, until nothing more is to be.
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
            inbox.end(&lost(error));
            return;
        }
    }
    // Who does not read any more does not mind.
    out.shutdown().await.ok();
}

async fn put(out: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    out.write_all(line).await?;
    out.flush().await
}

/// Reads until the server is gone, and sees it off.
async fn keep(
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
            () = ended(child.as_mut()) => {
                let last = timeout(DRAIN_TIMEOUT, reading).await;
                (last.unwrap_or(ClientError::Closed), SHUTDOWN_TIMEOUT)
            }
            () = patience(&state) => (ClientError::Closed, Duration::ZERO),
        }
    };
    inbox.end(&why);
    state.closing.cancel();
    if let Some(child) = child
        && let Some(status) = reap_child(child, grace).await
    {
        state.status.get_or_init(|| status);
    }
    state.gone.cancel();
}

/// Waits for the end of the process, and makes it when it does not come.
async fn reap_child(mut child: Child, grace: Duration) -> Option<ExitStatus> {
    if timeout(grace, child.wait()).await.is_err() {
        // Fails only when it has ended, which is what is waited for.
        child.start_kill().ok();
    }
    child.wait().await.ok()
}

/// Hears everything that is said. Returns why nothing more is.
pub(super) async fn read<R>(mut lines: LineReader<R>, inbox: &Inbox) -> ClientError
where
    R: AsyncRead + Unpin,
{
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(line))) => {
                // What is no frame was not meant for us: what surrounds the server may greet us, too.
                if let Ok(frame @ Value::Object(_)) = serde_json::from_str(&line) {
                    inbox.hear(frame);
                }
            }
            Ok(Some(Line::NotText)) => {}
            Ok(Some(Line::TooLong { bytes })) => return ClientError::TooLong { bytes },
            Ok(None) => return ClientError::Closed,
            Err(error) => return lost(error),
        }
    }
}

/// Waits for the end of the process, if there is one.
async fn ended(child: Option<&mut Child>) {
    match child {
        Some(child) => drop(child.wait().await),
        None => std::future::pending().await,
    }
}

/// Waits until a server that is to end should have.
async fn patience(state: &ConnectionState) {
    state.closing.cancelled().await;
    sleep(SHUTDOWN_TIMEOUT).await;
}

/// A pipe that breaks is the end of the other side.
fn lost(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Closed,
        _ => error.into(),
    }
}
