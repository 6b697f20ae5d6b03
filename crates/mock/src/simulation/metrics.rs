//! What is counted, and what is told of it at the end.

use super::scenario::{SETTLING_TIME, Scenario};
use outlast_kernel::time::millis;
use std::ops::Range;

/// What a run came to. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Calls that were made.
    pub attempts: usize,
    /// Calls that the provider accepted.
    pub successes: usize,
    /// Calls for each that was accepted, over the whole run.
    pub attempts_per_success: f64,
    /// Calls that were made in the outage.
    pub attempts_in_outage: usize,
    /// Agents that wanted a call when the provider came back.
    pub blocked: usize,
    /// From the recovery to the first success.
    pub first_success: Option<u64>,
    /// From the recovery until every blocked agent had its call; `None` when some never had.
    pub drained: Option<u64>,
    /// Calls that were refused after the recovery; without an outage, all that were.
    pub refused_after_recovery: usize,
    /// The most calls in any one second, for each that the provider can carry: until the blocked are served, or in a
    /// run without an outage once it has settled.
    pub peak: f64,
    /// Jain's index over the completed calls of each agent: 1 when all had the same.
    pub fairness: f64,
    /// What was accepted, for all that could have been, once the run has settled; only under overload.
    pub goodput: Option<f64>,
    /// Tokens of calls that were refused.
    pub wasted_tokens: u64,
    /// Calls that were given up, to be started again by whoever runs the agent.
    pub given_up: u32,
    /// From the store's return until every agent is in line again.
    pub rejoined_after: Option<u64>,
    /// A fingerprint of everything that happened.
    pub trace: u64,
    /// Calls in each equal part of the run: at most a thousand parts.
    pub attempts_over_time: Vec<u32>,
    /// How long such a part is.
    pub interval_millis: u64,
}

/// Everything that happened and counts.
pub(super) struct Recorder {
    scenario: Scenario,
    /// When calls were made; and whether they were accepted.
    attempts: Vec<(u64, bool)>,
    accepted_tokens: u64,
    wasted_tokens: u64,
    first_success: Option<u64>,
    completed: Vec<u32>,
    blocked: Vec<bool>,
    still_blocked: usize,
    initially_blocked: usize,
    drained: Option<u64>,
    pub(super) given_up: u32,
    pub(super) rejoined_after: Option<u64>,
    trace: u64,
}

