//! The adapter for the Anthropic Messages API: one request, typed facts.

use super::{Provider, Timeouts};
use crate::transport::{self, Transport};
use crate::{BoxStream, Clock};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_dialect::error_body::{self, Seen};
use outlast_dialect::{Delta, Request, anthropic, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{self, Failure, IoKind, Phase};
use outlast_kernel::time::Span;
use std::sync::Arc;
use std::time::Duration;

const MAX_EVENT_BYTES: usize = 16 << 20;
const MAX_ERROR_BODY: usize = 64 << 10;
const ERROR_BODY_TIME: Duration = Duration::from_secs(5);

/// A provider that speaks the Anthropic Messages API over some transport.
#[derive(Clone)]
pub struct Anthropic {
    name: String,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    timeouts: Timeouts,
}

impl Anthropic {
    /// A provider of that name behind that transport.
    pub fn new(name: &str, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: name.to_owned(),
            transport,
            clock,
            timeouts: Timeouts::default(),
        }
    }

    /// The same provider with other limits.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream(&self, request: &Request) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        let request = transport::Request {
            path: anthropic::PATH,
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("anthropic-version", anthropic::VERSION.to_owned()),
            ],
            body: Bytes::from(anthropic::write::request(request)),
        };
        let answer = Answer {
            adapter: self.clone(),
            stage: Stage::Unsent(request),
            phase: Phase::BeforeHeaders,
            patience: self.patience(self.timeouts.first_event),
        };
        stream::unfold(answer, |mut answer| async move {
            let item = answer.next().await?;
            Some((item, answer))
        })
        .boxed()
    }
}

/// One answer on its way.
struct Answer {
    adapter: Anthropic,
    stage: Stage,
    phase: Phase,
    patience: Patience,
}

/// How long the next sign of life is waited for.
#[derive(Clone, Copy)]
struct Patience {
    since: Timestamp,
    limit: Duration,
}

enum Stage {
    Unsent(transport::Request),
    Reading(Box<Reader>),
    Over,
}

struct Reader {
    body: BoxStream<'static, Result<Bytes, transport::Error>>,
    frames: sse::Decoder,
    stream: anthropic::Stream,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Delta, Box<Failure>>> {
        let result = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => return None,
            Stage::Unsent(request) => match self.begin(request).await {
                Ok(reader) => self.read(reader).await,
                Err(failure) => Err(failure),
            },
            Stage::Reading(reader) => self.read(reader).await,
        };
        Some(result.map_err(|mut failure| {
            failure.phase = self.phase;
            failure
        }))
    }

    async fn begin(&mut self, request: transport::Request) -> Result<Box<Reader>, Box<Failure>> {
        let sent = self.adapter.transport.send(request);
        let response = match self.adapter.within(self.patience, sent).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => return Err(self.adapter.broken(&error)),
            None => return Err(self.adapter.silent(IoKind::Timeout, self.patience)),
        };
        self.phase = Phase::BeforeContent;
        if response.status != 200 {
            return Err(self.adapter.refused(response).await);
        }
        Ok(Box::new(Reader {
            body: response.body,
            frames: sse::Decoder::new(MAX_EVENT_BYTES),
            stream: anthropic::Stream::new(&self.adapter.name),
        }))
    }

    async fn read(&mut self, mut reader: Box<Reader>) -> Result<Delta, Box<Failure>> {
        loop {
            match reader.frames.next_event() {
                Ok(Some(event)) => {
                    self.patience = self.adapter.patience(self.adapter.timeouts.idle);
                    let Some(delta) = reader.stream.read(&event, self.adapter.clock.now())? else {
                        continue;
                    };
                    if delta.is_content() {
                        self.phase = Phase::AfterContent;
                    }
                    if !matches!(delta, Delta::Stopped(_)) {
                        self.stage = Stage::Reading(reader);
                    }
                    return Ok(delta);
                }
                Ok(None) => {}
                Err(error) => {
                    return Err(self.adapter.raised(IoKind::Protocol, &error.to_string()));
                }
            }
            match self.adapter.within(self.patience, reader.body.next()).await {
                Some(Some(Ok(bytes))) => reader.frames.push(&bytes),
                Some(Some(Err(error))) => return Err(self.adapter.broken(&error)),
                Some(None) => {
                    return Err(self
                        .adapter
                        .raised(IoKind::Truncated, "the stream ended before its last event"));
                }
                None => return Err(self.adapter.silent(IoKind::Idle, self.patience)),
            }
        }
    }
}

impl Anthropic {
    /// Reads an error body within bounds: a slow or endless one must not hide the status.
    async fn refused(&self, mut response: transport::Response) -> Box<Failure> {
        let mut body = Vec::new();
        let read = async {
            while let Some(Ok(bytes)) = response.body.next().await {
                body.extend_from_slice(&bytes);
                if body.len() >= MAX_ERROR_BODY {
                    break;
                }
            }
        };
        self.within(self.patience(ERROR_BODY_TIME), read).await;
        body.truncate(MAX_ERROR_BODY);
        Box::new(error_body::read(Seen {
            provider: &self.name,
            transport: failure::Transport::Http,
            status: Some(response.status),
            headers: &response.headers,
            body: &String::from_utf8_lossy(&body),
            at: self.clock.now(),
        }))
    }

    fn patience(&self, limit: Duration) -> Patience {
        Patience {
            since: self.clock.now(),
            limit,
        }
    }

    /// The result, or `None` when patience ends first.
    async fn within<T>(&self, patience: Patience, work: impl Future<Output = T>) -> Option<T> {
        if patience.limit.is_zero() {
            return Some(work.await);
        }
        let timer = self.clock.sleep_until(patience.since + patience.limit);
        tokio::select! {
            biased;
            result = work => Some(result),
            () = timer => None,
        }
    }

    fn broken(&self, error: &transport::Error) -> Box<Failure> {
        self.raised(error.io, &error.message)
    }

    fn silent(&self, io: IoKind, patience: Patience) -> Box<Failure> {
        self.raised(io, &format!("nothing came for {}", Span(patience.limit)))
    }

    fn raised(&self, io: IoKind, message: &str) -> Box<Failure> {
        Box::new(Failure::thrown(&self.name, message, self.clock.now()).with_io(io))
    }
}
