//! Splits a byte stream into lines, one frame each.
//!
//! A line ends at `\n` and nowhere else: U+2028, U+2029 and a lone `\r` may occur within JSON; one `\r` before the end
//! is dropped. Invariants: memory is bounded by the longest line, longer lines are skipped; the lines do not depend on
//! how the bytes are chunked; a cancelled call loses nothing. Not here: the meaning of a line.

use std::io;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Size of the read buffer, in bytes.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Reads lines.
pub struct LineReader<R> {
    reader: BufReader<R>,
    longest: usize,
    /// The current line so far; empty once it is too long.
    buffer: Vec<u8>,
    /// The length of the current line so far, in bytes.
    length: u64,
}

/// A line that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The complete line.
    Complete(String),
    /// The line exceeds the limit and was skipped.
    TooLong {
        /// Its length in bytes, without its end.
        bytes: u64,
    },
    /// The line is not UTF-8.
    InvalidUtf8,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Creates a reader of lines of up to `longest` bytes, their ends not counted.
    pub fn new(reader: R, longest: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_BUFFER_BYTES, reader),
            longest,
            buffer: Vec::new(),
            length: 0,
        }
    }

    /// Returns the next line that is not empty, or `None` at the end of the stream. The last line needs no line end.
    /// Cancel safe.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            // The only wait: the bytes taken before it are kept in `self`.
            let piece = self.reader.fill_buf().await?;
            if piece.is_empty() {
                return Ok(self.take_line());
            }
            let end = memchr::memchr(b'\n', piece);
            let part = &piece[..end.unwrap_or(piece.len())];
            let taken = part.len() + usize::from(end.is_some());
            self.length += part.len() as u64;
            // One byte more than the limit, because that one may be a `\r` that does not count.
            if self.length <= self.longest as u64 + 1 {
                self.buffer.extend_from_slice(part);
            } else {
                self.buffer = Vec::new();
            }
            self.reader.consume(taken);
            if end.is_some()
                && let Some(line) = self.take_line()
            {
                return Ok(Some(line));
            }
        }
    }

    /// Takes the line that has ended, unless it is empty.
    fn take_line(&mut self) -> Option<Line> {
        let bytes = std::mem::take(&mut self.length);
        let mut kept = std::mem::take(&mut self.buffer);
        if kept.last() == Some(&b'\r') {
            kept.pop();
            if kept.is_empty() {
                return None;
            }
        }
        if bytes == 0 {
            return None;
        }
        if kept.is_empty() || kept.len() > self.longest {
            return Some(Line::TooLong { bytes });
        }
        Some(String::from_utf8(kept).map_or(Line::InvalidUtf8, Line::Complete))
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
