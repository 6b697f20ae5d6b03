//! One answer on its way: from the request that was sent to the last event, or to what went wrong.
//!
//! Invariants: an answer without its terminal event is a failure; every wait has its limit; what is read is bounded.

use super::Adapter;
use super::watchdog::Watchdog;
use crate::BoxStream;
use crate::transport;
use bytes::Bytes;
use futures_util::StreamExt;
use outlast_dialect::error_body::{self, RawError};
use outlast_dialect::{Delta, StreamActivity, StreamCursor, StreamDecoder, sse, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{self, Failure, IoKind, Phase};
use outlast_kernel::time::Span;
use std::time::Duration;

const MAX_EVENT_BYTES: usize = 16 << 20;
/// After decompression.
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// An answer that comes as a whole is read as a whole, which takes many times its size.
const MAX_UNSTREAMED_BYTES: usize = 16 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a complete answer is given for its afterword.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct ResponseReader {
    adapter: Adapter,
    /// Where it begins, if it is the rest of one.
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
    /// Since when only the afterword is missing.
    complete_at: Option<Timestamp>,
}

type Body = BoxStream<'static, Result<Bytes, transport::Error>>;
type BoxedFailure = Box<Failure>;

/// What the body did next.
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

    /// The rest of an answer.
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
        // A flood of frames that say nothing must not keep others from their turn.
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
        match incoming.detect_content(&self.adapter).await? {
            Content::Events(head) => {
                incoming.frames.push(&head);
                self.read_frame(incoming).await
            }
            Content::Json(head) => {
                let deltas = self.adapter.read_whole(*incoming, head).await?;
                match self.resume_token {
                    Some(_) => Err(self.adapter.unexpected_full_response()),
                    None => Ok(deltas),
                }
            }
            Content::Page(head) => {
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
                BodyRead::Bytes(bytes) => incoming.push_bytes(&self.adapter, &bytes)?,
                came => return incoming.finish(&self.adapter, came),
            }
        }
    }
}

/// What a body is, with as much of it as it took to see that.
enum Content {
    Events(Bytes),
    Json(Bytes),
    Page(Bytes),
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

    /// What comes: the body's own first bytes say it, whatever its headers call it.
    async fn detect_content(&mut self, adapter: &Adapter) -> Result<Content, BoxedFailure> {
        let mut head = Vec::new();
        loop {
            let first = head.iter().find(|byte: &&u8| !byte.is_ascii_whitespace());
            if let Some(first) = first.copied() {
                let head = Bytes::from(head);
                return Ok(match first {
                    b'{' | b'[' => Content::Json(head),
                    b'<' => Content::Page(head),
                    _ => Content::Events(head),
                });
            }
            match self.read_body(adapter).await {
                BodyRead::Bytes(bytes) => {
                    self.count_bytes(adapter, &bytes)?;
                    head.extend_from_slice(&bytes);
                }
                BodyRead::End => return Ok(Content::Events(Bytes::from(head))),
                came => return Err(self.failure_for(adapter, came)),
            }
        }
    }

    /// The next frame that has come in whole.
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
        // What follows an end takes it back.
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

    fn push_bytes(&mut self, adapter: &Adapter, bytes: &Bytes) -> Result<(), BoxedFailure> {
        self.count_bytes(adapter, bytes)?;
        self.frames.push(bytes);
        Ok(())
    }

    /// Takes note of bytes that came: they are a sign of life, and there may not be too many.
    fn count_bytes(&mut self, adapter: &Adapter, bytes: &Bytes) -> Result<(), BoxedFailure> {
        self.received += bytes.len();
        if self.received > MAX_RESPONSE_BYTES {
            return Err(adapter.response_too_long(MAX_RESPONSE_BYTES));
        }
        self.watchdog.record_keepalive(adapter.clock.now());
        Ok(())
    }

    /// There is no more: either the answer is complete, or this is how it failed.
    fn finish(&mut self, adapter: &Adapter, came: BodyRead) -> Result<Vec<Delta>, BoxedFailure> {
        let deltas = self.reader.finish();
        if !deltas.is_empty() {
            return Ok(deltas);
        }
        Err(self.failure_for(adapter, came))
    }

    fn failure_for(&self, adapter: &Adapter, came: BodyRead) -> BoxedFailure {
        let now = adapter.clock.now();
        match came {
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
                came => return Err(incoming.failure_for(self, came)),
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

    /// The result, or `None` when the limit, if there is one, ends first.
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
        let Some(deadline) = deadline else {
            return Some(work.await);
        };
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.clock.sleep_until(deadline) => None,
        }
    }

    pub(super) fn response_timeout(&self) -> BoxedFailure {
        let limit = Span(self.timeouts.headers);
        self.failure(IoKind::Timeout, &format!("no response came for {limit}"))
    }

    pub(super) fn transport_failure(&self, error: &transport::Error) -> BoxedFailure {
        self.failure(error.io, &error.message)
    }

    /// Which part of a whole answer was heard before is not known, and asked again the server would do the same.
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
    // What stands before an `@` or after a `?` may be a secret.
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let place = match (place.split_once("://"), place.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => place.to_owned(),
    };
    format!("the server sends us to {place}; if that is right, make it the base URL")
}

/// What a response that went well said in its headers belongs to the error that it then brought.
fn with_headers(failure: BoxedFailure, headers: &[(String, String)]) -> BoxedFailure {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    Box::new(failure.with_headers(headers))
}
