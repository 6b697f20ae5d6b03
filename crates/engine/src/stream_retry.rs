//! Retries for any fallible stream, with conservative defaults.
//!
//! A failure while the stream is created, or before its first item, is retried; a failure after the first item never
//! is, so no consumer sees an item twice and no side effect behind an item happens twice.
//! Not here: calls that are not streamed.

use crate::attempt::{self, Call, Driver, Ended, Interrupt, Work};
use crate::transport::io_kind;
use crate::{BoxFuture, CancellationToken};
use futures_util::{Stream, StreamExt, stream};
use outlast_kernel::attempt::{Effects, Event, State, step};
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::{Remedies, RetryRules};
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::Policy;
use outlast_kernel::{Timestamp, time};
use std::future::ready;
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
        Failure::thrown("stream", &self.to_string(), now).with_io(io_kind(self))
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
    let rules = match options.enabled {
        true => RetryRules::from(&options.policy),
        false => RetryRules::NONE,
    };
    let mut beginning = Beginning {
        options,
        make,
        driver: Driver::new(State::new(rules, Prompt::default()), None),
        result: None,
        start: Instant::now(),
    };
    let begun = async move {
        let effects = step(beginning.driver.state_mut(), Event::Started);
        // The result says how it ended.
        attempt::run(&mut beginning, effects).await.ok();
        match beginning.result {
            Some(Ok((first, rest))) => {
                let items = stream::iter(first.map(Ok)).chain(rest);
                items.left_stream()
            }
            failed => stream::iter(failed.and_then(Result::err).map(Err)).right_stream(),
        }
    };
    stream::once(begun)
        .flatten()
        .scan(false, |has_failed, item| {
            let ends = std::mem::replace(has_failed, item.is_err());
            ready((!ends).then_some(item))
        })
}

/// The first item, unless the stream is empty, and the rest.
type Begun<Items, Item, Error> = Result<(Option<Item>, Pin<Box<Items>>), Error>;

/// The beginning of a stream, up to its first item, as a caller of the attempt driver.
struct Beginning<Make, Items, Item, Error> {
    options: StreamRetry,
    make: Make,
    driver: Driver,
    /// That of the last attempt.
    result: Option<Begun<Items, Item, Error>>,
    start: Instant,
}

impl<'c, Make, Made, Items, Item, Error> Call<'c> for Beginning<Make, Items, Item, Error>
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
            let begun = async {
                let mut items = Box::pin((self.make)().await?);
                let first = items.next().await.transpose()?;
                Ok::<_, Error>((first, items))
            };
            let result = begun.await;
            let now = self.now();
            let failure = result.as_ref().err().map(|error| error.to_failure(now));
            self.result = Some(result);
            let Some(failure) = failure else {
                return Ok(step(self.driver.state_mut(), Event::Succeeded));
            };
            let failure = self.driver.failed(failure, now);
            let options = &self.options;
            if options.cancel.is_cancelled() {
                return Ok(step(self.driver.state_mut(), Event::Aborted { now }));
            }
            let own = |index| options.policy.jittered_delay(index, (options.entropy)());
            Ok(self.driver.decide(failure, Remedies::NONE, own, now))
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
