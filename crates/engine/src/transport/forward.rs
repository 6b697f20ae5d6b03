//! Relays the requests of other clients unchanged, and their responses as well.
//!
//! Invariants: one call sends one request; nothing is decompressed, redirected or added unless the caller asked for it.

mod plain;

use super::http::client_error::{self, RequestBodyError};
use super::http::{build_client, client_builder, parse_base_url, parse_headers, request_url};
use super::{Error, HttpSettings, SettingError};
use crate::provider::response;
use ::http::header::CONTENT_LENGTH;
use ::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use plain::PlainClient;
use reqwest::{Client, Url};
use std::io;

/// A connection pool to one provider for relayed requests.
#[derive(Clone, Debug)]
pub struct Forwarder(Backend);

#[derive(Clone, Debug)]
enum Backend {
    /// Neither TLS nor a proxy is needed.
    Plain(PlainClient),
    /// TLS or a proxy is needed.
    Client(Client, Url),
}

/// The body of a request.
pub enum Payload {
    /// The complete body.
    Whole(Bytes),
    /// A body that arrives in pieces.
    Pieces {
        /// The total length in bytes.
        length: u64,
        /// The pieces; an error in one of them ends the request.
        pieces: BoxStream<'static, io::Result<Bytes>>,
    },
}

impl Payload {
    /// Returns the length in bytes.
    fn length(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Pieces { length, .. } => *length,
        }
    }
}

/// A response whose body is still arriving.
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
    /// Creates a forwarder to the provider of these settings.
    pub fn new(settings: &HttpSettings) -> Result<Self, SettingError> {
        let base = parse_base_url(&settings.base_url)?;
        let own = parse_headers(&settings.headers)?;
        if let Some(plain) = PlainClient::new(settings, &base, own) {
            return Ok(Self(Backend::Plain(plain)));
        }
        let client = client_builder(settings, &base)?
            .no_gzip()
            .tcp_nodelay(true)
            // Many responses may be in progress at once, and each connection had a cost to open.
            .pool_max_idle_per_host(usize::MAX);
        Ok(Self(Backend::Client(build_client(client)?, base)))
    }

    /// Relays a request; resolves when the response's headers arrive. The path may contain a query.
    pub async fn send(
        &self,
        asked: (Method, &str),
        headers: &HeaderMap,
        body: Payload,
    ) -> Result<Forwarded, Error> {
        match &self.0 {
            Backend::Plain(plain) => {
                let (status, headers, body) = plain.send(asked.0, asked.1, headers, body).await?;
                Ok(Forwarded {
                    status,
                    headers,
                    body: Body::Plain(body),
                })
            }
            Backend::Client(client, base) => {
                let url = request_url(base, asked.1);
                let request = client.request(asked.0, url).headers(headers.clone());
                let request = match body {
                    Payload::Whole(body) if body.is_empty() => request,
                    Payload::Whole(body) => request.body(body),
                    Payload::Pieces { length, pieces } => request
                        .header(CONTENT_LENGTH, length)
                        .body(reqwest::Body::wrap_stream(pieces.map_err(RequestBodyError))),
                };
                let response = Box::pin(request.send()).await;
                let mut response = response.map_err(|error| client_error::from_reqwest(&error))?;
                Ok(Forwarded {
                    status: response.status(),
                    headers: std::mem::take(response.headers_mut()),
                    body: Body::Client(response),
                })
            }
        }
    }
}

impl response::Body for Forwarded {
    /// Returns the next piece of the body as it arrived.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.body {
            Body::Plain(body) => body.next().await,
            Body::Client(response) => {
                let chunk = response.chunk().await;
                chunk.map_err(|error| client_error::from_reqwest(&error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use outlast_kernel::failure::IoKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Returns a forwarder through a proxy that answers one request and returns its text.
    async fn proxied() -> (Forwarder, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"end") {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.ok();
            String::from_utf8(request).unwrap()
        });
        let mut settings = HttpSettings {
            base_url: "http://provider.example".to_owned(),
            ..HttpSettings::default()
        };
        settings.proxies.http = Some(proxy.into());
        (Forwarder::new(&settings).unwrap(), asked)
    }

    async fn send(way: &Forwarder, pieces: Vec<io::Result<Bytes>>) -> Result<Forwarded, Error> {
        let body = Payload::Pieces {
            length: 9,
            pieces: stream::iter(pieces).boxed(),
        };
        way.send((Method::POST, "/v1/messages"), &HeaderMap::new(), body)
            .await
    }

    #[tokio::test]
    async fn body_in_pieces_is_sent_with_content_length() {
        let (way, asked) = proxied().await;
        let pieces = ["begin,", "end"].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        let answer = send(&way, pieces.into()).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        let asked = asked.await.unwrap().to_ascii_lowercase();
        assert_eq!(asked.matches("content-length: 9\r\n").count(), 1, "{asked}");
        assert!(!asked.contains("transfer-encoding"), "{asked}");
        assert!(asked.ends_with("\r\n\r\nbegin,end"), "{asked}");
    }

    #[tokio::test]
    async fn unreadable_body_piece_is_a_misconfigured_error() {
        let (way, _asked) = proxied().await;
        let begin = Bytes::from_static(b"begin,");
        let pieces = vec![Ok(begin), Err(io::Error::other("gone"))];
        let error = send(&way, pieces).await.unwrap_err();
        assert_eq!(error.io, IoKind::Misconfigured, "{error:?}");
    }
}
