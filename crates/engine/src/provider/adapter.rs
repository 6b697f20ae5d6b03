//! The provider adapter: one dialect over one transport, one request for each call, typed failures.

use super::response::{Frame, ResponseReader};
use super::{Provider, Timeouts};
use crate::credential::Credential;
use crate::transport::{self, Transport};
use crate::{BoxStream, Clock};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delivery, Delta, Dialect, Request, StreamCursor, anthropic};
use outlast_kernel::failure::Failure;
use std::sync::Arc;

type Frames = BoxStream<'static, Result<Frame, Box<Failure>>>;

/// A provider that speaks one dialect over a transport.
#[derive(Clone)]
pub struct Adapter {
    pub(super) name: String,
    place: String,
    pub(super) dialect: Dialect,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timeouts: Timeouts,
    pub(super) credential: Option<Credential>,
    /// Further secrets to redact if the provider sends them back.
    hidden: Vec<Credential>,
}

impl Adapter {
    /// Creates a provider without a credential behind the transport, named like its dialect.
    pub fn new(dialect: Dialect, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: dialect.name().to_owned(),
            place: String::new(),
            dialect,
            transport,
            clock,
            timeouts: Timeouts::default(),
            credential: None,
            hidden: Vec::new(),
        }
    }

    /// Sets the provider's name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// Sets the provider's address, if it is not the usual one.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        let place = place.to_owned();
        Self { place, ..self }
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
    pub fn hiding(self, hidden: Vec<Credential>) -> Self {
        Self { hidden, ..self }
    }

    /// Makes one request and returns each frame of its response, raw and decoded.
    pub fn frames(&self, request: &Request) -> BoxStream<'static, Result<Frame, Box<Failure>>> {
        let accept = match request.delivery {
            Delivery::Streamed => "text/event-stream",
            Delivery::Whole => "application/json",
        };
        let request = transport::Request {
            method: transport::Method::Post,
            path: self.dialect.path().to_owned(),
            headers: self.headers(accept),
            body: Bytes::from(self.dialect.request(request)),
        };
        read(ResponseReader::new(self.clone(), request))
    }

    /// Makes one request for the rest of a completion; `None` when the dialect does not store completions.
    fn resume_frames(&self, place: &StreamCursor) -> Option<Frames> {
        let request = transport::Request {
            method: transport::Method::Get,
            path: self.dialect.resume_path(place)?,
            headers: self.headers("text/event-stream"),
            body: Bytes::new(),
        };
        Some(read(ResponseReader::after(self.clone(), request, place)))
    }

    /// Returns the provider with the credential, if there is one.
    fn asked_with(&self, credential: Option<&Credential>) -> Self {
        match credential {
            Some(credential) => self.clone().with_credential(credential.clone()),
            None => self.clone(),
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
        for secret in self.credential.iter().chain(&self.hidden) {
            secret.scrub(&mut failure);
        }
        failure
    }
}

impl Provider for Adapter {
    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        deltas(self.asked_with(credential).frames(request))
    }

    fn resume(
        &self,
        place: &StreamCursor,
        credential: Option<&Credential>,
    ) -> Option<BoxStream<'static, Result<Delta, Box<Failure>>>> {
        self.asked_with(credential).resume_frames(place).map(deltas)
    }
}

fn read(answer: ResponseReader) -> Frames {
    stream::unfold(answer, |mut answer| async move {
        let item = answer.next().await?;
        Some((item, answer))
    })
    .boxed()
}

fn deltas(frames: Frames) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
    let deltas = |frame: Result<Frame, Box<Failure>>| match frame {
        Ok(frame) => stream::iter(frame.deltas.into_iter().map(Ok).collect::<Vec<_>>()),
        Err(failure) => stream::iter(vec![Err(failure)]),
    };
    frames.flat_map(deltas).boxed()
}
