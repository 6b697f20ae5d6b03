//! The provider: a bucket that holds one second of its capacity, and an outage.

use super::scenario::Scenario;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use std::ops::Range;
use std::sync::Arc;

/// What the provider says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Accepted,
    /// It is down: 529 or 503.
    Down(u16),
    /// More than it can carry: 429, with the seconds to wait when it states them.
    RateLimited(Option<u64>),
}

impl Reply {
    /// The failure as the classifier sees it.
    pub(super) fn classified_failure(self, now: Timestamp) -> Option<Arc<ClassifiedFailure>> {
        let failure = match self {
            Self::Accepted => return None,
            Self::Down(status) => Failure::http("simulated", status, "Overloaded", now),
            Self::RateLimited(None) => Failure::http("simulated", 429, "Too many requests", now),
            Self::RateLimited(Some(seconds)) => {
                let seconds = seconds.to_string();
                Failure::http("simulated", 429, "Too many requests", now)
                    .with_headers([("retry-after", seconds.as_str())])
            }
        };
        Some(ClassifiedFailure::new(failure))
    }
}

pub(super) struct Provider {
    /// Calls or tokens in a second: also what the bucket holds.
    rate: u64,
    /// The same after the outage.
    rate_after_outage: u64,
    counts_tokens: bool,
    /// What is in the bucket, in thousandths, and since when.
    level: u64,
    filled_at: u64,
    outage: Range<u64>,
    sends_retry_after: bool,
}

impl Provider {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let rate = u64::from(scenario.tokens_per_second.unwrap_or(scenario.capacity));
        Self {
            rate,
            rate_after_outage: (rate * u64::from(scenario.recovered_capacity_percent) / 100).max(1),
            counts_tokens: scenario.tokens_per_second.is_some(),
            level: rate * 1000,
            filled_at: 0,
            outage: scenario.outage_millis(),
            sends_retry_after: scenario.retry_after,
        }
    }

    /// Answers a call of so many tokens.
    pub(super) fn call(&mut self, tokens: u64, now: u64) -> Reply {
        if !self.outage.is_empty() && now >= self.outage.end {
            self.rate = self.rate_after_outage;
        }
        let full = self.rate * 1000;
        self.level = (self.level + (now - self.filled_at) * self.rate).min(full);
        self.filled_at = now;
        if self.outage.contains(&now) {
            return Reply::Down(if tokens.is_multiple_of(2) { 529 } else { 503 });
        }
        // What is larger than the bucket passes when the bucket is full.
        let cost = if self.counts_tokens {
            tokens * 1000
        } else {
            1000
        };
        let missing = cost.min(full).saturating_sub(self.level);
        if missing == 0 {
            self.level = self.level.saturating_sub(cost);
            return Reply::Accepted;
        }
        let seconds = missing.div_ceil(full);
        Reply::RateLimited(self.sends_retry_after.then_some(seconds))
    }
}
