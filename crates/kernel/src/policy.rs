//! Retry policies as values, delays as a pure function.
//!
//! Invariant: every delay is finite, not negative and at most [`MAX_DELAY`], at any attempt number.
//! Not here: whether a failure may be retried at all (see `decision`) and any waiting (see the engine).

use crate::Timestamp;
use crate::budget::{Chain, Prompt};
use crate::decision::{Decision, Remedies, RetryRules, Situation, decide};
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

mod backoff;
mod named;
mod overrides;

pub use backoff::{Backoff, Jitter};
pub use overrides::{BackoffKind, Overrides};

/// The longest computed delay, so that adding one to a time stays meaningful.
pub const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// An invalid policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No policy has that name.
    #[error("there is no policy `{name}`; there are {}", Policy::NAMES.join(", "))]
    UnknownName {
        /// The requested name.
        name: String,
    },
    /// A stepped schedule needs at least one step.
    #[error("a stepped backoff needs at least one delay in `steps`")]
    NoSteps,
    /// A field that the chosen backoff does not have.
    #[error("`{field}` has no meaning with a {backoff} backoff")]
    NoSuchField {
        /// The field that was given.
        field: &'static str,
        /// The backoff in force.
        backoff: BackoffKind,
    },
    /// A policy that could retry endlessly and without a pause.
    #[error(
        "a policy needs `max_attempts` or `sleep_budget` to end, and a delay above zero to use up the latter"
    )]
    Unbounded,
}

/// The targets that a policy allows to switch to instead of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// Another account of the same provider.
    pub account: bool,
    /// Another model.
    pub model: bool,
    /// Another provider.
    pub provider: bool,
}

impl Switches {
    /// No switch is allowed.
    pub const NONE: Self = Self {
        account: false,
        model: false,
        provider: false,
    };
    /// Any switch is allowed.
    pub const ALL: Self = Self {
        account: true,
        model: true,
        provider: true,
    };
}

/// A retry policy: the number, speed and duration of retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name of the policy.
    pub name: String,
    /// The growth of delays.
    pub backoff: Backoff,
    /// The longest computed delay.
    pub max_delay: Option<Duration>,
    /// The spread of delays.
    pub jitter: Jitter,
    /// Calls in all, the first one included; `None` leaves it to the sleep budget.
    pub max_attempts: Option<NonZeroU32>,
    /// The longest total sleep of one retry chain by its schedule.
    pub sleep_budget: Option<Duration>,
    /// The longest server-stated wait that is accepted; `None` leaves it to the sleep budget.
    pub max_stated_wait: Option<Duration>,
    /// Accepts a server's stated reset time, however far away it is.
    pub wait_for_reset: bool,
    /// The targets that may be switched to instead of waiting.
    pub may_switch: Switches,
    /// Retries quickly, outside the schedule, while other requests of the same gate succeed.
    pub quick_retries: bool,
}

impl Policy {
    /// Returns the delay before retry number `retry` (0 is the first), or `None` when the policy is spent.
    ///
    /// This is the nominal delay; see [`Policy::jittered_delay`] for the delay to sleep.
    pub fn delay_for(&self, retry: u32) -> Option<Duration> {
        if self
            .max_attempts
            .is_some_and(|attempts| retry >= attempts.get() - 1)
        {
            return None;
        }
        if self
            .sleep_budget
            .is_some_and(|budget| self.total_nanos(retry) > budget.as_nanos())
        {
            return None;
        }
        Some(self.capped_delay(retry))
    }

    /// Returns [`Policy::delay_for`], spread by the policy's jitter; `entropy` is any number, drawn by the caller.
    pub fn jittered_delay(&self, retry: u32, entropy: u64) -> Option<Duration> {
        self.delay_for(retry)
            .map(|delay| self.jitter.apply(delay, entropy))
    }

    /// Returns the number of retries that the policy allows; `None` when nothing bounds them within `u32`.
    pub fn retries(&self) -> Option<u32> {
        let by_attempts = self.max_attempts.map(|attempts| attempts.get() - 1);
        let by_sleep = self
            .sleep_budget
            .and_then(|budget| self.retries_within(budget));
        match (by_attempts, by_sleep) {
            (Some(attempts), Some(sleep)) => Some(attempts.min(sleep)),
            (bound, None) | (None, bound) => bound,
        }
    }

    /// Decides about a failure outside of a turn: `retry` is the number of retries so far, and there is no remedy but to wait.
    ///
    /// ```
    /// use outlast_kernel::decision::{Decision, GiveUp};
    /// use outlast_kernel::policy::Policy;
    /// use outlast_kernel::verdict::{Cause, Scope, Verdict};
    /// use outlast_kernel::Timestamp;
    /// use std::time::Duration;
    ///
    /// let (policy, now) = (Policy::standard(), Timestamp::default());
    /// let overloaded = Verdict::new(Cause::Overloaded, Scope::Provider);
    /// assert_eq!(policy.decide(&overloaded, 1, now), Decision::RetryAt(now + Duration::from_secs(2)));
    /// let refused = Verdict::new(Cause::Auth, Scope::Credential);
    /// assert_eq!(policy.decide(&refused, 0, now), Decision::GiveUp(GiveUp::NotRetryable));
    /// ```
    pub fn decide(&self, verdict: &Verdict, retry: u32, now: Timestamp) -> Decision {
        let mut chain = Chain::default();
        for (earlier, slept) in
            (0..retry).map_while(|earlier| Some((earlier, self.delay_for(earlier)?)))
        {
            chain.start_wait(slept, earlier + 1);
        }
        let situation = Situation {
            verdict,
            retryable: None,
            committed: false,
            scheduled_delay: self.delay_for(retry),
            remedies: Remedies::NONE,
            now,
        };
        decide(
            &RetryRules::from(self),
            &chain,
            &Prompt::default(),
            &situation,
        )
    }

    /// Returns the nominal delays of the policy, in order, at most `most` of them.
    pub fn delays(&self, most: usize) -> Vec<Duration> {
        (0..u32::MAX)
            .map_while(|retry| self.delay_for(retry))
            .take(most)
            .collect()
    }

    /// Returns the sum of the nominal delays 0 to `retry`.
    fn total_nanos(&self, retry: u32) -> u128 {
        self.backoff.total_nanos(retry, self.cap())
    }

    fn capped_delay(&self, retry: u32) -> Duration {
        self.backoff.delay(retry).min(self.cap())
    }

    fn cap(&self) -> Duration {
        self.max_delay.unwrap_or(MAX_DELAY).min(MAX_DELAY)
    }

    /// Returns the number of retries whose delays fit into `budget`, by bisection: sums only grow. Most numbers are
    /// small, so the search begins among those.
    fn retries_within(&self, budget: Duration) -> Option<u32> {
        let exceeds = |retry: u32| self.total_nanos(retry) > budget.as_nanos();
        if !exceeds(u32::MAX) {
            return None;
        }
        let (mut fits, mut spent) = (0_u32, 1_u32);
        while !exceeds(spent) {
            (fits, spent) = (spent, spent.saturating_mul(4));
        }
        while fits < spent {
            let middle = fits + (spent - fits) / 2;
            if exceeds(middle) {
                spent = middle;
            } else {
                fits = middle + 1;
            }
        }
        Some(spent)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
