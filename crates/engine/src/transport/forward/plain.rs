//! A minimal HTTP/1.1 client with its own connection pool, for providers that are reached without TLS and without a
//! proxy.
//!
//! The work that the general client does for every request (layers, tasks, URL parsing) costs more than everything else
//! in a gateway. Here a request is one write, and the task that waits for a response reads it.
//! Invariants: one call sends one request; a connection is reused only after a response that was read to its end.

mod body;
mod head;

pub(super) use body::Body;

use super::super::http::client_error::RequestBodyError;
use super::super::http::{join_path, request_url};
use super::super::{Error, HttpSettings};
use super::Payload;
use ::http::{HeaderMap, Method, StatusCode};
use bytes::BytesMut;
use futures_util::StreamExt;
use head::Head;
use outlast_kernel::failure::IoKind;
use parking_lot::Mutex;
use reqwest::Url;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The number of bytes to read at once.
const READ_BYTES: usize = 16 << 10;
/// Bodies smaller than this are copied behind the head: a separate write would cost more than the copy.
const MAX_COPIED_BODY_BYTES: usize = 16 << 10;
/// Initial capacity for the head of a request and a small body.
const INITIAL_HEAD_CAPACITY: usize = 2 << 10;

/// A provider that is reached without TLS and without a proxy. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct PlainClient(Arc<Inner>);

struct Inner {
    base: Url,
    /// The host and port, as requests state them.
    authority: String,
    /// Default headers; those of a request override them.
    headers: HeaderMap,
    connect_timeout: Duration,
    idle: Mutex<VecDeque<Connection>>,
}

/// Omits the headers' values, which are never printed.
impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Plain").field(&self.authority).finish()
    }
}

/// A connection, and the bytes that were read from it but not yet consumed.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    input: BytesMut,
    /// The time since which it has no request.
    idle_since: Instant,
}

impl PlainClient {
    /// Creates a client for this address, or `None` if it needs TLS or a proxy.
    pub(super) fn new(settings: &HttpSettings, base: &Url, headers: HeaderMap) -> Option<Self> {
        if base.scheme() != "http" || settings.proxies.http.is_some() {
            return None;
        }
        let host = base.host_str()?;
        let authority = match base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Some(Self(Arc::new(Inner {
            base: base.clone(),
            authority,
            headers,
            connect_timeout: settings.connect_timeout,
            idle: Mutex::default(),
        })))
    }

