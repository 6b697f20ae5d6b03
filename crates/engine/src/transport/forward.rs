//! Requests that are somebody else's: passed on as they are, and their responses too.
//!
//! Invariants: one call sends one request; nothing is decompressed, followed or added that the caller did not ask for.

mod plain;

use super::http::{address, base_url, broken, build, client, headers};
use super::{Error, HttpSettings, SettingError};
use ::http::header::CONTENT_LENGTH;
use ::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use plain::Plain;
use reqwest::{Client, Url};
use std::{fmt, io};

/// The way to one provider for requests that are passed on.
#[derive(Clone, Debug)]
pub struct Forwarder(Way);

#[derive(Clone, Debug)]
enum Way {
    /// Nothing is between us and the provider.
    Plain(Plain),
    /// A secure channel, or a proxy.
    Client(Client, Url),
}

/// The body of a request.
pub enum Payload {
    /// All of it.
    Whole(Bytes),
    /// So many bytes, which come piece by piece.
    Pieces {
        /// How many.
        length: u64,
        /// The pieces; one that cannot be had ends the request.
        pieces: BoxStream<'static, io::Result<Bytes>>,
    },
}

/// What it holds is never printed.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Payload").field(&self.len()).finish()
    }
}

impl Payload {
    /// How long it is.
    pub fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Pieces { length, .. } => *length,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A response whose body is still coming.
#[derive(Debug)]
pub struct Forwarded {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Plain(plain::Body),
    Client(reqwest::Response),
}

impl Forwarder {
    /// The way to that provider.
    pub fn new(settings: &HttpSettings) -> Result<Self, SettingError> {
        let base = base_url(&settings.base_url)?;
        let own = headers(&settings.headers)?;
        if let Some(plain) = Plain::new(settings, &base, own) {
            return Ok(Self(Way::Plain(plain)));
        }
        let client = client(settings, &base)?
            .no_gzip()
            .tcp_nodelay(true)
            // Many answers may be under way at once, and each connection was paid for.
            .pool_max_idle_per_host(usize::MAX);
        Ok(Self(Way::Client(build(client)?, base)))
    }

    /// Passes a request on; the answer comes when its headers do. `path` may have a query.
    pub async fn send(
        &self,
        asked: (Method, &str),
        headers: &HeaderMap,
        body: Payload,
    ) -> Result<Forwarded, Error> {
        match &self.0 {
            Way::Plain(plain) => {
                let (status, headers, body) = plain.send(asked, headers, body).await?;
                Ok(Forwarded {
                    status,
                    headers,
                    body: Body::Plain(body),
                })
            }
            Way::Client(client, base) => {
                let url = address(base, asked.1);
                let request = client.request(asked.0, url).headers(headers.clone());
                let request = match body {
                    Payload::Whole(body) if body.is_empty() => request,
                    Payload::Whole(body) => request.body(body),
                    Payload::Pieces { length, pieces } => request
                        .header(CONTENT_LENGTH, length)
                        .body(reqwest::Body::wrap_stream(pieces)),
                };
                let response = Box::pin(request.send()).await;
                let mut response = response.map_err(|error| broken::error(&error))?;
                Ok(Forwarded {
                    status: response.status(),
                    headers: std::mem::take(response.headers_mut()),
                    body: Body::Client(response),
                })
            }
        }
    }
}

impl Forwarded {
    /// The next piece of the body, as it came; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.body {
            Body::Plain(body) => body.next().await,
            Body::Client(response) => {
                let chunk = response.chunk().await;
                chunk.map_err(|error| broken::error(&error))
            }
        }
    }
}
