//! One request to the provider, up to the first content of its response or to its failure.
//!
//! Invariants: nothing of a response is handed on before its first content, so that until then the request can be
//! retried; every wait has a limit; buffers are bounded.

use crate::inbound_request::{InboundRequest, forwarded_response_headers};
use crate::route::Kind;
use crate::timers::Timers;
use crate::upstreams::Upstreams;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use outlast_dialect::StreamActivity;
use outlast_dialect::relay::{BodyKind, Relay};
use outlast_engine::credential::Credential;
use outlast_engine::provider::Watchdog;
use outlast_engine::provider::response::{ResponseReader, Timer, with_headers};
use outlast_engine::transport::{Forwarded, header_pairs};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, IoKind, Phase};
use std::pin::pin;

/// The factor for the time limit of a response in one document.
const WHOLE_RESPONSE_TIMEOUT_FACTOR: u32 = 3;

/// The target, the time limits and the purpose of one attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) request: &'a InboundRequest,
    pub(crate) upstreams: &'a Upstreams,
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) timers: &'a Timers,
}

/// A response whose first content, or whose whole body, has arrived.
pub(crate) struct UpstreamResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The length of the body, if it is known.
    pub(crate) length: Option<u64>,
    pub(crate) body: UpstreamBody,
}

/// The body of a response.
pub(crate) enum UpstreamBody {
    /// The whole body.
    Whole(Bytes),
    /// A stream of events that the gateway parses.
    Events(Box<EventStream>),
    /// A body that is forwarded without being parsed: the pieces that have arrived, and the rest.
    Opaque(Vec<Bytes>, Box<Forwarded>),
}

/// A stream of events.
pub(crate) struct EventStream {
    pub(crate) relay: Relay,
    pub(crate) upstream: Forwarded,
    pub(crate) watchdog: Watchdog,
    /// Pieces that are ready to be forwarded.
    pub(crate) ready: Vec<Bytes>,
    /// The body has ended.
    pub(crate) has_ended: bool,
}

/// A request that failed before content.
pub(crate) struct FailedAttempt {
    pub(crate) failure: Failure,
    /// The provider's error response, if there was one.
    pub(crate) error_response: Option<ErrorResponse>,
}

/// An error response of the provider.
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The rest of the body beyond the limit.
    pub(crate) rest: Option<Forwarded>,
}

pub(crate) type AttemptResult = Result<UpstreamResponse, Box<FailedAttempt>>;

