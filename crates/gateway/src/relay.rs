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
use outlast_engine::provider::response::Body as _;
use outlast_engine::transport::Forwarded;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind, Phase};
use outlast_kernel::time::Span;
use std::io;
use std::time::Duration;

/// The window over which the throughput of a stream is measured.
const THROUGHPUT_WINDOW: Duration = Duration::from_secs(60);

/// The next event of a stream that is being relayed.
enum RelayEvent {
    Bytes(Bytes),
    End,
    Failed(Box<Failure>),
    ClientDisconnected,
}

impl Call {
    /// Relays a response; returns the connection, if it can take another request.
    pub(super) async fn relay_response(
        mut self: Box<Self>,
        upstream: UpstreamResponse,
    ) -> Option<Socket> {
        self.first_byte = Some(self.shared.now().since(self.request.received_at));
        let (status, body) = (upstream.status, upstream.body);
        if !self.response.has_started() {
            let mut headers = upstream.headers;
            self.response_metadata().add_to(&mut headers);
            self.response.head(status, &headers, upstream.length);
        } else if self.request.is_streamed && !matches!(body, UpstreamBody::Events(_)) {
            let message = "the provider answered with a document instead of a stream";
            let failure = self.failure_after_content(IoKind::Protocol, message);
            return self.abort_response(&failure).await;
        }
        self.keepalive.content_sent();
        let passed = match body {
            UpstreamBody::Whole(body) => self.response.data(&[body]).await.map(|()| Ok(())),
            UpstreamBody::Opaque(ready, rest) => self.relay_opaque(ready, rest).await,
            UpstreamBody::Events(events) => Box::pin(self.relay_events(*events)).await,
        };
        match passed {
            Ok(Ok(())) => {
                self.record_finish(Outcome::Answered, Some(status.as_u16()));
                self.response.finish().await.ok()?
            }
            Ok(Err(failure)) => self.abort_response(&failure).await,
            Err(_) => {
                self.record_finish(Outcome::Left, Some(status.as_u16()));
                None
            }
        }
    }

