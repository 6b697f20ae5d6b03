//! Measures durations, also of work whose end was never recorded.
//!
//! A process that dies records no end. The last entry before a resume counts as its end: nobody worked in the gap.

use super::super::state::{Attempt, Run, StepState, Visit, WaitPeriod};
use outlast_kernel::Timestamp;
use std::time::Duration;

/// Minimum time without entries during which an unfinished run still counts as running.
const MIN_ASSUMED_RUNNING: Duration = Duration::from_secs(3600);

/// A range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl TimeRange {
    pub(super) const fn length(self) -> Duration {
        self.to.since(self.from)
    }

    /// Returns the length of the overlap with another range.
    pub(super) fn overlap(self, other: Self) -> Duration {
        self.to.min(other.to).since(self.from.max(other.from))
    }
}

/// Returns the end of the run, or else the time up to which to measure.
pub(super) fn observed_end(run: &Run, now: Timestamp) -> Timestamp {
    if let Some(ended) = &run.ended {
        return ended.at;
    }
    let silence = now.since(run.last_changed);
    let so_far = run.last_changed.since(run.started);
    match silence > so_far.max(MIN_ASSUMED_RUNNING) {
        true => run.last_changed,
        false => now.max(run.last_changed),
    }
}

/// Returns the gaps in which no process is known to have worked.
pub(super) fn gaps(run: &Run) -> Vec<TimeRange> {
    let mut known = recorded_times(run);
    known.extend(&run.resumed_at);
    known.sort();
    let gap = |to: &Timestamp| {
        let before = known.partition_point(|time| time < to);
        let from = before.checked_sub(1).and_then(|index| known.get(index))?;
        Some(TimeRange {
            from: *from,
            to: *to,
        })
    };
    run.resumed_at.iter().filter_map(gap).collect()
}

/// Returns the times of all entries.
fn recorded_times(run: &Run) -> Vec<Timestamp> {
    let mut moments = vec![run.started];
    for visit in run.steps.values().flat_map(|step| &step.visits) {
        moments.push(visit.started);
        moments.extend(visit.ended.as_ref().map(|ended| ended.at));
        moments.extend(visit.gate.and_then(|gate| gate.ended));
        for attempt in &visit.attempts {
            moments.push(attempt.started);
            moments.extend(attempt.ended);
            // The beginning of a wait is recorded when it happens; its end may be recorded later.
            moments.extend(attempt.waits.iter().map(|wait| wait.since));
        }
    }
    moments
}

/// Returns the range of an attempt, as far as its end is known.
pub(super) fn attempt_range(visit: &Visit, index: usize, end: Timestamp) -> Option<TimeRange> {
    let attempt = visit.attempts.get(index)?;
    let following = visit.attempts.get(index + 1).map(|next| next.started);
    let visit_ended = visit.ended.as_ref().map(|ended| ended.at);
    let to = attempt.ended.or(following).or(visit_ended).unwrap_or(end);
    Some(TimeRange {
        from: attempt.started,
        to: to.max(attempt.started),
    })
}

/// Returns the actual range of a wait.
pub(super) fn wait_range(span: &WaitPeriod, end: Timestamp) -> TimeRange {
    let to = span.ended.unwrap_or(end).min(span.until);
    TimeRange {
        from: span.since,
        to: to.max(span.since),
    }
}

/// Returns the range in which a gate was open.
pub(super) fn gate_range(visit: &Visit, end: Timestamp) -> Option<TimeRange> {
    let gate = visit.gate?;
    let visit_ended = visit.ended.as_ref().map(|ended| ended.at);
    let to = gate.ended.or(visit_ended).unwrap_or(end);
    Some(TimeRange {
        from: gate.since,
        to: to.max(gate.since),
    })
}

/// The time that a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepTime {
    pub(super) worked: Duration,
    pub(super) waited: Duration,
}

/// Measures a step over all of its visits.
pub(super) fn step_time(step: &StepState, gaps: &[TimeRange], end: Timestamp) -> StepTime {
    let mut took = StepTime::default();
    for visit in &step.visits {
        took.waited += gate_range(visit, end).map_or(Duration::ZERO, TimeRange::length);
        for (index, one) in visit.attempts.iter().enumerate() {
            let Some(whole) = attempt_range(visit, index, end) else {
                continue;
            };
            let waits = || one.waits.iter().map(|span| wait_range(span, end));
            took.waited += waits().map(TimeRange::length).sum::<Duration>();
            let elsewhere: Duration = waits()
                .chain(gaps.iter().copied())
                .map(|stretch| stretch.overlap(whole))
                .sum();
            took.worked += whole.length().saturating_sub(elsewhere);
        }
    }
    took
}

/// Returns whether an attempt has no end because its process died.
pub(super) fn is_interrupted(visit: &Visit, one: &Attempt, gaps: &[TimeRange]) -> bool {
    let is_last = visit
        .attempts
        .last()
        .is_some_and(|last| last.number == one.number);
    let died = || gaps.iter().any(|gap| gap.to > one.started);
    one.ended.is_none() && (!is_last || visit.ended.is_some() || died())
}
