//! What a person can do to a turn that runs or waits.

use crate::support::{Scripted, Then, count, hello, overloaded, policy, retries, run_with, text};
use outlast_kernel::event::{Body, Seal};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn retry_now_ends_the_wait_and_nothing_else() {
    let provider = Scripted::new([vec![Err(overloaded())], vec![Err(overloaded())], hello()]);
    let start = Instant::now();
    let (ended, events) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::RetryScheduled { attempt: 1, .. }) {
            handle.retry_now();
        }
    })
    .await;
    assert_eq!(ended.seal, Seal::Completed);
    assert_eq!(retries(&events), [(1, 5_000), (2, 10_000)]);
    assert_eq!(
        start.elapsed(),
        Duration::from_secs(10),
        "only the second wait was slept"
    );
}

#[tokio::test(start_paused = true)]
async fn aborting_the_retry_reports_the_error_that_was_held_back() {
    let provider = Scripted::new([vec![Err(overloaded())]]);
    let (ended, events) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::RetryScheduled { .. }) {
            handle.abort_retry();
        }
    })
    .await;
    assert_eq!(
        (ended.seal, provider.calls_made(), count(&events, "error")),
        (Seal::Error, 1, 1)
    );
    let expected = Body::RetryEnded {
        success: false,
        attempt: 1,
        error: Some("Retry cancelled".to_owned()),
    };
    assert_eq!(events[events.len() - 3].body, expected);
}

#[tokio::test(start_paused = true)]
async fn an_abort_closes_a_stream_that_says_nothing() {
    let provider = Scripted::with_ends([(vec![text("Hel")], Then::Hang)]);
    let (ended, events) = run_with(&provider, Some(&policy("overnight")), |event, handle| {
        if matches!(event.body, Body::TextDelta { .. }) {
            handle.abort();
        }
    })
    .await;
    assert_eq!((ended.seal, ended.text.as_str()), (Seal::Aborted, "Hel"));
    assert_eq!(count(&events, "error"), 0);
    assert_eq!(*provider.dropped.lock().unwrap(), 1, "the stream is closed");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_when_nothing_waits_is_forgotten() {
    let provider = Scripted::new([vec![Err(overloaded())], hello()]);
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
        (Seal::Completed, Duration::from_secs(5))
    );
}
