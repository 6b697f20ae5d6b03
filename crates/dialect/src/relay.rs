//! Relays one streamed response through a proxy: checks its frames for content, completeness and errors.
//!
//! Pure: bytes go in through [`Relay::push`], the same bytes come out. Nothing is forwarded before the first frame with
//! content, so that a failure until then can be repaired by a retry; after it only the beginning of a frame is held
//! back, so that the proxy can insert a frame of its own between two frames and a cut never shows half of one.
//! Invariants: the output is always a prefix of the input, byte for byte; memory is bounded by [`MAX_HELD_BYTES`]
//! before content and by [`MAX_INSPECTED_BYTES`] after it. After content no frame is parsed that its first bytes
//! explain.
//! Not here: the idle timeout of a silent stream, and keep-alives to the client.

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

/// The size of the part that is held back in wait for content, in bytes; a larger part counts as content.
pub const MAX_HELD_BYTES: usize = 256 << 10;
/// The size of an unfinished frame that is held back, in bytes; a longer one is forwarded as it arrives.
pub const MAX_TAIL_BYTES: usize = 64 << 10;
/// The number of bytes kept of a frame that is forwarded as it arrives, so that its end shows its kind.
pub const MAX_INSPECTED_BYTES: usize = 1 << 20;

/// A response that is being relayed.
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
    /// The part that is held back until there is content.
    opening: Option<Box<Opening>>,
    has_content: bool,
    forwarder: Forwarder,
}

impl Dialect {
    /// Creates the relay of one streamed response by that provider.
    pub fn relay(self, provider: &str) -> Relay {
        Relay {
            opening: Some(Box::new(Opening::new(self.decoder(provider)))),
            has_content: false,
            forwarder: Forwarder::new(StreamProgress::new(self, provider)),
        }
    }
}

impl Relay {
    /// Reads bytes of the body as they arrived, and appends the bytes that may be forwarded to `out`.
    ///
    /// That is nothing before content, and whole frames after it. The result is the activity of the best frame among
    /// them. An error before content is a failure, as an error status would be; nothing may be pushed after it. An
    /// error after content is forwarded, see [`Relay::relayed_error`].
    pub fn push(
        &mut self,
        bytes: Bytes,
        now: Timestamp,
        out: &mut Vec<Bytes>,
    ) -> Result<StreamActivity, Box<Failure>> {
        let Some(opening) = &mut self.opening else {
            return Ok(self.forwarder.push(bytes, now, out));
        };
        let (sign, then) = opening.push(&bytes, &mut self.forwarder.progress, now)?;
        let rest = match then {
            OpeningAction::Hold => return Ok(sign),
            OpeningAction::SendContent { behind } => {
                self.has_content = true;
                bytes.slice(bytes.len() - behind..)
            }
            OpeningAction::SendComplete { behind } => bytes.slice(bytes.len() - behind..),
            OpeningAction::SendOverflow { unread } => {
                self.has_content = true;
                unread
            }
        };
        send(opening.take_held(), out);
        self.opening = None;
        Ok(sign.max(self.forwarder.push(rest, now, out)))
    }

    /// Returns whether content has come: from then on a retry would be visible to the client.
    ///
    /// A response that is complete without content is forwarded, too, and has none.
    pub fn has_content(&self) -> bool {
        self.has_content
    }

    /// Ends the body. A response that is complete, or that ended with a forwarded error, is forwarded to its last
    /// byte; any other was cut off, and its held part is dropped.
    ///
    /// For a body that broke off, check [`Relay::is_content_complete`] first.
    pub fn finish(&mut self, now: Timestamp, out: &mut Vec<Bytes>) -> Result<(), Box<Failure>> {
        let Some(opening) = &mut self.opening else {
            return self.forwarder.finish(now, out);
        };
        let course = &mut self.forwarder.progress;
        if !course.is_complete_at_end() {
            return Err(opening.end_failure(&course.provider, now));
        }
        course.is_complete = true;
        let rest = opening.take_rest();
        send(opening.take_held(), out);
        send(rest, out);
        self.opening = None;
        Ok(())
    }

    /// Returns whether the output ends at the end of a frame: only there may the proxy insert a frame of its own.
    pub fn is_between_frames(&self) -> bool {
        !self.forwarder.is_within_frame()
    }

    /// Returns whether the terminal event was forwarded: only the connection's end is missing.
    pub fn is_complete(&self) -> bool {
        self.forwarder.progress.is_complete
    }

    /// Returns whether the completion is finished: at most usage and the last frame of a chat are missing.
    ///
    /// A body that is silent or breaks off here may be ended by [`Relay::finish`] as a complete one.
    pub fn is_content_complete(&self) -> bool {
        self.forwarder.progress.is_content_complete()
    }

    /// Returns the error that was forwarded after content, if there was one: the client knows that its response
    /// failed.
    pub fn relayed_error(&self) -> Option<&Failure> {
        self.forwarder.progress.relayed_error.as_deref()
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
