//! The load trial: finds out whether our own load is why the provider is overloaded.
//!
//! At the rate that the provider accepted, do nearly all calls succeed? Then the load was the cause, and overload errors count
//! as refusals. Invariant: a trial ends with the state in which it began.

use super::evidence::Report;
use super::rules;
use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest time between two trials.
const MAX_PAUSE: Duration = Duration::from_secs(16 * 60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadTrial {
    /// The success share before the running trial.
    share_before: Option<f64>,
    is_load_bound: bool,
    successes: u32,
    results: u32,
    /// Windows in a row that speak against the load as cause.
    refutations: u32,
    failed_trials: u32,
    not_before: Timestamp,
}

impl LoadTrial {
    pub(super) const fn is_running(&self) -> bool {
        self.share_before.is_some()
    }

    /// Returns whether overload errors count as refusals.
    pub(super) const fn is_load_bound(&self) -> bool {
        self.is_load_bound
    }

    pub(super) fn may_start(&self, now: Timestamp) -> bool {
        now >= self.not_before
    }

    /// Moves a time that a clock which was set back has left too far in the future.
    pub(super) fn clamp_times(&mut self, now: Timestamp) {
        self.not_before = self.not_before.min(now + MAX_PAUSE);
    }

    pub(super) const fn start(&mut self, success_share: f64) {
        self.reset();
        self.share_before = Some(success_share);
    }

    /// Ends a running trial without a result, and forgets the results of the current window.
    pub(super) const fn reset(&mut self) {
        self.share_before = None;
        (self.successes, self.results, self.refutations) = (0, 0, 0);
    }

    /// Learns from results of a pace that began at the given time. Returns whether the load is not the cause, so that the
    /// pace has no reason.
    pub(super) fn judge(&mut self, report: &Report, began: Timestamp, now: Timestamp) -> bool {
        if !self.is_running() && !self.is_load_bound {
            return false;
        }
        let failures = u32::try_from(report.overloaded_at.len()).unwrap_or(u32::MAX);
        self.successes = self.successes.saturating_add(report.paced_successes);
        self.results = self
            .results
            .saturating_add(report.paced_successes)
            .saturating_add(failures);
        let shortest = rules::MIN_TRIAL.max(rules::TRIAL_LATENCIES * report.usual_latency);
        let is_short = self.is_running() && now < began + Duration::from_secs_f64(shortest);
        if self.results < rules::TRIAL_RESULTS || is_short {
            return false;
        }
        let share = f64::from(self.successes) / f64::from(self.results);
        (self.successes, self.results) = (0, 0);
        let is_refuted = match self.share_before.take() {
            Some(before) => {
                self.refutations = 0;
                self.is_load_bound = share >= f64::midpoint(1.0, before);
                !self.is_load_bound
            }
            None if share < rules::LOAD_REFUTED_BELOW => {
                self.refutations += 1;
                self.refutations >= rules::MAX_REFUTATIONS
            }
            None => {
                self.refutations = 0;
                false
            }
        };
        if is_refuted {
            self.is_load_bound = false;
            self.failed_trials = self.failed_trials.saturating_add(1);
            let minutes = 1_u64 << self.failed_trials.min(4);
            self.not_before = now + Duration::from_secs(60 * minutes);
        }
        is_refuted
    }
}
