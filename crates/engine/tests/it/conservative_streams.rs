//! Conservative retries of a stream: nineteen cases of the retry rules, and three of the defaults.

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use outlast_engine::CancellationToken;
use outlast_engine::stream_retry::{StreamRetry, ToFailure, retry_stream};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::{Jitter, Overrides, Policy};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Authentication,
    Validation,
    Execution,
    Connection,
    Status(u16),
    Retryable(bool),
    Plain,
}

impl ToFailure for Fault {
    fn to_failure(&self, now: Timestamp) -> Failure {
        let thrown = Failure::thrown("model", &format!("{self:?}"), now);
        match self {
            Self::Authentication | Self::Validation | Self::Execution => {
                thrown.with_retryable(false)
            }
            Self::Connection => thrown.with_retryable(true),
            Self::Retryable(retryable) => thrown.with_retryable(*retryable),
            Self::Status(status) => Failure::http("model", *status, "failed", now),
            Self::Plain => thrown,
        }
    }
}

type Items = BoxStream<'static, Result<&'static str, Fault>>;

/// The collected items, the number of times the stream was created, and the time of each.
struct Outcome {
    items: Vec<Result<&'static str, Fault>>,
    made_at: Vec<Duration>,
}

impl Outcome {
    fn calls(&self) -> usize {
        self.made_at.len()
    }
}

/// Collects a stream whose creation fails `failures` times with `fault`, and which then yields one item.
async fn collect(options: StreamRetry, failures: usize, fault: Fault) -> Outcome {
    collect_from(options, move |call| {
        if call < failures {
            Err(fault)
        } else {
            Ok(stream::iter([Ok("token")]).boxed())
        }
    })
    .await
}

async fn collect_from(
    options: StreamRetry,
    make: impl Fn(usize) -> Result<Items, Fault> + Send + Sync,
) -> Outcome {
    let start = Instant::now();
    let made_at = Mutex::new(Vec::new());
    let items = retry_stream(options, || {
        let mut made_at = made_at.lock().unwrap();
        made_at.push(start.elapsed());
        let result = make(made_at.len() - 1);
        async move { result }
    });
    let items = Box::pin(items).collect().await;
    Outcome {
        items,
        made_at: made_at.into_inner().unwrap(),
    }
}

/// Returns options with the given number of attempts and no jitter.
fn exact(attempts: u32) -> StreamRetry {
    let overrides = Overrides {
        max_attempts: NonZeroU32::new(attempts),
        jitter: Some(Jitter::None),
        ..Overrides::default()
    };
    StreamRetry {
        policy: Policy::conservative().with_overrides(overrides).unwrap(),
        ..StreamRetry::default()
    }
}

async fn is_retried(fault: Fault) -> bool {
    collect(exact(2), 1, fault).await.calls() == 2
}

