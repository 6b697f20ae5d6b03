//! Rate limit per client address.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of addresses to remember; beyond it, full buckets are forgotten, and all of them if that is not
/// enough.
const MAX_ADDRESSES: usize = 10_000;
/// Size of a burst, in seconds' worth of requests.
const BURST_SECONDS: u32 = 5;

/// A token bucket for each address, refilled over time.
pub(super) struct RateLimiter {
    per_second: u32,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl RateLimiter {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.max(1),
            buckets: Mutex::default(),
        }
    }

    /// Takes a token for a request; the error is the time until one is available.
    pub(super) fn try_acquire(&self, address: IpAddr) -> Result<(), Duration> {
        let now = Instant::now();
        let rate = f64::from(self.per_second);
        let most = rate * f64::from(BURST_SECONDS);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_ADDRESSES && !buckets.contains_key(&address) {
            // A full bucket says no more than a missing one.
            buckets.retain(|_, bucket| bucket.fill(now, rate, most) < most);
            if buckets.len() >= MAX_ADDRESSES {
                buckets.clear();
            }
        }
        let fresh = Bucket {
            tokens: most,
            at: now,
        };
        let bucket = buckets.entry(address).or_insert(fresh);
        if bucket.fill(now, rate, most) < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / rate));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

impl Bucket {
    fn fill(&mut self, now: Instant, rate: f64, most: f64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens, self.at) = ((self.tokens + passed * rate).min(most), now);
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[tokio::test(start_paused = true)]
    async fn rate_limit_applies_per_address() {
        let rates = RateLimiter::new(10);
        let [one, other] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last)));
        for _ in 0..50 {
            assert_eq!(rates.try_acquire(one), Ok(()));
        }
        let wait = rates.try_acquire(one).unwrap_err();
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        assert_eq!(rates.try_acquire(other), Ok(()));
        tokio::time::advance(wait + Duration::from_millis(1)).await;
        assert_eq!(rates.try_acquire(one), Ok(()));
        assert!(rates.try_acquire(one).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn rate_limiter_bucket_count_is_bounded() {
        let rates = RateLimiter::new(10);
        for number in 0..30_000_u32 {
            rates
                .try_acquire(IpAddr::from(Ipv4Addr::from_bits(number)))
                .unwrap();
        }
        assert!(rates.buckets.lock().len() <= MAX_ADDRESSES);
    }
}
