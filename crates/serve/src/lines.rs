//! Bytes to lines: what a peer says, one frame each.
//!
//! A line ends at `\n` and nowhere else: U+2028, U+2029 and a lone `\r` may stand within JSON. One `\r` before the end is
//! not part of it. Invariants: no more than the longest line is kept, a longer one is read past; however the bytes are cut
//! into pieces, the lines are the same; a call that is dropped loses nothing.
//! Not here: what a line means.

use std::io;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much is read at a time.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Reads lines.
pub struct LineReader<R> {
    reader: BufReader<R>,
    longest: usize,
    /// What has come of the line under way; nothing once it is too long.
    kept: Vec<u8>,
    /// How long it is so far.
    length: u64,
}

/// A line that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// All of it.
    Whole(String),
    /// It is longer than is kept.
    TooLong {
        /// How long it was, its end not counted.
        bytes: u64,
    },
    /// It is not UTF-8.
    NotText,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of up to so many bytes, their ends not counted.
    pub fn new(reader: R, longest: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_BUFFER_BYTES, reader),
            longest,
            kept: Vec::new(),
            length: 0,
        }
    }

    /// The next line that is not empty; nothing when there is no more. The last one needs no end. May be dropped and
    /// called again.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            // The only wait: what was taken before it is kept in `self`.
            let piece = self.reader.fill_buf().await?;
            if piece.is_empty() {
                return Ok(self.line());
            }
            let end = memchr::memchr(b'\n', piece);
            let part = &piece[..end.unwrap_or(piece.len())];
            let taken = part.len() + usize::from(end.is_some());
            self.length += part.len() as u64;
            // One more than the longest, because that one may be a `\r` that does not count.
            if self.length <= self.longest as u64 + 1 {
                self.kept.extend_from_slice(part);
            } else {
                self.kept = Vec::new();
            }
            self.reader.consume(taken);
            if end.is_some()
                && let Some(line) = self.line()
            {
                return Ok(Some(line));
            }
        }
    }

    /// The line that has ended, unless it is empty.
    fn line(&mut self) -> Option<Line> {
        let bytes = std::mem::take(&mut self.length);
        let mut kept = std::mem::take(&mut self.kept);
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
        Some(String::from_utf8(kept).map_or(Line::NotText, Line::Whole))
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
