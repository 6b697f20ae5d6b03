//! Retry with backoff in a turn: eleven cases of the schedule and its end, and further ones.

use crate::support::{
    RecordingStrategy, ScriptedProvider, count, emitted, failure_item, hello, kinds, overloaded,
    policy, retries, run, run_with, stop, text, thrown,
};
use outlast_dialect::Delta;
use outlast_kernel::event::{Body, TurnStatus, Usage};
use outlast_kernel::failure::{Failure, Phase};
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn retries_on_schedule_then_succeeds() {
    let failing = || vec![failure_item(overloaded())];
    let provider = ScriptedProvider::new([failing(), failing(), failing(), hello()]);
    let retry = RecordingStrategy::overnight();
    let (ended, events) = run(&provider, Some(&retry)).await;
    assert_eq!(
        (ended.seal, ended.message.text().as_str()),
        (TurnStatus::Completed, "Hello")
    );
    assert_eq!(retry.slept_seconds(), [5, 10, 30]);
    assert_eq!(retries(&events), [(1, 5_000), (2, 10_000), (3, 30_000)]);
    assert_eq!(count(&events, "error"), 0, "the error stays suppressed");
}

#[tokio::test(start_paused = true)]
async fn full_schedule_is_exactly_21_sleeps_of_27105_seconds() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())]]);
    let retry = RecordingStrategy::overnight();
    let start = tokio::time::Instant::now();
    let (ended, events) = run(&provider, Some(&retry)).await;
    assert_eq!(ended.seal, TurnStatus::Error);
    assert_eq!(retry.slept_seconds().len(), 21);
    assert_eq!(retry.slept_seconds().iter().sum::<u64>(), 27_105);
    assert_eq!(start.elapsed(), Duration::from_secs(27_105));
    assert_eq!(
        (provider.calls_made(), count(&events, "retry_scheduled")),
        (22, 21)
    );
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_after_content() {
    let provider = ScriptedProvider::new([vec![text("Hel"), failure_item(overloaded())]]);
    let (ended, events) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!((ended.seal, provider.calls_made()), (TurnStatus::Error, 1));
    assert_eq!(
        (count(&events, "retry_scheduled"), count(&events, "error")),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_when_retryable_is_false() {
    let provider = ScriptedProvider::new([vec![failure_item(emitted(Some(false)))]]);
    let (ended, events) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!(
        (ended.seal, provider.calls_made(), count(&events, "error")),
        (TurnStatus::Error, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_when_retryable_is_absent() {
    let provider = ScriptedProvider::new([vec![failure_item(emitted(None))]]);
    let (ended, _) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!((ended.seal, provider.calls_made()), (TurnStatus::Error, 1));
}

#[tokio::test(start_paused = true)]
async fn giving_up_emits_the_final_error_once() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())]]);
    let (ended, events) = run(&provider, Some(&policy("session"))).await;
    assert_eq!(ended.seal, TurnStatus::Error);
    let tail = &kinds(&events)[events.len() - 3..];
    assert_eq!(tail, ["retry_ended", "error", "sealed"]);
    assert_eq!(
        (count(&events, "error"), count(&events, "retry_ended")),
        (1, 1)
    );
    let Body::Error {
        message,
        code,
        cause,
        ..
    } = &events[events.len() - 2].body
    else {
        panic!()
    };
    assert_eq!(message, &overloaded().message);
    assert_eq!((code.as_deref(), *cause), (Some("429"), Cause::Overloaded));
}

