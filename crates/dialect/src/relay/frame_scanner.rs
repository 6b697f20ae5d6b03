//! Finds the ends of frames in bytes that arrive in pieces, and reads their lines. Nothing is copied.

use crate::sse;
use memchr::memchr2;

/// Finds the ends of frames like `sse::Decoder`: the line after a blank one begins the next.
#[derive(Debug, Default)]
pub(super) struct FrameScanner {
    is_in_line: bool,
    is_in_frame: bool,
    /// The last line ended in a CR, and the next byte had not arrived yet.
    after_cr: bool,
}

impl FrameScanner {
    /// Returns whether a frame has begun and not ended.
    pub(super) fn is_within_frame(&self) -> bool {
        self.is_in_frame
    }

    /// Returns the number of bytes up to the end of the current frame, if it ends among them; the caller then removes
    /// them. Without an end, all bytes are consumed. The content of their lines is added to `said`.
    pub(super) fn next_end<'a>(
        &mut self,
        bytes: &'a [u8],
        said: &mut FrameFields<'a>,
    ) -> Option<usize> {
        let mut at = 0;
        if !bytes.is_empty() {
            // An LF that belongs to the CR of a line before. After a frame it is a blank line: the frame was returned
            // with its CR, without a wait for the next byte.
            let is_late = std::mem::take(&mut self.after_cr) && self.is_in_frame;
            at = usize::from(is_late && bytes[0] == b'\n');
        }
        while let Some(length) = line_length(&bytes[at..]) {
            let (line, is_cr) = (&bytes[at..at + length], bytes[at + length] == b'\r');
            let is_blank = length == 0 && !self.is_in_line;
            at += length + 1;
            let follower = bytes.get(at);
            self.after_cr = is_cr && follower.is_none();
            at += usize::from(is_cr && follower == Some(&b'\n'));
            self.is_in_line = false;
            self.is_in_frame = !is_blank;
            if is_blank {
                return Some(at);
            }
            said.add_line(line);
        }
        let has_begun = at < bytes.len();
        self.is_in_line |= has_begun;
        self.is_in_frame |= has_begun;
        None
    }
}

fn line_length(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        b'\n' | b'\r' => Some(0),
        _ => memchr2(b'\n', b'\r', bytes),
    }
}

/// The content of a frame's lines.
#[derive(Debug, Default)]
pub(super) struct FrameFields<'a> {
    pub(super) name: &'a [u8],
    /// The first data line.
    pub(super) data: Option<&'a [u8]>,
    /// Whether there is more data than that.
    pub(super) has_more_data: bool,
}

impl<'a> FrameFields<'a> {
    pub(super) fn parse(frame: &'a [u8]) -> Self {
        let mut said = Self::default();
        let mut rest = frame;
        while let Some(length) = line_length(rest) {
            said.add_line(&rest[..length]);
            rest = &rest[length + 1..];
        }
        // A frame that was not kept whole ends within a line.
        said.add_line(rest);
        said
    }

    fn add_line(&mut self, line: &'a [u8]) {
        match sse::split_field(line) {
            (b"event", name) => self.name = name,
            (b"data", _) if self.data.is_some() => self.has_more_data = true,
            (b"data", data) => self.data = Some(data),
            _ => {}
        }
    }
}
