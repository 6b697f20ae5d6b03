//! The pace: the provider's known rate, and the slots of a queue that is let through at a rate.
//!
//! Invariants: a rate stays within its bounds; refusals of calls that were sent before the last cut take nothing more.

use super::evidence::Report;
use super::rules;
use super::trial::LoadTrial;
use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// The highest recent rate of completions that were not refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownPace {
    /// In calls per second; zero while nothing is known.
    pub(super) rate: f64,
    /// That of the last window, once one is over.
    #[serde(default)]
    latest: Option<f64>,
    window_began: Timestamp,
    completions: u32,
}

impl KnownPace {
    pub(super) const fn restart(&mut self, now: Timestamp) {
        (self.window_began, self.completions) = (now, 0);
    }

    /// Begins a new window if a clock that was set back has left its begin in the future.
    pub(super) fn clamp_times(&mut self, now: Timestamp) {
        if self.window_began > now {
            self.restart(now);
        }
    }

    /// Returns whether the pace was measured over a window, even if nothing was completed in it.
    pub(super) const fn is_measured(&self) -> bool {
        self.latest.is_some()
    }

    /// Returns the rate of the last window.
    pub(super) fn latest(&self) -> f64 {
        self.latest.unwrap_or_default()
    }

    pub(super) fn count(&mut self, completions: u32, now: Timestamp) {
        if self.window_began == Timestamp::default() {
            self.window_began = now;
        }
        self.completions = self.completions.saturating_add(completions);
        let window = now.since(self.window_began);
        if window >= rules::PACE_WINDOW {
            let rate = f64::from(self.completions) / window.as_secs_f64();
            self.rate = rate.max(self.rate - self.rate * rules::PACE_FORGOTTEN);
            self.latest = Some(rate);
            self.restart(now);
        }
    }

    /// Returns the known rate, or that of the current window if it is higher.
    pub(super) fn at_least_current(&self, now: Timestamp) -> f64 {
        let elapsed = now.since(self.window_began).as_secs_f64().max(1.0);
        (f64::from(self.completions) / elapsed).max(self.rate)
    }

    /// Returns the rate at which a queue starts after an outage.
    pub(super) fn initial_rate(&self) -> f64 {
        (self.rate * rules::INITIAL_SHARE_OF_KNOWN).max(rules::INITIAL_RATE)
    }
}

/// A queue that is let through at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pace {
    /// In calls per second.
    pub(super) rate: f64,
    pub(super) began: Timestamp,
    /// The time of the next free slot, in microseconds: slots lie closer together than a millisecond.
    next_slot_micros: u64,
    /// The last time at which somebody waited.
    busy: Timestamp,
    refusal_score: f64,
    refused: Option<Timestamp>,
    failed: Option<Timestamp>,
    /// Refusals of calls that went out at a higher rate were sent before the last cut.
    cut_rate: Option<f64>,
}

/// Slots that a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slots {
    /// The time of the first slot, in microseconds since the epoch.
    pub(super) first_micros: u64,
    /// The time between two slots, in microseconds.
    pub(super) interval_micros: u64,
    /// The number of slots.
    pub(super) count: u32,
    /// The rate at which they go out, in calls per second.
    pub(super) rate: f64,
}

/// The shared facts that the rules of a pace need.
pub(super) struct PaceContext {
    pub(super) success_share: f64,
    /// Ready requests of all processes.
    pub(super) waiting: u32,
    pub(super) now: Timestamp,
}

impl Pace {
    pub(super) fn new(rate: f64, is_refused: bool, now: Timestamp) -> Self {
        Self {
            rate: rate.clamp(rules::MIN_RATE, rules::MAX_RATE),
            began: now,
            next_slot_micros: micros(now),
            busy: now,
            refusal_score: 0.0,
            refused: is_refused.then_some(now),
            failed: None,
            cut_rate: None,
        }
    }

    /// Learns from results. Returns whether nobody has waited for so long that the pace can end.
    pub(super) fn merge(
        &mut self,
        report: &Report,
        trial: &LoadTrial,
        known: &mut KnownPace,
        context: &PaceContext,
    ) -> bool {
        let now = context.now;
        if !report.overloaded_at.is_empty() {
            self.failed = Some(now);
        }
        let has_queue = f64::from(context.waiting) / self.rate >= rules::SHORT_WAIT;
        if has_queue || report.waited >= rules::SHORT_WAIT {
            self.busy = now;
        }
        for _ in 0..report.paced_successes {
            self.refusal_score = (self.refusal_score - rules::TOLERATED_REFUSALS).max(0.0);
            if now.since(self.busy) <= rules::GROWTH_AFTER_QUEUE && !trial.is_running() {
                let growth = self
                    .growth(known, context)
                    .min(self.rate * rules::MAX_GROWTH);
                self.rate = (self.rate + growth).min(rules::MAX_RATE);
            }
        }
        let overloads = trial
            .is_load_bound()
            .then_some(&report.overloaded_at)
            .into_iter()
            .flatten();
        for sent_at in report.refused_at.iter().chain(overloads) {
            self.refuse(*sent_at, known, now);
        }
        !has_queue && now.since(self.busy) >= rules::CALM
    }