impl Recorder {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let agents = scenario.agents as usize;
        Self {
            scenario: scenario.clone(),
            attempts: Vec::new(),
            accepted_tokens: 0,
            wasted_tokens: 0,
            first_success: None,
            completed: vec![0; agents],
            blocked: vec![false; agents],
            still_blocked: 0,
            initially_blocked: 0,
            drained: None,
            given_up: 0,
            rejoined_after: None,
            // The offset of FNV-1a.
            trace: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Something happened.
    pub(super) fn trace(&mut self, now: u64, what: u64, agent: usize) {
        for word in [now, what, agent as u64] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(super) fn attempt(&mut self, now: u64, tokens: u64, accepted: bool) {
        self.attempts.push((now, accepted));
        if !accepted {
            self.wasted_tokens += tokens;
        } else if now >= self.settled_at() {
            self.accepted_tokens += tokens;
        }
    }

    pub(super) fn success(&mut self, agent: usize, now: u64) {
        self.completed[agent] += 1;
        let recovery = self.recovery();
        if now >= recovery && self.first_success.is_none() {
            self.first_success = Some(now - recovery);
        }
        self.unblock(agent, now);
    }

    /// The provider is back, and these wait for it.
    pub(super) fn record_recovery(&mut self, unserved: impl Iterator<Item = usize>) {
        for agent in unserved {
            self.blocked[agent] = true;
            self.still_blocked += 1;
        }
        self.initially_blocked = self.still_blocked;
    }

    pub(super) fn unblock(&mut self, agent: usize, now: u64) {
        if std::mem::take(&mut self.blocked[agent]) {
            self.still_blocked -= 1;
            if self.still_blocked == 0 {
                self.drained = Some(now - self.recovery());
            }
        }
    }

    fn recovery(&self) -> u64 {
        self.scenario.outage_millis().end
    }

    /// From when on rates are measured.
    fn settled_at(&self) -> u64 {
        self.recovery() + millis(SETTLING_TIME)
    }

    // --- the end ---

    /// The numbers, without the agents that `died`.
    pub(super) fn into_metrics(self, died: impl Fn(usize) -> bool) -> Metrics {
        let successes = self
            .attempts
            .iter()
            .filter(|(_, accepted)| *accepted)
            .count();
        let outage = self.scenario.outage_millis();
        let refused_after = |(at, accepted): &&(u64, bool)| *at >= outage.end && !accepted;
        let interval_millis = millis(self.scenario.length).div_ceil(1000).max(1000);
        let alive = self
            .completed
            .iter()
            .enumerate()
            .filter(|(agent, _)| !died(*agent));
        Metrics {
            attempts: self.attempts.len(),
            successes,
            attempts_per_success: self.attempts.len() as f64 / successes.max(1) as f64,
            attempts_in_outage: self.attempts_between(&outage).len(),
            blocked: self.initially_blocked,
            first_success: self.first_success.filter(|_| !outage.is_empty()),
            drained: self.drained,
            refused_after_recovery: self.attempts.iter().filter(refused_after).count(),
            peak: self.peak(),
            fairness: jain_index(alive.map(|(_, completed)| f64::from(*completed))),
            goodput: self.goodput(),
            wasted_tokens: self.wasted_tokens,
            given_up: self.given_up,
            rejoined_after: self.rejoined_after,
            trace: self.trace,
            attempts_over_time: self.attempts_per_interval(interval_millis),
            interval_millis,
        }
    }

    fn attempts_between(&self, times: &Range<u64>) -> &[(u64, bool)] {
        let index = |time: u64| self.attempts.partition_point(|(at, _)| *at < time);
        &self.attempts[index(times.start)..index(times.end).max(index(times.start))]
    }

    fn peak(&self) -> f64 {
        let end = millis(self.scenario.length);
        let window = match &self.scenario.outage {
            Some(_) => self.recovery()..self.drained.map_or(end, |after| self.recovery() + after),
            None => self.settled_at()..end,
        };
        let attempts = self.attempts_between(&window);
        let (mut first, mut most) = (0, 0);
        for (last, (at, _)) in attempts.iter().enumerate() {
            while attempts[first].0 + 1000 <= *at {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        most as f64 / self.scenario.measured_capacity()
    }

    fn goodput(&self) -> Option<f64> {
        let end = millis(self.scenario.length);
        let seconds = end.saturating_sub(self.settled_at()) as f64 / 1000.0;
        let wanted = f64::from(self.scenario.capacity * self.scenario.load) / 100.0;
        if wanted <= self.scenario.measured_capacity() || seconds <= 0.0 {
            return None;
        }
        let accepted = if self.scenario.tokens_per_second.is_some() {
            self.accepted_tokens as f64 / self.scenario.tokens_per_call() as f64
        } else {
            let calls = self.attempts_between(&(self.settled_at()..end));
            calls.iter().filter(|(_, accepted)| *accepted).count() as f64
        };
        Some(accepted / self.scenario.measured_capacity() / seconds)
    }

    fn attempts_per_interval(&self, part: u64) -> Vec<u32> {
        let parts = millis(self.scenario.length).div_ceil(part);
        let mut counts = vec![0; usize::try_from(parts).unwrap_or_default()];
        for (at, _) in &self.attempts {
            let index = usize::try_from(at / part).unwrap_or(usize::MAX);
            if let Some(count) = counts.get_mut(index) {
                *count += 1;
            }
        }
        counts
    }
}

fn jain_index(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
        squares += value * value;
    }
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (count * squares)
    }
}
