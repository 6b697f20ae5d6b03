//! An error response of a provider.

use outlast_dialect::error_body::{RawError, parse};
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, Transport};
use outlast_kernel::verdict::Verdict;

/// An error response of a provider, as any HTTP client receives it.
///
/// ```
/// use outlast::{Cause, HttpError};
///
/// let error = HttpError::new("openai", 429).body(r#"{"error":{"code":"insufficient_quota"}}"#);
/// assert_eq!(error.classify().cause, Cause::Billing);
/// ```
#[derive(Clone, Debug)]
pub struct HttpError {
    provider: String,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    at: Timestamp,
}

impl HttpError {
    /// Creates an error response that arrived now, without headers and body.
    pub fn new(provider: impl Into<String>, status: u16) -> Self {
        Self {
            provider: provider.into(),
            status,
            headers: Vec::new(),
            body: String::new(),
            at: WallClock::default().now(),
        }
    }

    /// Adds a response header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, text: impl Into<String>) -> Self {
        self.body = text.into();
        self
    }

    /// Sets the time at which it arrived: stated times are relative to it.
    #[must_use]
    pub const fn at(mut self, time: Timestamp) -> Self {
        self.at = time;
        self
    }

    /// Returns the facts in the response.
    pub fn failure(&self) -> Failure {
        parse(RawError {
            provider: &self.provider,
            transport: Transport::Http,
            status: Some(self.status),
            headers: &self.headers,
            body: &self.body,
            at: self.at,
        })
    }

    /// Returns the verdict: cause, class, scope, and the time at which a retry makes sense.
    pub fn classify(&self) -> Verdict {
        classify(&self.failure())
    }
}
