//! Retries for any fallible stream, with conservative defaults.
//!
//! A failure while the stream is created, or before its first item, is retried; a failure after the first item never
//! is, so no consumer sees an item twice and no side effect behind an item happens twice.
//! Not here: calls that are not streamed.

use crate::CancellationToken;
use futures_util::{Stream, StreamExt, stream};
use outlast_kernel::attempt::{Effect, Event, State, step};
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::{Remedies, RetryRules};
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind};
use outlast_kernel::policy::Policy;
use outlast_kernel::{Timestamp, time};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

/// An error that can describe itself as a [`Failure`].
///
/// State the known facts: a status, a code, an I/O kind, or an explicit `retryable`. An error without any is treated as
/// a transient network fault.
pub trait ToFailure {
    /// Returns the facts of the error, as seen at `now`.
    fn to_failure(&self, now: Timestamp) -> Failure;
}

impl ToFailure for std::io::Error {
    fn to_failure(&self, now: Timestamp) -> Failure {
        use std::io::ErrorKind;
        let io = match self.kind() {
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                IoKind::Reset
            }
            ErrorKind::ConnectionRefused | ErrorKind::NotConnected | ErrorKind::HostUnreachable => {
                IoKind::Connect
            }
            ErrorKind::TimedOut => IoKind::Timeout,
            ErrorKind::UnexpectedEof => IoKind::Truncated,
            _ => IoKind::Other,
        };
        Failure::thrown("stream", &self.to_string(), now).with_io(io)
    }
}

/// The retry options of a stream.
#[derive(Clone, Debug)]
pub struct StreamRetry {
    /// Whether the stream is retried at all.
    pub enabled: bool,
    /// The number and the pace of the retries.
    pub policy: Policy,
    /// Ends a wait, and with it the stream, with the error that caused the wait.
    pub cancel: CancellationToken,
    /// The source of jitter.
    pub entropy: fn() -> u64,
}

impl Default for StreamRetry {
    fn default() -> Self {
        Self {
            enabled: true,
            policy: Policy::conservative(),
            cancel: CancellationToken::new(),
            entropy: || fastrand::u64(..),
        }
    }
}

/// Returns a stream that is created again when its creation, or its first item, fails in a transient way.
///
/// ```
/// use futures_util::{StreamExt, stream};
/// use outlast_engine::stream_retry::{StreamRetry, retry_stream};
/// use std::io::{Error, ErrorKind};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut calls = 0;
/// let tokens = retry_stream(StreamRetry::default(), || {
///     calls += 1;
///     let failed = calls == 1;
///     async move {
///         if failed {
///             return Err(Error::from(ErrorKind::ConnectionReset));
///         }
///         Ok(stream::iter([Ok("Hello, "), Ok("world")]))
///     }
/// });
/// let text: Vec<&str> = tokens.map(Result::unwrap).collect().await;
/// assert_eq!(text.concat(), "Hello, world");
/// # }
/// ```
pub fn retry_stream<Make, Made, Items, Item, Error>(
    options: StreamRetry,
    make: Make,
) -> impl Stream<Item = Result<Item, Error>>
where
    Make: FnMut() -> Made,
    Made: Future<Output = Result<Items, Error>>,
    Items: Stream<Item = Result<Item, Error>>,
    Error: ToFailure,
{
    let rules = if options.enabled {
        RetryRules::from(&options.policy)
    } else {
        RetryRules::NONE
    };
    let mut state = State::new(rules, Prompt::default());
    step(&mut state, Event::Started);
    let retrying = RetryingStream {
        options,
        make,
        state,
        stage: Stage::NotStarted,
        start: Instant::now(),
    };
    stream::unfold(retrying, |mut retrying| async move {
        let item = retrying.next().await?;
        Some((item, retrying))
    })
}

struct RetryingStream<Make, Items> {
    options: StreamRetry,
    make: Make,
    state: State,
    stage: Stage<Items>,
    start: Instant,
}

enum Stage<Items> {
    NotStarted,
    AwaitingFirstItem(Pin<Box<Items>>),
    Streaming(Pin<Box<Items>>),
    Done,
}

impl<Make, Made, Items, Item, Error> RetryingStream<Make, Items>
where
    Make: FnMut() -> Made,
    Made: Future<Output = Result<Items, Error>>,
    Items: Stream<Item = Result<Item, Error>>,
    Error: ToFailure,
{
    async fn next(&mut self) -> Option<Result<Item, Error>> {
        loop {
            let error = match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Done => return None,
                Stage::NotStarted => match (self.make)().await {
                    Ok(items) => {
                        self.stage = Stage::AwaitingFirstItem(Box::pin(items));
                        continue;
                    }
                    Err(error) => error,
                },
                Stage::AwaitingFirstItem(mut items) => match items.next().await {
                    Some(Err(error)) => error,
                    first => return self.deliver(first, items),
                },
                Stage::Streaming(mut items) => {
                    let next = items.next().await;
                    return self.deliver(next, items);
                }
            };
            if !self.wait_before_retry(&error).await {
                return Some(Err(error));
            }
            self.stage = Stage::NotStarted;
        }
    }

    /// Hands an item through; after the first one, an error ends the stream.
    fn deliver(
        &mut self,
        item: Option<Result<Item, Error>>,
        items: Pin<Box<Items>>,
    ) -> Option<Result<Item, Error>> {
        if matches!(item, Some(Ok(_))) {
            self.stage = Stage::Streaming(items);
        }
        item
    }

    /// Waits before a retry; returns `false` when the failure is final.
    async fn wait_before_retry(&mut self, error: &Error) -> bool {
        if self.options.cancel.is_cancelled() {
            return false;
        }
        let now = self.now();
        let failure = ClassifiedFailure::new(error.to_failure(now));
        let index = self.state.chain().schedule_index();
        let scheduled_delay = self
            .options
            .policy
            .jittered_delay(index, (self.options.entropy)());
        let effects = step(
            &mut self.state,
            Event::Failed {
                failure,
                scheduled_delay,
                remedies: Remedies::NONE,
                now,
            },
        );
        let Some(Effect::SleepUntil(at)) = effects.last() else {
            return false;
        };
        let slept = tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => false,
            () = tokio::time::sleep(at.since(now)) => true,
        };
        let now = self.now();
        step(&mut self.state, Event::Woke { now });
        slept
    }

    /// Returns the time since the stream was requested: the decisions need no calendar.
    fn now(&self) -> Timestamp {
        Timestamp::default() + Duration::from_millis(time::millis(self.start.elapsed()))
    }
}
