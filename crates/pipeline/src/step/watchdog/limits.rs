//! The limits of an attempt: its total working time, and the time without activity or progress.
//!
//! Pure: a function of times and observations. Invariant: all limits use working time, which stands still during pauses
//! and never runs backwards, whatever the wall clock does.

use super::WatchEvent;
use crate::entry::Problem;
use outlast_kernel::Timestamp;
use outlast_kernel::text::{bounded, plain, sanitized_message};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of events to keep for the report.
const MAX_EVENTS: usize = 10;
/// Maximum bytes of an event's text.
const MAX_EVENT_NAME_BYTES: usize = 200;
/// Maximum interval between two looks at the clock, whatever the limits.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum interval: timers have no finer resolution, and a busy machine is sometimes this late.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The limits of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The maximum time without activity, or without progress.
    pub(super) stall: Option<Duration>,
    /// The maximum working time.
    pub(super) timeout: Option<Duration>,
}

impl Limits {
    /// Returns the interval between looks at the clock: a fraction of the shortest limit.
    fn check_interval(&self) -> Duration {
        let shortest = self.stall.into_iter().chain(self.timeout).min();
        let part = shortest.map_or(MAX_CHECK_INTERVAL, |limit| limit / 4);
        part.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)
    }
}

/// The kind of limit that an attempt has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExceededLimit {
    Timeout,
    Activity,
    Progress,
}

/// The observations of an attempt so far.
#[derive(Debug)]
pub(super) struct WatchState {
    limits: Limits,
    /// The time of the last look at the clock.
    last_checked: Timestamp,
    /// The working time until then.
    worked: Duration,
    /// The working times of the last activity and of the last progress.
    active_at: Duration,
    progressed_at: Duration,
    is_paused: bool,
    events: VecDeque<RecordedEvent>,
}

/// An event, or a series of events of the same kind.
#[derive(Debug)]
struct RecordedEvent {
    at: Timestamp,
    name: String,
    times: u64,
}

impl WatchState {
    /// Starts to watch.
    pub(super) fn new(limits: Limits, now: Timestamp) -> Self {
        Self {
            limits,
            last_checked: now,
            worked: Duration::ZERO,
            active_at: Duration::ZERO,
            progressed_at: Duration::ZERO,
            is_paused: false,
            events: VecDeque::with_capacity(MAX_EVENTS),
        }
    }

    /// Looks at the clock. After a much longer interval than planned the machine was asleep, and nothing worked.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if !self.is_paused {
            let passed = now
                .since(self.last_checked)
                .min(self.limits.check_interval() * 2);
            self.worked = self.worked.saturating_add(passed);
        }
        self.last_checked = now;
    }

    /// Records an observation.
    pub(super) fn record(&mut self, now: Timestamp, sign: WatchEvent) {
        self.advance(now);
        match sign {
            WatchEvent::Activity(name) => {
                self.active_at = self.worked;
                self.remember(now, &name);
            }
            WatchEvent::Progress(name) => {
                (self.active_at, self.progressed_at) = (self.worked, self.worked);
                self.remember(now, &name);
            }
            WatchEvent::Paused => {
                self.is_paused = true;
                self.remember(now, "waits for the provider");
            }
            WatchEvent::Resumed => {
                self.is_paused = false;
                self.remember(now, "goes on");
            }
        }
    }

    /// Returns the exceeded limit, as a problem.
    pub(super) fn expired(&self) -> Option<Problem> {
        let (passed, limit, _) = self.next_limit().filter(|(.., due)| self.worked >= *due)?;
        // The same limit always gives the same text: the breaker counts it.
        let limit = Span(limit);
        let (cause, what) = match passed {
            ExceededLimit::Timeout => (
                Cause::Timeout,
                format!("it has worked for longer than its timeout of {limit}"),
            ),
            ExceededLimit::Activity => (Cause::Stalled, format!("no activity for {limit}")),
            ExceededLimit::Progress => (
                Cause::Stalled,
                format!("activity, but no progress for {limit}"),
            ),
        };
        let last_events = self.last_events();
        Some(Problem {
            last_events,
            ..Problem::new(cause, what)
        })
    }

    /// Returns the time until the next look; `None` if no limit can be exceeded before the attempt resumes.
    pub(super) fn next_check_in(&self) -> Option<Duration> {
        let (.., due) = self.next_limit().filter(|_| !self.is_paused)?;
        // Timestamps have whole milliseconds: rounding down would cause a busy loop.
        let left = due.saturating_sub(self.worked) + Duration::from_nanos(999_999);
        Some(left.min(self.limits.check_interval()))
    }

    /// Returns the last events, oldest first.
    pub(super) fn last_events(&self) -> Vec<String> {
        let say = |seen: &RecordedEvent| {
            let (at, name) = (seen.at, sanitized_message(&plain(&seen.name)));
            match seen.times {
                1 => format!("{at} {name}"),
                times => format!("{at} {name} ({times} times)"),
            }
        };
        self.events.iter().map(say).collect()
    }

    /// Returns the limit that is exceeded first, and the working time of that.
    fn next_limit(&self) -> Option<(ExceededLimit, Duration, Duration)> {
        let Limits { stall, timeout } = self.limits;
        let timeout = timeout.map(|limit| (ExceededLimit::Timeout, limit, limit));
        let since = |passed, last: Duration| {
            stall.map(move |limit| (passed, limit, last.saturating_add(limit)))
        };
        let active = since(ExceededLimit::Activity, self.active_at);
        let progressed = since(ExceededLimit::Progress, self.progressed_at);
        // Of limits at the same time the first one counts.
        let all = [timeout, active, progressed].into_iter().flatten();
        all.min_by_key(|(.., due)| *due)
    }

    fn remember(&mut self, at: Timestamp, name: &str) {
        let name = bounded(name, MAX_EVENT_NAME_BYTES);
        if let Some(last) = self.events.back_mut().filter(|last| last.name == name) {
            last.at = at;
            last.times = last.times.saturating_add(1);
            return;
        }
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        let name = name.into_owned();
        self.events.push_back(RecordedEvent { at, name, times: 1 });
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
