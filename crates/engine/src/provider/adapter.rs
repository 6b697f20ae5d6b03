//! The adapter: one dialect over one transport, one request for each call, typed facts.

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

/// A provider that speaks one dialect over some transport.
#[derive(Clone)]
pub struct Adapter {
    pub(super) name: String,
    place: String,
    pub(super) dialect: Dialect,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timeouts: Timeouts,
    pub(super) credential: Option<Credential>,
    /// What else may not be passed on, should the provider send it back.
    hidden: Vec<Credential>,
}

impl Adapter {
    /// A provider without a credential behind that transport. Its name is that of its dialect.
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

    /// The same provider under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// The same provider at another place than its usual one.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        let place = place.to_owned();
        Self { place, ..self }
    }

    /// The same provider with other limits.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// The same provider, asked with that credential.
    #[must_use]
    pub fn with_credential(self, credential: Credential) -> Self {
        let credential = Some(credential);
        Self { credential, ..self }
    }

    /// The same provider; these, which are sent along, are never passed on.
    #[must_use]
    pub fn hiding(self, hidden: Vec<Credential>) -> Self {
        Self { hidden, ..self }
    }

    /// Makes one request and hands on each frame of its answer, as it came and as what it says.
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

    /// The same for the rest of an answer; `None` when nobody keeps it.
    fn resume_frames(&self, place: &StreamCursor) -> Option<Frames> {
        let request = transport::Request {
            method: transport::Method::Get,
            path: self.dialect.resume_path(place)?,
            headers: self.headers("text/event-stream"),
            body: Bytes::new(),
        };
        Some(read(ResponseReader::after(self.clone(), request, place)))
    }

    /// The same provider, asked with that credential if there is one.
    fn asked_with(&self, credential: Option<&Credential>) -> Self {
        match credential {
            Some(credential) => self.clone().with_credential(credential.clone()),
            None => self.clone(),
        }
    }

    /// The headers that a request of this dialect needs.
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

    /// Without the credential, should the provider have sent it back.
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