#[tokio::test(start_paused = true)]
async fn success_needs_one_attempt() {
    let outcome = collect(exact(3), 0, Fault::Plain).await;
    assert_eq!(
        (outcome.items, outcome.made_at.len()),
        (vec![Ok("token")], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn retries_up_to_the_maximum() {
    let outcome = collect(exact(3), 2, Fault::Status(503)).await;
    assert_eq!((outcome.calls(), outcome.items), (3, vec![Ok("token")]));
}

#[tokio::test(start_paused = true)]
async fn gives_the_error_after_the_maximum() {
    let outcome = collect(exact(3), 9, Fault::Status(503)).await;
    assert_eq!(
        (outcome.calls(), outcome.items),
        (3, vec![Err(Fault::Status(503))])
    );
}

#[tokio::test(start_paused = true)]
async fn delays_grow_exponentially() {
    let outcome = collect(exact(4), 3, Fault::Plain).await;
    assert_eq!(
        outcome.made_at,
        [0, 500, 1_500, 3_500].map(Duration::from_millis)
    );
}

#[tokio::test(start_paused = true)]
async fn delays_stop_growing_at_the_maximum() {
    let outcome = collect(exact(6), 5, Fault::Plain).await;
    assert_eq!(
        outcome.made_at,
        [0, 500, 1_500, 3_500, 7_500, 11_500].map(Duration::from_millis)
    );
}

#[tokio::test(start_paused = true)]
async fn an_aborted_call_is_not_retried() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = collect(StreamRetry { cancel, ..exact(3) }, 9, Fault::Plain).await;
    assert_eq!(
        (outcome.calls(), outcome.items),
        (1, vec![Err(Fault::Plain)])
    );
}

#[tokio::test(start_paused = true)]
async fn one_attempt_means_no_retry() {
    let outcome = collect(exact(1), 9, Fault::Plain).await;
    assert_eq!(
        (outcome.calls(), outcome.items),
        (1, vec![Err(Fault::Plain)])
    );
}

#[tokio::test(start_paused = true)]
async fn full_jitter_stays_between_nothing_and_the_delay() {
    for entropy in [|| 0, || u64::MAX] as [fn() -> u64; 2] {
        let outcome = collect(
            StreamRetry {
                entropy,
                ..StreamRetry::default()
            },
            1,
            Fault::Plain,
        )
        .await;
        let wait = outcome.made_at[1];
        assert_eq!(
            wait,
            Duration::from_millis(if entropy() == 0 { 0 } else { 500 })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn full_jitter_at_its_midpoint_is_half_of_the_delay() {
    let outcome = collect(
        StreamRetry {
            entropy: || u64::MAX / 2,
            ..StreamRetry::default()
        },
        1,
        Fault::Plain,
    )
    .await;
    assert_eq!(outcome.made_at[1], Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn an_authentication_error_is_not_retried() {
    assert!(!is_retried(Fault::Authentication).await);
}

#[tokio::test(start_paused = true)]
async fn a_validation_error_is_not_retried() {
    assert!(!is_retried(Fault::Validation).await);
}

#[tokio::test(start_paused = true)]
async fn an_execution_error_is_not_retried() {
    assert!(!is_retried(Fault::Execution).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_error_is_retried() {
    assert!(is_retried(Fault::Connection).await);
}

#[tokio::test(start_paused = true)]
async fn a_4xx_is_not_retried() {
    for status in [400, 401, 403, 404, 422] {
        assert!(!is_retried(Fault::Status(status)).await, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_5xx_is_retried() {
    for status in [500, 502, 503, 504, 529] {
        assert!(is_retried(Fault::Status(status)).await, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_is_retried() {
    assert!(is_retried(Fault::Status(429)).await);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_says_it_is_not_retryable_never_is() {
    assert!(!is_retried(Fault::Retryable(false)).await);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_says_it_is_retryable_is() {
    assert!(is_retried(Fault::Retryable(true)).await);
}

#[tokio::test(start_paused = true)]
async fn a_plain_error_is_retried() {
    assert!(is_retried(Fault::Plain).await);
}

// --- the defaults ---

#[test]
fn the_defaults_are_conservative() {
    let StreamRetry {
        enabled, policy, ..
    } = StreamRetry::default();
    assert!(enabled);
    assert_eq!(policy.max_attempts.unwrap().get(), 2);
    assert_eq!(policy.backoff.delay(0), Duration::from_millis(500));
    assert_eq!(policy.max_delay, Some(Duration::from_secs(4)));
    assert_eq!(policy.jitter, Jitter::Full);
}

#[tokio::test(start_paused = true)]
async fn error_after_first_token_runs_body_and_tool_once() {
    let tool_runs = Arc::new(Mutex::new(0));
    let outcome = collect_from(StreamRetry::default(), |_| {
        let tool_runs = Arc::clone(&tool_runs);
        let body = stream::iter([Ok("token"), Err(Fault::Status(503))]);
        Ok(body
            .inspect(move |item| *tool_runs.lock().unwrap() += u32::from(item.is_ok()))
            .boxed())
    })
    .await;
    assert_eq!(
        (outcome.calls(), outcome.items),
        (1, vec![Ok("token"), Err(Fault::Status(503))])
    );
    assert_eq!(*tool_runs.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_set_up_failure_is_retried() {
    let outcome = collect(StreamRetry::default(), 1, Fault::Status(503)).await;
    assert_eq!((outcome.calls(), outcome.items), (2, vec![Ok("token")]));
}

// --- further cases ---

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_first_item_is_retried() {
    let outcome = collect_from(exact(2), |call| {
        let items = if call == 0 {
            vec![Err(Fault::Status(503))]
        } else {
            vec![Ok("a"), Ok("b")]
        };
        Ok(stream::iter(items).boxed())
    })
    .await;
    assert_eq!(
        (outcome.calls(), outcome.items),
        (2, vec![Ok("a"), Ok("b")])
    );
}

#[tokio::test(start_paused = true)]
async fn abort_during_wait_returns_error_without_call() {
    let options = exact(2);
    let cancel = options.cancel.clone();
    let start = Instant::now();
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(collect(options, 9, Fault::Plain), cancelling);
    assert_eq!(
        (outcome.calls(), outcome.items),
        (1, vec![Err(Fault::Plain)])
    );
    assert_eq!(start.elapsed(), Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn when_disabled_nothing_is_retried() {
    let outcome = collect(
        StreamRetry {
            enabled: false,
            ..exact(2)
        },
        1,
        Fault::Plain,
    )
    .await;
    assert_eq!(
        (outcome.calls(), outcome.items),
        (1, vec![Err(Fault::Plain)])
    );
}
