//! Decodes server-sent events: bytes in through `push`, events out through `next_event`, or frames through
//! `next_frame`.
//!
//! Any chunking gives the same events; lines may end in CR, LF or CRLF; a byte order mark is skipped. An event is
//! returned with the first byte that ends it: a caller never waits for the byte after a CR.
//! Invariants: the raw bytes of all frames and then `rest` are the input, byte for byte. Work is linear in the input. A
//! frame longer than the limit is an error, never a truncation; so memory is bounded by a few times the limit and the
//! longest chunk, as long as the frames are taken out after each `push`.
//! Not here: the meaning of an event (see `anthropic`), the time to wait for one (see the engine), and reconnecting,
//! the purpose of ids and retry times: they are skipped.

use memchr::memchr2;
use std::ops::Range;

/// The number of bytes kept of input outside of the protocol.
pub const MAX_STRAY_BYTES: usize = 4 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The fields of the protocol. A line that begins with a colon is a comment: a field without a name.
const FIELD_NAMES: [&[u8]; 5] = [b"", b"data", b"event", b"id", b"retry"];
const MAX_FIELD_NAME_BYTES: usize = 5;

/// One event: its type (empty when none was given) and its data lines, joined by newlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field.
    pub name: String,
    /// The `data:` fields.
    pub data: String,
}

impl Event {
    /// Returns the event as it is sent. The protocol has no line ends but its own: a CR or CRLF in the data arrives as
    /// a newline, and a name ends with its first line.
    pub fn to_wire(&self) -> String {
        let mut wire = String::with_capacity(self.name.len() + self.data.len() + 24);
        let name = self.name.split(['\r', '\n']).next().unwrap_or_default();
        if !name.is_empty() {
            wire.extend(["event: ", name, "\n"]);
        }
        for line in self.data.replace("\r\n", "\n").split(['\r', '\n']) {
            wire.extend(["data: ", line, "\n"]);
        }
        wire.push('\n');
        wire
    }
}

/// The bytes from the end of the previous frame through a blank line, and their event.
///
/// A blank line alone is a frame. When a frame's last CR came at the end of a chunk and its LF in the next one, the
/// frame has been returned without that LF, which is then a frame of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The frame as it was received.
    pub raw: &'a [u8],
    /// The event, or `None` for a frame without data: comments, ids, or nothing at all.
    pub event: Option<Event>,
}

/// The error for a frame that is longer than the decoder's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {limit} bytes")]
pub struct TooLong {
    limit: usize,
}

/// The decoder of one stream.
///
/// ```
/// use outlast_dialect::sse::Decoder;
///
/// let mut decoder = Decoder::new(1024);
/// decoder.push(b"event: ping\nda");
/// assert_eq!(decoder.next_event()?, None);
/// decoder.push(b"ta: {}\n\n: bye");
/// let frame = decoder.next_frame()?.unwrap();
/// assert_eq!(frame.raw, b"event: ping\ndata: {}\n\n");
/// assert_eq!(frame.event.unwrap().name, "ping");
/// assert_eq!(decoder.rest(), b": bye");
/// # Ok::<(), outlast_dialect::sse::TooLong>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    failed: bool,
    buffer: Vec<u8>,
    /// The start of the current frame, the start of its newest line, and the end of the search for that line's end.
    frame_start: usize,
    line_start: usize,
    searched: usize,
    at_first_line: bool,
    /// The line before ended in a CR, and the next byte had not arrived yet.
    after_cr: bool,
    name: Vec<u8>,
    data: Option<Vec<u8>>,
    stray: Vec<u8>,
}

// --- public operations ---

impl Decoder {
    /// Creates a decoder that accepts frames of up to `max_frame_bytes`, counted through the first byte of the line
    /// end that ends the frame.
    pub fn new(max_frame_bytes: usize) -> Self {
        Self {
            limit: max_frame_bytes,
            failed: false,
            buffer: Vec::new(),
            frame_start: 0,
            line_start: 0,
            searched: 0,
            at_first_line: true,
            after_cr: false,
            name: Vec::new(),
            data: None,
            stray: Vec::new(),
        }
    }

    /// Appends received bytes. After [`TooLong`] all further bytes are ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.failed {
            self.compact();
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Returns the next whole event, if there is one; frames without an event are skipped.
    ///
    /// After [`TooLong`] the decoder stays in error: every further call returns it again.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        while let Some((_, event)) = self.advance()? {
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Returns the next whole frame, if there is one.
    ///
    /// After [`TooLong`] the decoder stays in error: every further call returns it again.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, TooLong> {
        let frame = self.advance()?;
        Ok(frame.map(|(range, event)| Frame {
            raw: &self.buffer[range],
            event,
        }))
    }

    /// Returns the received bytes that are not yet part of a frame. After [`TooLong`], the beginning of the long
    /// frame.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.frame_start..]
    }

    /// Returns input outside of the protocol, such as a page or an error that is sent in the place of events: the
    /// first [`MAX_STRAY_BYTES`] of the lines with an unknown field or none, joined by newlines.
    ///
    /// It covers the lines read so far and the present part of the last line, unless that may still become a field.
    pub fn stray(&self) -> String {
        let mut stray = self.stray.clone();
        if !may_become_field(self.unfinished_line()) {
            append_stray(&mut stray, self.unfinished_line());
        }
        let mut stray = lossy_text(stray);
        stray.truncate(stray.floor_char_boundary(MAX_STRAY_BYTES));
        stray
    }
}

