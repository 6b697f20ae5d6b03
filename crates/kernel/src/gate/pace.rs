//! The pace: how fast a ramp lets callers through, and what is learnt of the provider's pace on the way.
//!
//! Integers only. A provider accepts a burst above its pace before it refuses anything, so a ramp that grows by a
//! part `g` of its rate in a second is ahead of a provider with one second of burst by the square root of `2 g` when
//! it hears of it: 14 % at the pace of the search, 8 % at that of the care.
//! Invariant: many refusals of calls that went out at one rate say no more than one of them.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Calls in a thousand seconds.
pub(super) type Rate = u32;

pub(super) const INITIAL_RATE: Rate = 5_000;
pub(super) const MAX_RATE: Rate = 1_000_000;
pub(super) const MIN_RATE: Rate = 500;

// What one success adds to the rate. Since there are as many successes in a second as the rate says, a thousandth of a
// call is a tenth of a percent in a second, at any rate.

/// Below a pace that the provider is known to keep up with.
const CATCH_UP_GROWTH: Rate = 200;
/// Above it. The slower it is, the more there may be to find.
const SEARCH_GROWTH: (Rate, Rate) = (10, 30);
/// Near a pace at which the provider refused something lately.
const CAREFUL_GROWTH: Rate = 3;
/// With nothing known, the search falls with the square of the rate, from this at one call a second: from 5/s it
/// reaches 10/s after 23 successes, 25/s after 413.
const UNKNOWN_PACE_SEARCH: u64 = 12_500;
/// The same for the search above a known pace.
const KNOWN_PACE_SEARCH: u64 = 6_250;
/// No success makes the ramp faster by more than this part of its rate.
const MAX_GROWTH_DIVISOR: Rate = 8;

// What one refusal takes from the rate at which it went out. In balance with the care of the successes, one call in
// seventy is refused: so the ramp neither gives in to one call that was larger than others nor leaves much of the
// provider unused.

/// So much, but of a fast ramp at least so small a part: it must get down, too.
const REFUSAL_CUT: (Rate, Rate) = (200, 256);
/// The same for a refusal that states a time: it stops everyone, and should be rarer.
const STATED_TIME_CUT: (Rate, Rate) = (800, 32);
/// And never more than this part.
const MAX_CUT_DIVISOR: Rate = 8;

/// A refusal that is older than this says nothing any more.
const REFUSAL_MEMORY: Duration = Duration::from_secs(90);
/// While all goes well, calls are counted over this long.
const COUNT_WINDOW: Duration = Duration::from_secs(10);
/// Whoever waits less than this stands in no line to speak of.
const QUEUE_THRESHOLD: Duration = Duration::from_millis(500);
/// For so long after there was a line, the pace counts as needed.
const BUSY_GRACE: Duration = Duration::from_secs(1);
/// A ramp without a line for this long is not needed any more. One that ended with the last waiter would let the next
/// burst meet the provider unpaced, again and again where there is about as much to do as it can carry.
const CALM_PERIOD: Duration = Duration::from_secs(30);
/// Who comes less late than this, or than a slot, does not push back those behind it. In microseconds: a store may take
/// that long to be asked, and then everyone comes late.
const LATENESS_GRACE_MICROS: u64 = 250_000;

// --- what is known ---

/// What a gate knows of its provider's pace, from one trouble to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PaceEstimate {
    /// The pace that the provider keeps up with; 0 when nothing is known.
    pub(super) rate: Rate,
    /// When it last refused to go faster.
    refused: Option<Timestamp>,
    /// Since when calls are counted, and how many were accepted.
    since: Timestamp,
    accepted: u32,
}

impl PaceEstimate {
    /// So many more calls were accepted while everyone could pass.
    pub(super) fn count_accepted(&mut self, calls: u32, now: Timestamp) {
        if now < self.since {
            self.restart_count(now);
        }
        let elapsed = now.since(self.since);
        if elapsed >= COUNT_WINDOW {
            let carried = u128::from(self.accepted) * 1_000_000 / elapsed.as_millis();
            let carried = Rate::try_from(carried).unwrap_or(MAX_RATE);
            // What was carried once is forgotten slowly: half of it in seven minutes.
            self.rate = carried.max(self.rate - self.rate / 64);
            self.restart_count(now);
        }
        self.accepted = self.accepted.saturating_add(calls);
    }

    /// Counts from now on.
    pub(super) fn restart_count(&mut self, now: Timestamp) {
        (self.since, self.accepted) = (now, 0);
    }

    /// Where the ramp begins when the trouble is over at once: just under what is known.
    pub(super) fn rate_after_brief_failure(&self) -> Rate {
        match self.rate {
            0 => INITIAL_RATE,
            rate => (rate / 8 * 7).max(MIN_RATE),
        }
    }

