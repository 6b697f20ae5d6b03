//! One HTTP request and its response, as an adapter sees them.
//!
//! Invariant: a transport makes exactly one request. It does not retry, follow redirects or hide errors.

#[cfg(feature = "http")]
mod forward;
#[cfg(feature = "http")]
mod http;

use crate::{BoxFuture, BoxStream};
use bytes::Bytes;
use outlast_kernel::failure::IoKind;

#[cfg(feature = "http")]
pub use forward::{Forwarded, Forwarder, Payload};
#[cfg(feature = "http")]
pub use http::{Http, HttpSettings, Proxies, SettingError, header_pairs};

/// Makes HTTP requests.
pub trait Transport: Send + Sync {
    /// Sends one request; resolves when the response's headers arrive.
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Error>>;
}

/// An HTTP request. Its headers' values are never printed.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path below the provider's base address, with its query if it has one.
    pub path: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A response whose body is still arriving.
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body, in the pieces in which it arrives.
    pub body: BoxStream<'static, Result<Bytes, Error>>,
}

/// A connection that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of the I/O error.
    pub io: IoKind,
    /// A description of the error.
    pub message: String,
}

impl Error {
    /// Creates an error.
    pub fn new(io: IoKind, message: impl ToString) -> Self {
        let message = message.to_string();
        Self { io, message }
    }

    #[cfg(feature = "http")]
    fn protocol(message: impl ToString) -> Self {
        Self::new(IoKind::Protocol, message)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(io_kind(&error), error)
    }
}

/// Returns the kind of an I/O error.
pub(crate) fn io_kind(error: &std::io::Error) -> IoKind {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
            IoKind::Reset
        }
        ErrorKind::ConnectionRefused | ErrorKind::NotConnected | ErrorKind::HostUnreachable => {
            IoKind::Connect
        }
        ErrorKind::TimedOut => IoKind::Timeout,
        ErrorKind::UnexpectedEof => IoKind::Truncated,
        _ => IoKind::Other,
    }
}
