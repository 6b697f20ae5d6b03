//! Relays the part of a response from its content on: in whole frames, without a copy where frames are not cut.

use super::frame_scanner::{FrameFields, FrameScanner};
use super::progress::StreamProgress;
use super::{MAX_INSPECTED_BYTES, MAX_TAIL_BYTES, send};
use crate::{StreamActivity, stream_error};
use bytes::Bytes;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, Phase};

#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) course: StreamProgress,
    ends: FrameScanner,
    /// The received part of an unfinished frame.
    tail: Vec<u8>,
    /// It is so long that it was forwarded: the kept part is only inspected.
    is_sent: bool,
    /// Part of it was not kept.
    is_long: bool,
}

impl Forwarder {
    pub(super) fn new(course: StreamProgress) -> Self {
        Self {
            course,
            ends: FrameScanner::default(),
            tail: Vec::new(),
            is_sent: false,
            is_long: false,
        }
    }

    /// Returns whether the last forwarded byte lies within a frame.
    pub(super) fn is_within_frame(&self) -> bool {
        self.is_sent
    }

    pub(super) fn push(
        &mut self,
        bytes: Bytes,
        now: Timestamp,
        out: &mut Vec<Bytes>,
    ) -> StreamActivity {
        let mut best = StreamActivity::Alive;
        let (mut unsent, mut begin) = (0, 0);
        let mut said = FrameFields::default();
        while let Some(length) = self.ends.next(&bytes[begin..], &mut said) {
            let end = begin + length;
            let frame = &bytes[begin..end];
            let said = std::mem::take(&mut said);
            if self.tail.is_empty() {
                best = best.max(self.course.frame(frame, &said, now));
            } else {
                best = best.max(self.finish_tail(frame, now));
                let tail = std::mem::take(&mut self.tail);
                if !std::mem::take(&mut self.is_sent) {
                    out.push(Bytes::from(tail));
                    unsent = end;
                }
            }
            begin = end;
        }
        if unsent == 0 && begin == bytes.len() && begin > 0 && !self.course.is_complete {
            out.push(bytes);
            return best;
        }
        let rest = bytes.len() - begin;
        if !self.is_open() && self.tail.len() + rest > MAX_TAIL_BYTES {
            self.is_sent = true;
            send(self.tail.clone(), out);
        }
        let sent_to = if self.is_open() { bytes.len() } else { begin };
        if sent_to > unsent {
            out.push(bytes.slice(unsent..sent_to));
        }
        self.keep(&bytes[begin..]);
        best
    }

    /// Returns whether nothing is held back: because it would be forwarded in the end anyway, or because it is too
    /// much.
    fn is_open(&self) -> bool {
        self.course.is_complete || self.is_sent
    }

    /// Finishes the frame whose beginning was kept.
    fn finish_tail(&mut self, end: &[u8], now: Timestamp) -> StreamActivity {
        if !self.is_long {
            self.tail.extend_from_slice(end);
            let said = FrameFields::of(&self.tail);
            return self.course.frame(&self.tail, &said, now);
        }
        self.is_long = false;
        self.course.observe_long_frame(&self.tail)
    }

    /// Keeps the beginning of a frame, as far as it is still needed.
    fn keep(&mut self, begin: &[u8]) {
        if self.course.is_complete {
            self.is_sent = self.ends.is_within_frame();
            return;
        }
        let room = MAX_INSPECTED_BYTES.saturating_sub(self.tail.len());
        self.is_long |= begin.len() > room;
        self.tail.extend_from_slice(&begin[..begin.len().min(room)]);
    }

    pub(super) fn end(&mut self, now: Timestamp, out: &mut Vec<Bytes>) -> Result<(), Box<Failure>> {
        if self.course.is_complete_at_end() {
            self.course.is_complete = true;
            if !std::mem::replace(&mut self.is_sent, self.ends.is_within_frame()) {
                send(std::mem::take(&mut self.tail), out);
            }
            return Ok(());
        }
        if self.course.ended_with.is_some() {
            return Ok(());
        }
        let mut failure = stream_error::cut_off(&self.course.provider, now);
        failure.phase = Phase::AfterContent;
        Err(failure)
    }
}
