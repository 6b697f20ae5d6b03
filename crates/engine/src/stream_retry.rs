//! Retries for any fallible stream, with conservative defaults.
//!
//! A failure while the stream is created, or before its first item, is retried; a failure after the first item never
//! is, so no consumer sees an item twice and no side effect behind an item happens twice.
//! Not here: calls that are not streamed.

use crate::attempt::{self, Call, Driver, Ended, Interrupt, Work};
use crate::{BoxFuture, CancellationToken};
use futures_util::{Stream, StreamExt, stream};
use outlast_kernel::attempt::{Effects, Event, State, step};
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::{Remedies, RetryRules};
use outlast_kernel::failure::{Failure, IoKind};
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

impl From<Policy> for StreamRetry {
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
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
    options: impl Into<StreamRetry>,
    make: Make,
) -> impl Stream<Item = Result<Item, Error>>
where
    Make: FnMut() -> Made + Send,
    Made: Future<Output = Result<Items, Error>> + Send,
    Items: Stream<Item = Result<Item, Error>> + Send,
    Item: Send,
    Error: ToFailure + Send,
{
    let options = options.into();
    let rules = if options.enabled {
        RetryRules::from(&options.policy)
    } else {
        RetryRules::NONE
    };
    let retrying = RetryingStream {
        options,
        make,
        driver: Driver::new(State::new(rules, Prompt::default()), None),
        stage: Stage::NotStarted,
        start: Instant::now(),
    };
    stream::unfold(retrying, |mut retrying| async move {
        let item = retrying.next().await?;
        Some((item, retrying))
    })
}

/// A stream as a caller of the attempt driver, up to its first item.
struct RetryingStream<Make, Items, Item, Error> {
    options: StreamRetry,
    make: Make,
    driver: Driver,
    stage: Stage<Items, Item, Error>,
    start: Instant,
}

enum Stage<Items, Item, Error> {
    NotStarted,
    /// The last attempt failed.
    Failed(Error),
    /// The first item has come, or the stream has ended without one.
    Started(Option<Item>, Pin<Box<Items>>),
    Streaming(Pin<Box<Items>>),
    Done,
}

impl<Make, Made, Items, Item, Error> RetryingStream<Make, Items, Item, Error>
where
    Make: FnMut() -> Made + Send,
    Made: Future<Output = Result<Items, Error>> + Send,
    Items: Stream<Item = Result<Item, Error>> + Send,
    Item: Send,
    Error: ToFailure + Send,
{
    async fn next(&mut self) -> Option<Result<Item, Error>> {
        if matches!(self.stage, Stage::NotStarted) {
            let effects = step(self.driver.state_mut(), Event::Started);
            // The stage says how it ended.
            attempt::run(self, effects).await.ok();
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::NotStarted | Stage::Done => None,
            Stage::Failed(error) => Some(Err(error)),
            Stage::Started(first, items) => {
                let first = first?;
                self.stage = Stage::Streaming(items);
                Some(Ok(first))
            }
            Stage::Streaming(mut items) => {
                let next = items.next().await;
                if let Some(Ok(_)) = next {
                    self.stage = Stage::Streaming(items);
                }
                next
            }
        }
    }

    async fn first_item(&mut self) -> Result<Stage<Items, Item, Error>, Error> {
        let mut items = Box::pin((self.make)().await?);
        let first = items.next().await.transpose()?;
        Ok(Stage::Started(first, items))
    }

    fn fail(&mut self, error: Error) -> Effects {
        let now = self.now();
        let failure = self.driver.failed(error.to_failure(now), now);
        self.stage = Stage::Failed(error);
        if self.options.cancel.is_cancelled() {
            return step(self.driver.state_mut(), Event::Aborted { now });
        }
        let index = self.driver.state().chain().schedule_index();
        let policy = &self.options.policy;
        let event = Event::Failed {
            failure,
            scheduled_delay: policy.jittered_delay(index, (self.options.entropy)()),
            is_quick: false,
            remedies: Remedies::NONE,
            now,
        };
        step(self.driver.state_mut(), event)
    }
}

impl<'c, Make, Made, Items, Item, Error> Call<'c> for RetryingStream<Make, Items, Item, Error>
where
    Make: FnMut() -> Made + Send,
    Made: Future<Output = Result<Items, Error>> + Send,
    Items: Stream<Item = Result<Item, Error>> + Send,
    Item: Send,
    Error: ToFailure + Send,
{
    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// Returns the time since the stream was requested: the decisions need no calendar.
    fn now(&self) -> Timestamp {
        Timestamp::default() + Duration::from_millis(time::millis(self.start.elapsed()))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'c, ()> {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }

    fn attempt(&mut self) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async {
            Ok(match self.first_item().await {
                Ok(started) => {
                    self.stage = started;
                    step(self.driver.state_mut(), Event::Succeeded)
                }
                Err(error) => self.fail(error),
            })
        })
    }

    fn on_failure(&mut self, _: Failure) -> BoxFuture<'_, Result<Effects, Ended>> {
        // Nothing fails but attempts.
        Box::pin(async { Err(Ended) })
    }

    fn watch<'s>(&'s mut self, work: Work<'s>) -> BoxFuture<'s, Option<Interrupt>> {
        Box::pin(async {
            tokio::select! {
                biased;
                () = self.options.cancel.cancelled() => Some(Interrupt::AbortRetry),
                () = work => None,
            }
        })
    }
}
