//! When an attempt has worked too long, or for too long without a sign: a pure function of times and signs.
//!
//! Invariant: all limits are kept in working time, which stands still during pauses and never runs backwards, whatever
//! the wall clock does.

use super::WatchEvent;
use crate::entry::Problem;
use outlast_kernel::Timestamp;
use outlast_kernel::text::{bounded, message, plain};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;
use std::collections::VecDeque;
use std::time::Duration;

/// How many signs are kept for the report.
const MAX_EVENTS: usize = 10;
/// How much is kept of what each of them says, in bytes.
const MAX_EVENT_NAME_BYTES: usize = 200;
/// How often is looked at the clock at least, whatever the limits.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The timer knows nothing shorter, and a busy machine is this late at times.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// What an attempt may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For how long there may be no activity, or no progress.
    pub(super) stall: Option<Duration>,
    /// How long it may work in all.
    pub(super) timeout: Option<Duration>,
}

impl Limits {
    /// How often is looked: a few times within the shortest limit.
    fn look(&self) -> Duration {
        let shortest = self.stall.into_iter().chain(self.timeout).min();
        let part = shortest.map_or(MAX_CHECK_INTERVAL, |limit| limit / 4);
        part.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)
    }
}

/// What an attempt has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExceededLimit {
    Timeout,
    Activity,
    Progress,
}

/// What was seen of an attempt so far.
#[derive(Debug)]
pub(super) struct WatchState {
    limits: Limits,
    /// When the clock was looked at last.
    seen: Timestamp,
    /// How long it has worked until then.
    worked: Duration,
    /// How long it had worked when it was last active, and when something last came of it.
    active: Duration,
    progressed: Duration,
    is_paused: bool,
    events: VecDeque<RecordedEvent>,
}

/// A sign, or as many of the same kind as came in a row.
#[derive(Debug)]
struct RecordedEvent {
    at: Timestamp,
    name: String,
    times: u64,
}

impl WatchState {
    /// Watches from now on.
    pub(super) fn new(limits: Limits, now: Timestamp) -> Self {
        Self {
            limits,
            seen: now,
            worked: Duration::ZERO,
            active: Duration::ZERO,
            progressed: Duration::ZERO,
            is_paused: false,
            events: VecDeque::with_capacity(MAX_EVENTS),
        }
    }

    /// Looks at the clock. When nobody has for much longer than was meant, the machine was asleep, and nothing worked.
    pub(super) fn look(&mut self, now: Timestamp) {
        if !self.is_paused {
            let passed = now.since(self.seen).min(self.limits.look() * 2);
            self.worked = self.worked.saturating_add(passed);
        }
        self.seen = now;
    }

    /// Takes note of a sign.
    pub(super) fn sign(&mut self, now: Timestamp, sign: WatchEvent) {
        self.look(now);
        match sign {
            WatchEvent::Activity(name) => {
                self.active = self.worked;
                self.remember(now, &name);
            }
            WatchEvent::Progress(name) => {
                (self.active, self.progressed) = (self.worked, self.worked);
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

    /// What it has passed, as a problem.
    pub(super) fn expired(&self) -> Option<Problem> {
        let (passed, limit, _) = self.next().filter(|(.., due)| self.worked >= *due)?;
        // Always the same words for the same limit: the breaker counts them.
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

    /// After how long to look again; `None` when nothing can pass until it is resumed.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let (.., due) = self.next().filter(|_| !self.is_paused)?;
        // A time has whole milliseconds: one that were cut off would be waited for in a circle.
        let left = due.saturating_sub(self.worked) + Duration::from_nanos(999_999);
        Some(left.min(self.limits.look()))
    }

    /// What was seen last, oldest first.
    pub(super) fn last_events(&self) -> Vec<String> {
        let say = |seen: &RecordedEvent| {
            let (at, name) = (seen.at, message(&plain(&seen.name)));
            match seen.times {
                1 => format!("{at} {name}"),
                times => format!("{at} {name} ({times} times)"),
            }
        };
        self.events.iter().map(say).collect()
    }

    /// The limit that is passed first, and at what working time.
    fn next(&self) -> Option<(ExceededLimit, Duration, Duration)> {
        let Limits { stall, timeout } = self.limits;
        let timeout = timeout.map(|limit| (ExceededLimit::Timeout, limit, limit));
        let since = |passed, last: Duration| {
            stall.map(move |limit| (passed, limit, last.saturating_add(limit)))
        };
        let active = since(ExceededLimit::Activity, self.active);
        let progressed = since(ExceededLimit::Progress, self.progressed);
        // Of those at the same time the first is meant.
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
