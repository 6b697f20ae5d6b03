//! Makes one request of an adapter, and reads its response to the last event or the failure.
//!
//! Invariant: a response without its terminal event is a failure.

use super::response::{MAX_ERROR_BYTES, MAX_WHOLE_BYTES, StreamBody, Timer, with_headers};
use super::{Adapter, Watchdog};
use crate::BoxStream;
use crate::transport::{self, Request};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_dialect::relay::BodyKind;
use outlast_dialect::{Delta, StreamActivity, StreamCursor, StreamDecoder, sse, stream_error};
use outlast_kernel::failure::{Failure, IoKind, Phase};

const MAX_EVENT_BYTES: usize = 16 << 20;
/// After decompression.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

pub(super) type Deltas = BoxStream<'static, Result<Delta, BoxedFailure>>;
type BoxedFailure = Box<Failure>;

/// A request and its response.
struct Exchange {
    adapter: Adapter,
    /// The place where it begins, if it is the rest of a completion.
    resume_token: Option<StreamCursor>,
    stage: Stage,
    phase: Phase,
}

enum Stage {
    Unsent(Request),
    Reading(Box<EventStream>),
    Done,
}

/// A stream of events that is being read.
struct EventStream {
    headers: Vec<(String, String)>,
    body: StreamBody,
    frames: sse::Decoder,
    reader: StreamDecoder,
    watchdog: Watchdog,
    received: usize,
}

