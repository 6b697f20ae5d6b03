//! Just enough HTTP/1.1 for requests and responses at little cost of its own.
//!
//! Invariant: a body is complete (by its length, or by its last chunk) or an error. A waiting connection holds no
//! buffer. Not here: the tolerance that a real system needs; broken messages are refused.

use std::io;
use tokio::net::TcpStream;

const READ_BYTES: usize = 16 * 1024;
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// One side of a connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The bytes before this were taken.
    start: usize,
}

/// The start line, and the fields that determine the end of the body.
pub(crate) struct Head {
    /// The second word of the start line: a path, or a status.
    pub(crate) word: String,
    pub(crate) closes: bool,
    length: Length,
}

enum Length {
    None,
    Known(usize),
    Chunked,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            start: 0,
        })
    }

    pub(crate) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the head of the next message; `None` if the other side has closed instead.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        let mut looked_at = 0;
        loop {
            let found = position(&self.buffer[self.start + looked_at..], b"\r\n\r\n");
            if let Some(found) = found {
                let end = self.start + looked_at + found;
                let head = Head::read(&self.buffer[self.start..end])?;
                self.start = end + 4;
                return Ok(Some(head));
            }
            let held = self.buffer.len() - self.start;
            if held > MAX_HEAD_BYTES {
                return Err(broken("a head without end"));
            }
            looked_at = held.saturating_sub(3);
            if self.fill().await? == 0 {
                return match held {
                    0 => Ok(None),
                    _ => Err(broken("the connection ended within a head")),
                };
            }
        }
    }

    /// Reads the head and the body of the next final response; interim ones are skipped.
    pub(crate) async fn answer(&mut self, body: &mut Vec<u8>) -> io::Result<Head> {
        loop {
            let head = self.head().await?;
            let head = head.ok_or_else(|| broken("the connection ended without an answer"))?;
            if !head.word.starts_with('1') {
                self.body(&head, body).await?;
                return Ok(head);
            }
        }
    }

    /// Reads the body of a message, replacing the content of `body`.
    pub(crate) async fn body(&mut self, head: &Head, body: &mut Vec<u8>) -> io::Result<()> {
        body.clear();
        match head.length {
            Length::None => Ok(()),
            Length::Known(length) => self.take(length, body).await,
            Length::Chunked => self.chunks(body).await,
        }
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line().await?;
            let text = std::str::from_utf8(&self.buffer[line.clone()]).map_err(broken)?;
            let digits = text.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(broken)?;
            if size == 0 {
                // Trailers, up to an empty line.
                while !self.line().await?.is_empty() {}
                return Ok(());
            }
            self.take(size, body).await?;
            if !self.line().await?.is_empty() {
                return Err(broken("a chunk that is longer than it said"));
            }
        }
    }

    /// Reads a line; returns its range in the buffer.
    async fn line(&mut self) -> io::Result<std::ops::Range<usize>> {
        loop {
            if let Some(found) = position(&self.buffer[self.start..], b"\r\n") {
                let line = self.start..self.start + found;
                self.start += found + 2;
                return Ok(line);
            }
            self.more().await?;
        }
    }

    async fn take(&mut self, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
        let mut missing = length;
        while missing > 0 {
            if self.start == self.buffer.len() {
                self.more().await?;
            }
            let taken = missing.min(self.buffer.len() - self.start);
            body.extend_from_slice(&self.buffer[self.start..self.start + taken]);
            self.start += taken;
            missing -= taken;
        }
        Ok(())
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(broken("the connection ended within a body")),
            _ => Ok(()),
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        loop {
            // A buffer is allocated only when data arrives: ten thousand waiting connections must not have one each.
            if self.buffer.is_empty() {
                self.stream.readable().await?;
            }
            self.buffer.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.buffer.is_empty() {
                        self.buffer = Vec::new();
                    }
                    self.stream.readable().await?;
                }
                done => return done,
            }
        }
    }
}

impl Head {
    fn read(bytes: &[u8]) -> io::Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(broken)?;
        let mut lines = text.split("\r\n");
        let word = lines.next().and_then(|line| line.split(' ').nth(1));
        let mut head = Self {
            word: word.ok_or_else(|| broken("no start line"))?.to_owned(),
            closes: false,
            length: Length::None,
        };
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| broken(line))?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Length::Known(value.parse().map_err(broken)?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.length = Length::Chunked;
            } else if name.eq_ignore_ascii_case("connection") {
                head.closes = value.eq_ignore_ascii_case("close");
            }
        }
        Ok(head)
    }
}

/// Returns the position of a short byte string.
pub(crate) fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted[0];
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == first) {
        if bytes[at + found..].starts_with(wanted) {
            return Some(at + found);
        }
        at += found + 1;
    }
    None
}

pub(crate) fn broken(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
