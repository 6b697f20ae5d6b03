//! Serves a session over two streams of lines: commands come in, replies and events go out.
//!
//! ```text
//! lines -> command -> connection: control (at once)     -> the conversation in use
//!                                 commands (in order)   -> the conversation, sessions, history, bash
//! session's events and replies -> outbox -> event encoder (pi or native) -> lines
//! ```
//!
//! Invariants: every command is answered once, with its id; a command that stops something never waits behind the thing
//! it stops; an accepted prompt completes once; a client that does not read pauses the turn, and costs bounded memory.

mod bash;
mod command;
mod connection;
mod history;
mod sessions;
mod state;
mod surrogates;

pub(crate) use connection::{ABORT_REPLY_TIMEOUT, leave};

use crate::event_encoder::EventEncoder;
use crate::lines::{Line, LineReader};
use crate::native::NativeEncoder;
use crate::outbox::{Item, Outbox};
use crate::pi_rpc::translate::PiEncoder;
use connection::{Connection, QueueEntry, QueuedCommand};
use outlast_engine::CancellationToken;
use outlast_session::factory::{Host, OpenedSession};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Maximum length of a line, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 20;
/// Maximum size of the queued commands, in kilobytes, before the server stops reading: more than the longest line.
const MAX_QUEUED_KILOBYTES: usize = 96 << 10;
/// After the input has closed: if no command starts for this long, the remaining ones are not answered.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Time that a client gets to read the remaining output.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that closing a session may take.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same two limits when the process is told to exit: it has about a second for everything.
const SHORT_FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
pub(crate) const SHORT_CLOSE_TIMEOUT: Duration = Duration::from_millis(400);

/// The protocol in which events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The pi protocol.
    Pi,
    /// The native dialect.
    Native,
}

/// The reason why serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The client closed its input.
    InputClosed,
    /// The client no longer reads.
    OutputClosed,
    /// The server was told to stop.
    Stopped,
}

/// A server for one client.
pub struct Server {
    /// The source of sessions.
    pub host: Arc<dyn Host>,
    /// The protocol in which events are written.
    pub dialect: Dialect,
    /// Cancelled to end serving.
    pub stop: CancellationToken,
}

impl Server {
    /// Serves a session until the client disconnects. A turn that runs then is left to be resumed; otherwise the
    /// session is closed.
    pub async fn serve(
        self,
        opened: OpenedSession,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> DisconnectReason {
        let host = Arc::clone(&self.host);
        let voice: Box<dyn EventEncoder> = match self.dialect {
            Dialect::Pi => Box::new(PiEncoder::with_model_source(move || host.models().into())),
            Dialect::Native => Box::new(NativeEncoder),
        };
        let (outbox, writer) = Outbox::new(voice.merge_threshold());
        let mut writing = AbortOnDropHandle::new(tokio::spawn(writer.run(output, voice)));
        let connection = Arc::new(Connection::new(self.host, outbox.clone(), self.dialect));
        connection.attach_session(opened);
        let (queue, waiting) = mpsc::unbounded_channel();
        let mut working = AbortOnDropHandle::new(tokio::spawn(
            Arc::clone(&connection).process_commands(waiting),
        ));
        let reading = connection.read(LineReader::new(input, MAX_LINE_BYTES), queue);
        let ending = tokio::select! {
            () = reading => DisconnectReason::InputClosed,
            _ = &mut writing => DisconnectReason::OutputClosed,
            () = self.stop.cancelled() => DisconnectReason::Stopped,
        };
        if ending == DisconnectReason::InputClosed {
            connection.drain_commands(&mut working).await;
        }
        // From here on no command starts.
        working.abort();
        let (goodbye, last_words) = match ending {
            DisconnectReason::InputClosed => (CLOSE_TIMEOUT, FLUSH_TIMEOUT),
            DisconnectReason::Stopped | DisconnectReason::OutputClosed => {
                (SHORT_CLOSE_TIMEOUT, SHORT_FLUSH_TIMEOUT)
            }
        };
        connection.shutdown(goodbye).await;
        outbox.close();
        if ending != DisconnectReason::OutputClosed {
            tokio::time::timeout(last_words, writing).await.ok();
        }
        ending
    }
}

impl Connection {
    /// Waits for the commands that were read, as long as they make progress.
    async fn drain_commands(&self, working: &mut AbortOnDropHandle<()>) {
        let mut begun = self.commands_begun.subscribe();
        let done = async {
            working.await.ok();
            self.prompts.close();
            self.prompts.wait().await;
        };
        tokio::pin!(done);
        loop {
            tokio::select! {
                () = &mut done => return,
                Ok(()) = begun.changed() => {}
                () = tokio::time::sleep(DRAIN_TIMEOUT) => return,
            }
        }
    }

    /// Reads commands until the input ends. Pauses while the client does not read its replies.
    async fn read(
        self: &Arc<Self>,
        mut lines: LineReader<impl AsyncRead + Unpin>,
        queue: mpsc::UnboundedSender<QueueEntry>,
    ) {
        while let Ok(Some(line)) = lines.next().await {
            let kilobytes = match &line {
                Line::Complete(line) => line.len() / 1024 + 1,
                Line::InvalidUtf8 | Line::TooLong { .. } => 1,
            };
            let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
            let place = Arc::clone(&self.queue_permits)
                .acquire_many_owned(kilobytes)
                .await;
            if let Some(task) = self.receive(line)
                && queue.send((task, place.ok())).is_err()
            {
                return;
            }
            self.outbox.wait_for_item_slot().await;
        }
    }

    /// Handles urgent commands at once, and returns the others for the command queue.
    fn receive(self: &Arc<Self>, line: Line) -> Option<QueuedCommand> {
        let unread = |why: String| command::parse_error_reply(&why);
        let read = match line {
            Line::Complete(line) if line.trim().is_empty() => return None,
            Line::Complete(line) => command::parse_line(&line),
            Line::InvalidUtf8 => Err(unread("it is not UTF-8 text".to_owned())),
            Line::TooLong { bytes } => Err(unread(format!(
                "it has {bytes} bytes; the longest line that is read has {MAX_LINE_BYTES}"
            ))),
        };
        match read {
            Err(refused) => {
                self.outbox.send(Item::Reply(refused));
                None
            }
            Ok(None) => None,
            Ok(Some(request)) => match request.command {
                Ok(command) => self.control(request.caller, command),
                Err(error) => {
                    self.outbox.send(Item::Reply(request.caller.error(&error)));
                    None
                }
            },
        }
    }
}
