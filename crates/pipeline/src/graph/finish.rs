//! The consequences of a step's end: its outcome, the edge to take, and whether the run continues.

use super::Graph;
use crate::definition::{Condition, OnFailure, Step, Target, Work};
use crate::entry::{Artifact, Entry, Outcome};
use crate::state::{Phase, Run};
use std::collections::{BTreeMap, BTreeSet};

/// The result of a step, before its consequences for the run are decided.
pub(crate) struct StepResult {
    pub(crate) is_success: bool,
    pub(crate) artifacts: BTreeMap<String, Artifact>,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) reason: Option<String>,
    /// The target of a person's answer.
    pub(crate) target: Option<Target>,
}

impl StepResult {
    pub(crate) fn succeeded(
        artifacts: BTreeMap<String, Artifact>,
        context: BTreeMap<String, String>,
    ) -> Self {
        Self {
            is_success: true,
            artifacts,
            context,
            reason: None,
            target: None,
        }
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self {
            is_success: false,
            artifacts: BTreeMap::new(),
            context: BTreeMap::new(),
            reason: Some(reason.into()),
            target: None,
        }
    }
}

impl Graph {
    /// Returns the entries that record the end of a step and its consequences. The visit is the last one, or the one
    /// that begins in the same batch.
    pub(crate) fn end_step(&self, step: &Step, run: &Run, result: StepResult) -> Vec<Entry> {
        let target = result.target.clone().or_else(|| {
            let edge = |condition: &Condition| edge_condition_holds(condition, &result);
            let taken = step.edges.iter().find(|edge_to| edge(&edge_to.condition));
            taken.map(|edge| edge.target.clone())
        });
        if result.is_success {
            return self.end_succeeded(step, run, result, target);
        }
        let reason = result.reason.unwrap_or_default();
        if target.is_some() {
            let mut entries = vec![step_ended(step, run, Outcome::Failed, &reason)];
            entries.extend(match run.rework_of(&step.id) {
                None => self.next_to_rework(step, run, None),
                Some(_) => self.rework_failed(step, run, &reason),
            });
            entries.extend(self.follow_target(step, run, target));
            return entries;
        }
        self.end_failed(step, run, &reason)
    }

    fn end_succeeded(
        &self,
        step: &Step,
        run: &Run,
        result: StepResult,
        target: Option<Target>,
    ) -> Vec<Entry> {
        let end = |step: &Step, reason| Entry::StepEnded {
            step: step.id.clone(),
            visit: current_visit(step, run),
            outcome: Outcome::Completed,
            artifacts: result.artifacts.clone(),
            context: result.context.clone(),
            fails_run: false,
            reason,
        };
        let mut entries = vec![end(step, result.reason.clone())];
        let reworked = run.rework_of(&step.id).and_then(|other| self.step(other));
        let made_good = || Some(format!("`{}` has made good for it", step.id));
        entries.extend(reworked.map(|other| end(other, made_good())));
        entries.extend(self.next_to_rework(step, run, reworked));
        // Last, so that the edge can lead back to the repaired step.
        entries.extend(self.follow_target(step, run, target));
        entries
    }

    fn end_failed(&self, step: &Step, run: &Run, reason: &str) -> Vec<Entry> {
        let is_in_loop = step.parent_loop.as_deref().and_then(|id| self.step(id));
        let is_looked_at = is_in_loop
            .is_some_and(|step| matches!(&step.work, Work::Loop(inner) if inner.until.is_some()));
        if run.rework_of(&step.id).is_some() {
            let mut entries = vec![step_ended(step, run, Outcome::Failed, reason)];
            entries.extend(self.rework_failed(step, run, reason));
            return entries;
        }
        match &step.on_failure {
            _ if is_looked_at => vec![step_ended(step, run, Outcome::Failed, reason)],
            OnFailure::Fail => {
                vec![step_ended(step, run, Outcome::Failed, reason).with_run_failure()]
            }
            OnFailure::Skip => vec![step_ended(step, run, Outcome::Skipped, reason)],
            OnFailure::Continue => vec![step_ended(step, run, Outcome::Continued, reason)],
            OnFailure::Rework { step: by } => vec![Entry::ReworkStarted {
                step: step.id.clone(),
                by: by.clone(),
            }],
        }
    }

    /// Fails the step that the given one was to repair and could not, if there is one.
    pub(super) fn rework_failed(&self, step: &Step, run: &Run, reason: &str) -> Option<Entry> {
        let other = self.step(run.rework_of(&step.id)?)?;
        let reason = format!("`{}`, which was to make good for it: {reason}", step.id);
        Some(step_ended(other, run, Outcome::Failed, &reason).with_run_failure())
    }

    /// Starts the rework of another step that waits for the same repairing step.
    fn next_to_rework(&self, by: &Step, run: &Run, done: Option<&Step>) -> Option<Entry> {
        // Nearly always true; skips the search.
        if self.reworking_count == 0 {
            return None;
        }
        let waits = |step: &&Step| {
            done.is_none_or(|done| step.id != done.id)
                && run.phase(&step.id) == Phase::Reworking
                && matches!(&step.on_failure, OnFailure::Rework { step } if *step == by.id)
        };
        let next = self.pipeline.steps.iter().find(waits)?;
        Some(Entry::ReworkStarted {
            step: next.id.clone(),
            by: by.id.clone(),
        })
    }

