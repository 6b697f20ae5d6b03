use super::*;
use crate::policy::Overrides;
use proptest::prelude::*;
use std::num::NonZeroU32;

const AT: Timestamp = Timestamp::from_millis(1_000_000);

fn failed(cause: Cause) -> AttemptFailure {
    AttemptFailure {
        cause,
        not_before: None,
        at: AT,
    }
}

fn after(attempts: u32, consecutive_transient: u32) -> StepStatus {
    StepStatus {
        attempts,
        consecutive_transient,
        ..StepStatus::default()
    }
}

fn policy(name: &str) -> Policy {
    Policy::named(name).unwrap()
}

/// Returns the waits in milliseconds of a step that meets only transient failures.
fn waits(policy: &Policy) -> Vec<u64> {
    let next = |attempt| {
        decide(
            policy,
            None,
            failed(Cause::RateLimited),
            after(attempt, attempt),
            7,
        )
    };
    (1..100)
        .map(next)
        .map_while(|next| match next {
            StepDecision::RetryAt(until) => Some(crate::time::millis(until.since(AT))),
            _ => None,
        })
        .collect()
}

#[test]
fn transient_failure_waits_by_policy_schedule() {
    assert_eq!(waits(&policy("none")), [0_u64; 0]);
    assert_eq!(waits(&policy("standard")), [1000, 2000]);
    assert_eq!(waits(&policy("aggressive")), [200, 400, 800, 1600]);
    assert_eq!(waits(&policy("patient")), [5000, 15_000]);
}

#[test]
fn wait_is_capped_for_any_number_of_attempts() {
    let many = Overrides {
        max_attempts: NonZeroU32::new(1000),
        ..Overrides::default()
    };
    let policy = policy("standard").with_overrides(many).unwrap();
    for attempt in [35, 64, 65, 128, 999] {
        let next = decide(
            &policy,
            None,
            failed(Cause::Network),
            after(attempt, attempt),
            0,
        );
        assert_eq!(
            next,
            StepDecision::RetryAt(AT + Duration::from_secs(30)),
            "{attempt}"
        );
    }
}

#[test]
fn step_decision_follows_failure_class() {
    let next = |cause| decide(&policy("standard"), None, failed(cause), after(1, 1), 0);
    assert!(matches!(next(Cause::Timeout), StepDecision::RetryAt(_)));
    assert!(matches!(next(Cause::Stalled), StepDecision::RetryAt(_)));
    assert_eq!(
        next(Cause::Auth),
        StepDecision::Stop(StopCause::CannotSucceed)
    );
    assert_eq!(
        next(Cause::MissingBinary),
        StepDecision::Stop(StopCause::CannotSucceed)
    );
    assert_eq!(
        next(Cause::ContextOverflow),
        StepDecision::Stop(StopCause::NoFallback)
    );
    assert_eq!(
        next(Cause::CeilingReached),
        StepDecision::Stop(StopCause::CannotSucceed)
    );
    assert_eq!(next(Cause::SchemaMismatch), StepDecision::RetryNow);
    assert_eq!(next(Cause::TestsFailed), StepDecision::RetryNow);
    assert_eq!(
        next(Cause::Interrupted),
        StepDecision::Stop(StopCause::Canceled)
    );
    assert_eq!(
        next(Cause::DeadlinePassed),
        StepDecision::Stop(StopCause::Canceled)
    );
}

#[test]
fn overflow_or_usage_limit_falls_back_but_ceiling_stops() {
    let standing = StepStatus {
        has_fallback: true,
        ..after(1, 1)
    };
    let next = |cause| decide(&policy("none"), None, failed(cause), standing, 0);
    assert_eq!(next(Cause::ContextOverflow), StepDecision::FallBack);
    assert_eq!(next(Cause::UsageLimit), StepDecision::FallBack);
    assert_eq!(
        next(Cause::CeilingReached),
        StepDecision::Stop(StopCause::CannotSucceed)
    );
    assert_eq!(
        next(Cause::Auth),
        StepDecision::Stop(StopCause::CannotSucceed)
    );
}

#[test]
fn step_does_not_retry_after_turn_exhausted_retries() {
    let standing = StepStatus {
        turn_retries_exhausted: true,
        ..after(1, 1)
    };
    let next = decide(
        &policy("standard"),
        None,
        failed(Cause::Overloaded),
        standing,
        0,
    );
    assert_eq!(next, StepDecision::Stop(StopCause::TurnRetriesExhausted));
}

#[test]
fn step_that_runs_once_is_never_retried() {
    let standing = StepStatus {
        runs_once: true,
        ..after(1, 1)
    };
    for cause in [Cause::Network, Cause::TestsFailed, Cause::ContextOverflow] {
        let next = decide(&policy("standard"), None, failed(cause), standing, 0);
        assert_eq!(next, StepDecision::Stop(StopCause::RunsOnce), "{cause}");
    }
}

#[test]
fn step_honours_stated_wait_up_to_policy_limit() {
    let stated = |seconds| AttemptFailure {
        not_before: Some(AT + Duration::from_secs(seconds)),
        ..failed(Cause::RateLimited)
    };
    let next = |seconds| decide(&policy("standard"), None, stated(seconds), after(1, 1), 0);
    assert_eq!(
        next(20),
        StepDecision::RetryAt(AT + Duration::from_secs(20))
    );
    assert_eq!(next(0), StepDecision::RetryAt(AT + Duration::from_secs(1)));
    let StepDecision::Stop(why) = next(3600) else {
        panic!()
    };
    assert_eq!(
        why.to_string(),
        "the stated wait of 1h is longer than the policy's 30s"
    );
}

#[test]
fn step_does_not_wait_past_run_deadline() {
    let deadline = Some(AT + Duration::from_millis(999));
    let next = decide(
        &policy("standard"),
        deadline,
        failed(Cause::Network),
        after(1, 1),
        0,
    );
    assert_eq!(next, StepDecision::Stop(StopCause::DeadlineExceeded));
}

proptest! {
    #[test]
    fn no_step_has_more_attempts_than_its_policy_allows(
        causes in proptest::collection::vec(0..Cause::ALL.len(), 1..60),
        most in 1u32..12,
    ) {
        let overrides = Overrides { max_attempts: NonZeroU32::new(most), ..Overrides::default() };
        let policy = policy("aggressive").with_overrides(overrides).unwrap();
        let (mut attempts, mut streak) = (0, 0);
        for cause in causes {
            let cause = Cause::ALL[cause];
            attempts += 1;
            streak = if cause.class() == Class::Transient { streak + 1 } else { 0 };
            let next = decide(&policy, None, failed(cause), after(attempts, streak), 0);
            if matches!(next, StepDecision::Stop(_)) {
                break;
            }
        }
        prop_assert!(attempts <= most);
    }
}
