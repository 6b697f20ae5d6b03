//! Decides which steps are due, and the consequences of a step's end.
//!
//! Pure: it receives every written entry, and returns the entries that come next. Invariants: at most `max_concurrency`
//! attempts are under way; a step begins when all of its needs are met, and none begins after a failure. The work grows
//! with the changes, not with the number of steps.

mod finish;
pub(crate) mod react;

pub(super) use finish::StepResult;

use super::definition::{Gate, Pipeline, Step, Work};
use super::entry::{Entry, NextAction, Outcome};
use super::state::{Phase, Run};
use finish::{condition_holds, step_ended};
use outlast_kernel::Timestamp;
use outlast_kernel::breaker::{Breaker, BreakerDecision};
use react::{rebuild_breaker, trip_message};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The scheduling state of a run.
pub(super) struct Graph {
    pipeline: Arc<Pipeline>,
    index_by_id: HashMap<String, usize>,
    /// The steps that need a step, by its index.
    dependents: Vec<Vec<usize>>,
    /// Steps that may have become due.
    to_examine: BTreeSet<usize>,
    /// Steps that can begin when a slot is free.
    startable: BTreeSet<usize>,
    /// Steps whose next attempt can begin when a slot is free.
    ready: BTreeSet<usize>,
    working_count: usize,
    active_count: usize,
    /// The number of active steps that wait for another step to repair their failure.
    reworking_count: usize,
    /// The reason of the cancellation, if the run is being cancelled.
    canceled: Option<String>,
    breaker: Breaker,
}

impl Graph {
    pub(super) fn new(pipeline: Arc<Pipeline>, run: &Run) -> Self {
        let steps = &pipeline.steps;
        let place = |(place, step): (usize, &Step)| (step.id.clone(), place);
        let index_by_id: HashMap<String, usize> = steps.iter().enumerate().map(place).collect();
        let mut dependents = vec![Vec::new(); steps.len()];
        for (place, step) in steps.iter().enumerate() {
            for need in step.needs.iter().filter_map(|need| index_by_id.get(need)) {
                dependents[*need].push(place);
            }
        }
        let mut graph = Self {
            to_examine: (0..steps.len()).collect(),
            startable: BTreeSet::new(),
            ready: BTreeSet::new(),
            working_count: 0,
            active_count: 0,
            reworking_count: 0,
            canceled: None,
            breaker: rebuild_breaker(&pipeline, run),
            dependents,
            index_by_id,
            pipeline,
        };
        for (place, step) in graph.pipeline.steps.iter().enumerate() {
            let phase = run.phase(&step.id);
            graph.active_count += usize::from(phase.is_active());
            graph.working_count += usize::from(phase == Phase::Working);
            graph.reworking_count += usize::from(phase == Phase::Reworking);
            if phase == Phase::Ready {
                graph.ready.insert(place);
            }
        }
        graph
    }

