//! Where a run stands: a fold over its entries.
//!
//! Invariant: the same entries give the same state, in whichever process. Not here: what comes next (see `graph` and
//! `react`).

use super::entry::{Artifact, Entry, NextAction, Outcome, Problem, RunParameters};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use std::collections::BTreeMap;

/// Where a run stands, and how it got there.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What it was begun with.
    pub begun: RunParameters,
    /// When it began first.
    pub started: Timestamp,
    /// When it was begun last, if it was begun again.
    pub begun_last: Timestamp,
    /// When something happened last.
    pub changed: Timestamp,
    /// When and how it ended; `None` as long as it has not.
    pub ended: Option<EndStatus>,
    /// Its steps, by their ids; those of which nothing was heard yet are not here.
    pub steps: BTreeMap<String, StepState>,
    /// When processes took it up again.
    pub resumed: Vec<Timestamp>,
    /// What all attempts used together.
    pub usage: Usage,
    /// What they cost.
    pub cost: Cost,
    /// Whether an edge has led to the end.
    pub is_completing: bool,
    /// Why it has failed, once a step has failed that nothing makes good for.
    pub failed: Option<String>,
    /// That step.
    pub failed_step: Option<String>,
    /// The number of the turn of the journal that it is written into, from 1.
    pub turn: u64,
}

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndStatus {
    /// When.
    pub at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// Why it did not end well, in words.
    pub reason: Option<String>,
}

/// Where a step stands.
#[derive(Clone, Debug, Default)]
pub struct StepState {
    /// What it is doing.
    pub phase: Phase,
    /// Every time that it was visited, in order.
    pub visits: Vec<Visit>,
    /// What it has made, by name, in its last visit that ended well.
    pub artifacts: BTreeMap<String, Artifact>,
    /// The fields of its output that conditions can ask for.
    pub context: BTreeMap<String, String>,
    /// How often the steps of a loop have run, if it is one.
    pub iterations: u32,
    /// The step that it makes good for, while it does.
    pub reworks: Option<String>,
    /// Whether it was visited last to make good for another one.
    pub is_rework: bool,
}

/// What a step is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing yet, or nothing since it was reset.
    #[default]
    Idle,
    /// Something leads to it: it is to be visited.
    Called,
    /// It is visited, and its next attempt can begin.
    Ready,
    /// An attempt is under way.
    Working,
    /// It waits for its next attempt.
    Waiting {
        /// Since then.
        since: Timestamp,
        /// Until then.
        until: Timestamp,
        /// What went wrong.
        cause: Cause,
    },
    /// It waits for a person or a time.
    AtGate {
        /// Until then.
        until: Timestamp,
    },
    /// Another step makes good for it.
    Reworking,
    /// It is over.
    Ended(Outcome),
}

impl Phase {
    /// Whether it is over.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Whether it is visited, and not over.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Idle | Self::Called | Self::Ended(_))
    }
}

/// One visit of a step.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub started: Timestamp,
    /// How it ended.
    pub ended: Option<EndStatus>,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// When a gate was open, if it is one.
    pub gate: Option<WaitPeriod>,
    /// What was answered there.
    pub choice: Option<String>,
    /// Whether nobody answered, and that is what counts then.
    pub is_by_default: bool,
}

/// One attempt of a visit.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Who worked, when it was not the first choice.
    pub instead: Option<String>,
    /// The session in which a model was asked.
    pub session: Option<String>,
    /// The process that was started last, and when it was born.
    pub process: Option<(u32, u64)>,
    /// What went wrong.
    pub problem: Option<Problem>,
    /// What was done about it.
    pub next: Option<NextAction>,
    /// What it used.
    pub usage: Usage,
    /// What it cost.
    pub cost: Cost,
    /// What was worth saying.
    pub warnings: Vec<String>,
    /// The waits for a provider within it, and the one after it.
    pub waits: Vec<WaitPeriod>,
}