    /// Ends steps that wait without a prospect: all waiting steps if the run stops anyway, and steps under rework if no
    /// other step is active any more.
    pub(super) fn end_stranded_steps(&self, run: &Run, is_stopping: bool) -> Vec<Entry> {
        let steps = || self.pipeline.steps.iter();
        let phase = |step: &&Step| run.phase(&step.id);
        if is_stopping {
            let waits = |step: &&Step| {
                matches!(
                    phase(step),
                    Phase::Ready | Phase::Waiting { .. } | Phase::AtGate { .. }
                )
            };
            let why = "the run was over before it went on";
            let waiting = steps().filter(waits);
            let ended: Vec<Entry> = waiting
                .map(|step| step_ended(step, run, Outcome::Canceled, why))
                .collect();
            if !ended.is_empty() {
                return ended;
            }
        }
        if self.active_count > self.reworking_count || self.reworking_count == 0 {
            return Vec::new();
        }
        let why = "it failed, and nothing could make good for it any more";
        let left = steps().filter(|step| phase(step) == Phase::Reworking);
        left.map(|step| step_ended(step, run, Outcome::Failed, why).with_run_failure())
            .collect()
    }

    /// Fails a step that may not even begin.
    pub(crate) fn give_up(&self, step: &Step, run: &Run, why: &str) -> Vec<Entry> {
        let entries = self.end_failed(step, run, why).into_iter();
        // Its last visit has already ended and keeps its outcome.
        entries
            .map(|entry| match entry.step() == Some(&step.id) {
                true => entry.without_visit(),
                false => entry,
            })
            .collect()
    }

    /// Returns the entry that cancels a step.
    pub(crate) fn cancel_step(step: &Step, run: &Run) -> Entry {
        step_ended(step, run, Outcome::Canceled, "it was cancelled")
    }

    /// Follows the edge of a step. Steps at work on inputs that will change are ended: they run anew.
    fn follow_target(&self, from: &Step, run: &Run, target: Option<Target>) -> Vec<Entry> {
        let (to, resets) = match target {
            None => return Vec::new(),
            Some(Target::Complete) => (None, Vec::new()),
            Some(Target::Step(to)) => {
                let mut resets = self.steps_inside(&to);
                resets.extend(self.dependent_steps(&to));
                (Some(to), resets)
            }
        };
        let is_at_work = |step: &&Step| step.id != from.id && run.phase(&step.id).is_active();
        let affected = resets.iter().chain(&to).filter_map(|step| self.step(step));
        let why = "what it was made of is made anew";
        let mut entries: Vec<Entry> = affected
            .filter(is_at_work)
            .map(|step| step_ended(step, run, Outcome::Canceled, why))
            .collect();
        entries.push(Entry::EdgeTaken {
            from: from.id.clone(),
            to,
            resets,
        });
        entries
    }

    /// Returns the steps of a loop, and of loops inside of it.
    pub(super) fn steps_inside(&self, id: &str) -> Vec<String> {
        let Some(Work::Loop(inner)) = self.step(id).map(|step| &step.work) else {
            return Vec::new();
        };
        let all = inner.steps.iter();
        all.flat_map(|id| std::iter::once(id.clone()).chain(self.steps_inside(id)))
            .collect()
    }

    /// Returns all steps that need a step, directly or indirectly.
    fn dependent_steps(&self, step: &str) -> Vec<String> {
        let Some(first) = self.index_by_id.get(step) else {
            return Vec::new();
        };
        let (mut found, mut open) = (BTreeSet::new(), vec![*first]);
        while let Some(place) = open.pop() {
            for dependent in &self.dependents[place] {
                if dependent != first && found.insert(*dependent) {
                    open.push(*dependent);
                }
            }
        }
        found
            .into_iter()
            .map(|place| self.id(place).to_owned())
            .collect()
    }
}

impl Entry {
    /// Makes the end of a step that of no visit.
    pub(super) fn without_visit(mut self) -> Self {
        if let Self::StepEnded { visit, .. } = &mut self {
            *visit = 0;
        }
        self
    }

    fn with_run_failure(mut self) -> Self {
        if let Self::StepEnded { fails_run, .. } = &mut self {
            *fails_run = true;
        }
        self
    }
}

fn current_visit(step: &Step, run: &Run) -> u32 {
    // The visit of a loop begins in the same batch.
    let begins = u32::from(matches!(step.work, Work::Loop(_)));
    run.visits(&step.id) + begins
}

pub(super) fn step_ended(step: &Step, run: &Run, outcome: Outcome, reason: &str) -> Entry {
    Entry::StepEnded {
        step: step.id.clone(),
        visit: current_visit(step, run),
        outcome,
        artifacts: BTreeMap::new(),
        context: BTreeMap::new(),
        fails_run: false,
        reason: Some(reason.to_owned()),
    }
}

/// Returns whether a condition holds for a step that has ended.
pub(super) fn condition_holds(
    condition: &Condition,
    is_success: bool,
    context: &BTreeMap<String, String>,
) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Success => is_success,
        Condition::Failure => !is_success,
        Condition::Context {
            key,
            value,
            negated,
        } => (context.get(key) == Some(value)) != *negated,
    }
}

/// Returns whether an edge is taken: after a failure, only edges that ask for a failure are.
fn edge_condition_holds(condition: &Condition, result: &StepResult) -> bool {
    match condition {
        Condition::Failure => !result.is_success,
        condition => result.is_success && condition_holds(condition, true, &result.context),
    }
}