    /// Cancels the run: no further step begins.
    pub(super) fn cancel(&mut self, why: &str) {
        self.canceled.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn is_canceled(&self) -> bool {
        self.canceled.is_some()
    }

    /// Applies a written entry to the run and to the scheduling state.
    pub(super) fn apply(&mut self, run: &mut Run, time: Timestamp, entry: &Entry) {
        let touched = affected_steps(entry);
        let before: Vec<Phase> = touched.iter().map(|step| run.phase(step)).collect();
        run.apply(time, entry);
        for (step, was) in touched.iter().zip(before) {
            self.update_phase(step, was, run.phase(step));
        }
    }

    fn update_phase(&mut self, step: &str, was: Phase, is: Phase) {
        let Some(place) = self.index_by_id.get(step).copied() else {
            return;
        };
        self.active_count += usize::from(is.is_active());
        self.active_count -= usize::from(was.is_active());
        self.working_count += usize::from(is == Phase::Working);
        self.working_count -= usize::from(was == Phase::Working);
        self.reworking_count += usize::from(is == Phase::Reworking);
        self.reworking_count -= usize::from(was == Phase::Reworking);
        self.startable.remove(&place);
        self.ready.remove(&place);
        match is {
            Phase::Ready => drop(self.ready.insert(place)),
            Phase::Idle | Phase::Triggered => self.mark_for_examination(place),
            Phase::Ended(_) => self.to_examine.extend(&self.dependents[place]),
            _ => {}
        }
    }

    /// Marks a step for examination, and the steps inside of it.
    fn mark_for_examination(&mut self, place: usize) {
        self.to_examine.insert(place);
        if let Work::Loop(inner) = &self.pipeline.steps[place].work {
            let places = inner
                .steps
                .iter()
                .filter_map(|step| self.index_by_id.get(step));
            self.to_examine.extend(places);
        }
    }

    /// Returns the entries to write next; none if the run has to wait for an event.
    pub(super) fn due_entries(&mut self, run: &Run, now: Timestamp) -> Vec<Entry> {
        if run.ended.is_some() {
            return Vec::new();
        }
        let mut entries = Vec::new();
        let is_stopping =
            self.canceled.is_some() || run.failure_reason.is_some() || run.is_completing;
        if !is_stopping {
            for place in std::mem::take(&mut self.to_examine) {
                entries.extend(self.examine(place, run, now));
            }
        }
        let room = self.pipeline.runtime.max_concurrency.get();
        let mut room = room.saturating_sub(self.working_count);
        while room > 0 && !is_stopping {
            let (place, visit) = match self.ready.pop_first() {
                Some(place) => (place, None),
                None => match self.startable.pop_first() {
                    Some(place) => (place, Some(run.visits(self.id(place)) + 1)),
                    None => break,
                },
            };
            let step = self.id(place).to_owned();
            entries.extend(visit.map(|visit| Entry::StepStarted {
                step: step.clone(),
                visit,
            }));
            entries.push(self.next_attempt(place, run, visit));
            room -= 1;
        }
        if entries.is_empty() {
            entries = self.end_stranded_steps(run, is_stopping);
        }
        if entries.is_empty() && self.active_count == 0 {
            entries.push(self.end_run(run));
        }
        entries
    }

    /// Returns the step of the given id, without a search.
    pub(super) fn step(&self, id: &str) -> Option<&Step> {
        let place = self.index_by_id.get(id)?;
        self.pipeline.steps.get(*place)
    }

    fn id(&self, place: usize) -> &str {
        &self.pipeline.steps[place].id
    }

    fn end_run(&self, run: &Run) -> Entry {
        let is_led_to = |step: &&Step| run.phase(&step.id) == Phase::Triggered;
        let stuck = match run.is_completing {
            true => None,
            false => self.pipeline.steps.iter().find(is_led_to),
        };
        let (outcome, reason) = match (&self.canceled, &run.failure_reason, stuck) {
            (Some(why), ..) => (Outcome::Canceled, Some(why.clone())),
            (None, Some(why), _) => (Outcome::Failed, Some(why.clone())),
            (None, None, Some(step)) => {
                let id = &step.id;
                let why = format!("step `{id}` was led to, and what it needs was never done");
                (Outcome::Failed, Some(why))
            }
            (None, None, None) => (Outcome::Completed, None),
        };
        Entry::RunEnded { outcome, reason }
    }

    /// Returns the start of the next attempt of a step, or of the first one of a new visit.
    fn next_attempt(&self, place: usize, run: &Run, new_visit: Option<u32>) -> Entry {
        let step = &self.pipeline.steps[place];
        let last = run.steps.get(&step.id).and_then(|state| state.attempt());
        let last = last.filter(|_| new_visit.is_none());
        let visit = new_visit.unwrap_or_else(|| run.visits(&step.id));
        let instead = last.and_then(|last| match &last.next {
            Some(NextAction::FallBack { to }) => Some(to.clone()),
            _ => last.fallback.clone(),
        });
        Entry::AttemptStarted {
            step: step.id.clone(),
            visit,
            attempt: last.map_or(1, |last| last.number + 1),
            instead,
            // The same session continues: a model with feedback remembers its own work.
            session: last.and_then(|last| last.session.clone()),
        }
    }

    /// Examines whether a step can begin now, or never will.
    fn examine(&mut self, place: usize, run: &Run, now: Timestamp) -> Vec<Entry> {
        let pipeline = Arc::clone(&self.pipeline);
        let step = &pipeline.steps[place];
        let phase = run.phase(&step.id);
        if !matches!(phase, Phase::Idle | Phase::Triggered) || self.awaits_trigger(step, run) {
            return Vec::new();
        }
        match self.needs(step, run) {
            Needs::Pending => Vec::new(),
            Needs::Skipped(need) => self.skip(step, run, need),
            Needs::Met if visits_since_start(run, &step.id) >= step.max_visits.get() => {
                let most = step.max_visits;
                let why = format!("it was visited {most} times, and may not be again (max_visits)");
                self.give_up(step, run, &why)
            }
            Needs::Met => {
                if let BreakerDecision::Refused(trip) = self.breaker.check(&step.id, now) {
                    return self.give_up(step, run, &trip_message(&trip));
                }
                match &step.work {
                    Work::Gate(gate) => open_gate(step, gate, run, now).into(),
                    Work::Loop(_) => self.advance_loop(step, run),
                    Work::Prompt(_) | Work::Command(_) | Work::Agent(_) => {
                        self.startable.insert(place);
                        Vec::new()
                    }
                }
            }
        }
    }

    /// Skips a step because a step that it needs was skipped.
    fn skip(&self, step: &Step, run: &Run, need: &str) -> Vec<Entry> {
        let reason = format!("`{need}`, which it needs, was left out");
        let skipped = step_ended(step, run, Outcome::Skipped, &reason).without_visit();
        let not_made_good = self.rework_failed(step, run, &reason);
        std::iter::once(skipped).chain(not_made_good).collect()
    }

    fn needs<'a>(&self, step: &'a Step, run: &Run) -> Needs<'a> {
        let is_loop = matches!(step.work, Work::Loop(_));
        let reworks = run.rework_of(&step.id);
        let mut met = Needs::Met;
        for need in &step.needs {
            let is_inside = is_loop && self.parent_loop(need) == Some(step.id.as_str());
            match run.phase(need) {
                // The failure of that step is the reason for this visit.
                Phase::Reworking if reworks == Some(need.as_str()) => {}
                Phase::Ended(Outcome::Completed | Outcome::Continued) => {}
                // A loop accepts any outcome of its steps, and ignores those that nothing led to.
                Phase::Ended(_) if is_inside => {}
                Phase::Idle if is_inside && self.is_on_demand(need) => {}
                Phase::Ended(Outcome::Skipped) => return Needs::Skipped(need),
                // The loop of both steps handles the failure.
                Phase::Ended(Outcome::Failed)
                    if step.parent_loop.is_some()
                        && step.parent_loop.as_deref() == self.parent_loop(need) =>
                {
                    return Needs::Skipped(need);
                }
                _ => met = Needs::Pending,
            }
        }
        met
    }

    /// Returns whether a step still waits for something to lead to it, or to the loop that it is part of.
    fn awaits_trigger(&self, step: &Step, run: &Run) -> bool {
        let own = step.is_on_demand && run.phase(&step.id) != Phase::Triggered;
        let outer = step
            .parent_loop
            .as_deref()
            .and_then(|outer| self.step(outer));
        own || outer.is_some_and(|outer| self.awaits_trigger(outer, run))
    }

    fn is_on_demand(&self, step: &str) -> bool {
        self.step(step).is_some_and(|step| step.is_on_demand)
    }

    fn parent_loop(&self, step: &str) -> Option<&str> {
        self.step(step)?.parent_loop.as_deref()
    }

    /// Ends or repeats a loop all of whose steps have ended.
    fn advance_loop(&self, step: &Step, run: &Run) -> Vec<Entry> {
        let Work::Loop(inner) = &step.work else {
            return Vec::new();
        };
        let iterations = run.steps.get(&step.id).map_or(0, |state| state.iterations) + 1;
        let last = inner.steps.last().and_then(|last| run.steps.get(last));
        let is_success = last.is_some_and(|last| last.phase == Phase::Ended(Outcome::Completed));
        let context = last.map(|last| last.context.clone()).unwrap_or_default();
        let is_done = match &inner.until {
            Some(until) => condition_holds(until, is_success, &context),
            None => iterations >= inner.max_iterations.get(),
        };
        let started = Entry::StepStarted {
            step: step.id.clone(),
            visit: run.visits(&step.id) + 1,
        };
        if is_done {
            let artifacts = last.map(|last| last.artifacts.clone()).unwrap_or_default();
            let result = StepResult::succeeded(artifacts, context);
            return std::iter::once(started)
                .chain(self.end_step(step, run, result))
                .collect();
        }
        if iterations >= inner.max_iterations.get() {
            let why =
                format!("what it waits for did not come about within {iterations} iterations");
            let ended = self.end_step(step, run, StepResult::failed(why));
            return std::iter::once(started).chain(ended).collect();
        }
        vec![Entry::LoopRepeated {
            step: step.id.clone(),
            iterations,
            resets: self.steps_inside(&step.id),
        }]
    }
}