/// Makes the request, for the rest of a completion if there is a cursor, and returns the deltas of its response.
pub(super) fn deltas(
    adapter: Adapter,
    request: Request,
    resume_token: Option<StreamCursor>,
) -> Deltas {
    let exchange = Exchange {
        adapter,
        resume_token,
        stage: Stage::Unsent(request),
        phase: Phase::BeforeHeaders,
    };
    let frames = stream::unfold(exchange, |mut exchange| async move {
        let frame = exchange.next().await?;
        Some((frame, exchange))
    });
    frames
        .map_ok(|deltas| stream::iter(deltas.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

impl Exchange {
    async fn next(&mut self) -> Option<Result<Vec<Delta>, BoxedFailure>> {
        // A flood of frames without content must not starve other tasks.
        tokio::task::consume_budget().await;
        let result = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Done => return None,
            Stage::Unsent(request) => self.send(request).await,
            Stage::Reading(events) => self.read_frame(events).await,
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

    async fn send(&mut self, request: Request) -> Result<Vec<Delta>, BoxedFailure> {
        let response = self.adapter.send(request).await?;
        self.phase = Phase::BeforeContent;
        if !(200..300).contains(&response.status) {
            return Err(self.adapter.error_response(response).await);
        }
        let (adapter, reader) = (&self.adapter, self.adapter.reader());
        let mut events = Box::new(EventStream {
            headers: response.headers,
            body: StreamBody(response.body),
            frames: sse::Decoder::new(MAX_EVENT_BYTES),
            reader: match &self.resume_token {
                Some(place) => adapter.dialect.decoder_after(&adapter.name, place),
                None => adapter.dialect.decoder(&adapter.name),
            },
            watchdog: Watchdog::new(adapter.timeouts, adapter.clock.now()),
            received: 0,
        });
        let (kind, head) = reader.kind(&mut events.body, &mut events.watchdog).await?;
        match kind {
            BodyKind::EventStream => {
                events.frames.push(&head);
                self.read_frame(events).await
            }
            BodyKind::Json => {
                events.watchdog.record_progress(self.adapter.clock.now());
                let whole = reader.whole(&mut events.body, head, &mut events.watchdog);
                let (body, is_complete) = whole.await?;
                if !is_complete {
                    return Err(self.adapter.response_too_long(MAX_WHOLE_BYTES));
                }
                self.decode_whole(&body, &events.headers)
            }
            BodyKind::Html => {
                let rest = self.adapter.error_text(&mut events.body).await;
                let page = String::from_utf8_lossy(&head) + rest.as_str();
                let now = self.adapter.clock.now();
                let failure = stream_error::not_an_event_stream(&self.adapter.name, &page, now);
                Err(with_headers(failure, &events.headers))
            }
        }
    }

    fn decode_whole(
        &self,
        body: &[u8],
        headers: &[(String, String)],
    ) -> Result<Vec<Delta>, BoxedFailure> {
        let (adapter, text) = (&self.adapter, String::from_utf8_lossy(body));
        let now = adapter.clock.now();
        let decoded = adapter.dialect.decode_response(&adapter.name, &text, now);
        let deltas = decoded.map_err(|failure| with_headers(failure, headers))?;
        if self.resume_token.is_none() {
            return Ok(deltas);
        }
        // Its known part cannot be told, and the server would do the same again.
        let message = "the answer came as a whole in place of its rest";
        let failure = adapter.reader().failure(IoKind::Protocol, message);
        Err(Box::new(failure.with_retryable(false)))
    }

    async fn read_frame(
        &mut self,
        mut events: Box<EventStream>,
    ) -> Result<Vec<Delta>, BoxedFailure> {
        loop {
            if let Some(deltas) = events.next_frame(&self.adapter)? {
                if !matches!(deltas.last(), Some(Delta::Stopped(_))) {
                    self.stage = Stage::Reading(events);
                }
                return Ok(deltas);
            }
            let reader = self.adapter.reader();
            match reader.piece(&mut events.body, &events.watchdog).await {
                Ok(Some(bytes)) => {
                    events.count_bytes(&self.adapter, &bytes)?;
                    events.frames.push(&bytes);
                }
                end => return events.finish(&self.adapter, end.err()),
            }
        }
    }
}

impl EventStream {
    /// Returns the deltas of the next complete frame, if there is one.
    fn next_frame(&mut self, adapter: &Adapter) -> Result<Option<Vec<Delta>>, BoxedFailure> {
        let now = adapter.clock.now();
        let frame = match self.frames.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => {
                let reader = adapter.reader();
                return Err(reader.failure(IoKind::Truncated, &error.to_string()));
            }
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
        self.watchdog
            .record_completion(self.reader.is_complete(), now);
        Ok(Some(deltas))
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

    /// Ends the response: it is complete, or it failed.
    fn finish(
        &mut self,
        adapter: &Adapter,
        failure: Option<BoxedFailure>,
    ) -> Result<Vec<Delta>, BoxedFailure> {
        let deltas = self.reader.finish();
        if !deltas.is_empty() {
            return Ok(deltas);
        }
        let (name, now) = (&adapter.name, adapter.clock.now());
        Err(failure.unwrap_or_else(|| match self.frames.stray() {
            stray if self.watchdog.has_begun() || stray.is_empty() => {
                stream_error::truncated_stream(name, now)
            }
            stray => stream_error::not_an_event_stream(name, &stray, now),
        }))
    }
}

impl Adapter {
    /// Sends a request; resolves when the headers of its response arrive.
    pub(super) async fn send(&self, request: Request) -> Result<transport::Response, BoxedFailure> {
        let (limits, sending) = (&self.timeouts, self.transport.send(request));
        let reader = self.reader();
        reader
            .headers(sending, limits.until_headers(), limits.headers)
            .await
    }

    fn response_too_long(&self, limit: usize) -> BoxedFailure {
        let message = format!("the answer is longer than {} MiB", limit >> 20);
        self.reader().failure(IoKind::Truncated, &message)
    }

    pub(super) async fn error_response(&self, response: transport::Response) -> BoxedFailure {
        let (status, headers) = (response.status, response.headers);
        let body = match status {
            300..400 => redirect_message(&headers),
            _ => self.error_text(&mut StreamBody(response.body)).await,
        };
        Box::new(self.reader().error(status, &headers, &body))
    }

    pub(super) async fn error_text(&self, body: &mut StreamBody) -> String {
        let (text, _) = self.reader().error_body(body).await;
        String::from_utf8_lossy(&text[..text.len().min(MAX_ERROR_BYTES)]).into_owned()
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
