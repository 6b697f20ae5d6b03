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
    pub(super) progress: StreamProgress,
    scanner: FrameScanner,
    /// The received part of an unfinished frame.
    tail: Vec<u8>,
    /// It is so long that it was forwarded: the kept part is only inspected.
    is_tail_sent: bool,
    /// Part of it was not kept.
    is_tail_truncated: bool,
}

impl Forwarder {
    pub(super) fn new(progress: StreamProgress) -> Self {
        Self {
            progress,
            scanner: FrameScanner::default(),
            tail: Vec::new(),
            is_tail_sent: false,
            is_tail_truncated: false,
        }
    }

    /// Returns whether the last forwarded byte lies within a frame.
    pub(super) fn is_within_frame(&self) -> bool {
        self.is_tail_sent
    }

    pub(super) fn push(
        &mut self,
        bytes: Bytes,
        now: Timestamp,
        out: &mut Vec<Bytes>,
    ) -> StreamActivity {
        let mut best = StreamActivity::KeepAlive;
        let (mut unsent, mut begin) = (0, 0);
        let mut said = FrameFields::default();
        while let Some(length) = self.scanner.next_end(&bytes[begin..], &mut said) {
            let end = begin + length;
            let frame = &bytes[begin..end];
            let said = std::mem::take(&mut said);
            if self.tail.is_empty() {
                best = best.max(self.progress.observe_frame(frame, &said, now));
            } else {
                best = best.max(self.finish_tail(frame, now));
                let tail = std::mem::take(&mut self.tail);
                if !std::mem::take(&mut self.is_tail_sent) {
                    out.push(Bytes::from(tail));
                    unsent = end;
                }
            }
            begin = end;
        }
        if unsent == 0 && begin == bytes.len() && begin > 0 && !self.progress.is_complete {
            out.push(bytes);
            return best;
        }
        let rest = bytes.len() - begin;
        if !self.is_unbuffered() && self.tail.len() + rest > MAX_TAIL_BYTES {
            self.is_tail_sent = true;
            send(self.tail.clone(), out);
        }
        let sent_to = if self.is_unbuffered() {
            bytes.len()
        } else {
            begin
        };
        if sent_to > unsent {
            out.push(bytes.slice(unsent..sent_to));
        }
        self.buffer_tail(&bytes[begin..]);
        best
    }

    /// Returns whether nothing is held back: because it would be forwarded in the end anyway, or because it is too
    /// much.
    fn is_unbuffered(&self) -> bool {
        self.progress.is_complete || self.is_tail_sent
    }

    /// Finishes the frame whose beginning was kept.
    fn finish_tail(&mut self, end: &[u8], now: Timestamp) -> StreamActivity {
        if !self.is_tail_truncated {
            self.tail.extend_from_slice(end);
            let said = FrameFields::parse(&self.tail);
            return self.progress.observe_frame(&self.tail, &said, now);
        }
        self.is_tail_truncated = false;
        self.progress.observe_long_frame(&self.tail)
    }

    /// Keeps the beginning of a frame, as far as it is still needed.
    fn buffer_tail(&mut self, begin: &[u8]) {
        if self.progress.is_complete {
            self.is_tail_sent = self.scanner.is_within_frame();
            return;
        }
        let room = MAX_INSPECTED_BYTES.saturating_sub(self.tail.len());
        self.is_tail_truncated |= begin.len() > room;
        self.tail.extend_from_slice(&begin[..begin.len().min(room)]);
    }

    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Box<Failure>> {
        if self.progress.is_complete_at_end() {
            self.progress.is_complete = true;
            if !std::mem::replace(&mut self.is_tail_sent, self.scanner.is_within_frame()) {
                send(std::mem::take(&mut self.tail), out);
            }
            return Ok(());
        }
        if self.progress.relayed_error.is_some() {
            return Ok(());
        }
        let mut failure = stream_error::truncated_stream(&self.progress.provider, now);
        failure.phase = Phase::AfterContent;
        Err(failure)
    }
}
