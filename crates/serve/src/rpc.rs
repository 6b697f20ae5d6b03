//! A session over two streams of lines: commands come in, replies and events go out.
//!
//! ```text
//! lines -> command -> control (at once) -> desk: the session in use, the run under way
//!                  -> lane (in order)   -> work, run
//! session's events and replies -> outbox -> voice (pi or native) -> lines
//! ```
//!
//! Invariants: every command is answered once, with its id; what stops something never stands behind what it stops; an
//! accepted prompt has one completion; whoever does not read holds up the turn, and costs a bounded amount of memory.

mod command;
mod command_queue;
mod control;
mod history;
mod run;
mod session_state;
mod sessions;
mod state;
mod surrogates;

pub(crate) use command_queue::BUSY_ERROR;

use crate::event_encoder::EventEncoder;
use crate::lines::{Line, LineReader};
use crate::native::NativeEncoder;
use crate::outbox::{Item, Outbox};
use crate::pi_rpc::translate::PiEncoder;
use outlast_engine::CancellationToken;
use outlast_session::factory::{Host, OpenedSession};
use session_state::SessionState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// The longest line that is read.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 20;
/// How many kilobytes of commands may wait for their turn before no more are read: more than the longest line.
const MAX_QUEUED_KILOBYTES: usize = 96 << 10;
/// When nothing was begun for so long after the last command was read, nothing more is answered.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Who does not read what is left for longer than this does not read it.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// So long is a session closed at most.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same when the process is told to end: it is given a second for everything.
const SHORT_FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
const SHORT_CLOSE_TIMEOUT: Duration = Duration::from_millis(400);

/// How events are said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// As the clients of pi know them.
    Pi,
    /// As they are.
    Native,
}

/// Why serving has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The client will send no more.
    InputClosed,
    /// The client reads no more.
    OutputLost,
    /// The server was told to stop.
    Stopped,
}

/// What is served, and to whom.
pub struct Server {
    /// Where sessions come from.
    pub host: Arc<dyn Host>,
    /// How events are said.
    pub dialect: Dialect,
    /// Ends serving.
    pub stop: CancellationToken,
}

impl Server {
    /// Serves a session until the client has gone. A turn that is running then is left as it is, to be resumed; otherwise the
    /// session is closed.
    pub async fn serve(
        self,
        opened: OpenedSession,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> DisconnectReason {
        let host = Arc::clone(&self.host);
        let voice: Box<dyn EventEncoder> = match self.dialect {
            Dialect::Pi => Box::new(PiEncoder::asking(move || host.models().into())),
            Dialect::Native => Box::new(NativeEncoder),
        };
        let (outbox, writer) = Outbox::new(voice.merges_above());
        let mut writing = AbortOnDropHandle::new(tokio::spawn(writer.run(output, voice)));
        let desk = Arc::new(SessionState::new(self.host, outbox.clone(), self.dialect));
        desk.take_over(opened);
        let (lane, waiting) = mpsc::unbounded_channel();
        let mut working = AbortOnDropHandle::new(tokio::spawn(command_queue::process_commands(
            Arc::clone(&desk),
            waiting,
        )));
        let reading = desk.read(LineReader::new(input, MAX_LINE_BYTES), lane);
        let ending = tokio::select! {
            () = reading => DisconnectReason::InputClosed,
            _ = &mut writing => DisconnectReason::OutputLost,
            () = self.stop.cancelled() => DisconnectReason::Stopped,
        };
        if ending == DisconnectReason::InputClosed {
            desk.drain_commands(&mut working).await;
        }
        // Nothing is begun any more.
        working.abort();
        let (goodbye, last_words) = match ending {
            DisconnectReason::InputClosed => (CLOSE_TIMEOUT, FLUSH_TIMEOUT),
            DisconnectReason::Stopped | DisconnectReason::OutputLost => {
                (SHORT_CLOSE_TIMEOUT, SHORT_FLUSH_TIMEOUT)
            }
        };
        desk.leave(goodbye).await;
        outbox.close();
        if ending != DisconnectReason::OutputLost {
            tokio::time::timeout(last_words, writing).await.ok();
        }
        ending
    }
}

impl SessionState {
    /// Answers what was read, for as long as that goes on.
    async fn drain_commands(&self, working: &mut AbortOnDropHandle<()>) {
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            let done = async {
                if !working.is_finished() {
                    (&mut *working).await.ok();
                }
                self.accepted().await;
            };
            let is_done = tokio::time::timeout(DRAIN_TIMEOUT, done).await.is_ok();
            if is_done || self.begun.load(Ordering::Relaxed) == begun {
                return;
            }
        }
    }

    /// Reads commands until there are no more. Whoever reads no answers is not listened to for ever.
    async fn read(
        self: &Arc<Self>,
        mut lines: LineReader<impl AsyncRead + Unpin>,
        lane: mpsc::UnboundedSender<command_queue::QueueEntry>,
    ) {
        while let Ok(Some(line)) = lines.next().await {
            let kilobytes = match &line {
                Line::Whole(line) => line.len() / 1024 + 1,
                Line::NotText | Line::TooLong { .. } => 1,
            };
            let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
            let place = Arc::clone(&self.places).acquire_many_owned(kilobytes).await;
            if let Some(task) = self.receive(line)
                && lane.send((task, place.ok())).is_err()
            {
                return;
            }
            self.outbox.wait_for_item_slot().await;
        }
    }

    /// Does at once what must not wait; the rest is for the lane.
    fn receive(self: &Arc<Self>, line: Line) -> Option<command_queue::QueuedCommand> {
        let unread = |why: String| command::unreadable(&why);
        let read = match line {
            Line::Whole(line) if line.trim().is_empty() => return None,
            Line::Whole(line) => command::read(&line),
            Line::NotText => Err(unread("it is not UTF-8 text".to_owned())),
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
                    self.outbox.send(Item::Reply(request.caller.refuse(&error)));
                    None
                }
            },
        }
    }
}
