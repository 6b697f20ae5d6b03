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
    pub(crate) fn count(
        &mut self,
        step: &str,
        problem: &Problem,
        now: Timestamp,
    ) -> Option<String> {
        let trip = self.breaker.failed(fingerprint(step, problem), now)?;
        Some(refused(&trip))
    }

    /// Forgets the failures of a step.
    pub(crate) fn forgive(&mut self, step: &str) {
        self.breaker.succeeded(step);
    }
}

/// Rebuilds the counts since the last start of the run, so that they survive the process that counted.
pub(super) fn breaker(pipeline: &Pipeline, run: &Run) -> Breaker {
    let mut breaker = Breaker::new(pipeline.runtime.circuit_breaker.clone());
    for (name, state) in &run.steps {
        let attempts = state.visits.iter().flat_map(|visit| &visit.attempts);
        for attempt in attempts.filter(|attempt| attempt.started >= run.begun_last) {
            match (&attempt.problem, attempt.ended) {
                (Some(problem), Some(ended)) => {
                    drop(breaker.failed(fingerprint(name, problem), ended))
                }
                (None, Some(_)) => breaker.succeeded(name),
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

pub(super) fn refused(trip: &Trip) -> String {
    let count = trip.count;
    format!("the circuit breaker ended it: the same failure came {count} times")
}
