//! Makes views of a run from its entries and its pipeline: cleaned and bounded.
//!
//! Not here: reading entries (see `history`), and folding them (see `state`).

use super::{
    RunAttempt, RunAttemptOutcome, RunChoice, RunQuestion, RunRow, RunStatus, RunStep, RunStepKind,
    RunStepPhase, RunView, RunWait,
};
use crate::definition::{Gate, OnFailure, Pipeline, Step, Target, Work};
use crate::entry::{Entry, NextAction, Outcome};
use crate::file;
use crate::history::{Error, RecordedEntry};
use crate::state::{Attempt, Phase, Run, StepState, Visit};
use outlast_kernel::text;
use outlast_kernel::verdict::Class;
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of attempts in the view of one step.
const MAX_ATTEMPTS_PER_STEP: usize = 20;
/// Maximum number of attempts over all steps of a view; each step shows at least its last one.
const MAX_ATTEMPTS_TOTAL: usize = 2000;
/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 400;
/// Maximum length of a question, in bytes.
const MAX_QUESTION_BYTES: usize = 4096;

/// Returns the status of the given run.
pub async fn run_status(runs: &Journal, run: &Summary) -> Result<RunStatus, Error> {
    match (run.availability, run.open_turn) {
        (Availability::InUse, _) => return Ok(RunStatus::Running),
        (_, Some(_)) => return Ok(RunStatus::Unfinished),
        _ => {}
    }
    let Some(last) = runs.last_of_kind(&run.id, "settled").await? else {
        return Ok(RunStatus::Empty);
    };
    Ok(match serde_json::from_str(&last.entry.body) {
        Ok(Entry::RunEnded { outcome, .. }) => RunStatus::from_outcome(outcome),
        _ => RunStatus::Finished,
    })
}

/// Returns the pipeline of a run, or `None` if it is unreadable: because of its version, or because a referenced file
/// is gone.
pub fn parse_pipeline(run: &Run) -> Option<Pipeline> {
    file::read(&run.parameters.source, Path::new(&run.parameters.file)).ok()
}

/// Returns the steps of a run in the order of their first visit; those that never began come last, in the given order.
pub fn steps_by_start<'a>(run: &'a Run, order: &[String]) -> Vec<(&'a String, &'a StepState)> {
    let mut steps: Vec<(&String, &StepState)> = run.steps.iter().collect();
    let position = |id: &String| order.iter().position(|step| step == id);
    steps.sort_by_cached_key(|(id, step)| {
        let began = step.visits.first().map(|visit| visit.started);
        (began.is_none(), began, position(id))
    });
    steps
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question.
    pub message: String,
    /// The choices: each a key and, after a colon, its meaning.
    pub choices: Vec<String>,
}

impl Question {
    /// Returns whether the key is the key of a choice.
    pub fn has_choice(&self, key: &str) -> bool {
        self.choices
            .iter()
            .any(|choice| split_choice(choice).0 == key)
    }

    /// Returns the choices: the key of each, and its meaning.
    pub fn keyed_choices(&self) -> impl Iterator<Item = (&str, &str)> {
        self.choices.iter().map(|choice| split_choice(choice))
    }
}

/// A key is a name, which contains no colon.
fn split_choice(choice: &str) -> (&str, &str) {
    choice.split_once(": ").unwrap_or((choice, choice))
}

/// Returns the question of a step at its gate; `None` for a timer.
pub fn open_question(step: &str, entries: &[RecordedEntry]) -> Option<Question> {
    let asked = |(_, _, entry): &RecordedEntry| match entry {
        Entry::GateOpened {
            step: at,
            message,
            choices,
            ..
        } if at == step => Some(message.clone().map(|message| Question {
            message,
            choices: choices.clone(),
        })),
        _ => None,
    };
    entries.iter().rev().find_map(asked).flatten()
}

/// The state of a run at one moment, before it becomes a view.
#[derive(Debug)]
pub struct RunSnapshot {
    pub summary: Summary,
    pub state: RunStatus,
    pub run: Run,
    pub entries: Vec<RecordedEntry>,
    /// The waits of the steps' sessions, by step.
    pub waits: BTreeMap<String, RunWait>,
}

