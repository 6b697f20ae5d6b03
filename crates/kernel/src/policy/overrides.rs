//! Explicit fields that override those of a named policy, one by one.

use super::{Backoff, Error, Jitter, Policy, Switches};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// The shape of a backoff, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackoffKind {
    /// See [`Backoff::Fixed`].
    Fixed,
    /// See [`Backoff::Linear`].
    Linear,
    /// See [`Backoff::Exponential`].
    Exponential,
    /// See [`Backoff::Stepped`].
    Stepped,
}

impl fmt::Display for BackoffKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential => "exponential",
            Self::Stepped => "stepped",
        })
    }
}

/// Fields to override; `None` keeps the policy's own.
///
/// ```
/// use outlast_kernel::policy::{Overrides, Policy};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let more = Overrides { max_attempts: NonZeroU32::new(5), ..Overrides::default() };
/// let policy = Policy::named("standard")?.with_overrides(more)?;
/// assert_eq!(policy.delays(10), [1, 2, 4, 8].map(Duration::from_secs));
/// # Ok::<(), outlast_kernel::policy::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Calls in all, the first one included.
    pub max_attempts: Option<NonZeroU32>,
    /// The shape of the backoff.
    pub backoff: Option<BackoffKind>,
    /// The first delay.
    pub base_delay: Option<Duration>,
    /// The growth of an exponential backoff.
    pub factor: Option<NonZeroU32>,
    /// The delays of a stepped backoff.
    pub steps: Option<Vec<Duration>>,
    /// The longest computed delay and the longest stated one that is accepted; zero means no limit.
    pub max_delay: Option<Duration>,
    /// The spread of delays.
    pub jitter: Option<Jitter>,
    /// The longest total sleep of a retry chain.
    pub sleep_budget: Option<Duration>,
    /// The longest stated wait that is accepted; by default the longest computed one, if that is overridden.
    pub max_stated_wait: Option<Duration>,
    /// The targets that may be switched to.
    pub may_switch: Option<Switches>,
    /// Accepts a stated reset time, however far away it is.
    pub wait_for_reset: Option<bool>,
}

impl Policy {
    /// Returns this policy with some fields replaced.
    pub fn with_overrides(self, overrides: Overrides) -> Result<Self, Error> {
        let backoff = overridden_backoff(&self.backoff, &overrides)?;
        let (max_delay, longest_stated_wait) = match overrides.max_delay {
            Some(Duration::ZERO) => (None, None),
            Some(ceiling) => (Some(ceiling), Some(ceiling)),
            None => (self.max_delay, self.max_stated_wait),
        };
        let policy = Self {
            backoff,
            max_delay,
            max_stated_wait: overrides.max_stated_wait.or(longest_stated_wait),
            may_switch: overrides.may_switch.unwrap_or(self.may_switch),
            jitter: overrides.jitter.unwrap_or(self.jitter),
            max_attempts: overrides.max_attempts.or(self.max_attempts),
            sleep_budget: overrides.sleep_budget.or(self.sleep_budget),
            wait_for_reset: overrides.wait_for_reset.unwrap_or(self.wait_for_reset),
            ..self
        };
        if policy.retries().is_none() {
            Err(Error::Unbounded)
        } else {
            Ok(policy)
        }
    }
}

fn overridden_backoff(current: &Backoff, overrides: &Overrides) -> Result<Backoff, Error> {
    let kind = overrides.backoff.unwrap_or(kind_of(current));
    let base = overrides.base_delay.unwrap_or_else(|| current.delay(0));
    let unused = match kind {
        BackoffKind::Stepped => [
            ("base_delay", overrides.base_delay.is_some()),
            ("factor", overrides.factor.is_some()),
        ],
        BackoffKind::Exponential => [("steps", overrides.steps.is_some()), ("", false)],
        BackoffKind::Fixed | BackoffKind::Linear => [
            ("steps", overrides.steps.is_some()),
            ("factor", overrides.factor.is_some()),
        ],
    };
    if let Some((field, _)) = unused.into_iter().find(|(_, given)| *given) {
        return Err(Error::NoSuchField {
            field,
            backoff: kind,
        });
    }
    Ok(match kind {
        BackoffKind::Fixed => Backoff::Fixed { delay: base },
        BackoffKind::Linear => Backoff::Linear { base },
        BackoffKind::Exponential => Backoff::Exponential {
            base,
            factor: overrides.factor.map_or(factor_of(current), NonZeroU32::get),
        },
        BackoffKind::Stepped => Backoff::Stepped {
            steps: steps(current, overrides.steps.as_deref())?,
        },
    })
}

fn kind_of(backoff: &Backoff) -> BackoffKind {
    match backoff {
        Backoff::Fixed { .. } => BackoffKind::Fixed,
        Backoff::Linear { .. } => BackoffKind::Linear,
        Backoff::Exponential { .. } => BackoffKind::Exponential,
        Backoff::Stepped { .. } => BackoffKind::Stepped,
    }
}

fn factor_of(backoff: &Backoff) -> u32 {
    if let Backoff::Exponential { factor, .. } = backoff {
        *factor
    } else {
        2
    }
}

fn steps(current: &Backoff, given: Option<&[Duration]>) -> Result<Vec<Duration>, Error> {
    match (given, current) {
        (Some([]), _) => Err(Error::NoSteps),
        (Some(steps), _) => Ok(steps.to_vec()),
        (None, Backoff::Stepped { steps }) => Ok(steps.clone()),
        (None, _) => Err(Error::NoSteps),
    }
}
