//! The only source of time, and waiting for a time.
//!
//! Invariant: a wait ends as soon as either the wall clock or the monotonic clock says so. The wall clock notices that
//! the machine was suspended; the monotonic clock is not affected when the wall clock is set back.

use crate::BoxFuture;
use outlast_kernel::Timestamp;
use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::Instant;

/// Tells the time and waits.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Waits until the given time; resolves at once if it has passed.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// Interval at which a long wait reads the wall clock, so that a wait on a suspended machine ends in time.
const WALL_CLOCK_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The period at whose beginning scaled time and real time agree, so that all processes with the same scale show the
/// same time, and none runs far ahead of the calendar.
const SCALE_PERIOD_MILLIS: u64 = 32 * 24 * 3600 * 1000;

/// The machine's wall clock, or one that runs a whole number of times faster.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    scale: NonZeroU32,
    origin_millis: u64,
    machine_clock: fn() -> u64,
}

impl Default for WallClock {
    fn default() -> Self {
        Self::with_machine_clock(machine_millis, NonZeroU32::MIN)
    }
}

impl WallClock {
    /// Returns a clock that runs `scale` times as fast as the machine's, for tests of whole processes.
    ///
    /// Returns `None` when the clock would leave the calendar before the period is over.
    pub fn scaled(scale: NonZeroU32) -> Option<Self> {
        let clock = Self::with_machine_clock(machine_millis, scale);
        let end = clock.scaled_time(clock.origin_millis + SCALE_PERIOD_MILLIS);
        (end < Timestamp::LATEST).then_some(clock)
    }

    fn with_machine_clock(machine_clock: fn() -> u64, scale: NonZeroU32) -> Self {
        let machine_millis = machine_clock();
        let origin_millis = machine_millis - machine_millis % SCALE_PERIOD_MILLIS;
        Self {
            scale,
            origin_millis,
            machine_clock,
        }
    }

    /// Returns the time that this clock shows at the given machine time.
    fn scaled_time(&self, machine_millis: u64) -> Timestamp {
        let since_origin = machine_millis.saturating_sub(self.origin_millis);
        let ahead = since_origin.saturating_mul(u64::from(self.scale.get() - 1));
        Timestamp::from_millis(machine_millis.saturating_add(ahead))
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        self.scaled_time((self.machine_clock)())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            let wait = at.since(clock.now()) / clock.scale.get();
            // A wait of years must not overflow the timer; the wall clock still ends it.
            let end = Instant::now().checked_add(wait);
            while clock.now() < at && end.is_none_or(|end| Instant::now() < end) {
                let glance = Instant::now() + WALL_CLOCK_POLL_INTERVAL;
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
    /// Creates a clock that shows `origin` now.
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
    fn scaled_clocks_of_two_processes_agree_in_any_year() {
        const DAY: u64 = 86_400_000;
        let scale = NonZeroU32::new(36_000).unwrap();
        type Machine = fn() -> u64;
        let starts: [(Machine, Machine); 4] = [
            (|| 3_650 * DAY, || 3_650 * DAY + 5000),
            (|| 20_772 * DAY, || 20_772 * DAY + 5000),
            (|| 25_600 * DAY, || 25_600 * DAY + 5000),
            (|| 47_500 * DAY, || 47_500 * DAY + 5000),
        ];
        for (start, later) in starts {
            let (one, other) = (
                WallClock::with_machine_clock(start, scale),
                WallClock::with_machine_clock(later, scale),
            );
            let machine = start() + 9000;
            assert_eq!(one.scaled_time(machine), other.scaled_time(machine));
            let passed = one
                .scaled_time(machine)
                .since(one.scaled_time(machine - 1000));
            assert_eq!(passed, Duration::from_secs(36_000));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frozen_wall_clock_does_not_prolong_wait() {
        let clock = WallClock::with_machine_clock(|| 1_800_000_000_000, NonZeroU32::MIN);
        let start = Instant::now();
        clock
            .sleep_until(clock.now() + Duration::from_secs(90))
            .await;
        assert_eq!(start.elapsed(), Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn wall_clock_jump_ends_wait_within_a_second() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static MACHINE: AtomicU64 = AtomicU64::new(1_800_000_000_000);
        let clock =
            WallClock::with_machine_clock(|| MACHINE.load(Ordering::Relaxed), NonZeroU32::MIN);
        let start = Instant::now();
        let sleeping = clock.sleep_until(clock.now() + Duration::from_secs(8 * 3600));
        let waking = async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            MACHINE.fetch_add(9 * 3_600_000, Ordering::Relaxed);
        };
        tokio::join!(sleeping, waking);
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[test]
    fn clock_scale_beyond_timestamp_range_is_refused() {
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
