//! Holds back the part of a response before its content, and reads it frame by frame.
//!
//! The dialect's usual decoder judges the frames, so that errors are the same as everywhere else.

use super::progress::StreamProgress;
use super::{MAX_HELD_BYTES, content};
use crate::lenient_json::LenientParser;
use crate::{Delta, Dialect, StreamActivity, StreamDecoder, sse, stream_error};
use bytes::Bytes;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;

#[derive(Debug)]
pub(super) struct Opening {
    decoder: sse::Decoder,
    reader: StreamDecoder,
    held: Vec<u8>,
    has_started: bool,
}

/// The action to take with an opening.
pub(super) enum OpeningAction {
    /// Hold it back.
    Hold,
    /// Forward it: its last frame has content, and so many of the received bytes lie behind it.
    SendContent { behind: usize },
    /// Forward it: the response is complete.
    SendComplete { behind: usize },
    /// Forward it: it is too long to be held back; `unread` was not read yet.
    SendOverflow { unread: Bytes },
}

impl Opening {
    pub(super) fn new(reader: StreamDecoder) -> Self {
        Self {
            decoder: sse::Decoder::new(usize::MAX),
            reader,
            held: Vec::new(),
            has_started: false,
        }
    }

    /// Reads bytes up to the first frame with content.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        course: &mut StreamProgress,
        now: Timestamp,
    ) -> Result<(StreamActivity, OpeningAction), Box<Failure>> {
        let mut best = StreamActivity::KeepAlive;
        self.decoder.push(bytes);
        while let Ok(Some(frame)) = self.decoder.next_frame() {
            if self.held.len() + frame.raw.len() > MAX_HELD_BYTES {
                let mut unread = frame.raw.to_vec();
                unread.extend_from_slice(self.decoder.rest());
                let unread = Bytes::from(unread);
                return Ok((best, OpeningAction::SendOverflow { unread }));
            }
            self.held.extend_from_slice(frame.raw);
            let Some(event) = frame.event else { continue };
            let (sign, has_content) = self.read_event(&event, course, now)?;
            best = best.max(sign);
            let behind = self.decoder.rest().len();
            if has_content || course.is_complete {
                let then = match has_content {
                    true => OpeningAction::SendContent { behind },
                    false => OpeningAction::SendComplete { behind },
                };
                return Ok((best, then));
            }
        }
        if self.held.len() + self.decoder.rest().len() > MAX_HELD_BYTES {
            let unread = Bytes::copy_from_slice(self.decoder.rest());
            return Ok((best, OpeningAction::SendOverflow { unread }));
        }
        Ok((best, OpeningAction::Hold))
    }

    /// Returns the activity of an event, and whether it has content.
    fn read_event(
        &mut self,
        event: &sse::Event,
        course: &mut StreamProgress,
        now: Timestamp,
    ) -> Result<(StreamActivity, bool), Box<Failure>> {
        let mut deltas = Vec::new();
        let sign = self.reader.decode(event, now, &mut deltas)?;
        self.has_started |= sign != StreamActivity::KeepAlive;
        let mut has_content = false;
        // A frame without progress has no content, unless it belongs to a choice that the decoder does not follow.
        if sign == StreamActivity::Progress || course.dialect == Dialect::OpenaiChat {
            let frame = LenientParser::default()
                .parse(&event.data)
                .unwrap_or_default();
            has_content = content::is_content(course.dialect, &event.name, &frame);
            course.observe_finish(&frame, has_content);
        }
        let is_end = |delta: &Delta| matches!(delta, Delta::Stopped(_));
        course.is_complete |= deltas.iter().any(is_end);
        Ok((sign, has_content))
    }

    pub(super) fn take_held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Returns the beginning of a frame whose end did not come.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        self.decoder.rest().to_vec()
    }

    /// Returns the failure of a stream that ends here: the bytes may be no stream at all.
    pub(super) fn end_failure(&self, provider: &str, now: Timestamp) -> Box<Failure> {
        match self.decoder.stray() {
            stray if self.has_started || stray.is_empty() => {
                stream_error::truncated_stream(provider, now)
            }
            stray => stream_error::not_an_event_stream(provider, &stray, now),
        }
    }
}
