//! Relays a response to the client, from its first content on.
//!
//! Invariants: every byte once, in order; no retry from here on; a stream that breaks off ends with one error that the
//! client can see, never as if it were whole. No more is read from the provider than the client takes: a slow client
//! costs time, not memory.

use super::call::Call;
use super::clients::KeepAliveAction;
use crate::call::attempt::{EventStream, UpstreamBody, UpstreamResponse};
use crate::observe::log::Outcome;
use crate::server::socket::Socket;
use bytes::Bytes;
use outlast_dialect::stream_error;
use outlast_engine::transport::Forwarded;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind, Phase};
use outlast_kernel::time::Span;
use std::io;
use std::time::Duration;

/// How long a complete answer is given for its afterword.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(2);
/// The time over which a stream's pace is measured.
const THROUGHPUT_WINDOW: Duration = Duration::from_secs(60);

/// What came next.
enum RelayEvent {
    Bytes(Bytes),
    End,
    Broke(Box<Failure>),
    ClientGone,
}

impl Call {
    /// Passes an answer on; what is left is the connection, if another request may come over it.
    pub(super) async fn pass_on(mut self: Box<Self>, answer: UpstreamResponse) -> Option<Socket> {
        self.first_byte = Some(self.shared.now().since(self.asked.begun));
        let (status, body) = (answer.status, answer.body);
        if !self.reply.has_begun() {
            let mut headers = answer.headers;
            self.happened().add_to(&mut headers);
            self.reply.head(status, &headers, answer.length);
        } else if self.asked.is_streamed && !matches!(body, UpstreamBody::Events(_)) {
            let message = "the provider answered with a document instead of a stream";
            let failure = self.broken(IoKind::Protocol, message);
            return self.break_off(&failure).await;
        }
        self.keeping.content_sent();
        let passed = match body {
            UpstreamBody::Whole(body) => self.reply.data(&[body]).await.map(|()| Ok(())),
            UpstreamBody::Opaque(ready, rest) => self.relay_opaque(ready, rest).await,
            UpstreamBody::Events(events) => Box::pin(self.relay_events(*events)).await,
        };
        match passed {
            Ok(Ok(())) => {
                self.finished(Outcome::Answered, Some(status.as_u16()));
                self.reply.end().await.ok()?
            }
            Ok(Err(failure)) => self.break_off(&failure).await,
            Err(_) => {
                self.finished(Outcome::Left, Some(status.as_u16()));
                None
            }
        }
    }