/// Makes a text from outside safe to show, and bounds its length.
fn clean(words: &str, most: usize) -> String {
    // The first cut is generous and keeps an endless text cheap; the second one applies after keys and escapes are
    // removed.
    let words = text::bounded(words, 4 * most);
    let words = text::without_secrets(&words);
    text::bounded(&text::plain(&words), most).into_owned()
}

fn message(words: &str) -> Option<String> {
    let words = clean(words.trim(), MAX_MESSAGE_BYTES);
    (!words.is_empty()).then_some(words)
}

impl RunRow {
    pub fn new(run: Summary, state: RunStatus) -> Self {
        Self {
            id: run.id,
            pipeline: clean(&run.title, MAX_MESSAGE_BYTES),
            directory: clean(&run.directory, MAX_QUESTION_BYTES),
            state,
            created: run.created,
            changed: run.changed,
        }
    }
}

impl RunSnapshot {
    pub fn view(self) -> RunView {
        let run = &self.run;
        let ended = run.ended.as_ref();
        let error = ended.map_or(run.failure_reason.as_ref(), |ended| ended.reason.as_ref());
        // The process of a run holds its lock for a moment after the run has ended.
        let state = ended.map_or(self.state, |ended| RunStatus::from_outcome(ended.outcome));
        RunView {
            file: clean(&run.parameters.file, MAX_QUESTION_BYTES),
            ended: ended.map(|ended| ended.at),
            outcome: ended.map(|ended| ended.outcome.into()),
            error: error.and_then(|reason| message(reason)),
            steps: self.steps(),
            id: self.summary.id,
            pipeline: clean(&self.summary.title, MAX_MESSAGE_BYTES),
            directory: clean(&self.summary.directory, MAX_QUESTION_BYTES),
            state,
            created: self.summary.created,
            changed: self.summary.changed,
        }
    }

    fn steps(&self) -> Vec<RunStep> {
        if let Some(pipeline) = parse_pipeline(&self.run) {
            let most = max_attempts_per_step(pipeline.steps.len());
            let view = |step: &Step| RunStep {
                kind: Some(kind(&step.work)),
                needs: step.needs.clone(),
                leads_to: leads_to(step),
                part_of: step.parent_loop.clone(),
                ..self.step(&step.id, most)
            };
            return pipeline.steps.iter().map(view).collect();
        }
        let order = steps_by_start(&self.run, &[]);
        let most = max_attempts_per_step(order.len());
        order
            .into_iter()
            .map(|(id, _)| self.step(id, most))
            .collect()
    }

    /// Builds the view of one step from its recorded state.
    fn step(&self, id: &str, most: usize) -> RunStep {
        let nothing = StepState::default();
        let step = self.run.steps.get(id).unwrap_or(&nothing);
        let attempts: Vec<(&Visit, &Attempt)> = step
            .visits
            .iter()
            .flat_map(|visit| visit.attempts.iter().map(move |attempt| (visit, attempt)))
            .collect();
        let earlier = attempts.len().saturating_sub(most);
        let is_open = self.run.ended.is_none();
        RunStep {
            id: clean(id, MAX_MESSAGE_BYTES),
            kind: None,
            needs: Vec::new(),
            leads_to: Vec::new(),
            part_of: None,
            phase: self.phase(id, step.phase),
            attempts: attempts[earlier..]
                .iter()
                .map(|(visit, one)| attempt(visit, one))
                .collect(),
            earlier_attempts: earlier,
            waiting: is_open.then(|| self.waiting(id, step)).flatten(),
            question: is_open.then(|| self.question(id, step.phase)).flatten(),
        }
    }

    fn phase(&self, id: &str, phase: Phase) -> RunStepPhase {
        let goes_on = self.run.ended.is_none() && self.state == RunStatus::Running;
        match phase {
            Phase::Ended(Outcome::Completed) => RunStepPhase::Completed,
            Phase::Ended(Outcome::Continued) => RunStepPhase::Continued,
            Phase::Ended(Outcome::Skipped) => RunStepPhase::Skipped,
            Phase::Ended(Outcome::Failed) => RunStepPhase::Failed,
            Phase::Ended(Outcome::Canceled) => RunStepPhase::Cancelled,
            Phase::Idle => RunStepPhase::Idle,
            Phase::Triggered if !goes_on => RunStepPhase::Idle,
            _ if !goes_on => RunStepPhase::Interrupted,
            Phase::Triggered | Phase::Ready => RunStepPhase::Ready,
            Phase::Working if self.waits.contains_key(id) => RunStepPhase::Waiting,
            Phase::Working => RunStepPhase::Working,
            Phase::Waiting { .. } => RunStepPhase::Waiting,
            Phase::AtGate { .. } => RunStepPhase::AtGate,
            Phase::Reworking => RunStepPhase::Reworking,
        }
    }

