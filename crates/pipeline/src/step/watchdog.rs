//! Ends an attempt that stalls or times out: no activity, activity without progress, or too much time.
//!
//! Invariant: only time in which the attempt could work counts. Waits for a provider and sleep of the machine do not;
//! every limit continues after them. Not here: ending the attempt, which is the caller's task.

mod activity;
mod limits;

pub(crate) use activity::ActivityTracker;

use crate::entry::Problem;
use limits::{Limits, WatchState};
use outlast_engine::Clock;
use outlast_kernel::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// An observation about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent {
    /// The attempt is alive.
    Activity(String),
    /// The attempt is alive and has made progress.
    Progress(String),
    /// The attempt waits for a provider.
    Paused,
    /// The wait is over.
    Resumed,
}

/// Watches one attempt.
pub(crate) struct Watchdog {
    clock: Arc<dyn Clock>,
    state: Mutex<WatchState>,
    resumed: Notify,
}

impl Watchdog {
    /// Starts to watch: `stall` limits the silence, `timeout` limits the total working time.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        stall: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Self {
        let limits = Limits { stall, timeout };
        let state = Mutex::new(WatchState::new(limits, clock.now()));
        Self {
            clock,
            state,
            resumed: Notify::new(),
        }
    }

    /// Records an observation.
    pub(crate) fn record(&self, sign: WatchEvent) {
        let ends_pause = sign == WatchEvent::Resumed;
        let now = self.clock.now();
        self.state.lock().record(now, sign);
        if ends_pause {
            self.resumed.notify_one();
        }
    }

    /// Waits until a limit is exceeded, and returns the problem of the attempt; waits forever if there is no limit.
    ///
    /// Poll this from the beginning to the end of the attempt: time without polling does not count.
    pub(crate) async fn expired(&self) -> Problem {
        loop {
            let now = self.clock.now();
            match self.check(now) {
                CheckResult::Expired(problem) => return problem,
                CheckResult::NextCheck(Some(at)) => tokio::select! {
                    () = self.clock.sleep_until(at) => {}
                    () = self.resumed.notified() => {}
                },
                CheckResult::NextCheck(None) => self.resumed.notified().await,
            }
        }
    }

    fn check(&self, now: Timestamp) -> CheckResult {
        let mut watch = self.state.lock();
        watch.advance(now);
        match watch.expired() {
            Some(problem) => CheckResult::Expired(problem),
            None => CheckResult::NextCheck(watch.next_check_in().map(|wait| now + wait)),
        }
    }
}

/// The result of a check.
enum CheckResult {
    Expired(Problem),
    /// Nothing yet: check again at this time, or, without one, after the attempt resumes.
    NextCheck(Option<Timestamp>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_engine::clock::TimerClock;
    use outlast_kernel::verdict::Cause;
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    fn watchdog(stall: Option<u32>, timeout: Option<u32>) -> Watchdog {
        let clock = TimerClock::new("2026-11-15T22:00:00Z".parse().unwrap());
        let seconds = |limit: Option<u32>| limit.map(|limit| SECOND * limit);
        Watchdog::new(Arc::new(clock), seconds(stall), seconds(timeout))
    }

    /// Sends each observation after its number of seconds, while the watchdog runs; returns the cause of the end, and
    /// the time until then.
    async fn watched(watchdog: &Watchdog, signs: &[(u32, WatchEvent)]) -> (Cause, Duration) {
        let start = Instant::now();
        let give = async {
            for (at, sign) in signs {
                tokio::time::sleep_until(start + SECOND * *at).await;
                watchdog.record(sign.clone());
            }
            tokio::time::sleep(SECOND * 1_000_000).await;
        };
        let problem = tokio::select! {
            problem = watchdog.expired() => problem,
            () = give => panic!("nothing expires"),
        };
        (problem.cause, start.elapsed())
    }

    fn progress() -> WatchEvent {
        WatchEvent::Progress("text".to_owned())
    }

    fn activity() -> WatchEvent {
        WatchEvent::Activity("reasoning".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn half_hour_without_progress_is_a_stall() {
        let signs = [(60, progress()), (90, activity())];
        let ended = watched(&watchdog(Some(1800), None), &signs).await;
        // Progress was last in the list, and longest ago.
        assert_eq!(ended, (Cause::Stalled, SECOND * 1860));
    }

    #[tokio::test(start_paused = true)]
    async fn paused_hours_count_toward_neither_stall_nor_timeout() {
        let signs = [(100, WatchEvent::Paused), (28_900, WatchEvent::Resumed)];
        let ended = watched(&watchdog(Some(1800), None), &signs).await;
        assert_eq!(ended, (Cause::Stalled, SECOND * (28_900 + 1700)));
        let ended = watched(&watchdog(None, Some(300)), &signs).await;
        assert_eq!(ended, (Cause::Timeout, SECOND * (28_900 + 200)));
    }

    #[tokio::test(start_paused = true)]
    async fn short_remaining_limit_expires_on_time_after_pause() {
        let signs = [(1, WatchEvent::Paused), (2, WatchEvent::Resumed)];
        let ended = watched(&watchdog(None, Some(5)), &signs).await;
        assert_eq!(ended, (Cause::Timeout, SECOND * 6));
    }

    #[tokio::test(start_paused = true)]
    async fn without_limits_nothing_ever_expires() {
        let watchdog = watchdog(None, None);
        watchdog.record(WatchEvent::Resumed);
        let year = SECOND * 31_536_000;
        assert!(
            tokio::time::timeout(year, watchdog.expired())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn problem_includes_last_events() {
        let watchdog = watchdog(Some(10), None);
        watchdog.record(activity());
        tokio::time::sleep(SECOND).await;
        watchdog.record(progress());
        let problem = watchdog.expired().await;
        let seen = [
            "2026-11-15T22:00:00.000Z reasoning",
            "2026-11-15T22:00:01.000Z text",
        ];
        assert_eq!(problem.last_events, seen);
        assert_eq!(watchdog.state.lock().last_events(), seen);
    }
}
