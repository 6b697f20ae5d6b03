//! Reads one response, from sending its request to its last event or its failure.
//!
//! Invariants: a response without its terminal event is a failure; every wait has a limit; buffers are bounded.

use super::Adapter;
use super::watchdog::Watchdog;
use crate::BoxStream;
use crate::attempt::maybe;
use crate::transport;
use bytes::Bytes;
use futures_util::StreamExt;
use outlast_dialect::error_body::{self, RawError};
use outlast_dialect::relay::{BodyKind, sniff_body};
use outlast_dialect::{Delta, StreamActivity, StreamCursor, StreamDecoder, sse, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{self, Failure, IoKind, Phase};
use outlast_kernel::time::Span;
use std::time::Duration;

const MAX_EVENT_BYTES: usize = 16 << 20;
/// After decompression.
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// Limit of a response in one document: parsing it takes many times its size.
const MAX_UNSTREAMED_BYTES: usize = 16 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a complete response is given for its trailing events.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct ResponseReader {
    adapter: Adapter,
    /// The place where it begins, if it is the rest of a completion.
    resume_token: Option<StreamCursor>,
    stage: Stage,
    phase: Phase,
}

enum Stage {
    Unsent(transport::Request),
    Reading(Box<IncomingBody>),
    Done,
}

/// A stream of events that is being read.
struct IncomingBody {
    headers: Vec<(String, String)>,
    body: Body,
    frames: sse::Decoder,
    reader: StreamDecoder,
    watchdog: Watchdog,
    received: usize,
    /// The time since which only trailing events are missing.
    complete_at: Option<Timestamp>,
}

type Body = BoxStream<'static, Result<Bytes, transport::Error>>;
type BoxedFailure = Box<Failure>;

/// The next piece of a body, or its end.
enum BodyRead {
    Bytes(Bytes),
    End,
    Failed(transport::Error),
    TimedOut,
}

impl ResponseReader {
    pub(super) fn new(adapter: Adapter, request: transport::Request) -> Self {
        Self {
            adapter,
            resume_token: None,
            stage: Stage::Unsent(request),
            phase: Phase::BeforeHeaders,
        }
    }

    /// Reads the rest of a completion.
    pub(super) fn resuming(
        adapter: Adapter,
        request: transport::Request,
        place: &StreamCursor,
    ) -> Self {
        Self {
            resume_token: Some(place.clone()),
            ..Self::new(adapter, request)
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<Vec<Delta>, BoxedFailure>> {
        // A flood of frames without content must not starve other tasks.
        tokio::task::consume_budget().await;
        let result = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Done => return None,
            Stage::Unsent(request) => self.send_request(request).await,
            Stage::Reading(incoming) => self.read_frame(incoming).await,
        };
        Some(match result {
            Ok(deltas) => {
                if deltas.iter().any(Delta::is_content) {
                    self.phase = Phase::AfterContent;
                }
                Ok(deltas)
            }
            Err(mut failure) => {
                failure.phase = self.phase;
                Err(self.adapter.scrubbed(failure))
            }
        })
    }

    async fn send_request(
        &mut self,
        request: transport::Request,
    ) -> Result<Vec<Delta>, BoxedFailure> {
        let sent = self.adapter.transport.send(request);
        let limit = self.adapter.timeouts.until_headers();
        let response = match self.adapter.with_time_limit(limit, sent).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => return Err(self.adapter.transport_failure(&error)),
            None => return Err(self.adapter.response_timeout()),
        };
        self.phase = Phase::BeforeContent;
        if !(200..300).contains(&response.status) {
            return Err(self.adapter.error_response(response).await);
        }
        let (dialect, name) = (self.adapter.dialect, &self.adapter.name);
        let reader = match &self.resume_token {
            Some(place) => dialect.decoder_after(name, place),
            None => dialect.decoder(name),
        };
        let mut incoming = Box::new(IncomingBody::new(&self.adapter, response, reader));
        let (kind, head) = incoming.detect_kind(&self.adapter).await?;
        match kind {
            BodyKind::EventStream => {
                incoming.frames.push(&head);
                self.read_frame(incoming).await
            }
            BodyKind::Json => {
                let deltas = self.adapter.read_whole(*incoming, head).await?;
                match self.resume_token {
                    Some(_) => Err(self.adapter.unexpected_full_response()),
                    None => Ok(deltas),
                }
            }
            BodyKind::Html => {
                let rest = self.adapter.error_text(incoming.body).await;
                let page = String::from_utf8_lossy(&head) + rest.as_str();
                let now = self.adapter.clock.now();
                let failure = stream_error::not_an_event_stream(&self.adapter.name, &page, now);
                Err(with_headers(failure, &incoming.headers))
            }
        }
    }

    async fn read_frame(
        &mut self,
        mut incoming: Box<IncomingBody>,
    ) -> Result<Vec<Delta>, BoxedFailure> {
        loop {
            if let Some(deltas) = incoming.next_frame(&self.adapter)? {
                if !matches!(deltas.last(), Some(Delta::Stopped(_))) {
                    self.stage = Stage::Reading(incoming);
                }
                return Ok(deltas);
            }
            match incoming.read_body(&self.adapter).await {
                BodyRead::Bytes(bytes) => {
                    incoming.count_bytes(&self.adapter, &bytes)?;
                    incoming.frames.push(&bytes);
                }
                end => return incoming.finish(&self.adapter, end),
            }
        }
    }
}

impl IncomingBody {
    fn new(adapter: &Adapter, response: transport::Response, reader: StreamDecoder) -> Self {
        Self {
            headers: response.headers,
            body: response.body,
            frames: sse::Decoder::new(MAX_EVENT_BYTES),
            reader,
            watchdog: Watchdog::new(adapter.timeouts, adapter.clock.now()),
            received: 0,
            complete_at: None,
        }
    }

    /// Reads as much of the body as it takes to know its kind: its first bytes tell, whatever its headers call it.
    async fn detect_kind(&mut self, adapter: &Adapter) -> Result<(BodyKind, Bytes), BoxedFailure> {
        let mut head = Vec::new();
        loop {
            if let Some(kind) = sniff_body(&head) {
                return Ok((kind, Bytes::from(head)));
            }
            match self.read_body(adapter).await {
                BodyRead::Bytes(bytes) => {
                    self.count_bytes(adapter, &bytes)?;
                    head.extend_from_slice(&bytes);
                }
                BodyRead::End => return Ok((BodyKind::EventStream, Bytes::from(head))),
                end => return Err(self.failure_for(adapter, end)),
            }
        }
    }

    /// Returns the deltas of the next complete frame, if there is one.
    fn next_frame(&mut self, adapter: &Adapter) -> Result<Option<Vec<Delta>>, BoxedFailure> {
        let now = adapter.clock.now();
        let frame = match self.frames.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => return Err(adapter.failure(IoKind::Truncated, &error.to_string())),
        };
        let mut deltas = Vec::new();
        if let Some(event) = &frame.event {
            match self.reader.decode(event, now, &mut deltas) {
                Ok(StreamActivity::Progress) => self.watchdog.record_progress(now),
                Ok(StreamActivity::Opening) => self.watchdog.record_announcement(now),
                Ok(StreamActivity::KeepAlive) => {}
                Err(failure) => return Err(with_headers(failure, &self.headers)),
            }
        }
        // An event after the end shows that it was none.
        let ended = self.complete_at.unwrap_or(now);
        self.complete_at = self.reader.is_complete().then_some(ended);
        Ok(Some(deltas))
    }

    async fn read_body(&mut self, adapter: &Adapter) -> BodyRead {
        let deadline = match self.complete_at {
            Some(at) => Some(at + TRAILING_EVENTS_TIMEOUT),
            None => self.watchdog.deadline(),
        };
        match adapter.with_deadline(deadline, self.body.next()).await {
            Some(Some(Ok(bytes))) => BodyRead::Bytes(bytes),
            Some(Some(Err(error))) => BodyRead::Failed(error),
            Some(None) => BodyRead::End,
            None => BodyRead::TimedOut,
        }
    }

    /// Counts bytes that arrived. They show that the connection is alive; too many are a failure.
    fn count_bytes(&mut self, adapter: &Adapter, bytes: &Bytes) -> Result<(), BoxedFailure> {
        self.received += bytes.len();
        if self.received > MAX_RESPONSE_BYTES {
            return Err(adapter.response_too_long(MAX_RESPONSE_BYTES));
        }
        self.watchdog.record_keepalive(adapter.clock.now());
        Ok(())
    }

    /// Ends the response: it is complete, or it failed with this end of its body.
    fn finish(&mut self, adapter: &Adapter, end: BodyRead) -> Result<Vec<Delta>, BoxedFailure> {
        let deltas = self.reader.finish();
        if !deltas.is_empty() {
            return Ok(deltas);
        }
        Err(self.failure_for(adapter, end))
    }

    fn failure_for(&self, adapter: &Adapter, end: BodyRead) -> BoxedFailure {
        let now = adapter.clock.now();
        match end {
            BodyRead::Failed(error) => adapter.transport_failure(&error),
            BodyRead::TimedOut => {
                let standstill = Span(self.watchdog.stall_duration());
                let message = format!("the stream stood still for {standstill}");
                adapter.failure(IoKind::Idle, &message)
            }
            BodyRead::Bytes(_) | BodyRead::End => match self.frames.stray() {
                stray if self.watchdog.has_begun() || stray.is_empty() => {
                    stream_error::truncated_stream(&adapter.name, now)
                }
                stray => stream_error::not_an_event_stream(&adapter.name, &stray, now),
            },
        }
    }
}

