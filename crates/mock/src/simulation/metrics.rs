//! The numbers of a run.

use super::provider::seconds;
use super::scenario::{Scenario, span};
use super::world::{CallResult, LoggedCall, Success, World};
use outlast_kernel::time::millis;
use std::ops::Range;

/// Rates are measured from here on.
const WARM: u64 = 60_000;
/// The window of a peak.
const PEAK_WINDOW: u64 = 5000;
/// The largest number of parts of [`Metrics::calls_over_time`].
const MAX_PARTS: u64 = 1000;

/// The numbers of a run. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// The number of calls.
    pub calls: usize,
    /// The number of requests that succeeded.
    pub successes: usize,
    /// Calls per success.
    pub calls_per_success: f64,
    /// Units that the provider served per second, after the first minute.
    pub goodput: f64,
    /// The median time from the arrival of a request to its answer.
    pub median_wait: u64,
    /// The 99th percentile of it.
    pub long_wait: u64,
    /// Calls that were refused after the first minute, relative to all.
    pub refused: f64,
    /// The highest number of calls in five seconds, relative to the capacity: after a recovery until the last one who waited
    /// is served; without an outage, after the first minute.
    pub peak: f64,
    /// The outage or the usage limit, if there was one.
    pub blackout: Option<Blackout>,
    /// Requests that a client gave up, and that its user started again.
    pub given_up: u32,
    /// The number of times that the gate went down.
    pub downs: u32,
    /// The time from the store's return until all processes used it again.
    pub rejoined_after: Option<u64>,
    /// A fingerprint of all calls and successes.
    pub trace: u64,
    /// Calls in each equal part of the run; at most a thousand parts.
    pub calls_over_time: Vec<u32>,
    /// The length of such a part.
    pub interval_millis: u64,
}

/// The numbers of a period in which nothing worked, and of the recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blackout {
    /// Calls during it.
    pub calls: usize,
    /// Requests that waited at its end.
    pub blocked: usize,
    /// The time from its end to the first success.
    pub first_success: Option<u64>,
    /// The time from its end until all who waited had their answer; `None` if some never had.
    pub drained: Option<u64>,
}

pub(super) fn measure(scenario: &Scenario, world: &World) -> Metrics {
    let end = millis(scenario.duration());
    let blackout = scenario.blackout_millis();
    let seen = blackout.clone().map(|period| recovery(world, &period));
    let recovery = match (&blackout, seen.and_then(|seen| seen.drained)) {
        (Some(period), Some(drained)) => period.end..(period.end + drained + PEAK_WINDOW).min(end),
        (Some(period), None) => period.end..end,
        (None, _) => WARM..end,
    };
    let late = within(&world.calls, &(WARM..end));
    let served = |call: &&LoggedCall| call.result == CallResult::Served;
    let refused = late
        .iter()
        .filter(|call| call.result == CallResult::Refused);
    let units: f64 = late.iter().filter(served).map(|call| call.size).sum();
    let mut waits: Vec<u64> = answered(world).map(|it| it.at - it.arrived).collect();
    waits.sort_unstable();
    let interval_millis = end.div_ceil(MAX_PARTS).max(1000);
    let successes = world.successes.len();
    Metrics {
        calls: world.calls.len(),
        successes,
        calls_per_success: ratio(world.calls.len(), successes),
        goodput: units / span(&(WARM..end)).max(1.0),
        median_wait: percentile(&waits, 50),
        long_wait: percentile(&waits, 99),
        refused: ratio(refused.count(), late.len()),
        peak: peak(within(&world.calls, &recovery)) / scenario.capacity_at_end(),
        blackout: seen,
        given_up: world.given_up,
        downs: world.gate().downs(),
        rejoined_after: world.rejoined_after(),
        trace: trace(world),
        calls_over_time: over_time(&world.calls, end, interval_millis),
        interval_millis,
    }
}

/// Returns the successes of ordinary requests.
fn answered(world: &World) -> impl Iterator<Item = &Success> + Clone {
    world.successes.iter().filter(|success| success.label == 0)
}

fn recovery(world: &World, period: &Range<u64>) -> Blackout {
    let after = answered(world).filter(|success| success.at >= period.end);
    let first = after.clone().next().map(|first| first.at - period.end);
    let blocked: Vec<_> = after.filter(|it| it.arrived < period.end).collect();
    let unanswered = world.unanswered(period.end);
    let last = blocked.last().map_or(0, |last| last.at - period.end);
    Blackout {
        calls: within(&world.calls, period).len(),
        blocked: blocked.len() + unanswered,
        first_success: first,
        drained: (unanswered == 0).then_some(last),
    }
}

/// Returns the calls of a period; they are in order.
pub(super) fn within<'a>(calls: &'a [LoggedCall], period: &Range<u64>) -> &'a [LoggedCall] {
    let index = |time: u64| calls.partition_point(|call| call.at < time);
    let first = index(period.start);
    &calls[first..index(period.end).max(first)]
}

/// Returns the highest rate of calls over five seconds, per second.
pub(super) fn peak(calls: &[LoggedCall]) -> f64 {
    let (mut first, mut most) = (0, 0);
    for (last, call) in calls.iter().enumerate() {
        while calls[first].at + PEAK_WINDOW <= call.at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    number(most) / seconds(PEAK_WINDOW)
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

fn over_time(calls: &[LoggedCall], end: u64, part: u64) -> Vec<u32> {
    let mut counts = vec![0; usize::try_from(end.div_ceil(part)).unwrap_or_default()];
    for call in calls {
        let index = usize::try_from(call.at / part).unwrap_or(usize::MAX);
        if let Some(count) = counts.get_mut(index) {
            *count += 1;
        }
    }
    counts
}

/// FNV-1a over the words of all calls and successes.
fn trace(world: &World) -> u64 {
    let mut trace = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| trace = (trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    for call in &world.calls {
        add(call.at);
        add(call.result as u64);
    }
    for success in &world.successes {
        add(success.at);
        add(success.arrived);
    }
    trace
}

fn ratio(part: usize, whole: usize) -> f64 {
    number(part) / number(whole.max(1))
}

pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