impl Attempt<'_> {
    /// Sends the request and reads the response up to its first content.
    pub(crate) async fn send(&self) -> AttemptResult {
        let upstream = self.upstreams.for_route(self.request.route);
        let body = self.request.body.payload().await;
        let body = body.map_err(|error| {
            let message = format!("the request cannot be read back: {error}");
            self.reader().failure(IoKind::Misconfigured, &message)
        })?;
        let mut headers = self.request.headers();
        if let Some(credential) = self.credential {
            credential.replace_in(headers.to_mut(), self.request.dialect());
        }
        let what = (self.request.method.clone(), self.request.target.as_str());
        // Pinned here: moved into the reader, it would be copied three times.
        let sending = pin!(upstream.forward.send(what, &headers, body));
        let mut limit = self.upstreams.timeouts.until_headers();
        if !self.request.is_streamed {
            // The headers of a response in one document arrive when it is complete.
            limit = limit.saturating_mul(WHOLE_RESPONSE_TIMEOUT_FACTOR);
        }
        let response = self.reader().headers(sending, limit, limit).await?;
        if response.status.is_informational() {
            let message = "the provider wants to speak another protocol, which nobody asked for";
            return Err(self.reader().failure(IoKind::Protocol, message).into());
        }
        self.read_response(response).await.map_err(|mut failed| {
            failed.failure.phase = Phase::BeforeContent;
            failed
        })
    }

    async fn read_response(&self, mut response: Forwarded) -> AttemptResult {
        let (status, headers) = (response.status, std::mem::take(&mut response.headers));
        if !self.request.route.is_retried() {
            let body = UpstreamBody::Opaque(Vec::new(), Box::new(response));
            return Ok(self.build_response(status, headers, body));
        }
        if !status.is_success() {
            return Err(self.read_error_response(status, headers, response).await);
        }
        let compressed = headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|encoding| encoding != "identity");
        if compressed {
            // The gateway did not ask for compression; it relays what it cannot read.
            let body = UpstreamBody::Opaque(Vec::new(), Box::new(response));
            return Ok(self.build_response(status, headers, body));
        }
        // A request that the gateway cannot parse may ask for a stream all the same.
        let is_stream = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|form| form.as_bytes().starts_with(b"text/event-stream"));
        let is_stream = is_stream || self.request.is_streamed;
        let body = if is_stream && self.request.route.kind == Kind::Inference {
            self.stream(&headers, response).await
        } else {
            self.read_whole(&headers, response, BytesMut::new()).await
        };
        Ok(self.build_response(status, headers, body?))
    }

    fn build_response(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        body: UpstreamBody,
    ) -> UpstreamResponse {
        // With both headers, `Transfer-Encoding` takes precedence over `Content-Length`.
        let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.filter(|_| !is_chunked);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        UpstreamResponse {
            length: match &body {
                UpstreamBody::Whole(body) => Some(body.len() as u64),
                UpstreamBody::Events(_) => None,
                UpstreamBody::Opaque(..) => length,
            },
            status,
            headers: forwarded_response_headers(headers),
            body,
        }
    }

    /// Reads a stream of events up to its first content, or what came in its place.
    async fn stream(
        &self,
        headers: &HeaderMap,
        mut upstream: Forwarded,
    ) -> Result<UpstreamBody, Box<FailedAttempt>> {
        let mut watchdog = Watchdog::new(self.upstreams.timeouts, self.timers.now());
        let (kind, head) = self.reader().kind(&mut upstream, &mut watchdog).await?;
        if kind != BodyKind::EventStream {
            return self.read_whole(headers, upstream, head).await;
        }
        let mut events = EventStream {
            relay: self.request.dialect().relay(self.provider()),
            upstream,
            watchdog,
            ready: Vec::new(),
            has_ended: false,
        };
        let arrived = self.until_content(&mut events, head.freeze()).await;
        arrived.map_err(|failure| with_missing_headers(failure, headers))?;
        Ok(UpstreamBody::Events(Box::new(events)))
    }

    async fn until_content(
        &self,
        events: &mut EventStream,
        head: Bytes,
    ) -> Result<(), Box<Failure>> {
        let mut bytes = Some(head);
        while let Some(piece) = bytes {
            events.push(piece, self.timers.now())?;
            if events.relay.has_content() || events.relay.is_complete() {
                return Ok(());
            }
            let reader = self.reader();
            bytes = reader.piece(&mut events.upstream, &events.watchdog).await?;
        }
        events.finish(self.timers.now())
    }

    /// Reads a response in one document. One that is too long to be kept is relayed as it arrives.
    async fn read_whole(
        &self,
        headers: &HeaderMap,
        mut upstream: Forwarded,
        head: BytesMut,
    ) -> Result<UpstreamBody, Box<FailedAttempt>> {
        let mut watchdog = Watchdog::new(self.upstreams.timeouts, self.timers.now());
        let reader = self.reader();
        let whole = reader.whole(&mut upstream, head, &mut watchdog);
        let (body, is_complete) = whole.await?;
        if !is_complete {
            return Ok(UpstreamBody::Opaque(vec![body], Box::new(upstream)));
        }
        if self.request.route.kind == Kind::Inference {
            let (dialect, now) = (self.request.dialect(), self.timers.now());
            let checked = dialect.check_response(self.provider(), &body, now);
            checked.map_err(|failure| with_missing_headers(failure, headers))?;
        }
        Ok(UpstreamBody::Whole(body))
    }

    async fn read_error_response(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        mut upstream: Forwarded,
    ) -> Box<FailedAttempt> {
        let (body, has_ended) = self.reader().error_body(&mut upstream).await;
        let text = String::from_utf8_lossy(&body);
        let failure = (self.reader()).error(status.as_u16(), &header_pairs(&headers), &text);
        let error_response = Some(ErrorResponse {
            status,
            headers: forwarded_response_headers(headers),
            body,
            rest: (!has_ended).then_some(upstream),
        });
        Box::new(FailedAttempt {
            failure,
            error_response,
        })
    }

    fn reader(&self) -> ResponseReader<'_, Timers> {
        ResponseReader {
            provider: self.provider(),
            timer: self.timers,
        }
    }

    fn provider(&self) -> &str {
        &self.upstreams.for_route(self.request.route).name
    }
}

impl EventStream {
    /// Processes a piece of the body.
    pub(crate) fn push(&mut self, bytes: Bytes, now: Timestamp) -> Result<(), Box<Failure>> {
        match self.relay.push(bytes, now, &mut self.ready)? {
            StreamActivity::Progress => self.watchdog.record_progress(now),
            StreamActivity::Opening => self.watchdog.record_announcement(now),
            StreamActivity::KeepAlive => self.watchdog.record_keepalive(now),
        }
        Ok(())
    }

    /// The body has ended.
    pub(crate) fn finish(&mut self, now: Timestamp) -> Result<(), Box<Failure>> {
        self.has_ended = true;
        self.relay.finish(now, &mut self.ready)
    }
}

impl From<Box<Failure>> for Box<FailedAttempt> {
    fn from(failure: Box<Failure>) -> Self {
        Self::new(FailedAttempt {
            failure: *failure,
            error_response: None,
        })
    }
}

/// Adds the headers of a response to its failure, if it has none.
fn with_missing_headers(failure: Box<Failure>, headers: &HeaderMap) -> Box<Failure> {
    match failure.headers.is_empty() {
        true => with_headers(failure, &header_pairs(headers)),
        false => failure,
    }
}