impl Adapter {
    async fn read_whole(
        &self,
        mut incoming: IncomingBody,
        head: Bytes,
    ) -> Result<Vec<Delta>, BoxedFailure> {
        let mut body = Vec::from(head);
        incoming.watchdog.record_progress(self.clock.now());
        loop {
            match incoming.read_body(self).await {
                BodyRead::Bytes(bytes) => {
                    incoming.count_bytes(self, &bytes)?;
                    // Some servers send spaces to show that they are there.
                    if !bytes.iter().all(u8::is_ascii_whitespace) {
                        incoming.watchdog.record_progress(self.clock.now());
                    }
                    body.extend_from_slice(&bytes);
                    if body.len() > MAX_UNSTREAMED_BYTES {
                        return Err(self.response_too_long(MAX_UNSTREAMED_BYTES));
                    }
                }
                BodyRead::End => break,
                end => return Err(incoming.failure_for(self, end)),
            }
        }
        let text = String::from_utf8_lossy(&body);
        self.dialect
            .decode_response(&self.name, &text, self.clock.now())
            .map_err(|failure| with_headers(failure, &incoming.headers))
    }

    fn response_too_long(&self, limit: usize) -> BoxedFailure {
        let message = format!("the answer is longer than {} MiB", limit >> 20);
        self.failure(IoKind::Truncated, &message)
    }

