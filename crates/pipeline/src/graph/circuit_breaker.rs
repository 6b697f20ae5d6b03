//! The circuit breaker of a run: counts how often each step has failed in the same way.

use super::Graph;
use crate::definition::Pipeline;
use crate::entry::Problem;
use crate::state::Run;
use outlast_kernel::Timestamp;
use outlast_kernel::breaker::{Breaker, Trip};
use outlast_kernel::fingerprint::Fingerprint;

impl Graph {
    /// Counts a failure; returns the reason why the step must end, if it must.
    pub(crate) fn count_failure(
        &mut self,
        step: &str,
        problem: &Problem,
        now: Timestamp,
    ) -> Option<String> {
        let trip = self
            .breaker
            .record_failure(fingerprint(step, problem), now)?;
        Some(trip_message(&trip))
    }

    /// Forgets the failures of a step.
    pub(crate) fn reset_failures(&mut self, step: &str) {
        self.breaker.record_success(step);
    }
}

/// Rebuilds the counts since the last start of the run, so that they survive the process that counted.
pub(super) fn rebuild_breaker(pipeline: &Pipeline, run: &Run) -> Breaker {
    let mut breaker = Breaker::new(pipeline.runtime.circuit_breaker.clone());
    for (name, state) in &run.steps {
        let attempts = state.visits.iter().flat_map(|visit| &visit.attempts);
        for attempt in attempts.filter(|attempt| attempt.started >= run.last_started) {
            match (&attempt.problem, attempt.ended) {
                (Some(problem), Some(ended)) => {
                    drop(breaker.record_failure(fingerprint(name, problem), ended))
                }
                (None, Some(_)) => breaker.record_success(name),
                _ => {}
            }
        }
    }
    breaker
}

/// Failures are the same if their messages are. Violations are ignored, since they quote the result, which always
/// differs.
fn fingerprint(step: &str, problem: &Problem) -> Fingerprint {
    Fingerprint::new(step, problem.class, &problem.message)
}

pub(super) fn trip_message(trip: &Trip) -> String {
    let count = trip.count;
    format!("the circuit breaker ended it: the same failure came {count} times")
}