#[tokio::test(start_paused = true)]
async fn abort_in_sleep_seals_aborted_without_error() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())]]);
    let (ended, events) = run_with(
        &provider,
        Some(&RecordingStrategy::overnight()),
        |event, handle| {
            if matches!(event.body, Body::RetryScheduled { attempt: 2, .. }) {
                handle.abort();
            }
        },
    )
    .await;
    assert_eq!(
        (ended.seal, provider.calls_made()),
        (TurnStatus::Aborted, 2)
    );
    assert_eq!(count(&events, "error"), 0);
    let expected = Body::RetryEnded {
        success: false,
        attempt: 2,
        error: Some("Retry cancelled".to_owned()),
    };
    assert_eq!(events[events.len() - 2].body, expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_strategy_a_retryable_error_ends_the_turn() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())]]);
    let (ended, events) = run(&provider, None).await;
    assert_eq!((ended.seal, provider.calls_made()), (TurnStatus::Error, 1));
    assert_eq!(
        kinds(&events),
        ["start", "input", "attempt_started", "error", "sealed"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_thrown_error_is_retried_before_content() {
    let provider = ScriptedProvider::new([vec![failure_item(thrown())], hello()]);
    let (ended, _) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!(
        (ended.seal, provider.calls_made()),
        (TurnStatus::Completed, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_thrown_error_after_content_is_not_retried() {
    let provider = ScriptedProvider::new([vec![text("Hel"), failure_item(thrown())], hello()]);
    let (ended, _) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!(
        (
            ended.seal,
            ended.message.text().as_str(),
            provider.calls_made()
        ),
        (TurnStatus::Error, "Hel", 1)
    );
}

#[tokio::test(start_paused = true)]
async fn events_come_in_order() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())], hello()]);
    let (_, events) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!(
        kinds(&events),
        [
            "start",
            "input",
            "attempt_started",
            "retry_scheduled",
            "attempt_started",
            "text_delta",
            "step_complete",
            "retry_ended",
            "done",
            "sealed",
        ]
    );
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=10).collect::<Vec<u64>>());
    assert_eq!(events[9].time, events[0].time + Duration::from_secs(5));
}

// --- further cases ---

#[tokio::test(start_paused = true)]
async fn a_retry_says_when_it_will_happen() {
    let provider = ScriptedProvider::new([vec![failure_item(overloaded())], hello()]);
    let (_, events) = run(&provider, Some(&policy("session"))).await;
    let scheduled = &events[3];
    let Body::RetryScheduled {
        retry_at,
        max_attempts,
        cause,
        ..
    } = &scheduled.body
    else {
        panic!()
    };
    assert_eq!(*retry_at, scheduled.time + Duration::from_secs(2));
    assert_eq!((*max_attempts, *cause), (Some(3), Cause::Overloaded));
}

#[tokio::test(start_paused = true)]
async fn usage_is_not_content_and_sums_over_attempts() {
    let used = |input, output| {
        Ok(Delta::Usage(Usage {
            input,
            output,
            ..Usage::default()
        }))
    };
    let provider = ScriptedProvider::new([
        vec![used(10, 0), failure_item(overloaded())],
        vec![used(10, 0), text("Hello"), used(10, 5), stop()],
    ]);
    let (ended, _) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(
        ended.usage,
        Usage {
            input: 20,
            output: 5,
            ..Usage::default()
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_without_stopping_was_cut_off() {
    let provider = ScriptedProvider::new([vec![], hello()]);
    let (ended, events) = run(&provider, Some(&policy("session"))).await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    let Body::RetryScheduled { cause, .. } = &events[3].body else {
        panic!()
    };
    assert_eq!(*cause, Cause::TruncatedStream);
}

#[tokio::test(start_paused = true)]
async fn internal_error_is_not_retried() {
    let bug = thrown().with_verdict(Verdict::new(Cause::Internal, Scope::Process));
    let provider = ScriptedProvider::new([vec![failure_item(bug)]]);
    let (ended, _) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!((ended.seal, provider.calls_made()), (TurnStatus::Error, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stated_wait_replaces_a_shorter_delay() {
    let limited = overloaded().with_headers([("retry-after", "59")]);
    let provider = ScriptedProvider::new([vec![failure_item(limited)], hello()]);
    let start = tokio::time::Instant::now();
    run(&provider, Some(&policy("session"))).await;
    assert_eq!(start.elapsed(), Duration::from_secs(59));
}

#[tokio::test(start_paused = true)]
async fn failure_marked_after_content_is_not_retried() {
    let late = Failure {
        phase: Phase::AfterContent,
        ..overloaded()
    };
    let provider = ScriptedProvider::new([vec![failure_item(late)], hello()]);
    let (ended, _) = run(&provider, Some(&RecordingStrategy::overnight())).await;
    assert_eq!((ended.seal, provider.calls_made()), (TurnStatus::Error, 1));
}