    /// Relays a request; resolves when the response's headers arrive.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Payload,
    ) -> Result<(StatusCode, HeaderMap, Body), Error> {
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let request = self.encode_request(&method, path, headers, body.length());
        // A provider may refuse a request before it has read all of it; its response then says more than the error.
        let written = connection.write_request(request, body).await;
        if let Err(error) = &written
            && error.io == IoKind::Misconfigured
        {
            return Err(error.clone());
        }
        let head = match (connection.read_head().await, written) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
        };
        let Head {
            status, headers, ..
        } = head;
        let framing = head.framing.for_response(&method, status);
        let keeper = head.keeps_alive.then(|| self.clone());
        Ok((status, headers, Body::new(connection, framing, keeper)))
    }

    /// Returns the request target of a path.
    fn request_target(&self, path: &str) -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte);
        if path.starts_with('/') && path.bytes().all(is_plain) && self.0.base.query().is_none() {
            // No character needs escaping, so the path need not be parsed.
            return join_path(&self.0.base, path);
        }
        let url = request_url(&self.0.base, path);
        match url.query() {
            Some(query) => [url.path(), "?", query].concat(),
            None => url.path().to_owned(),
        }
    }

    fn encode_request(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        length: u64,
    ) -> Vec<u8> {
        let target = self.request_target(path);
        let own = self.0.headers.iter();
        let own = own.filter(|(name, _)| !headers.contains_key(*name));
        let mut request = Vec::with_capacity(INITIAL_HEAD_CAPACITY);
        let mut push = |pieces: &[&[u8]]| {
            pieces
                .iter()
                .for_each(|piece| request.extend_from_slice(piece));
        };
        let (method_name, authority) = (method.as_str().as_bytes(), self.0.authority.as_bytes());
        push(&[method_name, b" ", target.as_bytes(), b" HTTP/1.1\r\n"]);
        push(&[b"host: ", authority, b"\r\n"]);
        for (name, value) in headers.iter().chain(own) {
            push(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
        let expects_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        if expects_body || length > 0 {
            push(&[b"content-length: ", length.to_string().as_bytes(), b"\r\n"]);
        }
        push(&[b"\r\n"]);
        request
    }
}

// --- connections ---

impl PlainClient {
    async fn connect(&self) -> Result<Connection, Error> {
        let connecting = async {
            let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in self.addresses().await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(Error::new(IoKind::Connect, last))
        };
        let limit = self.0.connect_timeout;
        let stream = match limit.is_zero() {
            true => connecting.await?,
            false => tokio::time::timeout(limit, connecting)
                .await
                .map_err(|_| Error::new(IoKind::Timeout, "the connection took too long"))??,
        };
        // Requests and frames are small and must not be delayed.
        stream.set_nodelay(true).ok();
        Ok(Connection {
            stream,
            input: BytesMut::new(),
            idle_since: Instant::now(),
        })
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let port = self.0.base.port_or_known_default().unwrap_or(80);
        // Brackets around an address belong to the URL only.
        let host = self.0.base.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((host, port)).await;
        Ok(found
            .map_err(|error| Error::new(IoKind::Dns, error))?
            .collect())
    }

    /// Takes an idle connection that is still open.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let idle = self.0.idle.lock().pop_back()?;
            if idle.idle_since.elapsed() < IDLE_TIMEOUT && idle.is_reusable() {
                return Some(idle);
            }
        }
    }

    fn return_to_pool(&self, mut connection: Connection) {
        let now = Instant::now();
        connection.idle_since = now;
        let mut idle = self.0.idle.lock();
        let is_old = |oldest: &mut Connection| now - oldest.idle_since >= IDLE_TIMEOUT;
        while idle.pop_front_if(is_old).is_some() {}
        idle.push_back(connection);
    }
}

impl Connection {
    /// Returns whether the connection is open and has no unexpected bytes to read.
    fn is_reusable(&self) -> bool {
        let nothing_yet = self.stream.try_read(&mut [0]);
        nothing_yet.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn write_request(&mut self, mut request: Vec<u8>, body: Payload) -> Result<(), Error> {
        let mut pieces = match body {
            Payload::Whole(body) if body.len() < MAX_COPIED_BODY_BYTES => {
                request.extend_from_slice(&body);
                return Ok(self.stream.write_all(&request).await?);
            }
            Payload::Whole(body) => return Ok(self.write_head_and_body(&request, &body).await?),
            Payload::Pieces { pieces, .. } => pieces,
        };
        self.stream.write_all(&request).await?;
        while let Some(piece) = pieces.next().await {
            let piece = piece
                .map_err(|error| Error::new(IoKind::Misconfigured, RequestBodyError(error)))?;
            self.stream.write_all(&piece).await?;
        }
        Ok(())
    }

    async fn write_head_and_body(&mut self, request: &[u8], body: &[u8]) -> io::Result<()> {
        let pieces = &mut [IoSlice::new(request), IoSlice::new(body)];
        let mut pieces = &mut pieces[..];
        while !pieces.is_empty() {
            match self.stream.write_vectored(pieces).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut pieces, written),
            }
        }
        Ok(())
    }

    /// Reads the head of the response; the bytes after it stay in the input.
    async fn read_head(&mut self) -> Result<Head, Error> {
        loop {
            if !self.input.is_empty()
                && let Some(head) = Head::take(&mut self.input)?
            {
                if !head.status.is_informational() {
                    return Ok(head);
                }
                continue;
            }
            if self.fill().await? == 0 {
                let message = "the connection was closed before a response came";
                return Err(Error::new(IoKind::Reset, message));
            }
        }
    }

    /// Reads the available bytes; returns zero at the end of the stream.
    async fn fill(&mut self) -> io::Result<usize> {
        self.input.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.input).await
    }
}

#[cfg(test)]
mod tests;