enum Needs<'a> {
    Met,
    Pending,
    Skipped(&'a str),
}

fn open_gate(step: &Step, gate: &Gate, run: &Run, now: Timestamp) -> [Entry; 2] {
    let (message, choices, wait): (Option<String>, Vec<String>, Duration) = match gate {
        Gate::Timer(wait) => (None, Vec::new(), *wait),
        Gate::Approval(approval) => {
            let choices = approval.choices.iter();
            let choices = choices.map(|choice| format!("{}: {}", choice.key, choice.label));
            (
                Some(approval.message.clone()),
                choices.collect(),
                approval.timeout,
            )
        }
    };
    let (step, visit) = (step.id.clone(), run.visits(&step.id) + 1);
    [
        Entry::StepStarted {
            step: step.clone(),
            visit,
        },
        Entry::GateOpened {
            step,
            visit,
            message,
            choices,
            until: now + wait,
        },
    ]
}

/// Returns how often a step was visited since the last start of the run: a restart allows new visits.
fn visits_since_start(run: &Run, step: &str) -> u32 {
    let visits = run.steps.get(step).map_or(&[][..], |state| &state.visits);
    let late = visits
        .iter()
        .filter(|visit| visit.started >= run.last_started);
    u32::try_from(late.count()).unwrap_or(u32::MAX)
}

/// Returns the steps whose scheduling an entry may change.
fn affected_steps(entry: &Entry) -> Vec<&str> {
    let own = entry.step().into_iter();
    match entry {
        Entry::EdgeTaken { to, resets, .. } => {
            resets.iter().chain(to).map(String::as_str).collect()
        }
        Entry::LoopRepeated { resets, .. } => {
            own.chain(resets.iter().map(String::as_str)).collect()
        }
        Entry::ReworkStarted { by, .. } => own.chain([by.as_str()]).collect(),
        _ => own.collect(),
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