// --- implementation ---

/// A frame's range in the buffer, and its event.
type LocatedFrame = (Range<usize>, Option<Event>);

impl Decoder {
    /// Makes room. Only when at least as much is dropped as stays: so each byte that is moved is paid for by one that
    /// was read.
    fn compact(&mut self) {
        if self.frame_start >= self.buffer.len() - self.frame_start {
            self.buffer.drain(..self.frame_start);
            self.line_start -= self.frame_start;
            self.searched -= self.frame_start;
            self.frame_start = 0;
        }
    }

    /// Reads to the end of the next frame.
    fn advance(&mut self) -> Result<Option<LocatedFrame>, TooLong> {
        if self.failed {
            return Err(TooLong { limit: self.limit });
        }
        if self.skip_late_line_feed() && self.line_start == self.frame_start + 1 {
            return Ok(Some((self.end_frame(), None)));
        }
        while let Some(line) = self.next_line() {
            let (is_blank, through) = (line.is_empty(), line.end + 1);
            if !is_blank {
                self.read_field(line);
            }
            self.check_size(through)?;
            if is_blank {
                let event = self.take_event();
                return Ok(Some((self.end_frame(), event)));
            }
        }
        self.check_size(self.buffer.len())?;
        Ok(None)
    }

    /// Skips an LF that belongs to a CR in the chunk before.
    fn skip_late_line_feed(&mut self) -> bool {
        let Some(next) = self.buffer.get(self.line_start) else {
            return false;
        };
        let late = std::mem::take(&mut self.after_cr) && *next == b'\n';
        self.line_start += usize::from(late);
        self.searched = self.searched.max(self.line_start);
        late
    }

    /// Returns the range of the next whole line within the buffer, without its end.
    fn next_line(&mut self) -> Option<Range<usize>> {
        let Some(offset) = memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + offset;
        let start = self.line_start + self.byte_order_mark_length();
        let mut next = end + 1;
        if self.buffer[end] == b'\r' {
            let follower = self.buffer.get(next);
            self.after_cr = follower.is_none();
            next += usize::from(follower == Some(&b'\n'));
        }
        self.at_first_line = false;
        self.line_start = next;
        self.searched = next;
        Some(start..end)
    }

    /// Returns the number of bytes at the beginning of the line that are a byte order mark, or the beginning of one.
    fn byte_order_mark_length(&self) -> usize {
        if !self.at_first_line {
            return 0;
        }
        let line = &self.buffer[self.line_start..];
        if line.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else if BYTE_ORDER_MARK.starts_with(line) {
            line.len()
        } else {
            0
        }
    }

    fn read_field(&mut self, line: Range<usize>) {
        let line = &self.buffer[line];
        let (field, value) = split_field(line);
        match field {
            b"event" => self.name = value.to_vec(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            _ if FIELD_NAMES.contains(&field) => {}
            _ => append_stray(&mut self.stray, line),
        }
    }

    fn take_event(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        self.data.take().map(|data| Event {
            name: lossy_text(name),
            data: lossy_text(data),
        })
    }

    fn end_frame(&mut self) -> Range<usize> {
        let start = std::mem::replace(&mut self.frame_start, self.line_start);
        start..self.line_start
    }

    /// Checks the limit for the frame up to this position in the buffer. An LF after the CR that ends it does not
    /// count, so that the chunking makes no difference.
    fn check_size(&mut self, through: usize) -> Result<(), TooLong> {
        self.failed = through - self.frame_start > self.limit;
        if self.failed {
            return Err(TooLong { limit: self.limit });
        }
        Ok(())
    }

    /// Returns the last line, when it was searched and has no end yet.
    fn unfinished_line(&self) -> &[u8] {
        if self.searched < self.buffer.len() {
            return &[];
        }
        &self.buffer[self.line_start + self.byte_order_mark_length()..]
    }
}

/// Splits a line into field and value. No colon is looked for behind the longest field, which keeps long lines cheap:
/// a line without one by then has no field.
pub(crate) fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let head = &line[..line.len().min(MAX_FIELD_NAME_BYTES + 1)];
    match head.iter().position(|byte| *byte == b':') {
        Some(colon) => {
            let value = &line[colon + 1..];
            (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, &[]),
    }
}

fn may_become_field(line: &[u8]) -> bool {
    let (field, _) = split_field(line);
    let has_colon = field.len() < line.len();
    FIELD_NAMES
        .iter()
        .any(|known| *known == field || (!has_colon && known.starts_with(field)))
}

fn append_stray(stray: &mut Vec<u8>, line: &[u8]) {
    // A few bytes more, so that a character at the limit is whole before the text is cut there.
    let room = (MAX_STRAY_BYTES + 3).saturating_sub(stray.len());
    if !stray.is_empty() && room > 0 {
        stray.push(b'\n');
    }
    stray.extend_from_slice(&line[..line.len().min(room)]);
}

fn lossy_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
