//! The one clock: what time it is, and waiting until another.
//!
//! Invariant: a wait ends when either the wall clock or the monotonic one says so. The wall clock sees a suspended
//! machine; the monotonic one does not mind a wall clock that was set back.

use crate::BoxFuture;
use outlast_kernel::Timestamp;
use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::Instant;

/// Tells the time and waits.
pub trait Clock: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits until then; at once when it has passed.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// How often a long wait looks at the wall clock, so that a suspended machine wakes to it in time.
const GLANCE: Duration = Duration::from_secs(1);

/// Where scaled time and real time agree: 2026-11-01T00:00:00Z. It is fixed so that all processes that scale alike
/// tell the same time.
const SCALE_ORIGIN_MILLIS: u64 = 1_793_491_200_000;

/// The machine's wall clock, or one that runs a whole number of times faster.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    scale: NonZeroU32,
}

impl Default for WallClock {
    fn default() -> Self {
        Self {
            scale: NonZeroU32::MIN,
        }
    }
}

impl WallClock {
    /// A clock that runs `scale` times as fast as the machine's, for tests of whole processes.
    ///
    /// `None` when that would leave the calendar.
    pub fn scaled(scale: NonZeroU32) -> Option<Self> {
        let clock = Self { scale };
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        (clock.now() + century < Timestamp::LATEST).then_some(clock)
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let millis = machine_millis();
        let since_origin = millis.saturating_sub(SCALE_ORIGIN_MILLIS);
        let ahead = since_origin.saturating_mul(u64::from(self.scale.get() - 1));
        Timestamp::from_millis(millis.saturating_add(ahead))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            let wait = at.since(clock.now()) / clock.scale.get();
            // A wait of years must not overflow the timer; the wall clock ends it all the same.
            let end = Instant::now().checked_add(wait);
            while clock.now() < at && end.is_none_or(|end| Instant::now() < end) {
                let glance = Instant::now() + GLANCE;
                tokio::time::sleep_until(end.map_or(glance, |end| end.min(glance))).await;
            }
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that everything else asks"
)]
fn machine_millis() -> u64 {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    outlast_kernel::time::millis(since_epoch)
}

/// A clock that follows tokio's timer, which tests can pause: hours pass in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct TimerClock {
    origin: Timestamp,
    start: Instant,
}

impl TimerClock {
    /// A clock that shows `origin` now.
    pub fn new(origin: Timestamp) -> Self {
        Self {
            origin,
            start: Instant::now(),
        }
    }
}

impl Clock for TimerClock {
    fn now(&self) -> Timestamp {
        self.origin + self.start.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait = at.since(self.now());
        Box::pin(tokio::time::sleep(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_clocks_of_two_processes_agree_and_run_ahead() {
        let scale = NonZeroU32::new(1000).unwrap();
        let (one, other) = (
            WallClock::scaled(scale).unwrap(),
            WallClock::scaled(scale).unwrap(),
        );
        let apart = other.now().since(one.now());
        assert!(apart < Duration::from_secs(3600), "{apart:?}");
        assert!(one.now() > WallClock::default().now());
    }

    #[test]
    fn a_scale_that_leaves_the_calendar_is_refused() {
        assert!(WallClock::scaled(NonZeroU32::MAX).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_a_thousand_years_neither_panics_nor_ends() {
        let clock = WallClock::default();
        let far = clock.sleep_until(Timestamp::LATEST);
        assert!(
            tokio::time::timeout(Duration::from_secs(7200), far)
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_past_time_is_not_waited_for() {
        let clock = WallClock::default();
        let before = Instant::now();
        clock.sleep_until(Timestamp::default()).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