/// A time that was waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPeriod {
    /// When it began.
    pub since: Timestamp,
    /// When it was to end.
    pub until: Timestamp,
    /// When it did.
    pub ended: Option<Timestamp>,
    /// What it was for; nothing at a gate.
    pub cause: Option<Cause>,
}

impl Run {
    /// A run as its entries have it.
    pub fn of<'a>(entries: impl IntoIterator<Item = (Timestamp, &'a Entry)>) -> Self {
        let mut run = Self::default();
        for (time, entry) in entries {
            run.apply(time, entry);
        }
        run
    }

    /// Adds what happened.
    pub fn apply(&mut self, time: Timestamp, entry: &Entry) {
        self.changed = self.changed.max(time);
        match entry {
            Entry::RunStarted(begun) => self.begin(time, begun),
            Entry::RunResumed {} => self.resumed.push(time),
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
                (to.phase, to.is_rework) = (Phase::Called, false);
            }
            Entry::LoopRepeated { resets, .. } => {
                self.reset(resets);
                self.apply_to_step(time, entry);
            }
            Entry::ReworkStarted { step, by } => {
                self.step_mut(step).phase = Phase::Reworking;
                let other = self.step_mut(by);
                // One after the other: who comes later waits, also for what an edge has led to.
                if matches!(other.phase, Phase::Idle | Phase::Ended(_)) {
                    other.phase = Phase::Called;
                    other.reworks = Some(step.clone());
                    other.is_rework = true;
                }
            }
            _ => self.apply_to_step(time, entry),
        }
    }

    /// Where that step stands.
    pub fn phase(&self, step: &str) -> Phase {
        self.steps
            .get(step)
            .map(|step| step.phase)
            .unwrap_or_default()
    }

    /// How often that step was visited.
    pub fn visits(&self, step: &str) -> u32 {
        let visits = self.steps.get(step).map_or(0, |step| step.visits.len());
        u32::try_from(visits).unwrap_or(u32::MAX)
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

    /// A run that had ended goes on: what did not end well is tried anew, what did stays.
    fn begin(&mut self, time: Timestamp, begun: &RunParameters) {
        if self.turn == 0 {
            self.started = time;
        }
        self.turn += 1;
        self.begun_last = time;
        self.begun = begun.clone();
        self.ended = None;
        self.is_completing = false;
        (self.failed, self.failed_step) = (None, None);
        for step in self.steps.values_mut() {
            if !matches!(
                step.phase,
                Phase::Ended(Outcome::Completed | Outcome::Continued)
            ) {
                // What was led to is led to still; who made good for another one waits to be asked again.
                step.phase = match step.phase {
                    Phase::Idle => Phase::Idle,
                    _ if step.is_rework => Phase::Idle,
                    _ => Phase::Called,
                };
                step.reworks = None;
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
            // What failed first is why.
            if self.failed.is_none() {
                self.failed = Some(format!("step `{name}`: {reason}"));
                self.failed_step = Some(name.to_owned());
            }
        }
        self.step_mut(name).apply(time, entry);
    }
}

impl StepState {
    /// The visit that it is in, or was in last.
    pub fn visit(&self) -> Option<&Visit> {
        self.visits.last()
    }

    /// The attempt that is under way, or was last.
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
                    visit.is_by_default = *by_default;
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
            ended: None,
            attempts: Vec::new(),
            gate: None,
            choice: None,
            is_by_default: false,
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
            ended: None,
            instead: instead.clone(),
            session: session.clone(),
            process: None,
            problem: None,
            next: None,
            usage: Usage::default(),
            cost: Cost::default(),
            warnings: Vec::new(),
            waits: Vec::new(),
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
            // What follows in the same breath says how the step ended.
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
        (self.reworks, self.iterations) = (None, 0);
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
        // One that was ended in the middle says nothing more.
        if let Some(attempt) = last.attempts.last_mut() {
            attempt.ended.get_or_insert(time);
        }
    }
}
