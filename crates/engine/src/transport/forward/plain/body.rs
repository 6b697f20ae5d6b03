//! Reads the body of a response while it arrives.
//!
//! Invariants: a body that ends early is an error; only the chunk framing is removed, and chunks that arrived together
//! are handed on together. All buffers are bounded.

use super::super::super::Error;
use super::head::Framing;
use super::{Connection, PlainClient};
use bytes::{Buf, Bytes, BytesMut};
use outlast_kernel::failure::IoKind;

/// The maximum length of a line between chunks, and of all trailers together.
const MAX_LINE_BYTES: usize = 4 << 10;
const MAX_TRAILER_BYTES: usize = 64 << 10;

/// A body that is being read.
#[derive(Debug)]
pub(crate) struct Body {
    /// `None` when the body has ended.
    connection: Option<Connection>,
    remaining: Remaining,
    /// The client to which the connection is returned.
    pool: Option<PlainClient>,
}

/// The part of the body that is still missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remaining {
    Length(u64),
    Chunks(ChunkState),
    UntilClosed,
}

/// The position in the chunk framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// Before the length of a chunk.
    Size,
    /// Within a chunk, with so many bytes missing.
    Data(u64),
    /// Before the line end after a chunk.
    AfterData,
    /// After the last chunk, with so many bytes of trailers read.
    Trailers(usize),
    End,
}

impl Body {
    pub(super) fn new(connection: Connection, framing: Framing, pool: Option<PlainClient>) -> Self {
        Self {
            connection: Some(connection),
            remaining: match framing {
                Framing::Length(length) => Remaining::Length(length),
                Framing::Chunked => Remaining::Chunks(ChunkState::Size),
                Framing::UntilClosed => Remaining::UntilClosed,
            },
            pool,
        }
    }

    /// Returns the next piece; `None` at the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(None);
            };
            let piece = self.remaining.take(&mut connection.input)?;
            if self.remaining.is_finished() {
                self.release_connection();
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
            let Some(connection) = &mut self.connection else {
                return Ok(None);
            };
            let read = connection.fill().await?;
            if read > 0 {
                continue;
            }
            self.connection = None;
            return match self.remaining {
                Remaining::UntilClosed => Ok(None),
                Remaining::Length(_) | Remaining::Chunks(_) => {
                    let message = "the connection was closed within the response";
                    Err(Error::new(IoKind::Truncated, message))
                }
            };
        }
    }

    fn release_connection(&mut self) {
        let connection = self.connection.take();
        if let (Some(connection), Some(keeper)) = (connection, self.pool.take())
            && connection.input.is_empty()
        {
            keeper.return_to_pool(connection);
        }
    }
}

impl Remaining {
    fn is_finished(self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunks(ChunkState::End))
    }

    /// Takes the bytes of the body off the input; an empty result means that more input is needed.
    fn take(&mut self, input: &mut BytesMut) -> Result<Bytes, Error> {
        match self {
            Self::UntilClosed => Ok(input.split().freeze()),
            Self::Length(left) => {
                let all = usize::try_from(*left).unwrap_or(usize::MAX);
                let piece = input.split_to(all.min(input.len())).freeze();
                *left -= piece.len() as u64;
                Ok(piece)
            }
            Self::Chunks(place) => place.take(input),
        }
    }
}

impl ChunkState {
    /// Takes the data of all chunks that arrived, moved together within the input buffer.
    fn take(&mut self, input: &mut BytesMut) -> Result<Bytes, Error> {
        let (mut read, mut written) = (0, 0);
        while read < input.len() && *self != Self::End {
            let rest = &input[read..];
            match *self {
                Self::Data(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    if written != read {
                        input.copy_within(read..read + length, written);
                    }
                    (read, written) = (read + length, written + length);
                    *self = match left - length as u64 {
                        0 => Self::AfterData,
                        left => Self::Data(left),
                    };
                }
                Self::Size | Self::AfterData | Self::Trailers(_) => {
                    let Some(line) = line_length(rest)? else {
                        break;
                    };
                    *self = self.after_line(&rest[..line])?;
                    read += line + 2;
                }
                Self::End => {}
            }
        }
        let data = input.split_to(written).freeze();
        input.advance(read - written);
        Ok(data)
    }

    /// Returns the state after the given line.
    fn after_line(self, line: &[u8]) -> Result<Self, Error> {
        match (self, line) {
            (Self::AfterData, b"") => Ok(Self::Size),
            (Self::Trailers(_), b"") => Ok(Self::End),
            (Self::Trailers(read), _) if read + line.len() < MAX_TRAILER_BYTES => {
                Ok(Self::Trailers(read + line.len()))
            }
            (Self::Size, _) => match parse_chunk_size(line) {
                Some(0) => Ok(Self::Trailers(0)),
                Some(size) => Ok(Self::Data(size)),
                None => Err(Error::protocol("the length of a chunk is not one")),
            },
            _ => Err(Error::protocol(
                "the chunks of the response do not fit together",
            )),
        }
    }
}

/// Returns the length of the line that begins here, without its end; `None` when it is incomplete.
fn line_length(rest: &[u8]) -> Result<Option<usize>, Error> {
    let end = memchr::memchr(b'\n', &rest[..rest.len().min(MAX_LINE_BYTES)]);
    match end {
        Some(end) if end > 0 && rest[end - 1] == b'\r' => Ok(Some(end - 1)),
        None if rest.len() < MAX_LINE_BYTES => Ok(None),
        Some(_) | None => Err(Error::protocol("a line between chunks does not end")),
    }
}

/// Parses the length of a chunk: hexadecimal digits, perhaps with an extension after a semicolon, which is ignored.
fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u64::from_str_radix(digits, 16).ok()
}
