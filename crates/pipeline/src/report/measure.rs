//! How long things took, also where nobody wrote down their end.
//!
//! A process that dies says nothing. The last that is known before a run was taken up again is taken for its end: the
//! time in between is nobody's work.

use super::super::state::{Attempt, Run, StepState, Visit, WaitPeriod};
use super::FullRun;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// For so long at least a run that has not ended is taken for one that goes on.
const MIN_ASSUMED_RUNNING: Duration = Duration::from_secs(3600);

/// A time from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl TimeRange {
    pub(super) const fn length(self) -> Duration {
        self.to.since(self.from)
    }

    /// How much of it lies within another one.
    pub(super) fn within(self, other: Self) -> Duration {
        self.to.min(other.to).since(self.from.max(other.from))
    }
}

/// The steps of a run in the order in which they began; those that never did come last, as the file has them.
pub(super) fn in_order(whole: &FullRun) -> Vec<(&String, &StepState)> {
    let mut steps: Vec<(&String, &StepState)> = whole.run.steps.iter().collect();
    let place = |id: &String| whole.order.iter().position(|step| step == id);
    steps.sort_by_cached_key(|(id, step)| {
        let began = step.visits.first().map(|visit| visit.started);
        (began.is_none(), began, place(id))
    });
    steps
}

/// When a run ended; or until when it is looked at.
pub(super) fn end(run: &Run, now: Timestamp) -> Timestamp {
    if let Some(ended) = &run.ended {
        return ended.at;
    }
    let silence = now.since(run.changed);
    let so_far = run.changed.since(run.started);
    match silence > so_far.max(MIN_ASSUMED_RUNNING) {
        true => run.changed,
        false => now.max(run.changed),
    }
}

/// When no process is known to have been at work.
pub(super) fn gaps(run: &Run) -> Vec<TimeRange> {
    let mut known = moments(run);
    known.extend(&run.resumed);
    known.sort();
    let gap = |to: &Timestamp| {
        let before = known.partition_point(|time| time < to);
        let from = before.checked_sub(1).and_then(|index| known.get(index))?;
        Some(TimeRange {
            from: *from,
            to: *to,
        })
    };
    run.resumed.iter().filter_map(gap).collect()
}

/// Every moment at which somebody wrote something down.
fn moments(run: &Run) -> Vec<Timestamp> {
    let mut moments = vec![run.started];
    for visit in run.steps.values().flat_map(|step| &step.visits) {
        moments.push(visit.started);
        moments.extend(visit.ended.as_ref().map(|ended| ended.at));
        moments.extend(visit.gate.and_then(|gate| gate.ended));
        for attempt in &visit.attempts {
            moments.push(attempt.started);
            moments.extend(attempt.ended);
            // When a wait began was written down then; its end may have been written down later.
            moments.extend(attempt.waits.iter().map(|wait| wait.since));
        }
    }
    moments
}

/// From the beginning of an attempt to its end, as far as that is known.
pub(super) fn attempt(visit: &Visit, index: usize, end: Timestamp) -> Option<TimeRange> {
    let attempt = visit.attempts.get(index)?;
    let following = visit.attempts.get(index + 1).map(|next| next.started);
    let visit_ended = visit.ended.as_ref().map(|ended| ended.at);
    let to = attempt.ended.or(following).or(visit_ended).unwrap_or(end);
    Some(TimeRange {
        from: attempt.started,
        to: to.max(attempt.started),
    })
}

/// What was really waited.
pub(super) fn wait(span: &WaitPeriod, end: Timestamp) -> TimeRange {
    let to = span.ended.unwrap_or(end).min(span.until);
    TimeRange {
        from: span.since,
        to: to.max(span.since),
    }
}

/// When a gate was open.
pub(super) fn gate(visit: &Visit, end: Timestamp) -> Option<TimeRange> {
    let gate = visit.gate?;
    let visit_ended = visit.ended.as_ref().map(|ended| ended.at);
    let to = gate.ended.or(visit_ended).unwrap_or(end);
    Some(TimeRange {
        from: gate.since,
        to: to.max(gate.since),
    })
}

/// What a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepTime {
    pub(super) worked: Duration,
    pub(super) waited: Duration,
}

/// What a step took, in all of its visits.
pub(super) fn step(step: &StepState, gaps: &[TimeRange], end: Timestamp) -> StepTime {
    let mut took = StepTime::default();
    for visit in &step.visits {
        took.waited += gate(visit, end).map_or(Duration::ZERO, TimeRange::length);
        for (index, one) in visit.attempts.iter().enumerate() {
            let Some(whole) = attempt(visit, index, end) else {
                continue;
            };
            let waits = || one.waits.iter().map(|span| wait(span, end));
            took.waited += waits().map(TimeRange::length).sum::<Duration>();
            let elsewhere: Duration = waits()
                .chain(gaps.iter().copied())
                .map(|stretch| stretch.within(whole))
                .sum();
            took.worked += whole.length().saturating_sub(elsewhere);
        }
    }
    took
}

/// Whether an attempt has no end because its process died.
pub(super) fn is_interrupted(visit: &Visit, one: &Attempt, gaps: &[TimeRange]) -> bool {
    let is_last = visit
        .attempts
        .last()
        .is_some_and(|last| last.number == one.number);
    let died = || gaps.iter().any(|gap| gap.to > one.started);
    one.ended.is_none() && (!is_last || visit.ended.is_some() || died())
}
