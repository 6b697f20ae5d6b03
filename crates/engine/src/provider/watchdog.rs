//! The time limit for the next sign of life of a response.
//!
//! Events are progress. Pings, comments and parts of an event only show that the connection is alive, which extends the
//! deadline to at most three idle limits: a provider that sends nothing but keep-alives has stalled.

use super::Timeouts;
use outlast_kernel::Timestamp;
use std::time::Duration;

const MAX_KEEPALIVE_IDLE_PERIODS: u32 = 3;
/// The time that a complete response is given for its trailing events.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// Tracks the deadlines of one response.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog {
    timeouts: Timeouts,
    announced: bool,
    has_progress: bool,
    progress_at: Timestamp,
    alive_at: Timestamp,
    /// The time since which only trailing events are missing.
    complete_at: Option<Timestamp>,
}

impl Watchdog {
    /// Watches a response whose headers arrived at `now`.
    pub fn new(timeouts: Timeouts, now: Timestamp) -> Self {
        Self {
            timeouts,
            announced: false,
            has_progress: false,
            progress_at: now,
            alive_at: now,
            complete_at: None,
        }
    }

    /// Records a sign of life without progress.
    pub fn record_keepalive(&mut self, now: Timestamp) {
        self.alive_at = now;
    }

    /// Records the announcement of a response: the next event still counts as the first.
    pub fn record_announcement(&mut self, now: Timestamp) {
        self.announced = true;
        self.progress_at = now;
        self.alive_at = now;
    }

    /// Records progress.
    pub fn record_progress(&mut self, now: Timestamp) {
        self.has_progress = true;
        self.progress_at = now;
        self.alive_at = now;
    }

    /// Records whether only trailing events are missing. An event after the end shows that it was none.
    pub fn record_completion(&mut self, is_complete: bool, now: Timestamp) {
        let ended = self.complete_at.unwrap_or(now);
        self.complete_at = is_complete.then_some(ended);
    }

    /// Returns whether any event arrived.
    pub fn has_begun(&self) -> bool {
        self.announced || self.has_progress
    }

    /// Returns the time at which the response counts as stalled, if there is a limit.
    pub fn deadline(&self) -> Option<Timestamp> {
        if let Some(complete_at) = self.complete_at {
            return Some(complete_at + TRAILING_EVENTS_TIMEOUT);
        }
        let limit = self.current_limit();
        let silent = self.alive_at + limit;
        let breaths = match self.timeouts.idle {
            Duration::ZERO => limit.saturating_mul(MAX_KEEPALIVE_IDLE_PERIODS),
            idle => limit.max(idle.saturating_mul(MAX_KEEPALIVE_IDLE_PERIODS)),
        };
        let only_breathing = self.progress_at + breaths;
        (!limit.is_zero()).then(|| silent.min(only_breathing))
    }

    /// Returns the limit that currently applies.
    fn current_limit(&self) -> Duration {
        if self.has_progress {
            self.timeouts.idle
        } else {
            self.timeouts.first_event
        }
    }

    /// Returns the time since the last progress, as it will be at the deadline.
    pub fn stall_duration(&self) -> Duration {
        let end = self.deadline().unwrap_or(self.alive_at);
        end.since(self.progress_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn timeouts(first_event: u64, idle: u64) -> Timeouts {
        Timeouts {
            first_event: Duration::from_secs(first_event),
            idle: Duration::from_secs(idle),
            ..Timeouts::default()
        }
    }

    #[test]
    fn first_event_and_later_events_have_own_limits() {
        let mut watchdog = Watchdog::new(timeouts(50, 10), at(0));
        assert_eq!(watchdog.deadline(), Some(at(50)));
        watchdog.record_progress(at(20));
        assert_eq!(watchdog.deadline(), Some(at(30)));
    }

    #[test]
    fn an_announcement_is_not_the_first_event() {
        let mut watchdog = Watchdog::new(timeouts(50, 10), at(0));
        watchdog.record_announcement(at(20));
        assert_eq!(watchdog.deadline(), Some(at(70)));
        watchdog.record_progress(at(60));
        assert_eq!(watchdog.deadline(), Some(at(70)));
    }

    #[test]
    fn keepalives_extend_deadline_to_three_idle_limits() {
        let mut watchdog = Watchdog::new(timeouts(50, 10), at(0));
        watchdog.record_progress(at(0));
        for second in (5..=25).step_by(5) {
            watchdog.record_keepalive(at(second));
        }
        assert_eq!(watchdog.deadline(), Some(at(30)));
        watchdog.record_progress(at(29));
        assert_eq!(watchdog.deadline(), Some(at(39)));
    }

    #[test]
    fn zero_switches_a_limit_off() {
        let mut watchdog = Watchdog::new(timeouts(0, 10), at(0));
        assert_eq!(watchdog.deadline(), None);
        watchdog.record_progress(at(5));
        assert_eq!(watchdog.deadline(), Some(at(15)));
    }
}