    /// Passes on what nobody looks at.
    pub(super) async fn relay_opaque(
        &mut self,
        ready: Vec<Bytes>,
        mut rest: Box<Forwarded>,
    ) -> io::Result<Result<(), Box<Failure>>> {
        self.reply.data(&ready).await?;
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = rest.chunk() => chunk,
                () = self.reply.gone() => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            match chunk {
                Ok(Some(bytes)) => self.reply.data(&[bytes]).await?,
                Ok(None) => return Ok(Ok(())),
                Err(error) => {
                    // Nothing may be put into what nobody has looked at.
                    self.is_mid_frame = true;
                    return Ok(Err(self.broken(error.io, &error.message)));
                }
            }
        }
    }

    /// Passes a stream of events on to its end.
    async fn relay_events(
        &mut self,
        mut events: EventStream,
    ) -> io::Result<Result<(), Box<Failure>>> {
        let mut pace = ThroughputMonitor::new(self.upstreams.least_throughput, self.shared.now());
        loop {
            if !events.ready.is_empty() {
                let began = self.shared.now();
                self.reply.data(&events.ready).await?;
                events.ready.clear();
                // What the client takes its time for is not the provider's.
                pace.since = pace.since + self.shared.now().since(began);
            }
            self.is_mid_frame = !events.relay.is_between_frames();
            if events.is_over {
                return Ok(Ok(()));
            }
            let now = self.shared.now();
            self.keeping.passed(now);
            match self.next(&mut events, &pace).await {
                RelayEvent::Bytes(bytes) => {
                    let now = self.shared.now();
                    pace.count(bytes.len(), now);
                    if let Err(failure) = events.take_in(bytes, now) {
                        return Ok(Err(failure));
                    }
                }
                RelayEvent::End => {
                    let ended = events.end(self.shared.now());
                    // What was sent on whole before the end is still the client's.
                    self.reply.data(&events.ready).await?;
                    return Ok(ended);
                }
                // Its afterword is all that was missing; Codex hangs up before it.
                RelayEvent::Broke(_) | RelayEvent::ClientGone if events.relay.is_complete() => {
                    return Ok(Ok(()));
                }
                // The model has said all. What is missing is not its own, and half a frame is of no use.
                RelayEvent::Broke(_) if events.relay.is_answered() => return Ok(Ok(())),
                RelayEvent::Broke(failure) => return Ok(Err(failure)),
                RelayEvent::ClientGone => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Waits for the next piece; a silence that the client would not bear is filled.
    async fn next(&mut self, events: &mut EventStream, pace: &ThroughputMonitor) -> RelayEvent {
        let began = self.shared.now();
        // However long the client took to take what came before, the provider is given its time.
        events.watchdog.alive(began);
        let deadline = match events.relay.is_complete() {
            true => Some(*events.ends_by.get_or_insert(began + TRAILER_TIMEOUT)),
            false => earlier(events.watchdog.deadline(), pace.deadline()),
        };
        if events.ends_by.is_some_and(|end| end <= began) {
            return RelayEvent::Broke(
                self.broken(IoKind::Idle, "the stream goes on after its end"),
            );
        }
        let shared = std::sync::Arc::clone(&self.shared);
        let mut late = std::pin::pin!(shared.alarms.at(deadline));
        loop {
            let beat = self.keeping.next().map(|(at, _)| at);
            let at = beat.filter(|_| events.relay.is_between_frames());
            tokio::select! {
                biased;
                chunk = events.upstream.chunk() => return match chunk {
                    Ok(Some(bytes)) => RelayEvent::Bytes(bytes),
                    Ok(None) => RelayEvent::End,
                    Err(error) => RelayEvent::Broke(self.broken(error.io, &error.message)),
                },
                () = self.reply.gone() => return RelayEvent::ClientGone,
                () = &mut late => {
                    let standstill = Span(self.shared.now().since(began));
                    let message = format!("the stream stood still for {standstill}");
                    return RelayEvent::Broke(self.broken(IoKind::Idle, &message));
                }
                () = shared.alarms.at(at) => {}
            }
            if let Some(KeepAliveAction::Beat(bytes)) = self.keeping.due(self.shared.now())
                && self.reply.data(&[Bytes::from_static(bytes)]).await.is_err()
            {
                return RelayEvent::ClientGone;
            }
        }
    }

    fn broken(&self, io: IoKind, message: &str) -> Box<Failure> {
        let provider = &self.upstreams.of(self.asked.route).name;
        let mut failure = match io {
            IoKind::Truncated => *stream_error::cut_off(provider, self.shared.now()),
            io => Failure::thrown(provider, message, self.shared.now()).with_io(io),
        };
        failure.phase = Phase::AfterContent;
        Box::new(failure)
    }

    /// Ends a response that broke off after content so that the client sees it.
    async fn break_off(mut self: Box<Self>, failure: &Failure) -> Option<Socket> {
        let judged = ClassifiedFailure::new(failure.clone());
        self.trouble.cause = Some(judged.verdict.cause);
        self.finished(Outcome::Broken, Some(200));
        if !self.asked.is_streamed || self.is_mid_frame {
            self.reply.reset();
            return None;
        }
        let message = format!("the answer broke off: {}", judged.failure.message);
        let frame = self
            .asked
            .dialect()
            .final_error_frame("api_error", 502, &message);
        self.reply.data(&[Bytes::from(frame)]).await.ok()?;
        self.reply.end().await.ok()?
    }
}

/// How fast a stream has to be.
struct ThroughputMonitor {
    least: u32,
    since: Timestamp,
    bytes: usize,
}

impl ThroughputMonitor {
    fn new(least: u32, now: Timestamp) -> Self {
        Self {
            least,
            since: now,
            bytes: 0,
        }
    }

    /// A window that brought enough is followed by another.
    fn count(&mut self, bytes: usize, now: Timestamp) {
        self.bytes += bytes;
        let enough = u64::from(self.least) * THROUGHPUT_WINDOW.as_secs();
        if self.bytes as u64 >= enough {
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// By when the window must have brought enough.
    fn deadline(&self) -> Option<Timestamp> {
        (self.least > 0).then(|| self.since + THROUGHPUT_WINDOW)
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