    /// Reads an error body within bounds: a slow or endless one must not hide the status.
    pub(super) async fn error_response(&self, response: transport::Response) -> BoxedFailure {
        let body = if (300..400).contains(&response.status) {
            redirect_message(&response.headers)
        } else {
            self.error_text(response.body).await
        };
        Box::new(error_body::parse(RawError {
            provider: &self.name,
            transport: failure::Transport::Http,
            status: Some(response.status),
            headers: &response.headers,
            body: &body,
            at: self.clock.now(),
        }))
    }

    pub(super) async fn error_text(&self, mut body: Body) -> String {
        let mut text = Vec::new();
        let read = async {
            while let Some(Ok(bytes)) = body.next().await {
                text.extend_from_slice(&bytes);
                if text.len() >= MAX_ERROR_BYTES {
                    break;
                }
            }
        };
        self.with_time_limit(ERROR_BODY_TIMEOUT, read).await;
        text.truncate(MAX_ERROR_BYTES);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the result, or `None` when the limit, if there is one, ends first.
    pub(super) async fn with_time_limit<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let deadline = (!limit.is_zero()).then(|| self.clock.now() + limit);
        self.with_deadline(deadline, work).await
    }

    async fn with_deadline<T>(
        &self,
        deadline: Option<Timestamp>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = maybe(deadline.map(|deadline| self.clock.sleep_until(deadline))) => None,
        }
    }

    pub(super) fn response_timeout(&self) -> BoxedFailure {
        let limit = Span(self.timeouts.headers);
        self.failure(IoKind::Timeout, &format!("no response came for {limit}"))
    }

    pub(super) fn transport_failure(&self, error: &transport::Error) -> BoxedFailure {
        self.failure(error.io, &error.message)
    }

    /// A whole response in place of the rest: its known part cannot be told, and the server would do the same again.
    fn unexpected_full_response(&self) -> BoxedFailure {
        let message = "the answer came as a whole in place of its rest";
        let failure = self.failure(IoKind::Protocol, message);
        Box::new(failure.with_retryable(false))
    }

    fn failure(&self, io: IoKind, message: &str) -> BoxedFailure {
        Box::new(Failure::thrown(&self.name, message, self.clock.now()).with_io(io))
    }
}

/// A redirect is not followed, because the key would go along.
fn redirect_message(headers: &[(String, String)]) -> String {
    let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("location");
    let Some((_, place)) = headers.iter().find(named) else {
        return String::new();
    };
    // The text before an `@` or after a `?` may be a secret.
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let place = match (place.split_once("://"), place.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => place.to_owned(),
    };
    format!("the server sends us to {place}; if that is right, make it the base URL")
}

/// Adds the headers of a successful response to the error in its body: they may state when to retry.
fn with_headers(failure: BoxedFailure, headers: &[(String, String)]) -> BoxedFailure {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    Box::new(failure.with_headers(headers))
}
