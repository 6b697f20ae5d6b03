//! The provider adapter: one dialect over one transport, one request for each call, typed failures.

use super::deltas::{Deltas, deltas};
use super::response::{ClockTimer, ResponseReader};
use super::{Provider, Timeouts};
use crate::Clock;
use crate::credential::Credential;
use crate::transport::{self, Transport};
use bytes::Bytes;
use outlast_dialect::{Delivery, Dialect, Request, StreamCursor, anthropic};
use outlast_kernel::failure::Failure;
use std::sync::Arc;

/// A provider that speaks one dialect over a transport.
#[derive(Clone)]
pub struct Adapter {
    pub(super) name: String,
    endpoint: String,
    pub(super) dialect: Dialect,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: ClockTimer,
    pub(super) timeouts: Timeouts,
    pub(super) credential: Option<Credential>,
    /// Further secrets to redact if the provider sends them back.
    redacted_secrets: Vec<Credential>,
}

impl Adapter {
    /// Creates a provider without a credential behind the transport, named like its dialect.
    pub fn new(dialect: Dialect, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: dialect.name().to_owned(),
            endpoint: String::new(),
            dialect,
            transport,
            clock: ClockTimer(clock),
            timeouts: Timeouts::default(),
            credential: None,
            redacted_secrets: Vec::new(),
        }
    }

    /// Sets the provider's name.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// Sets the provider's address, if it is not the usual one.
    #[must_use]
    pub fn with_endpoint(self, place: &str) -> Self {
        let endpoint = place.to_owned();
        Self { endpoint, ..self }
    }

    /// Sets the time limits.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// Sets the credential for all requests.
    #[must_use]
    pub fn with_credential(self, credential: Credential) -> Self {
        let credential = Some(credential);
        Self { credential, ..self }
    }

    /// Adds secrets that are sent along and must be redacted.
    #[must_use]
    pub fn with_redacted_secrets(self, redacted_secrets: Vec<Credential>) -> Self {
        Self {
            redacted_secrets,
            ..self
        }
    }

    /// Returns the provider with the credential, if there is one.
    fn with_optional_credential(&self, credential: Option<&Credential>) -> Self {
        match credential {
            Some(credential) => self.clone().with_credential(credential.clone()),
            None => self.clone(),
        }
    }

    /// Returns a reader of its responses.
    pub(super) fn reader(&self) -> ResponseReader<'_, ClockTimer> {
        ResponseReader {
            provider: &self.name,
            timer: &self.clock,
        }
    }

    /// Returns the headers that a request of this dialect needs.
    pub(super) fn headers(&self, accept: &str) -> Vec<(String, String)> {
        let mut headers = vec![("content-type", "application/json"), ("accept", accept)];
        if self.dialect == Dialect::Anthropic {
            headers.push(("anthropic-version", anthropic::VERSION));
        }
        let mut headers: Vec<(String, String)> = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        headers.extend(self.credential.as_ref().map(|key| key.header(self.dialect)));
        headers
    }

    /// Redacts the credentials, in case the provider sent them back.
    pub(super) fn scrubbed(&self, mut failure: Box<Failure>) -> Box<Failure> {
        for secret in self.credential.iter().chain(&self.redacted_secrets) {
            secret.scrub(&mut failure);
        }
        failure
    }
}

impl Provider for Adapter {
    fn name(&self) -> &str {
        &self.name
    }

    fn endpoint(&self) -> &str {
        &self.endpoint
    }

    fn stream(&self, request: &Request, credential: Option<&Credential>) -> Deltas {
        let adapter = self.with_optional_credential(credential);
        let accept = match request.delivery {
            Delivery::Streamed => "text/event-stream",
            Delivery::Whole => "application/json",
        };
        let request = transport::Request {
            method: transport::Method::Post,
            path: self.dialect.path().to_owned(),
            headers: adapter.headers(accept),
            body: Bytes::from(self.dialect.encode_request(request)),
        };
        deltas(adapter, request, None)
    }

    fn resume(&self, place: &StreamCursor, credential: Option<&Credential>) -> Option<Deltas> {
        let adapter = self.with_optional_credential(credential);
        let request = transport::Request {
            method: transport::Method::Get,
            path: self.dialect.resume_path(place)?,
            headers: adapter.headers("text/event-stream"),
            body: Bytes::new(),
        };
        Some(deltas(adapter, request, Some(place.clone())))
    }
}
