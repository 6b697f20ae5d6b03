//! The state of a run: a fold over its entries.
//!
//! Invariant: the same entries give the same state, in every process. Not here: the next entries (see `graph` and
//! `graph::react`).

use super::entry::{Artifact, Entry, NextAction, Outcome, Problem, RunParameters};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use std::collections::BTreeMap;

/// The state of a run and its history.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The parameters of the run.
    pub parameters: RunParameters,
    /// The time of the first start.
    pub started: Timestamp,
    /// The time of the last start, if the run was started again.
    pub last_started: Timestamp,
    /// The time of the last entry.
    pub last_changed: Timestamp,
    /// The end of the run; `None` while it has not ended.
    pub ended: Option<EndStatus>,
    /// The steps, by id; a step without entries is missing.
    pub steps: BTreeMap<String, StepState>,
    /// The times at which a process resumed the run.
    pub resumed_at: Vec<Timestamp>,
    /// The tokens that all attempts used together.
    pub usage: Usage,
    /// The cost of all attempts together.
    pub cost: Cost,
    /// Whether an edge has led to the end of the run.
    pub is_completing: bool,
    /// The reason of the failure, once a step has failed that no other step repairs.
    pub failure_reason: Option<String>,
    /// The step of that failure.
    pub failed_step: Option<String>,
    /// The number of the journal turn that holds the current entries, from 1.
    pub turn: u64,
}

/// The end of a step visit or a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndStatus {
    /// The time of the end.
    pub at: Timestamp,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason why it did not succeed, in words.
    pub reason: Option<String>,
}

/// The state of a step.
#[derive(Clone, Debug, Default)]
pub struct StepState {
    /// The current phase.
    pub phase: Phase,
    /// All visits, in order.
    pub visits: Vec<Visit>,
    /// The artifacts of the last successful visit, by name.
    pub artifacts: BTreeMap<String, Artifact>,
    /// The fields of the output that conditions can use.
    pub context: BTreeMap<String, String>,
    /// The number of iterations, if the step is a loop.
    pub iterations: u32,
    /// The step that this one is repairing, if any.
    pub rework_of: Option<String>,
    /// Whether the last visit was a rework visit, which repairs another step.
    pub is_rework: bool,
}

/// The phase of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not started, or reset.
    #[default]
    Idle,
    /// Something leads to the step: a visit is due.
    Triggered,
    /// The step is visited, and its next attempt can begin.
    Ready,
    /// An attempt is under way.
    Working,
    /// The step waits for its next attempt.
    Waiting {
        /// The beginning of the wait.
        since: Timestamp,
        /// The end of the wait.
        until: Timestamp,
        /// The cause of the failed attempt.
        cause: Cause,
    },
    /// The step waits for a person or a time.
    AtGate {
        /// The end of the wait.
        until: Timestamp,
    },
    /// Another step repairs the failure of this one.
    Reworking,
    /// The step has ended.
    Ended(Outcome),
}

impl Phase {
    /// Returns whether the step has ended.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Returns whether the step is visited and has not ended.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Idle | Self::Triggered | Self::Ended(_))
    }
}

/// A visit of a step.
#[derive(Clone, Debug, Default)]
pub struct Visit {
    /// The number of the visit, from 1.
    pub number: u32,
    /// The time of its beginning.
    pub started: Timestamp,
    /// Its end.
    pub ended: Option<EndStatus>,
    /// The attempts, in order.
    pub attempts: Vec<Attempt>,
    /// The time during which the gate was open, if the step is a gate.
    pub gate: Option<WaitPeriod>,
    /// The answer at the gate.
    pub choice: Option<String>,
    /// Whether the answer is the default because nobody answered.
    pub is_default_choice: bool,
}

/// An attempt of a visit.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The time of its beginning.
    pub started: Timestamp,
    /// The time of its end.
    pub ended: Option<Timestamp>,
    /// The agent or model that worked, if it was not the first choice.
    pub fallback: Option<String>,
    /// The session in which a model was asked.
    pub session: Option<String>,
    /// The id and the start time of the process that was started last.
    pub process: Option<(u32, u64)>,
    /// The problem that ended the attempt.
    pub problem: Option<Problem>,
    /// The action after the attempt.
    pub next: Option<NextAction>,
    /// The tokens that the attempt used.
    pub usage: Usage,
    /// The cost of the attempt.
    pub cost: Cost,
    /// The warnings.
    pub warnings: Vec<String>,
    /// The waits for a provider within the attempt, and the wait after it.
    pub waits: Vec<WaitPeriod>,
}

