//! The circuit breaker of a run: how often each step has failed in the same way.

use super::Graph;
use crate::definition::Pipeline;
use crate::entry::Problem;
use crate::state::Run;
use outlast_kernel::Timestamp;
use outlast_kernel::breaker::{Breaker, Trip};
use outlast_kernel::fingerprint::Fingerprint;

impl Graph {
    /// Counts a failure; the answer is why the step must end, if it must.
    pub(crate) fn count(
        &mut self,
        step: &str,
        problem: &Problem,
        now: Timestamp,
    ) -> Option<String> {
        let trip = self.breaker.failed(fingerprint(step, problem), now)?;
        Some(refused(&trip))
    }

    /// Forgets what was counted against a step.
    pub(crate) fn forgive(&mut self, step: &str) {
        self.breaker.succeeded(step);
    }
}

/// What was counted in the run since it was begun last, so that counts survive the process that made them.
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

/// Failures are the same when their messages are. What was broken one by one quotes what was made, which is never the same.
fn fingerprint(step: &str, problem: &Problem) -> Fingerprint {
    Fingerprint::new(step, problem.class, &problem.message)
}

pub(super) fn refused(trip: &Trip) -> String {
    let count = trip.count;
    format!("the circuit breaker ended it: the same failure came {count} times")
}
