//! User control over a turn that runs or waits.

use crate::support::{
    AfterItems, ScriptedProvider, count, failure_item, hello, overloaded, policy, retries,
    run_with, text,
};
use outlast_engine::strategy::Aborted;
use outlast_engine::{BoxFuture, CancellationToken, RetryStrategy};
use outlast_kernel::event::{Body, TurnStatus};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn retry_now_ends_the_wait_and_nothing_else() {
    let provider = ScriptedProvider::new([
        vec![failure_item(overloaded())],
        vec![failure_item(overloaded())],
        hello(),
    ]);
    let start = Instant::now();
    let (ended, events) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::RetryScheduled { attempt: 1, .. }) {
            handle.retry_now();
        }
    })
    .await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(retries(&events), [(1, 5_000), (2, 10_000)]);
    assert_eq!(
        start.elapsed(),
        Duration::from_secs(10),
        "only the second wait was slept"
    );
}

#[tokio::test(start_paused = true)]
async fn aborting_the_retry_reports_the_error_that_was_held_back() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())]]);
    let (ended, events) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::RetryScheduled { .. }) {
            handle.abort_retry();
        }
    })
    .await;
    assert_eq!(
        (ended.seal, provider.calls_made(), count(&events, "error")),
        (TurnStatus::Error, 1, 1)
    );
    let expected = Body::RetryEnded {
        success: false,
        attempt: 1,
        error: Some("Retry cancelled".to_owned()),
    };
    assert_eq!(events[events.len() - 3].body, expected);
}

#[tokio::test(start_paused = true)]
async fn abort_closes_hanging_stream() {
    let provider = ScriptedProvider::with_ends([(vec![text("Hel")], AfterItems::Hang)]);
    let (ended, events) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::TextDelta { .. }) {
            handle.abort();
        }
    })
    .await;
    assert_eq!(
        (ended.seal, ended.message.text().as_str()),
        (TurnStatus::Aborted, "Hel")
    );
    assert_eq!(count(&events, "error"), 0);
    assert_eq!(*provider.dropped.lock().unwrap(), 1, "the stream is closed");
}

#[tokio::test(start_paused = true)]
async fn wait_commands_without_a_wait_are_ignored() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())], hello()]);
    let start = Instant::now();
    let (ended, _) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::Start { .. }) {
            handle.retry_now();
            handle.abort_retry();
        }
    })
    .await;
    assert_eq!(
        (ended.seal, start.elapsed()),
        (TurnStatus::Completed, Duration::from_secs(5))
    );
}

/// A strategy whose sleep is aborted from outside of the turn.
struct AbortedSleep;

impl RetryStrategy for AbortedSleep {
    fn delay_for(&self, _: u32) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn sleep<'a>(
        &'a self,
        _: Duration,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        Box::pin(async { Err(Aborted) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_aborted_seals_the_turn_aborted() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())]]);
    let (ended, events) = run_with(&provider, Some(&AbortedSleep), |_, _| {}).await;
    assert_eq!(
        (ended.seal, provider.calls_made()),
        (TurnStatus::Aborted, 1)
    );
    assert_eq!(count(&events, "error"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_aborted_before_it_starts_makes_no_call() {
    let provider = ScriptedProvider::new([hello()]);
    let (ended, _) = run_with(&provider, None, |event, handle| {
        if matches!(event.body, Body::Start { .. }) {
            handle.abort();
        }
    })
    .await;
    assert_eq!(
        (ended.seal, provider.calls_made()),
        (TurnStatus::Aborted, 0)
    );
}
