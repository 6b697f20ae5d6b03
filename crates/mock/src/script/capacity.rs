//! A provider with a limited throughput per second: two token buckets that refill over time.

use outlast_kernel::Timestamp;
use std::time::Duration;

/// The state of the buckets.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    requests: Bucket,
    tokens: Option<Bucket>,
    /// The time of the last refill.
    filled_at: Option<Timestamp>,
}

/// Holds the capacity of one second, counted in thousandths: N per second are N thousandths per millisecond.
#[derive(Clone, Debug)]
struct Bucket {
    per_second: u64,
    level: u64,
}

impl Capacity {
    pub(super) fn new(requests: u32, tokens: Option<u32>) -> Self {
        Self {
            requests: Bucket::full(requests),
            tokens: tokens.map(Bucket::full),
            filled_at: None,
        }
    }

    /// Takes a request out of the buckets, or returns the wait until there is room.
    pub(super) fn take(&mut self, now: Timestamp, tokens: u64) -> Result<(), Duration> {
        let passed = now.since(*self.filled_at.get_or_insert(now));
        self.filled_at = Some(now);
        let passed = outlast_kernel::time::millis(passed);
        self.requests.fill(passed);
        let mut wait = self.requests.wait(1);
        if let Some(bucket) = &mut self.tokens {
            bucket.fill(passed);
            wait = wait.max(bucket.wait(tokens));
        }
        if !wait.is_zero() {
            return Err(wait);
        }
        self.requests.take(1);
        if let Some(bucket) = &mut self.tokens {
            bucket.take(tokens);
        }
        Ok(())
    }
}

impl Bucket {
    fn full(per_second: u32) -> Self {
        let per_second = u64::from(per_second.max(1));
        Self {
            per_second,
            level: per_second * 1000,
        }
    }

    fn fill(&mut self, millis: u64) {
        let more = millis.saturating_mul(self.per_second);
        self.level = self.level.saturating_add(more).min(self.per_second * 1000);
    }

    /// Returns the amount to take: one that exceeds the bucket needs a full bucket.
    fn needed(&self, amount: u64) -> u64 {
        amount.min(self.per_second) * 1000
    }

    fn wait(&self, amount: u64) -> Duration {
        let missing = self.needed(amount).saturating_sub(self.level);
        Duration::from_millis(missing.div_ceil(self.per_second))
    }

    fn take(&mut self, amount: u64) {
        self.level -= self.needed(amount).min(self.level);
    }
}
