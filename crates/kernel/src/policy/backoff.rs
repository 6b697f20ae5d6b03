//! The growth of delays from one retry to the next, and their spread.
//!
//! Sums are computed in closed form, so that the cost of a decision does not grow with the attempt number.

use super::MAX_DELAY;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The growth of the delay with the number of the retry.
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
    /// `base`, then each delay is the one before times `factor`.
    Exponential {
        /// The first delay.
        base: Duration,
        /// The factor of growth.
        factor: u32,
    },
    /// The listed delays in order, then the last one again and again.
    Stepped {
        /// The delays; an empty list waits nothing.
        steps: Vec<Duration>,
    },
}

impl Backoff {
    /// Returns the delay before retry number `retry` (0 is the first), at most [`MAX_DELAY`].
    pub fn delay(&self, retry: u32) -> Duration {
        match self {
            Self::Fixed { delay } => (*delay).min(MAX_DELAY),
            Self::Linear { base } => bounded(base.as_nanos().saturating_mul(u128::from(retry) + 1)),
            Self::Exponential { base, factor } => {
                let growth = u128::from(*factor).saturating_pow(retry);
                bounded(base.as_nanos().saturating_mul(growth))
            }
            Self::Stepped { steps } => {
                let index = usize::try_from(retry).unwrap_or(usize::MAX);
                steps
                    .get(index)
                    .or(steps.last())
                    .copied()
                    .unwrap_or_default()
                    .min(MAX_DELAY)
            }
        }
    }

    /// Returns the sum of the delays 0 to `retry`, each cut at `cap`, in nanoseconds. `cap` is at most [`MAX_DELAY`],
    /// so that no sum can overflow.
    pub(super) fn total_nanos(&self, retry: u32, cap: Duration) -> u128 {
        let (count, cap) = (u128::from(retry) + 1, cap.as_nanos());
        match self {
            Self::Fixed { delay } => delay.as_nanos().min(cap) * count,
            Self::Linear { base } => {
                let base = base.as_nanos();
                let growing = cap.checked_div(base).unwrap_or(count).min(count);
                base * growing * (growing + 1) / 2 + cap * (count - growing)
            }
            Self::Exponential { .. } => self.exponential_total(count, cap),
            Self::Stepped { steps } => {
                let head = steps
                    .iter()
                    .take(usize::try_from(count).unwrap_or(usize::MAX));
                let sum: u128 = head.map(|step| step.as_nanos().min(cap)).sum();
                let last = steps.last().map_or(0, Duration::as_nanos).min(cap);
                sum + last * count.saturating_sub(steps.len() as u128)
            }
        }
    }

    /// Returns the total of an exponential backoff. Sixty-four doublings reach any cap: those are summed, the rest is
    /// constant.
    fn exponential_total(&self, count: u128, cap: u128) -> u128 {
        const GROWING: u32 = 64;
        let growing = u32::try_from(count).unwrap_or(GROWING).min(GROWING);
        let sum: u128 = (0..growing)
            .map(|retry| self.delay(retry).as_nanos().min(cap))
            .sum();
        sum + self.delay(GROWING).as_nanos().min(cap) * count.saturating_sub(u128::from(GROWING))
    }
}

fn bounded(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(MAX_DELAY, |nanos| {
        Duration::from_nanos(nanos).min(MAX_DELAY)
    })
}

/// The spread of delays, so that callers do not wake in step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// No spread.
    #[default]
    None,
    /// Anywhere between zero and the delay.
    Full,
    /// Half of the delay, plus a random part of the other half.
    Equal,
    /// Up to a quarter less for delays of at most two seconds; no spread for longer ones.
    Short,
}

/// The longest delay that [`Jitter::Short`] spreads.
const MAX_SHORT_DELAY: Duration = Duration::from_secs(2);

impl Jitter {
    /// Returns the delay to sleep, never longer than `delay`. `entropy` is read as a fraction of `u64::MAX`.
    pub fn apply(self, delay: Duration, entropy: u64) -> Duration {
        match self {
            Self::None => delay,
            Self::Full => fraction(delay, entropy),
            Self::Equal => delay / 2 + fraction(delay - delay / 2, entropy),
            Self::Short if delay > MAX_SHORT_DELAY => delay,
            Self::Short => delay - delay / 4 + fraction(delay / 4, entropy),
        }
    }
}

fn fraction(delay: Duration, entropy: u64) -> Duration {
    let nanos = (delay.min(MAX_DELAY).as_nanos() * (u128::from(entropy) + 1)) >> 64;
    u64::try_from(nanos).map_or(delay, Duration::from_nanos)
}
