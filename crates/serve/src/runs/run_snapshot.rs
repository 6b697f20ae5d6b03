//! Builds the views of a run from its recorded entries: cleaned and bounded.

use super::view::{
    AttemptOutcome, AttemptView, ChoiceView, KindView, PhaseView, QuestionView, RunRow, RunView,
    StepView, WaitView,
};
use outlast_kernel::text;
use outlast_kernel::verdict::Class;
use outlast_pipeline::definition::{Gate, OnFailure, Step, Target, Work};
use outlast_pipeline::entry::{NextAction, Outcome};
use outlast_pipeline::history::{CurrentWait, RecordedEntry};
use outlast_pipeline::state::{Attempt, Phase, Run, StepState, Visit};
use outlast_pipeline::status::{self, RunStatus};
use outlast_store::journal::Summary;
use std::collections::BTreeMap;

/// Maximum number of attempts in the view of one step.
const MAX_ATTEMPTS_PER_STEP: usize = 20;
/// Maximum number of attempts over all steps of a view; each step shows at least its last one.
const MAX_ATTEMPTS_TOTAL: usize = 2000;
/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 400;
/// Maximum length of a question, in bytes.
const MAX_QUESTION_BYTES: usize = 4096;

/// The state of a run at one moment, before it becomes a view.
pub(super) struct RunSnapshot {
    pub(super) summary: Summary,
    pub(super) state: RunStatus,
    pub(super) run: Run,
    pub(super) entries: Vec<RecordedEntry>,
    /// The waits of the steps' sessions, by step.
    pub(super) waits: BTreeMap<String, CurrentWait>,
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
    pub(super) fn new(run: Summary, state: RunStatus) -> Self {
        Self {
            id: run.id,
            pipeline: clean(&run.title, MAX_MESSAGE_BYTES),
            directory: clean(&run.directory, MAX_QUESTION_BYTES),
            state: state.into(),
            created: run.created,
            changed: run.changed,
        }
    }
}

impl RunSnapshot {
    pub(super) fn view(self) -> RunView {
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
            state: state.into(),
            created: self.summary.created,
            changed: self.summary.changed,
        }
    }

    fn steps(&self) -> Vec<StepView> {
        if let Some(pipeline) = status::parse_pipeline(&self.run) {
            let most = max_attempts_per_step(pipeline.steps.len());
            let view = |step: &Step| StepView {
                kind: Some(kind(&step.work)),
                needs: step.needs.clone(),
                leads_to: leads_to(step),
                part_of: step.parent_loop.clone(),
                ..self.step(&step.id, most)
            };
            return pipeline.steps.iter().map(view).collect();
        }
        let order = status::steps_by_start(&self.run);
        let most = max_attempts_per_step(order.len());
        order.into_iter().map(|id| self.step(id, most)).collect()
    }

    /// Builds the view of one step from its recorded state.
    fn step(&self, id: &str, most: usize) -> StepView {
        let nothing = StepState::default();
        let step = self.run.steps.get(id).unwrap_or(&nothing);
        let attempts: Vec<(&Visit, &Attempt)> = step
            .visits
            .iter()
            .flat_map(|visit| visit.attempts.iter().map(move |attempt| (visit, attempt)))
            .collect();
        let earlier = attempts.len().saturating_sub(most);
        let is_open = self.run.ended.is_none();
        StepView {
            id: clean(id, MAX_MESSAGE_BYTES),
            kind: None,
            needs: Vec::new(),
            leads_to: Vec::new(),
            part_of: None,
            phase: self.phase(id, step.phase),
            attempts: attempts.into_iter().skip(earlier).map(attempt).collect(),
            earlier_attempts: earlier,
            waiting: is_open.then(|| self.waiting(id, step)).flatten(),
            question: is_open.then(|| self.question(id, step.phase)).flatten(),
        }
    }

    fn phase(&self, id: &str, phase: Phase) -> PhaseView {
        let goes_on = self.run.ended.is_none() && self.state == RunStatus::Running;
        match phase {
            Phase::Ended(Outcome::Completed) => PhaseView::Completed,
            Phase::Ended(Outcome::Continued) => PhaseView::Continued,
            Phase::Ended(Outcome::Skipped) => PhaseView::Skipped,
            Phase::Ended(Outcome::Failed) => PhaseView::Failed,
            Phase::Ended(Outcome::Canceled) => PhaseView::Cancelled,
            Phase::Idle => PhaseView::Idle,
            Phase::Triggered if !goes_on => PhaseView::Idle,
            _ if !goes_on => PhaseView::Interrupted,
            Phase::Triggered | Phase::Ready => PhaseView::Ready,
            Phase::Working if self.waits.contains_key(id) => PhaseView::Waiting,
            Phase::Working => PhaseView::Working,
            Phase::Waiting { .. } => PhaseView::Waiting,
            Phase::AtGate { .. } => PhaseView::AtGate,
            Phase::Reworking => PhaseView::Reworking,
        }
    }

    fn waiting(&self, id: &str, step: &StepState) -> Option<WaitView> {
        match step.phase {
            Phase::Working => self.waits.get(id).map(|waiting| WaitView {
                until: waiting.span.until,
                cause: waiting.span.cause,
                attempt: Some(waiting.retry.saturating_add(1)),
                message: waiting.message.as_deref().and_then(message),
            }),
            Phase::Waiting { until, cause, .. } => {
                let last = step.attempt();
                let problem = last.and_then(|attempt| attempt.problem.as_ref());
                Some(WaitView {
                    until,
                    cause: Some(cause),
                    attempt: last.map(|attempt| attempt.number.saturating_add(1)),
                    message: problem.and_then(|problem| message(&problem.message)),
                })
            }
            Phase::AtGate { until } => Some(WaitView {
                until,
                cause: None,
                attempt: None,
                message: None,
            }),
            _ => None,
        }
    }

    fn question(&self, id: &str, phase: Phase) -> Option<QuestionView> {
        if !matches!(phase, Phase::AtGate { .. }) {
            return None;
        }
        let asked = status::open_question(id, &self.entries)?;
        let choice = |(key, label): (&str, &str)| ChoiceView {
            key: key.to_owned(),
            label: clean(label, MAX_MESSAGE_BYTES),
        };
        Some(QuestionView {
            text: clean(&asked.message, MAX_QUESTION_BYTES),
            choices: asked.keyed_choices().map(choice).collect(),
        })
    }
}

/// Returns the number of attempts to show for each step of a run with that many steps.
fn max_attempts_per_step(steps: usize) -> usize {
    (MAX_ATTEMPTS_TOTAL / steps.max(1)).clamp(1, MAX_ATTEMPTS_PER_STEP)
}

fn attempt((visit, attempt): (&Visit, &Attempt)) -> AttemptView {
    let problem = attempt.problem.as_ref();
    let outcome = match (problem, &attempt.next) {
        _ if attempt.ended.is_none() => None,
        (Some(problem), _) if problem.class == Class::Canceled => Some(AttemptOutcome::Cancelled),
        (Some(_), _) => Some(AttemptOutcome::Failed),
        (None, Some(_)) => Some(AttemptOutcome::Completed),
        // The step has ended, and no outcome of this attempt was recorded.
        (None, None) => Some(AttemptOutcome::Cancelled),
    };
    AttemptView {
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

const fn kind(work: &Work) -> KindView {
    match work {
        Work::Prompt(_) => KindView::Prompt,
        Work::Command(_) => KindView::Command,
        Work::Agent(_) => KindView::Agent,
        Work::Gate(_) => KindView::Gate,
        Work::Loop(_) => KindView::Loop,
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
