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
mod control;
mod desk;
mod history;
mod lane;
mod run;
mod sessions;
mod state;

use crate::host::{Host, Opened};
use crate::lines::{Line, LineReader};
use crate::native::NativeVoice;
use crate::outbox::{Item, Outbox};
use crate::pi_rpc::translate::PiVoice;
use crate::voice::Voice;
use desk::Desk;
use outlast_engine::CancellationToken;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// The longest line that is read.
const LONGEST_LINE: usize = 64 << 20;
/// How many commands may wait for their turn before no more are read.
const LANE: usize = 64;
/// What is answered after the last command was read is waited for so long.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Who does not read what is left for longer than this does not read it.
const LAST_WORDS: Duration = Duration::from_secs(2);

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
pub enum Ending {
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
        opened: Opened,
        (input, output): (
            impl AsyncRead + Unpin,
            impl AsyncWrite + Send + Unpin + 'static,
        ),
    ) -> Ending {
        let voice: Box<dyn Voice> = match self.dialect {
            Dialect::Pi => Box::new(PiVoice::new(self.host.models())),
            Dialect::Native => Box::new(NativeVoice),
        };
        let (outbox, writer) = Outbox::new(voice.merges_above());
        let mut writing = AbortOnDropHandle::new(tokio::spawn(writer.run(output, voice)));
        let desk = Arc::new(Desk::new(self.host, outbox.clone(), self.dialect));
        desk.take_over(opened);
        let (lane, waiting) = mpsc::channel(LANE);
        let mut working =
            AbortOnDropHandle::new(tokio::spawn(lane::work_off(Arc::clone(&desk), waiting)));
        let mut lines = LineReader::new(input, LONGEST_LINE);
        let ending = loop {
            let line = tokio::select! {
                line = lines.next() => line,
                _ = &mut writing => break Ending::OutputLost,
                () = self.stop.cancelled() => break Ending::Stopped,
            };
            let Ok(Some(line)) = line else {
                break Ending::InputClosed;
            };
            if let Some(request) = desk.receive(line) {
                // The lane ends with the desk.
                lane.send(request).await.ok();
            }
        };
        drop(lane);
        if ending == Ending::InputClosed {
            tokio::time::timeout(LAST_ANSWERS, &mut working).await.ok();
        }
        desk.leave().await;
        outbox.close();
        if ending != Ending::OutputLost {
            tokio::time::timeout(LAST_WORDS, writing).await.ok();
        }
        ending
    }
}

impl Desk {
    /// Does at once what must not wait; the rest is for the lane.
    fn receive(self: &Arc<Self>, line: Line) -> Option<lane::Task> {
        let unread = |why: String| command::unreadable(&why);
        let read = match line {
            Line::Whole(line) => command::read(&line),
            Line::NotText => Err(unread("it is not UTF-8 text".to_owned())),
            Line::TooLong { bytes } => Err(unread(format!(
                "it has {bytes} bytes; the longest line that is read has {LONGEST_LINE}"
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
