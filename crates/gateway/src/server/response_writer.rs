//! The response to one request, written as it arrives: interim responses, the head, pieces of the body, keep-alives.
//!
//! Invariants: one head at most; the body is framed so that the client can tell a whole response from one that broke
//! off; a response that breaks off is never ended as if it were whole.

use crate::server::socket::Socket;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version, header};
use std::io::{self, IoSlice, Write};

const INTERIM: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// A response that is being written.
pub(crate) struct ResponseWriter {
    socket: Socket,
    /// The version of the request.
    version: Version,
    is_head: bool,
    is_keep_alive: bool,
    /// Whether only a part of the request was read.
    is_truncated: bool,
    stage: Stage,
    /// The bytes that go out before anything else.
    unsent: Vec<u8>,
    body_bytes_sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    BeforeHead,
    Body(Framing),
    Over,
}

/// The way in which the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// There is no body.
    Nothing,
    /// By its length; holds the number of bytes that are left.
    Length(u64),
    Chunked,
    /// By the end of the connection.
    UntilClosed,
}

impl ResponseWriter {
    /// Creates the response to that request over that connection.
    pub(crate) fn new(socket: Socket, parts: &http::request::Parts) -> Self {
        Self {
            socket,
            version: parts.version,
            is_head: parts.method == Method::HEAD,
            is_keep_alive: is_keep_alive(parts),
            is_truncated: false,
            stage: Stage::BeforeHead,
            unsent: Vec::new(),
            body_bytes_sent: 0,
        }
    }

    /// Returns whether the status has been written.
    pub(crate) fn has_started(&self) -> bool {
        self.stage != Stage::BeforeHead
    }

    /// Returns the number of body bytes that were sent.
    pub(crate) fn body_bytes_sent(&self) -> u64 {
        self.body_bytes_sent
    }

    /// Closes the connection after this response.
    pub(crate) fn disable_keep_alive(&mut self) {
        self.is_keep_alive = false;
    }

    /// Leaves the rest of the request unread: it would be taken for another one.
    pub(crate) fn mark_truncated(&mut self) {
        self.disable_keep_alive();
        self.is_truncated = true;
    }

    /// Waits until the client disconnects.
    pub(crate) async fn disconnected(&mut self) {
        self.socket.disconnected().await;
    }

    /// Sends an interim response. Version 1.0 has none.
    pub(crate) async fn interim(&mut self) -> io::Result<()> {
        if self.stage == Stage::BeforeHead && self.version == Version::HTTP_11 {
            self.socket.write_all(&mut [IoSlice::new(INTERIM)]).await?;
        }
        Ok(())
    }

    /// Begins the response; the head goes out with the bytes that follow. `length` is that of the body, if it is known.
    pub(crate) fn head(&mut self, status: StatusCode, headers: &HeaderMap, length: Option<u64>) {
        let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let framing = match length {
            _ if bodiless => Framing::Nothing,
            Some(length) => Framing::Length(length),
            None if self.version == Version::HTTP_11 => Framing::Chunked,
            None => Framing::UntilClosed,
        };
        if framing == Framing::UntilClosed {
            self.disable_keep_alive();
        }
        let reason = status.canonical_reason().unwrap_or("Unknown");
        let head = &mut self.unsent;
        head.reserve(1024);
        // Writing to memory does not fail.
        write!(head, "HTTP/1.1 {} {reason}\r\n", status.as_u16()).ok();
        for (name, value) in headers {
            push_header(head, name.as_str().as_bytes(), value.as_bytes());
        }
        match framing {
            Framing::Length(length) => drop(write!(head, "content-length: {length}\r\n")),
            Framing::Chunked => push_header(head, b"transfer-encoding", b"chunked"),
            Framing::Nothing | Framing::UntilClosed => {}
        }
        if !self.is_keep_alive {
            push_header(head, b"connection", b"close");
        }
        head.extend_from_slice(b"\r\n");
        self.stage = Stage::Body(match self.is_head {
            true => Framing::Nothing,
            false => framing,
        });
    }

    /// Sends everything that was written so far.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        self.socket
            .write_all(&mut [IoSlice::new(&self.unsent)])
            .await?;
        self.unsent.clear();
        Ok(())
    }

    /// Sends pieces of the body.
    pub(crate) async fn data(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let Stage::Body(framing) = self.stage else {
            return Ok(());
        };
        if length == 0 || framing == Framing::Nothing {
            return self.flush().await;
        }
        self.body_bytes_sent += length as u64;
        if framing == Framing::Chunked {
            write!(self.unsent, "{length:x}\r\n").ok();
        }
        if let Framing::Length(left) = framing {
            let left = left.saturating_sub(length as u64);
            self.stage = Stage::Body(Framing::Length(left));
        }
        let body = pieces.iter().map(|piece| IoSlice::new(piece));
        let end: &[u8] = match framing {
            Framing::Chunked => b"\r\n",
            _ => b"",
        };
        let mut all: Vec<IoSlice<'_>> = Vec::with_capacity(pieces.len() + 2);
        all.push(IoSlice::new(&self.unsent));
        all.extend(body);
        all.push(IoSlice::new(end));
        self.socket.write_all(&mut all).await?;
        self.unsent.clear();
        Ok(())
    }

    /// Ends the response; returns the connection, if it can take another request.
    pub(crate) async fn finish(mut self) -> io::Result<Option<Socket>> {
        match self.stage {
            Stage::Body(Framing::Chunked) => self.unsent.extend_from_slice(b"0\r\n\r\n"),
            // The body is shorter than announced.
            Stage::Body(Framing::Length(left)) if left > 0 => {
                self.reset();
                return Ok(None);
            }
            _ => {}
        }
        self.stage = Stage::Over;
        self.flush().await?;
        if self.is_keep_alive {
            return Ok(Some(self.socket));
        }
        match self.is_truncated {
            true => self.socket.close().await,
            false => tokio::io::AsyncWriteExt::shutdown(&mut self.socket).await?,
        }
        Ok(None)
    }

    /// Sends a whole response.
    pub(crate) async fn whole(
        mut self,
        status: StatusCode,
        headers: &HeaderMap,
        body: Bytes,
    ) -> io::Result<Option<Socket>> {
        self.head(status, headers, Some(body.len() as u64));
        self.data(&[body]).await?;
        self.finish().await
    }

    /// Breaks the response off so that the client notices.
    pub(crate) fn reset(self) {
        self.socket.reset();
    }
}

fn push_header(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for piece in [name, b": ", value, b"\r\n"] {
        head.extend_from_slice(piece);
    }
}

/// Returns whether the connection can take another request. A client that states the length of a body in two ways may
/// intend the rest as another request; hyper has then dropped one of them, so every chunked body counts as that.
fn is_keep_alive(parts: &http::request::Parts) -> bool {
    parts.version == Version::HTTP_11
        && !has_connection_close(&parts.headers)
        && !parts.headers.contains_key(header::TRANSFER_ENCODING)
}

fn has_connection_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    let mut words = values.filter_map(|value| value.to_str().ok());
    words.any(|value| {
        value
            .split(',')
            .any(|word| word.trim().eq_ignore_ascii_case("close"))
    })
}
