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
use outlast_dialect::error_body::{self, RawError};
use outlast_dialect::relay::{self, BodyKind, Relay};
use outlast_engine::Clock;
use outlast_engine::credential::Credential;
use outlast_engine::provider::Watchdog;
use outlast_engine::transport::{self, Forwarded};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, IoKind, Phase, Transport};
use outlast_kernel::time::Span;
use std::time::Duration;

const MAX_ERROR_BYTES: usize = 64 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The factor for the time limit of a response in one document.
const WHOLE_RESPONSE_TIMEOUT_FACTOR: u32 = 3;
/// Maximum size of a response in one document that is read completely before it is handed on, in bytes.
const MAX_BUFFERED_RESPONSE_BYTES: usize = 16 << 20;

/// The target, the time limits and the purpose of one attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) request: &'a InboundRequest,
    pub(crate) upstreams: &'a Upstreams,
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) clock: &'a dyn Clock,
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
    /// The time at which reading stops in any case, once the response is complete.
    pub(crate) trailer_deadline: Option<Timestamp>,
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
            self.failure(IoKind::Misconfigured, &message)
        })?;
        let mut headers = self.request.headers();
        if let Some(credential) = self.credential {
            credential.replace_in(headers.to_mut(), self.request.dialect());
        }
        let what = (self.request.method.clone(), self.request.target.as_str());
        let sending = upstream.forward.send(what, &headers, body);
        let mut limit = self.upstreams.timeouts.until_headers();
        if !self.request.is_streamed {
            // The headers of a response in one document arrive when it is complete.
            limit = limit.saturating_mul(WHOLE_RESPONSE_TIMEOUT_FACTOR);
        }
        let deadline = (!limit.is_zero()).then(|| self.clock.now() + limit);
        let response = tokio::select! {
            biased;
            response = sending => response.map_err(|error| self.transport_failure(&error))?,
            () = self.timers.sleep_until(deadline) => {
                let message = format!("no response came for {}", Span(limit));
                return Err(self.failure(IoKind::Timeout, &message));
            }
        };
        if response.status.is_informational() {
            let message = "the provider wants to speak another protocol, which nobody asked for";
            return Err(self.failure(IoKind::Protocol, message));
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

    /// Reads a stream of events up to its first content. Its first bytes tell whether it is one, whatever its headers call
    /// it.
    async fn stream(
        &self,
        headers: &HeaderMap,
        mut upstream: Forwarded,
    ) -> Result<UpstreamBody, Box<FailedAttempt>> {
        let mut watchdog = Watchdog::new(self.upstreams.timeouts, self.clock.now());
        let mut head = BytesMut::new();
        loop {
            match relay::sniff_body(&head) {
                Some(BodyKind::EventStream) => break,
                Some(BodyKind::Json | BodyKind::Html) => {
                    return self.read_whole(headers, upstream, head).await;
                }
                // Blanks without end are passed on like any other stream.
                None if head.len() > relay::MAX_HELD_BYTES => break,
                None => {}
            }
            match self.next(&mut upstream, &watchdog).await? {
                Some(bytes) => {
                    watchdog.record_keepalive(self.clock.now());
                    head.extend_from_slice(&bytes);
                }
                None => break,
            }
        }
        let mut events = EventStream {
            relay: self.request.dialect().relay(self.provider()),
            upstream,
            watchdog,
            ready: Vec::new(),
            has_ended: false,
            trailer_deadline: None,
        };
        self.until_content(&mut events, head.freeze())
            .await
            .map_err(|failed| with_headers(failed, headers))?;
        Ok(UpstreamBody::Events(Box::new(events)))
    }

    async fn until_content(
        &self,
        events: &mut EventStream,
        head: Bytes,
    ) -> Result<(), Box<FailedAttempt>> {
        let mut bytes = Some(head);
        while let Some(piece) = bytes {
            events.push(piece, self.clock.now())?;
            if events.relay.has_content() || events.relay.is_complete() {
                return Ok(());
            }
            bytes = self.next(&mut events.upstream, &events.watchdog).await?;
        }
        Ok(events.finish(self.clock.now())?)
    }

    /// Returns the next piece of the body, within the time limit of the watchdog.
    async fn next(
        &self,
        upstream: &mut Forwarded,
        watchdog: &Watchdog,
    ) -> Result<Option<Bytes>, Box<FailedAttempt>> {
        tokio::select! {
            biased;
            chunk = upstream.chunk() => chunk.map_err(|error| self.transport_failure(&error)),
            () = self.timers.sleep_until(watchdog.deadline()) => {
                let message = format!("the stream stood still for {}", Span(watchdog.stall_duration()));
                Err(self.failure(IoKind::Idle, &message))
            }
        }
    }

    /// Reads a response in one document. One that is too long to be kept is relayed as it arrives.
    async fn read_whole(
        &self,
        headers: &HeaderMap,
        mut upstream: Forwarded,
        head: BytesMut,
    ) -> Result<UpstreamBody, Box<FailedAttempt>> {
        let mut watchdog = Watchdog::new(self.upstreams.timeouts, self.clock.now());
        let mut body = head;
        let mut first = None;
        while let Some(piece) = self.next(&mut upstream, &watchdog).await? {
            // Some servers send blanks as keep-alives.
            if piece.iter().all(u8::is_ascii_whitespace) {
                watchdog.record_keepalive(self.clock.now());
            } else {
                watchdog.record_progress(self.clock.now());
            }
            match (first.take(), body.is_empty()) {
                // Most come in one piece, which need not be copied.
                (None, true) => first = Some(piece),
                (before, _) => {
                    body.extend_from_slice(&before.unwrap_or_default());
                    body.extend_from_slice(&piece);
                }
            }
            if body.len() > MAX_BUFFERED_RESPONSE_BYTES {
                return Ok(UpstreamBody::Opaque(
                    vec![body.freeze()],
                    Box::new(upstream),
                ));
            }
        }
        let body = first.unwrap_or_else(|| body.freeze());
        if self.request.route.kind == Kind::Inference {
            let now = self.clock.now();
            let checked = self
                .request
                .dialect()
                .check_response(self.provider(), &body, now);
            checked.map_err(|failure| with_headers(failure.into(), headers))?;
        }
        Ok(UpstreamBody::Whole(body))
    }

    /// Reads an error response within bounds: a slow or endless one must not hide the status.
    async fn read_error_response(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        mut upstream: Forwarded,
    ) -> Box<FailedAttempt> {
        let mut body = BytesMut::new();
        let mut ended = false;
        let reading = async {
            while body.len() < MAX_ERROR_BYTES {
                match upstream.chunk().await {
                    Ok(Some(piece)) => body.extend_from_slice(&piece),
                    Ok(None) | Err(_) => {
                        ended = true;
                        return;
                    }
                }
            }
        };
        let deadline = self.clock.now() + ERROR_BODY_TIMEOUT;
        tokio::select! {
            biased;
            () = reading => {}
            () = self.timers.sleep_until(Some(deadline)) => ended = true,
        }
        let body = body.freeze();
        let failure = error_body::parse(RawError {
            provider: self.provider(),
            transport: Transport::Http,
            status: Some(status.as_u16()),
            headers: &header_pairs(&headers),
            body: &String::from_utf8_lossy(&body),
            at: self.clock.now(),
        });
        let error_response = Some(ErrorResponse {
            status,
            headers: forwarded_response_headers(headers),
            body,
            rest: (!ended).then_some(upstream),
        });
        Box::new(FailedAttempt {
            failure,
            error_response,
        })
    }

    fn provider(&self) -> &str {
        &self.upstreams.for_route(self.request.route).name
    }

    fn transport_failure(&self, error: &transport::Error) -> Box<FailedAttempt> {
        self.failure(error.io, &error.message)
    }

    fn failure(&self, io: IoKind, message: &str) -> Box<FailedAttempt> {
        let failure = Failure::thrown(self.provider(), message, self.clock.now());
        Box::new(failure.with_io(io)).into()
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

/// Adds the headers of a response that failed later: they may state when to retry.
fn with_headers(mut failed: Box<FailedAttempt>, headers: &HeaderMap) -> Box<FailedAttempt> {
    if failed.failure.headers.is_empty() {
        let all = header_pairs(headers);
        let all = all.iter().map(|(name, value)| (&**name, &**value));
        failed.failure = failed.failure.with_headers(all);
    }
    failed
}

fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = headers.iter();
    headers
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}