/// A period of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPeriod {
    /// The beginning.
    pub since: Timestamp,
    /// The scheduled end.
    pub until: Timestamp,
    /// The actual end.
    pub ended: Option<Timestamp>,
    /// The cause of the wait; `None` at a gate.
    pub cause: Option<Cause>,
}

impl Run {
    /// Returns the state of a run after the given entries.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = (Timestamp, &'a Entry)>) -> Self {
        let mut run = Self::default();
        for (time, entry) in entries {
            run.apply(time, entry);
        }
        run
    }

    /// Applies one more entry.
    pub fn apply(&mut self, time: Timestamp, entry: &Entry) {
        self.last_changed = self.last_changed.max(time);
        match entry {
            Entry::RunStarted(begun) => self.begin(time, begun),
            Entry::RunResumed {} => self.resumed_at.push(time),
            Entry::RunEnded { outcome, reason } => {
                self.ended = Some(EndStatus {
                    at: time,
                    outcome: *outcome,
                    reason: reason.clone(),
                });
            }
            Entry::EdgeTaken { to: None, .. } => self.is_completing = true,
            Entry::EdgeTaken {
                to: Some(to),
                resets,
                ..
            } => {
                self.reset(resets);
                let to = self.step_mut(to);
                (to.phase, to.is_rework) = (Phase::Triggered, false);
            }
            Entry::LoopRepeated { resets, .. } => {
                self.reset(resets);
                self.apply_to_step(time, entry);
            }
            Entry::ReworkStarted { step, by } => {
                self.step_mut(step).phase = Phase::Reworking;
                let other = self.step_mut(by);
                // A step repairs one failure at a time: later ones wait, also while an edge has called the repairing
                // step.
                if matches!(other.phase, Phase::Idle | Phase::Ended(_)) {
                    other.phase = Phase::Triggered;
                    other.rework_of = Some(step.clone());
                    other.is_rework = true;
                }
            }
            _ => self.apply_to_step(time, entry),
        }
    }

    /// Returns the phase of the given step.
    pub fn phase(&self, step: &str) -> Phase {
        self.steps
            .get(step)
            .map(|step| step.phase)
            .unwrap_or_default()
    }

    /// Returns how many times the given step was visited.
    pub fn visits(&self, step: &str) -> u32 {
        let visits = self.steps.get(step).map_or(0, |step| step.visits.len());
        u32::try_from(visits).unwrap_or(u32::MAX)
    }

    /// Returns the step that the given one is repairing, if any.
    pub(crate) fn rework_of(&self, step: &str) -> Option<&str> {
        self.steps.get(step)?.rework_of.as_deref()
    }

    fn step_mut(&mut self, step: &str) -> &mut StepState {
        self.steps.entry(step.to_owned()).or_default()
    }

    fn reset(&mut self, steps: &[String]) {
        for step in steps {
            let step = self.step_mut(step);
            (step.phase, step.iterations) = (Phase::Idle, 0);
        }
    }

    /// Restarts a run that had ended: steps that did not succeed are retried, the others keep their results.
    fn begin(&mut self, time: Timestamp, begun: &RunParameters) {
        if self.turn == 0 {
            self.started = time;
        }
        self.turn += 1;
        self.last_started = time;
        self.parameters = begun.clone();
        self.ended = None;
        self.is_completing = false;
        (self.failure_reason, self.failed_step) = (None, None);
        for step in self.steps.values_mut() {
            if !matches!(
                step.phase,
                Phase::Ended(Outcome::Completed | Outcome::Continued)
            ) {
                // A called step stays called; a step that repaired another one waits for the next rework.
                step.phase = match step.phase {
                    Phase::Idle => Phase::Idle,
                    _ if step.is_rework => Phase::Idle,
                    _ => Phase::Triggered,
                };
                step.rework_of = None;
                step.iterations = 0;
            }
        }
    }

    fn apply_to_step(&mut self, time: Timestamp, entry: &Entry) {
        let Some(name) = entry.step() else { return };
        if let Entry::AttemptEnded { usage, cost, .. } = entry {
            self.usage = self.usage.plus(*usage);
            self.cost = Cost(self.cost.0.saturating_add(cost.0));
        }
        if let Entry::StepEnded {
            fails_run: true,
            reason,
            ..
        } = entry
        {
            let reason = reason.as_deref().unwrap_or("it failed");
            // The first failure is the reason.
            if self.failure_reason.is_none() {
                self.failure_reason = Some(format!("step `{name}`: {reason}"));
                self.failed_step = Some(name.to_owned());
            }
        }
        self.step_mut(name).apply(time, entry);
    }
}

