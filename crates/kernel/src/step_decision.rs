//! Decides how a pipeline step handles a failed attempt.
//!
//! A pure function of the policy, the verdict and the step's status.
//! Invariants: the step does not wait again for a failure that its turn has waited for; it does not retry a failure
//! that cannot succeed; no cause exceeds the policy's attempts.
//! Not here: the breaker, which ends a step that fails the same way again and again (see `breaker`).

use crate::Timestamp;
use crate::policy::Policy;
use crate::time::Span;
use crate::verdict::{Cause, Class};
use std::fmt;
use std::time::Duration;

/// The status of a step after a failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepStatus {
    /// The attempts of this visit so far, this one included.
    pub attempts: u32,
    /// The transient failures in a row, this one included if it is transient.
    pub consecutive_transient: u32,
    /// Whether a turn has already spent its retries on it.
    pub turn_retries_exhausted: bool,
    /// Whether the step has a fallback.
    pub has_fallback: bool,
    /// Whether the step may never be started a second time.
    pub runs_once: bool,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The cause of the failure.
    pub cause: Cause,
    /// The stated time from which a retry makes sense, if any.
    pub not_before: Option<Timestamp>,
    /// The time of the failure.
    pub at: Timestamp,
}

/// The decision about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDecision {
    /// Retry at that time.
    RetryAt(Timestamp),
    /// Retry at once, with the failure explained.
    RetryNow,
    /// Continue with the fallback.
    FallBack,
    /// Give up.
    Stop(StopCause),
}

/// The reason for giving up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// A retry would fail the same way.
    CannotSucceed,
    /// A budget is spent, and there is no fallback.
    NoFallback,
    /// All attempts are used up.
    AttemptsExhausted(u32),
    /// The turn has waited as long as its policy allows.
    TurnRetriesExhausted,
    /// The server asks for a longer wait than the policy allows.
    StatedWaitTooLong {
        /// The wait that the server asks for.
        stated: Duration,
        /// The longest wait that is allowed.
        max: Duration,
    },
    /// The run's deadline comes first.
    DeadlineExceeded,
    /// The step may be started only once.
    RunsOnce,
    /// A person canceled it.
    Canceled,
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotSucceed => f.write_str("trying again cannot help"),
            Self::NoFallback => f.write_str("trying again cannot help, and there is no fallback"),
            Self::AttemptsExhausted(1) => f.write_str("the one attempt that it has is made"),
            Self::AttemptsExhausted(attempts) => write!(f, "all {attempts} attempts are made"),
            Self::TurnRetriesExhausted => f.write_str("its turn could not outlast it"),
            Self::StatedWaitTooLong { stated, max } => write!(
                f,
                "the stated wait of {} is longer than the policy's {}",
                Span(*stated),
                Span(*max)
            ),
            Self::DeadlineExceeded => {
                f.write_str("the run is over before the next attempt could begin")
            }
            Self::RunsOnce => f.write_str("it may be begun once only"),
            Self::Canceled => f.write_str("it was cancelled"),
        }
    }
}

/// Decides how to handle a failed attempt; `entropy` is any number, for policies that spread their delays.
///
/// ```
/// use outlast_kernel::step_decision::{AttemptFailure, StepDecision, StepStatus, decide};
/// use outlast_kernel::{Timestamp, policy::Policy, verdict::Cause};
/// use std::time::Duration;
///
/// let policy = Policy::named("patient")?;
/// let at = Timestamp::from_millis(0);
/// let failed = AttemptFailure { cause: Cause::RateLimited, not_before: None, at };
/// let standing = StepStatus { attempts: 1, consecutive_transient: 1, ..StepStatus::default() };
/// assert_eq!(decide(&policy, None, failed, standing, 0), StepDecision::RetryAt(at + Duration::from_secs(5)));
/// # Ok::<(), outlast_kernel::policy::Error>(())
/// ```
pub fn decide(
    policy: &Policy,
    deadline: Option<Timestamp>,
    failed: AttemptFailure,
    standing: StepStatus,
    entropy: u64,
) -> StepDecision {
    let fall_back_or = |why| match standing.has_fallback {
        true => StepDecision::FallBack,
        false => StepDecision::Stop(why),
    };
    match failed.cause.class() {
        Class::Canceled => StepDecision::Stop(StopCause::Canceled),
        _ if standing.runs_once => StepDecision::Stop(StopCause::RunsOnce),
        Class::Deterministic => StepDecision::Stop(StopCause::CannotSucceed),
        // A cost or token limit belongs to the run: no fallback may exceed it either.
        Class::BudgetExhausted if failed.cause == Cause::CeilingReached => {
            StepDecision::Stop(StopCause::CannotSucceed)
        }
        Class::BudgetExhausted => fall_back_or(StopCause::NoFallback),
        Class::ContractFailure | Class::TestFailure => match attempts_exhausted(policy, standing) {
            Some(why) => StepDecision::Stop(why),
            None => StepDecision::RetryNow,
        },
        Class::Transient if standing.turn_retries_exhausted => {
            fall_back_or(StopCause::TurnRetriesExhausted)
        }
        Class::Transient => match retry_at(policy, failed, standing, entropy) {
            Ok(until) if deadline.is_some_and(|deadline| until > deadline) => {
                StepDecision::Stop(StopCause::DeadlineExceeded)
            }
            Ok(until) => StepDecision::RetryAt(until),
            Err(why) => fall_back_or(why),
        },
    }
}

fn attempts_exhausted(policy: &Policy, standing: StepStatus) -> Option<StopCause> {
    let most = policy
        .retries()
        .map_or(u32::MAX, |retries| retries.saturating_add(1));
    (standing.attempts >= most).then_some(StopCause::AttemptsExhausted(standing.attempts))
}

/// Returns the time of the retry for a failure that can pass.
fn retry_at(
    policy: &Policy,
    failed: AttemptFailure,
    standing: StepStatus,
    entropy: u64,
) -> Result<Timestamp, StopCause> {
    if let Some(why) = attempts_exhausted(policy, standing) {
        return Err(why);
    }
    let index = standing.consecutive_transient.saturating_sub(1);
    let delay = policy.jittered_delay(index, entropy);
    let delay = delay.ok_or(StopCause::AttemptsExhausted(standing.attempts))?;
    let Some(not_before) = failed.not_before else {
        return Ok(failed.at + delay);
    };
    let stated = not_before.since(failed.at);
    let longest = policy.max_stated_wait.or(policy.sleep_budget);
    match longest {
        Some(max) if stated > max && !policy.wait_for_reset => {
            Err(StopCause::StatedWaitTooLong { stated, max })
        }
        _ => Ok(failed.at + delay.max(stated)),
    }
}

#[cfg(test)]
#[path = "step_decision_tests.rs"]
mod tests;