    /// Returns the calls per second that a success adds: many below a known pace, else the more the longer nothing was
    /// refused.
    fn growth(&self, known: &KnownPace, context: &PaceContext) -> f64 {
        let last = Some(self.began).max(self.refused).max(self.failed);
        let quiet = context.now.since(last.unwrap_or_default()).as_secs_f64();
        let is_fast = match known.rate > 0.0 {
            true => self.rate < rules::BELOW_KNOWN * known.rate,
            false => self.refused.is_none(),
        };
        let careful = rules::CAREFUL_GROWTH * (1.0 + quiet / rules::QUIET).powi(2);
        let growth = match is_fast {
            true => rules::FAST_GROWTH,
            false => careful.min(rules::FAST_GROWTH),
        };
        let least = match known.rate > 0.0 {
            true => rules::MIN_SHARE_IN_GROWTH,
            false => rules::MIN_SHARE_IN_UNKNOWN_GROWTH,
        };
        growth / context.success_share.max(least)
    }

    fn refuse(&mut self, sent_at: f64, known: &mut KnownPace, now: Timestamp) {
        const TOLERANCE: f64 = 1e-9;
        const ABOVE_CUT: f64 = 1.02;
        self.refusal_score += 1.0;
        self.busy = now;
        let is_first = self.refused.is_none();
        if self.refusal_score >= rules::MAX_REFUSAL_SCORE || is_first {
            if self.cut_rate.is_none_or(|cut| sent_at <= cut + TOLERANCE) {
                let cut = sent_at * (1.0 - rules::CUT);
                self.rate = self.rate.min(cut).max(rules::MIN_RATE);
                self.cut_rate = Some(self.rate * ABOVE_CUT);
                self.refusal_score = 0.0;
                known.rate = match known.rate > 0.0 {
                    true => known.rate.min(self.rate),
                    false => self.rate,
                };
            }
        } else {
            self.rate = (self.rate - rules::FINE_CUT).max(rules::MIN_RATE);
        }
        if self.cut_rate.is_some_and(|cut| self.rate > cut) {
            self.cut_rate = None;
        }
        self.refused = Some(now);
    }

    /// Moves times that a clock which was set back has left in the future.
    pub(super) fn clamp_times(&mut self, now: Timestamp) {
        self.began = self.began.min(now);
        self.busy = self.busy.min(now);
        self.refused = self.refused.map(|refused| refused.min(now));
        self.failed = self.failed.map(|failed| failed.min(now));
        let latest =
            micros(now).saturating_add(in_micros(1.0 / self.rate + rules::SLOT_HORIZON_OF_OLDEST));
        self.next_slot_micros = self.next_slot_micros.min(latest);
    }

    /// Reserves slots for a process that wants so many; `None` if all slots of the near future are taken.
    pub(super) fn reserve(
        &mut self,
        wanted: u32,
        is_oldest: bool,
        now: Timestamp,
    ) -> Option<Slots> {
        let horizon = match is_oldest {
            true => rules::SLOT_HORIZON_OF_OLDEST,
            false => rules::SLOT_HORIZON,
        };
        let interval = 1.0 / self.rate;
        let now_micros = micros(now);
        if self.next_slot_micros > now_micros.saturating_add(in_micros(horizon.max(interval))) {
            return None;
        }
        let unused = now_micros.saturating_sub(self.next_slot_micros);
        if unused > in_micros(interval.max(rules::SLOT_HORIZON)) {
            self.next_slot_micros = now_micros;
        }
        let count = wanted.min(whole(self.rate * rules::SLOT_HORIZON)).max(1);
        let slots = Slots {
            first_micros: self.next_slot_micros,
            interval_micros: in_micros(interval),
            count,
            rate: self.rate,
        };
        self.next_slot_micros = slots.end_micros();
        Some(slots)
    }
}

impl Slots {
    const fn end_micros(&self) -> u64 {
        let all = self.interval_micros.saturating_mul(self.count as u64);
        self.first_micros.saturating_add(all)
    }

    /// Returns the times of the slots, rounded down to milliseconds.
    pub(super) fn times(self) -> impl Iterator<Item = Timestamp> {
        (0..self.count).map(move |number| {
            let after = self.interval_micros.saturating_mul(u64::from(number));
            Timestamp::from_millis(self.first_micros.saturating_add(after) / 1000)
        })
    }
}

const fn micros(time: Timestamp) -> u64 {
    time.as_millis().saturating_mul(1000)
}

fn in_micros(seconds: f64) -> u64 {
    u64::try_from(std::time::Duration::from_secs_f64(seconds).as_micros()).unwrap_or(u64::MAX)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float-to-integer cast saturates, and numbers of slots are small"
)]
const fn whole(number: f64) -> u32 {
    number as u32
}
