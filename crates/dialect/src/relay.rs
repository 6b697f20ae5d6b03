//! One streamed answer on its way through a proxy: what may be sent on, whether it is complete, and the errors inside it.
//!
//! Pure: bytes go in through [`Relay::push`], the same bytes come out. Nothing is sent on before the first frame with
//! content, so that a failure until then can be made good for by asking again; after it nothing is held back but the
//! beginning of a frame, so that something of our own can be put in between two frames and a cut never shows half of one.
//! Invariants: what is sent on is always a prefix of what came, byte for byte; memory is bounded by [`HELD_BYTES`]
//! before content and by [`MAX_INSPECTED_BYTES`] after it. After content no frame is parsed that its first bytes explain.
//! Not here: when to give up on a silent stream, and what keeps a client waiting.

mod content;
mod fast_path;
mod forwarding;
mod frame_scanner;
mod opening;
mod progress;
mod proxy_response;
mod request_peek;
mod response_check;

pub use proxy_response::{BodyKind, sniff_body};
pub use request_peek::PeekedRequest;

use crate::{Dialect, StreamActivity};
use bytes::Bytes;
use forwarding::Forwarder;
use opening::{Opening, OpeningAction};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;
use progress::StreamProgress;

/// How much of an answer is held back in the hope for content; more than that counts as content.
pub const MAX_HELD_BYTES: usize = 256 << 10;
/// How much of an unfinished frame is held back; a longer one is passed on as it comes.
pub const MAX_TAIL_BYTES: usize = 64 << 10;
/// How much of a frame that is passed on as it comes is kept to see at its end what it was.
pub const MAX_INSPECTED_BYTES: usize = 1 << 20;

/// An answer that is being passed on.
///
/// ```
/// use bytes::Bytes;
/// use outlast_dialect::Dialect;
/// use outlast_kernel::Timestamp;
///
/// let (mut relay, mut out) = (Dialect::OpenaiChat.relay("p"), Vec::new());
/// let mut push = |text: &'static str, out: &mut Vec<Bytes>| {
///     relay.push(Bytes::from_static(text.as_bytes()), Timestamp::default(), out).map(drop)
/// };
/// push("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n", &mut out)?;
/// assert!(out.is_empty());
/// push("data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: [DO", &mut out)?;
/// assert!(out.concat().ends_with(b"\"Hi\"}}]}\n\n"));
/// push("NE]\n\n", &mut out)?;
/// assert!(relay.is_complete());
/// # Ok::<(), Box<outlast_kernel::failure::Failure>>(())
/// ```
#[derive(Debug)]
pub struct Relay {
    /// What is held back, until there is content.
    opening: Option<Box<Opening>>,
    has_content: bool,
    passing: Forwarder,
}

impl Dialect {
    /// The beginning of one streamed answer by that provider, to be passed on.
    pub fn relay(self, provider: &str) -> Relay {
        Relay {
            opening: Some(Box::new(Opening::new(self.reader(provider)))),
            has_content: false,
            passing: Forwarder::new(StreamProgress::new(self, provider)),
        }
    }
}

impl Relay {
    /// Takes in bytes of the body as they came, and appends what may be sent on to `out`.
    ///
    /// That is nothing before content, and whole frames after it. The sign is that of the best frame among them.
    /// An error before content is a failure, as it would be out of band; nothing is to be pushed after it. One after
    /// content is passed on, see [`Relay::ended_with`].
    pub fn push(
        &mut self,
        bytes: Bytes,
        now: Timestamp,
        out: &mut Vec<Bytes>,
    ) -> Result<StreamActivity, Box<Failure>> {
        let Some(opening) = &mut self.opening else {
            return Ok(self.passing.push(bytes, now, out));
        };
        let (sign, then) = opening.push(&bytes, &mut self.passing.course, now)?;
        let rest = match then {
            OpeningAction::Wait => return Ok(sign),
            OpeningAction::Content { behind } => {
                self.has_content = true;
                bytes.slice(bytes.len() - behind..)
            }
            OpeningAction::Complete { behind } => bytes.slice(bytes.len() - behind..),
            OpeningAction::Full { unread } => {
                self.has_content = true;
                unread
            }
        };
        send(opening.take_held(), out);
        self.opening = None;
        Ok(sign.max(self.passing.push(rest, now, out)))
    }

    /// Whether content has come: from then on the answer cannot be asked for again unnoticed.
    ///
    /// An answer that is complete without any is sent on, too, and has none.
    pub fn has_content(&self) -> bool {
        self.has_content
    }

    /// The body ended. An answer that is complete, or that ended with an error which was passed on, is sent on to its
    /// last byte; any other was cut off, and what was held back of it is dropped.
    ///
    /// For a body that broke off, ask [`Relay::is_answered`] first.
    pub fn end(&mut self, now: Timestamp, out: &mut Vec<Bytes>) -> Result<(), Box<Failure>> {
        let Some(opening) = &mut self.opening else {
            return self.passing.end(now, out);
        };
        let course = &mut self.passing.course;
        if !course.is_complete_at_end() {
            return Err(opening.cut_off(&course.provider, now));
        }
        course.is_complete = true;
        let rest = opening.take_rest();
        send(opening.take_held(), out);
        send(rest, out);
        self.opening = None;
        Ok(())
    }

    /// Whether everything that was sent on ends at the end of a frame: only there may something of ours be put in.
    pub fn is_between_frames(&self) -> bool {
        !self.passing.is_within_frame()
    }

    /// Whether the terminal event was passed on: only the connection's end is missing.
    pub fn is_complete(&self) -> bool {
        self.passing.course.is_complete
    }

    /// Whether the model has said all: at most an afterword is missing, such as usage and the last frame of a chat.
    ///
    /// A body that falls silent or breaks off here may be ended by [`Relay::end`] as a complete one.
    pub fn is_answered(&self) -> bool {
        self.passing.course.is_answered()
    }

    /// The error that was passed on after content, if there was one: the client knows that its answer failed.
    pub fn ended_with(&self) -> Option<&Failure> {
        self.passing.course.ended_with.as_deref()
    }
}

fn send(bytes: Vec<u8>, out: &mut Vec<Bytes>) {
    if !bytes.is_empty() {
        out.push(Bytes::from(bytes));
    }
}

#[cfg(test)]
mod errors_tests;
#[cfg(test)]
mod own_tests;
#[cfg(test)]
mod passing_tests;
#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod test_support;