    /// Relays a body that the gateway does not parse.
    pub(super) async fn relay_opaque(
        &mut self,
        ready: Vec<Bytes>,
        mut rest: Box<Forwarded>,
    ) -> io::Result<Result<(), Box<Failure>>> {
        self.response.data(&ready).await?;
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = rest.chunk() => chunk,
                () = self.response.disconnected() => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            match chunk {
                Ok(Some(bytes)) => self.response.data(&[bytes]).await?,
                Ok(None) => return Ok(Ok(())),
                Err(error) => {
                    // The gateway may insert nothing into a body that it has not parsed.
                    self.is_mid_frame = true;
                    return Ok(Err(self.failure_after_content(error.io, &error.message)));
                }
            }
        }
    }

    /// Relays a stream of events to its end.
    async fn relay_events(
        &mut self,
        mut events: EventStream,
    ) -> io::Result<Result<(), Box<Failure>>> {
        let mut pace = ThroughputMonitor::new(self.upstreams.min_throughput, self.shared.now());
        loop {
            if !events.ready.is_empty() {
                let began = self.shared.now();
                self.response.data(&events.ready).await?;
                events.ready.clear();
                // The time that the client takes does not count against the provider.
                pace.window_start = pace.window_start + self.shared.now().since(began);
            }
            self.is_mid_frame = !events.relay.is_between_frames();
            if events.has_ended {
                return Ok(Ok(()));
            }
            let now = self.shared.now();
            self.keepalive.record_activity(now);
            match self.next_relay_event(&mut events, &pace).await {
                RelayEvent::Bytes(bytes) => {
                    let now = self.shared.now();
                    pace.record(bytes.len(), now);
                    if let Err(failure) = events.push(bytes, now) {
                        return Ok(Err(failure));
                    }
                }
                RelayEvent::End => {
                    let ended = events.finish(self.shared.now());
                    // Events that were complete before the end are still the client's.
                    self.response.data(&events.ready).await?;
                    return Ok(ended);
                }
                // Only trailing events are missing; Codex disconnects before them.
                RelayEvent::Failed(_) | RelayEvent::ClientDisconnected
                    if events.relay.is_complete() =>
                {
                    return Ok(Ok(()));
                }
                // The model's output is complete. The client can do without the rest, and with half a frame nothing.
                RelayEvent::Failed(_) if events.relay.is_content_complete() => return Ok(Ok(())),
                RelayEvent::Failed(failure) => return Ok(Err(failure)),
                RelayEvent::ClientDisconnected => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Waits for the next piece; fills a silence that the client would not tolerate.
    async fn next_relay_event(
        &mut self,
        events: &mut EventStream,
        pace: &ThroughputMonitor,
    ) -> RelayEvent {
        let began = self.shared.now();
        // The provider has all of its time, however long the client took for the last piece.
        events.watchdog.record_keepalive(began);
        let is_complete = events.relay.is_complete();
        events.watchdog.record_completion(is_complete, began);
        let pace_end = pace.deadline().filter(|_| !is_complete);
        let deadline = (events.watchdog.deadline().into_iter())
            .chain(pace_end)
            .min();
        if is_complete && deadline.is_some_and(|end| end <= began) {
            let message = "the stream goes on after its end";
            return RelayEvent::Failed(self.failure_after_content(IoKind::Idle, message));
        }
        let shared = std::sync::Arc::clone(&self.shared);
        let mut late = std::pin::pin!(shared.timers.sleep_until(deadline));
        loop {
            let beat = self.keepalive.next_action().map(|(at, _)| at);
            let at = beat.filter(|_| events.relay.is_between_frames());
            tokio::select! {
                biased;
                chunk = events.upstream.chunk() => return match chunk {
                    Ok(Some(bytes)) => RelayEvent::Bytes(bytes),
                    Ok(None) => RelayEvent::End,
                    Err(error) => RelayEvent::Failed(self.failure_after_content(error.io, &error.message)),
                },
                () = self.response.disconnected() => return RelayEvent::ClientDisconnected,
                () = &mut late => {
                    let standstill = Span(self.shared.now().since(began));
                    let message = format!("the stream stood still for {standstill}");
                    return RelayEvent::Failed(self.failure_after_content(IoKind::Idle, &message));
                }
                () = shared.timers.sleep_until(at) => {}
            }
            if let Some(KeepAliveAction::SendHeartbeat(bytes)) =
                self.keepalive.take_due(self.shared.now())
                && self
                    .response
                    .data(&[Bytes::from_static(bytes)])
                    .await
                    .is_err()
            {
                return RelayEvent::ClientDisconnected;
            }
        }
    }

    fn failure_after_content(&self, io: IoKind, message: &str) -> Box<Failure> {
        let provider = &self.upstreams.for_route(self.request.route).name;
        let mut failure = match io {
            IoKind::Truncated => *stream_error::truncated_stream(provider, self.shared.now()),
            io => Failure::thrown(provider, message, self.shared.now()).with_io(io),
        };
        failure.phase = Phase::AfterContent;
        Box::new(failure)
    }

    /// Ends a response that broke off after content so that the client notices.
    async fn abort_response(mut self: Box<Self>, failure: &Failure) -> Option<Socket> {
        let judged = ClassifiedFailure::new(failure.clone());
        self.failure_state.last_cause = Some(judged.verdict.cause);
        self.record_finish(Outcome::Broken, Some(200));
        if !self.request.is_streamed || self.is_mid_frame {
            self.response.reset();
            return None;
        }
        let message = format!("the answer broke off: {}", judged.failure.message);
        let frame = self
            .request
            .dialect()
            .final_error_frame("api_error", 502, &message);
        self.response.data(&[Bytes::from(frame)]).await.ok()?;
        self.response.finish().await.ok()?
    }
}

/// Measures the throughput of a stream.
struct ThroughputMonitor {
    min_bytes_per_second: u32,
    window_start: Timestamp,
    bytes: usize,
}

impl ThroughputMonitor {
    fn new(min_bytes_per_second: u32, now: Timestamp) -> Self {
        Self {
            min_bytes_per_second,
            window_start: now,
            bytes: 0,
        }
    }

    /// Counts bytes. A window with enough of them is followed by another.
    fn record(&mut self, bytes: usize, now: Timestamp) {
        self.bytes += bytes;
        let enough = u64::from(self.min_bytes_per_second) * THROUGHPUT_WINDOW.as_secs();
        if self.bytes as u64 >= enough {
            (self.window_start, self.bytes) = (now, 0);
        }
    }

    /// Returns the time at which the window must have had enough bytes.
    fn deadline(&self) -> Option<Timestamp> {
        (self.min_bytes_per_second > 0).then(|| self.window_start + THROUGHPUT_WINDOW)
    }
}
