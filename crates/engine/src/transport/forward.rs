//! Requests that are somebody else's: passed on as they are, and their responses too.
//!
//! Invariants: one call sends one request; nothing is decompressed, followed or added that the caller did not ask for.

use super::http::{address, base_url, broken, build, client};
use super::{Error, HttpSettings, SettingError};
use ::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use reqwest::{Client, Url};

/// The way to one provider for requests that are passed on.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client,
    base: Url,
}

/// A response whose body is still coming.
#[derive(Debug)]
pub struct Forwarded {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    response: reqwest::Response,
}

impl Forwarder {
    /// The way to that provider.
    pub fn new(settings: &HttpSettings) -> Result<Self, SettingError> {
        let base = base_url(&settings.base_url)?;
        let client = client(settings, &base)?
            .no_gzip()
            .tcp_nodelay(true)
            // Many answers may be under way at once, and each connection was paid for.
            .pool_max_idle_per_host(usize::MAX);
        let client = build(client)?;
        Ok(Self { client, base })
    }

    /// Passes a request on; the answer comes when its headers do. `path` may have a query.
    pub async fn send(
        &self,
        (method, path): (Method, &str),
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Forwarded, Error> {
        let url = address(&self.base, path);
        let mut request = self.client.request(method, url).headers(headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        let mut response = request
            .send()
            .await
            .map_err(|error| broken::error(&error))?;
        Ok(Forwarded {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            response,
        })
    }
}

impl Forwarded {
    /// The next piece of the body, as it came; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| broken::error(&error))
    }
}