impl StepState {
    /// Returns the current or the last visit.
    pub fn visit(&self) -> Option<&Visit> {
        self.visits.last()
    }

    /// Returns the current or the last attempt.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.visits.last()?.attempts.last()
    }

    fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        self.visits.last_mut()?.attempts.last_mut()
    }

    fn apply(&mut self, time: Timestamp, entry: &Entry) {
        match entry {
            Entry::StepStarted { visit, .. } => self.begin_visit(time, *visit),
            Entry::AttemptStarted { .. } => self.begin_attempt(time, entry),
            Entry::ProcessStarted { pid, born, .. } => {
                if let Some(attempt) = self.attempt_mut() {
                    attempt.process = Some((*pid, *born));
                }
            }
            Entry::AttemptEnded { .. } => self.end_attempt(time, entry),
            Entry::WaitEnded { .. } => {
                self.phase = Phase::Ready;
                if let Some(wait) = self.attempt_mut().and_then(|it| it.waits.last_mut()) {
                    wait.ended = Some(time);
                }
            }
            Entry::GateOpened { until, .. } => self.open_gate(time, *until),
            Entry::GateClosed {
                choice, by_default, ..
            } => {
                if let Some(visit) = self.visits.last_mut() {
                    visit.choice.clone_from(choice);
                    visit.is_default_choice = *by_default;
                    if let Some(gate) = &mut visit.gate {
                        gate.ended = Some(time);
                    }
                }
            }
            Entry::LoopRepeated { iterations, .. } => {
                self.iterations = *iterations;
            }
            Entry::StepEnded { .. } => self.end(time, entry),
            _ => {}
        }
    }

    fn begin_visit(&mut self, time: Timestamp, number: u32) {
        self.phase = Phase::Ready;
        self.visits.push(Visit {
            number,
            started: time,
            ..Visit::default()
        });
    }

    fn begin_attempt(&mut self, time: Timestamp, entry: &Entry) {
        let Entry::AttemptStarted {
            attempt,
            instead,
            session,
            ..
        } = entry
        else {
            return;
        };
        self.phase = Phase::Working;
        let Some(visit) = self.visits.last_mut() else {
            return;
        };
        visit.attempts.push(Attempt {
            number: *attempt,
            started: time,
            fallback: instead.clone(),
            session: session.clone(),
            ..Attempt::default()
        });
    }

    fn end_attempt(&mut self, time: Timestamp, entry: &Entry) {
        let Entry::AttemptEnded {
            usage,
            cost,
            problem,
            next,
            warnings,
            ..
        } = entry
        else {
            return;
        };
        let cause = problem.as_ref().map(|problem| problem.cause);
        self.phase = match (next, cause) {
            (NextAction::Wait { since, until }, Some(cause)) => Phase::Waiting {
                since: *since,
                until: *until,
                cause,
            },
            (NextAction::Again | NextAction::FallBack { .. }, _) => Phase::Ready,
            // A later entry of the same batch states how the step ended.
            _ => self.phase,
        };
        let Some(attempt) = self.attempt_mut() else {
            return;
        };
        attempt.ended = Some(time);
        attempt.problem.clone_from(problem);
        attempt.next = Some(next.clone());
        (attempt.usage, attempt.cost) = (*usage, *cost);
        attempt.warnings.clone_from(warnings);
        if let NextAction::Wait { since, until } = next {
            attempt.waits.push(WaitPeriod {
                since: *since,
                until: *until,
                ended: None,
                cause,
            });
        }
    }

    fn open_gate(&mut self, time: Timestamp, until: Timestamp) {
        self.phase = Phase::AtGate { until };
        if let Some(visit) = self.visits.last_mut() {
            visit.gate = Some(WaitPeriod {
                since: time,
                until,
                ended: None,
                cause: None,
            });
        }
    }

    fn end(&mut self, time: Timestamp, entry: &Entry) {
        let Entry::StepEnded {
            visit,
            outcome,
            artifacts,
            context,
            reason,
            ..
        } = entry
        else {
            return;
        };
        self.phase = Phase::Ended(*outcome);
        (self.rework_of, self.iterations) = (None, 0);
        self.artifacts.clone_from(artifacts);
        self.context.clone_from(context);
        let Some(last) = self.visits.last_mut().filter(|last| last.number == *visit) else {
            return;
        };
        last.ended = Some(EndStatus {
            at: time,
            outcome: *outcome,
            reason: reason.clone(),
        });
        // An attempt that was ended while it worked has no entry for its own end.
        if let Some(attempt) = last.attempts.last_mut() {
            attempt.ended.get_or_insert(time);
        }
    }
}