    fn waiting(&self, id: &str, step: &StepState) -> Option<RunWait> {
        match step.phase {
            Phase::Working => self.waits.get(id).map(|wait| RunWait {
                message: wait.message.as_deref().and_then(message),
                ..wait.clone()
            }),
            Phase::Waiting { until, cause, .. } => {
                let last = step.attempt();
                let problem = last.and_then(|attempt| attempt.problem.as_ref());
                Some(RunWait {
                    until,
                    cause: Some(cause),
                    attempt: last.map(|attempt| attempt.number.saturating_add(1)),
                    message: problem.and_then(|problem| message(&problem.message)),
                })
            }
            Phase::AtGate { until } => Some(RunWait {
                until,
                cause: None,
                attempt: None,
                message: None,
            }),
            _ => None,
        }
    }

    fn question(&self, id: &str, phase: Phase) -> Option<RunQuestion> {
        if !matches!(phase, Phase::AtGate { .. }) {
            return None;
        }
        let asked = open_question(id, &self.entries)?;
        let choice = |(key, label): (&str, &str)| RunChoice {
            key: key.to_owned(),
            label: clean(label, MAX_MESSAGE_BYTES),
        };
        Some(RunQuestion {
            text: clean(&asked.message, MAX_QUESTION_BYTES),
            choices: asked.keyed_choices().map(choice).collect(),
        })
    }
}

/// Returns the number of attempts to show for each step of a run with that many steps.
fn max_attempts_per_step(steps: usize) -> usize {
    (MAX_ATTEMPTS_TOTAL / steps.max(1)).clamp(1, MAX_ATTEMPTS_PER_STEP)
}

fn attempt(visit: &Visit, attempt: &Attempt) -> RunAttempt {
    let problem = attempt.problem.as_ref();
    let outcome = match (problem, &attempt.next) {
        _ if attempt.ended.is_none() => None,
        (Some(problem), _) if problem.class == Class::Canceled => {
            Some(RunAttemptOutcome::Cancelled)
        }
        (Some(_), _) => Some(RunAttemptOutcome::Failed),
        (None, Some(_)) => Some(RunAttemptOutcome::Completed),
        // The step has ended, and no outcome of this attempt was recorded.
        (None, None) => Some(RunAttemptOutcome::Cancelled),
    };
    RunAttempt {
        number: attempt.number,
        visit: visit.number,
        began: attempt.started,
        ended: attempt.ended,
        outcome,
        class: problem.map(|problem| problem.class),
        cause: problem.map(|problem| problem.cause),
        message: problem.and_then(|problem| message(&problem.message)),
        wait_until: match &attempt.next {
            Some(NextAction::Wait { until, .. }) => Some(*until),
            _ => None,
        },
    }
}

const fn kind(work: &Work) -> RunStepKind {
    match work {
        Work::Prompt(_) => RunStepKind::Prompt,
        Work::Command(_) => RunStepKind::Command,
        Work::Agent(_) => RunStepKind::Agent,
        Work::Gate(_) => RunStepKind::Gate,
        Work::Loop(_) => RunStepKind::Loop,
    }
}

/// Returns the steps that a step names as its possible successors.
fn leads_to(step: &Step) -> Vec<String> {
    let edges = step.edges.iter().map(|edge| &edge.target);
    let choices = match &step.work {
        Work::Gate(Gate::Approval(approval)) => approval.choices.as_slice(),
        _ => &[],
    };
    let targets = edges.chain(choices.iter().filter_map(|choice| choice.target.as_ref()));
    let mut steps: Vec<String> = targets
        .filter_map(|target| match target {
            Target::Step(step) => Some(step.clone()),
            Target::Complete => None,
        })
        .collect();
    if let OnFailure::Rework { step } = &step.on_failure {
        steps.push(step.clone());
    }
    steps.sort_unstable();
    steps.dedup();
    steps
}
