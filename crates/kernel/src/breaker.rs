//! The circuit breaker: ends a step that fails the same way again and again.
//!
//! Only the same fingerprint counts, within a window. A tripped step is refused until a cooldown has passed; then one
//! trial goes first. If it fails the same way, the step is refused again at once; if it succeeds, its record is
//! cleared.
//! Invariant: memory is bounded, however many different failures a step has.

use crate::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::verdict::Class;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// The maximum number of different failures remembered for one step; the one seen longest ago is forgotten first.
const MAX_FINGERPRINTS: usize = 64;
/// The maximum number of times remembered for one failure.
const MAX_SIGHTINGS: usize = 1000;

/// The rules for tripping: when, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    limit: NonZeroU32,
    tracked: Vec<Class>,
    window: Duration,
    cooldown: Duration,
}

/// An invalid configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A cancellation is a person's decision, not a fault to count.
    #[error("`canceled` cannot be among tracked_classes: a cancellation is not a fault")]
    CanceledTracked,
    /// The limit is higher than the number of remembered times.
    #[error("circuit_breaker.limit may be at most {MAX_SIGHTINGS}")]
    LimitTooHigh,
}

impl Config {
    /// Creates a configuration that trips at the `limit`th sighting of one failure of a tracked class.
    pub fn new(limit: NonZeroU32, tracked: &[Class]) -> Result<Self, Error> {
        if tracked.contains(&Class::Canceled) {
            return Err(Error::CanceledTracked);
        }
        if usize::try_from(limit.get()).is_ok_and(|limit| limit > MAX_SIGHTINGS) {
            return Err(Error::LimitTooHigh);
        }
        Ok(Self {
            limit,
            tracked: tracked.to_vec(),
            ..Self::default()
        })
    }

    /// Makes the breaker allow a trial after `cooldown`.
    #[must_use]
    pub fn with_cooldown(self, cooldown: Duration) -> Self {
        Self { cooldown, ..self }
    }
}

impl Default for Config {
    /// Three sightings, for the classes that a repetition does not fix; a day's memory, half an hour's cooldown.
    fn default() -> Self {
        Self {
            limit: NonZeroU32::MIN.saturating_add(2),
            tracked: vec![
                Class::Deterministic,
                Class::ContractFailure,
                Class::TestFailure,
            ],
            window: Duration::from_secs(24 * 3600),
            cooldown: Duration::from_secs(1800),
        }
    }
}

/// The decision whether a step may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakerDecision {
    /// It may run.
    Run,
    /// It may run once, as a trial.
    Trial,
    /// It may not run.
    Refused(Trip),
}

/// An open breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The repeated failure.
    pub fingerprint: Fingerprint,
    /// The number of sightings within the window.
    pub count: u32,
    /// The time of the next trial.
    pub until: Timestamp,
}

/// The breaker's memory, for all steps of a run.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    config: Config,
    steps: BTreeMap<String, Step>,
}

#[derive(Clone, Debug, Default)]
struct Step {
    sightings: BTreeMap<Fingerprint, Vec<Timestamp>>,
    trip: Option<Trip>,
    trial_running: bool,
}

impl Breaker {
    /// Creates an empty memory.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            steps: BTreeMap::new(),
        }
    }

    /// Decides whether the step may run now. The result of a granted trial must be reported.
    pub fn check(&mut self, step: &str, now: Timestamp) -> BreakerDecision {
        let Some(step) = self.steps.get_mut(step) else {
            return BreakerDecision::Run;
        };
        match &step.trip {
            None => BreakerDecision::Run,
            Some(trip) if step.trial_running || now < trip.until => {
                BreakerDecision::Refused(trip.clone())
            }
            Some(_) => {
                step.trial_running = true;
                BreakerDecision::Trial
            }
        }
    }

    /// Records a failure; returns the trip, if the step is refused from now on.
    pub fn record_failure(&mut self, fingerprint: Fingerprint, now: Timestamp) -> Option<Trip> {
        if !self.config.tracked.contains(&fingerprint.class()) {
            self.end_untracked_trial(fingerprint.step());
            return None;
        }
        let step = self.steps.entry(fingerprint.step().to_owned()).or_default();
        let count = step.record_sighting(&fingerprint, now, self.config.window);
        let same_again = step.trial_running
            && step
                .trip
                .as_ref()
                .is_some_and(|trip| trip.fingerprint == fingerprint);
        let was_trial = std::mem::take(&mut step.trial_running);
        if same_again || count >= self.config.limit.get() {
            step.trip = Some(Trip {
                fingerprint,
                count,
                until: now + self.config.cooldown,
            });
        } else if was_trial {
            // A trial that met another failure has shown that the first one is over.
            step.trip = None;
        }
        step.trip.clone()
    }

    /// Records a success: the step's record is cleared.
    pub fn record_success(&mut self, step: &str) {
        self.steps.remove(step);
    }

    fn end_untracked_trial(&mut self, step: &str) {
        if let Some(step) = self.steps.get_mut(step) {
            step.trial_running = false;
        }
    }
}

impl Step {
    fn record_sighting(
        &mut self,
        fingerprint: &Fingerprint,
        now: Timestamp,
        window: Duration,
    ) -> u32 {
        for times in self.sightings.values_mut() {
            times.retain(|seen| now.since(*seen) < window);
        }
        self.sightings.retain(|_, times| !times.is_empty());
        if self.sightings.len() >= MAX_FINGERPRINTS && !self.sightings.contains_key(fingerprint) {
            self.forget_oldest();
        }
        let times = self.sightings.entry(fingerprint.clone()).or_default();
        if times.len() == MAX_SIGHTINGS {
            times.remove(0);
        }
        times.push(now);
        u32::try_from(times.len()).unwrap_or(u32::MAX)
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .sightings
            .iter()
            .min_by_key(|(_, times)| times.last().copied())
            .map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.sightings.remove(&oldest);
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
