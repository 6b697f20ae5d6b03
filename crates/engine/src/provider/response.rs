//! A response while it arrives: its kind, its whole body, its error, and the failures of its connection.
//!
//! Invariants: every wait has a limit; buffers are bounded; an error body that is slow or endless does not hide its status.
//! Not here: the events of a stream (see `deltas`, and the gateway's `relay`).

use super::Watchdog;
use crate::attempt::maybe;
use crate::transport::Error;
use crate::{BoxFuture, BoxStream, Clock};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::{Either, Pending};
use outlast_dialect::error_body::{self, RawError};
use outlast_dialect::relay::{BodyKind, MAX_HELD_BYTES, sniff_body};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, IoKind, Transport};
use outlast_kernel::time::Span;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a response in one document, in bytes: parsing it takes many times its size.
pub(super) const MAX_WHOLE_BYTES: usize = 16 << 20;
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a response.
pub trait Body: Send {
    /// Returns the next piece; `None` at the end. Cancel-safe.
    fn chunk(&mut self) -> impl Future<Output = Result<Option<Bytes>, Error>> + Send;
}

/// The body of a response of a [`transport::Transport`](crate::Transport).
pub(super) struct StreamBody(pub(super) BoxStream<'static, Result<Bytes, Error>>);

impl Body for StreamBody {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.next().await.transpose()
    }
}

/// Tells the time, and waits for one.
pub trait Timer: Sync {
    /// A wait.
    type Sleep: Future<Output = ()> + Send;

    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns a wait until that time; without one it never ends.
    fn sleep_until(&self, at: Option<Timestamp>) -> Self::Sleep;
}

/// A timer of each wait's own.
#[derive(Clone)]
pub(super) struct ClockTimer(pub(super) Arc<dyn Clock>);

impl Timer for ClockTimer {
    type Sleep = Either<BoxFuture<'static, ()>, Pending<()>>;

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep_until(&self, at: Option<Timestamp>) -> Self::Sleep {
        maybe(at.map(|at| self.0.sleep_until(at)))
    }
}

/// Reads the responses of a provider.
pub struct ResponseReader<'r, T> {
    /// The provider's name.
    pub provider: &'r str,
    /// The timer of all time limits.
    pub timer: &'r T,
}

impl<T: Timer> ResponseReader<'_, T> {
    /// Waits for the headers of a response, for at most `limit`; zero means no limit. A failure names the limit `stated`.
    pub async fn headers<R>(
        &self,
        sending: impl Future<Output = Result<R, Error>>,
        limit: Duration,
        stated: Duration,
    ) -> Result<R, Box<Failure>> {
        let deadline = (!limit.is_zero()).then(|| self.timer.now() + limit);
        match self.within(deadline, sending).await {
            Some(response) => response.map_err(|error| self.connection_failure(&error)),
            None => {
                let message = format!("no response came for {}", Span(stated));
                Err(self.failure(IoKind::Timeout, &message))
            }
        }
    }

    /// Returns the next piece of a body, within the limits of the watchdog.
    pub async fn piece(
        &self,
        body: &mut impl Body,
        watchdog: &Watchdog,
    ) -> Result<Option<Bytes>, Box<Failure>> {
        match self.within(watchdog.deadline(), body.chunk()).await {
            Some(piece) => piece.map_err(|error| self.connection_failure(&error)),
            None => {
                let standstill = Span(watchdog.stall_duration());
                let message = format!("the stream stood still for {standstill}");
                Err(self.failure(IoKind::Idle, &message))
            }
        }
    }

    /// Reads as much of a body as it takes to know its kind: its first bytes tell, whatever its headers call it. Blanks
    /// without end are a stream like any other.
    pub async fn kind(
        &self,
        body: &mut impl Body,
        watchdog: &mut Watchdog,
    ) -> Result<(BodyKind, BytesMut), Box<Failure>> {
        let mut head = BytesMut::new();
        loop {
            if let Some(kind) = sniff_body(&head) {
                return Ok((kind, head));
            }
            match self.piece(body, watchdog).await? {
                Some(piece) if head.len() <= MAX_HELD_BYTES => {
                    watchdog.record_keepalive(self.timer.now());
                    head.extend_from_slice(&piece);
                }
                rest => {
                    head.extend_from_slice(&rest.unwrap_or_default());
                    return Ok((BodyKind::EventStream, head));
                }
            }
        }
    }

    /// Reads a body in one document, behind a part that has arrived. Returns `false` with one that is too long to be kept,
    /// whose rest is not read.
    pub async fn whole(
        &self,
        body: &mut impl Body,
        mut head: BytesMut,
        watchdog: &mut Watchdog,
    ) -> Result<(Bytes, bool), Box<Failure>> {
        let mut first = None;
        while let Some(piece) = self.piece(body, watchdog).await? {
            // Some servers send blanks as keep-alives.
            if piece.iter().all(u8::is_ascii_whitespace) {
                watchdog.record_keepalive(self.timer.now());
            } else {
                watchdog.record_progress(self.timer.now());
            }
            match (first.take(), head.is_empty()) {
                // Most come in one piece, which need not be copied.
                (None, true) => first = Some(piece),
                (before, _) => {
                    head.extend_from_slice(&before.unwrap_or_default());
                    head.extend_from_slice(&piece);
                }
            }
            if head.len() > MAX_WHOLE_BYTES {
                return Ok((head.freeze(), false));
            }
        }
        Ok((first.unwrap_or_else(|| head.freeze()), true))
    }

    /// Reads an error body within bounds. Returns `false` if it goes on beyond the limit.
    pub async fn error_body(&self, body: &mut impl Body) -> (Bytes, bool) {
        let mut text = BytesMut::new();
        let reading = async {
            while text.len() < MAX_ERROR_BYTES {
                match body.chunk().await {
                    Ok(Some(piece)) => text.extend_from_slice(&piece),
                    Ok(None) | Err(_) => return true,
                }
            }
            false
        };
        let deadline = self.timer.now() + ERROR_BODY_TIMEOUT;
        let has_ended = self.within(Some(deadline), reading).await;
        (text.freeze(), has_ended.unwrap_or(true))
    }

    /// Returns the failure that an error response is.
    pub fn error(&self, status: u16, headers: &[(String, String)], body: &str) -> Failure {
        error_body::parse(RawError {
            provider: self.provider,
            transport: Transport::Http,
            status: Some(status),
            headers,
            body,
            at: self.timer.now(),
        })
    }

    /// Returns the failure of a connection.
    pub fn connection_failure(&self, error: &Error) -> Box<Failure> {
        self.failure(error.io, &error.message)
    }

    /// Returns a failure of that kind, as seen now.
    pub fn failure(&self, io: IoKind, message: &str) -> Box<Failure> {
        Box::new(Failure::thrown(self.provider, message, self.timer.now()).with_io(io))
    }

    /// Returns the result of the work, or `None` when the deadline comes first.
    async fn within<R>(
        &self,
        deadline: Option<Timestamp>,
        work: impl Future<Output = R>,
    ) -> Option<R> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.timer.sleep_until(deadline) => None,
        }
    }
}

/// Adds the headers of a successful response to the error in its body: they may state when to retry.
pub fn with_headers(failure: Box<Failure>, headers: &[(String, String)]) -> Box<Failure> {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    Box::new(failure.with_headers(headers))
}
