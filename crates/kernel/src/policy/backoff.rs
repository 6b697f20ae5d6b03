//! How delays grow from one retry to the next, and how they are spread.
//!
//! Sums are computed in closed form, so that the cost of a decision does not grow with the attempt number.

use super::LONGEST_DELAY;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How the delay grows with the number of the retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// The same delay each time.
    Fixed {
        /// That delay.
        delay: Duration,
    },
    /// `base`, twice `base`, three times `base`…
    Linear {
        /// The first delay and the increase.
        base: Duration,
    },
    /// `base`, then each `factor` times the one before.
    Exponential {
        /// The first delay.
        base: Duration,
        /// The growth.
        factor: u32,
    },
    /// The listed delays in order, then the last one again and again.
    Stepped {
        /// The delays; an empty list waits nothing.
        steps: Vec<Duration>,
    },
}

impl Backoff {
    /// The delay before retry number `retry` (0 is the first), at most [`LONGEST_DELAY`].
    pub fn delay(&self, retry: u32) -> Duration {
        let delay = match self {
            Self::Fixed { delay } => *delay,
            Self::Linear { base } => times(*base, u64::from(retry) + 1),
            Self::Exponential { base, factor } => match u64::from(*factor).checked_pow(retry) {
                Some(growth) => times(*base, growth),
                None if base.is_zero() => Duration::ZERO,
                None => LONGEST_DELAY,
            },
            Self::Stepped { steps } => {
                let index = usize::try_from(retry).unwrap_or(usize::MAX);
                steps
                    .get(index)
                    .or(steps.last())
                    .copied()
                    .unwrap_or_default()
            }
        };
        delay.min(LONGEST_DELAY)
    }

    /// The sum of the delays 0 to `retry`, each cut at `cap`; saturates.
    pub(super) fn total(&self, retry: u32, cap: Duration) -> Duration {
        let count = u64::from(retry) + 1;
        match self {
            Self::Fixed { delay } => times((*delay).min(cap), count),
            Self::Linear { base } => linear_total(*base, cap, count),
            // Both reach a constant delay after a few steps: sum those, multiply the rest.
            Self::Exponential { .. } => self.head_and_tail(64, count, cap),
            Self::Stepped { steps } => self.head_and_tail(steps.len() as u64, count, cap),
        }
    }

    fn head_and_tail(&self, head: u64, count: u64, cap: Duration) -> Duration {
        let mut sum = Duration::ZERO;
        for index in 0..count.min(head) {
            sum = sum.saturating_add(
                self.delay(u32::try_from(index).unwrap_or(u32::MAX))
                    .min(cap),
            );
        }
        let tail = self.delay(u32::MAX).min(cap);
        sum.saturating_add(times(tail, count.saturating_sub(head)))
    }
}

fn linear_total(base: Duration, cap: Duration, count: u64) -> Duration {
    if base.is_zero() {
        return Duration::ZERO;
    }
    let growing = u64::try_from(cap.as_nanos() / base.as_nanos())
        .unwrap_or(u64::MAX)
        .min(count);
    let triangle = u128::from(growing) * (u128::from(growing) + 1) / 2;
    let head = u64::try_from(triangle).map_or(Duration::MAX, |n| times(base, n));
    head.saturating_add(times(cap, count - growing))
}

fn times(duration: Duration, factor: u64) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(u128::from(factor));
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    match (u64::try_from(seconds), u32::try_from(rest)) {
        (Ok(seconds), Ok(rest)) => Duration::new(seconds, rest),
        _ => Duration::MAX,
    }
}

/// How delays are spread so that callers do not wake in step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Not at all.
    #[default]
    None,
    /// Anywhere between nothing and the delay.
    Full,
    /// Half of the delay for sure, the other half by chance.
    Equal,
}

impl Jitter {
    /// The delay to sleep: never longer than `delay`. `entropy` is read as a fraction of `u64::MAX`.
    pub fn apply(self, delay: Duration, entropy: u64) -> Duration {
        match self {
            Self::None => delay,
            Self::Full => fraction(delay, entropy),
            Self::Equal => delay / 2 + fraction(delay - delay / 2, entropy),
        }
    }
}

fn fraction(delay: Duration, entropy: u64) -> Duration {
    let nanos = (delay.min(LONGEST_DELAY).as_nanos() * (u128::from(entropy) + 1)) >> 64;
    u64::try_from(nanos).map_or(delay, Duration::from_nanos)
}