    /// Where it begins after an outage: at a quarter of what is known, but not below the usual beginning for that alone.
    pub(super) fn rate_after_outage(&self) -> Rate {
        match self.rate {
            0 => INITIAL_RATE,
            rate => (rate / 4).max(INITIAL_RATE.min(rate / 4 * 3)).max(MIN_RATE),
        }
    }
}

// --- the ramp ---

/// A call that was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The rate of the ramp when it was let through.
    pub(super) rate: Rate,
    pub(super) has_stated_time: bool,
}

/// Callers pass in order, one in each slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ramp {
    /// When the next caller may pass, in microseconds: a millisecond is too coarse for a pace.
    next_slot: u64,
    pub(super) rate: Rate,
    pub(super) failures_in_a_row: u32,
    /// When there was last a line to speak of.
    busy: Timestamp,
    #[serde(default)]
    pub(super) began: Timestamp,
}

impl Ramp {
    pub(super) fn begin(rate: Rate, now: Timestamp) -> Self {
        Self {
            next_slot: micros(now),
            rate,
            failures_in_a_row: 0,
            busy: now,
            began: now,
        }
    }

    /// When a caller with so many ahead of it may pass.
    pub(super) fn slot_time(&self, ahead: u32, not_before: Timestamp) -> Timestamp {
        let first = self.next_slot.max(micros(not_before));
        let slot = first.saturating_add(interval(self.rate) * u64::from(ahead));
        Timestamp::from_millis(slot.div_ceil(1000))
    }

    /// Somebody will have to wait so long.
    pub(super) fn record_wait(&mut self, wait: Duration, now: Timestamp) {
        if wait >= QUEUE_THRESHOLD {
            self.busy = now;
        }
    }

    /// Whether there was no line to speak of for a while: then nobody needs the ramp.
    pub(super) fn is_calm(&self, now: Timestamp) -> bool {
        now.since(self.busy) >= CALM_PERIOD
    }

    /// Takes the next slot.
    pub(super) fn take_slot(&mut self, now: Timestamp) {
        let (slot, now) = (interval(self.rate), micros(now));
        let late = now.saturating_sub(self.next_slot);
        let from = if late < slot.max(LATENESS_GRACE_MICROS) {
            self.next_slot
        } else {
            now
        };
        self.next_slot = from.saturating_add(slot);
    }

    /// A call was accepted while so many are in line.
    pub(super) fn record_success(
        &mut self,
        waiting: u32,
        learnt: &mut PaceEstimate,
        now: Timestamp,
    ) {
        self.failures_in_a_row = 0;
        self.record_wait(
            Duration::from_micros(interval(self.rate) * u64::from(waiting)),
            now,
        );
        // A pace that nobody needed was not tried, and its success says nothing.
        if now.since(self.busy) > BUSY_GRACE {
            return;
        }
        if learnt
            .refused
            .is_some_and(|at| now.since(at) > REFUSAL_MEMORY)
        {
            learnt.refused = None;
        }
        let growth = self.growth(learnt).min(self.rate / MAX_GROWTH_DIVISOR);
        self.rate = (self.rate + growth).min(MAX_RATE);
    }

    /// A call that went out at some rate was refused.
    pub(super) fn record_refusal(
        &mut self,
        refusal: Refusal,
        learnt: &mut PaceEstimate,
        now: Timestamp,
    ) {
        let most = refusal.rate / MAX_CUT_DIVISOR;
        let (cut, part) = match (learnt.refused, refusal.has_stated_time) {
            // The first refusal ends a search, which may be far ahead.
            (None, _) => (most, MAX_CUT_DIVISOR),
            (Some(_), true) => STATED_TIME_CUT,
            (Some(_), false) => REFUSAL_CUT,
        };
        let rate = refusal.rate - cut.max(refusal.rate / part).min(most);
        self.rate = self.rate.min(rate).max(MIN_RATE);
        self.next_slot = self.next_slot.max(micros(now) + interval(self.rate));
        self.failures_in_a_row += 1;
        self.busy = now;
        learnt.rate = self.rate;
        learnt.refused = Some(now);
    }

    fn growth(&self, learnt: &PaceEstimate) -> Rate {
        let square = u64::from(self.rate.max(1)).pow(2);
        let falling = |from: u64| Rate::try_from(from * 1_000_000 / square).unwrap_or(Rate::MAX);
        match learnt.rate {
            0 => falling(UNKNOWN_PACE_SEARCH).max(SEARCH_GROWTH.0),
            known if self.rate < known / 10 * 9 => CATCH_UP_GROWTH,
            _ if learnt.refused.is_some() => CAREFUL_GROWTH,
            _ => falling(KNOWN_PACE_SEARCH).clamp(SEARCH_GROWTH.0, SEARCH_GROWTH.1),
        }
    }
}

fn micros(time: Timestamp) -> u64 {
    time.as_millis().saturating_mul(1000)
}

/// Microseconds from one caller to the next.
fn interval(rate: Rate) -> u64 {
    1_000_000_000 / u64::from(rate.max(1))
}
