//! The status of a run in lines for a person: one for the run, one for each step.
//!
//! Pure: the time and the size of the screen are arguments. Invariant: no line exceeds the width, and text from outside
//! can neither start a new line nor control the terminal. Not here: the lines about single events (see
//! `run_view/event_lines.rs`), and repainting (see `run_view/painter.rs`).

pub(crate) mod event_lines;
pub(crate) mod formatting;
mod live;
mod painter;

pub(crate) use formatting::{one_line, truncate, whole_seconds, width};
pub(crate) use live::{Countdown, LiveStep, recorded_live_steps};
pub(crate) use painter::{Painter, stderr_size, stdout_size};

use crate::output::progress::time_of_day;
use formatting::{TimeLeft, attempts, padded, spent};
use live::question_line;
use outlast_kernel::Timestamp;
use outlast_pipeline::definition::Pipeline;
use outlast_pipeline::entry::Outcome;
use outlast_pipeline::run_view::{self, RunStatus};
use outlast_pipeline::state::{EndStatus, Phase, Run, StepState};
use std::collections::BTreeMap;

/// Maximum width of the column with the names of steps.
const MAX_NAME_COLUMNS: usize = 24;

/// A step, as far as the view knows it before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedStep {
    pub(crate) id: String,
    /// How many attempts a visit may have.
    pub(crate) max_attempts: Option<u32>,
}

/// The steps of a pipeline, in the order of its file.
pub(crate) fn planned_steps(pipeline: &Pipeline) -> Vec<PlannedStep> {
    let step = |step: &outlast_pipeline::definition::Step| PlannedStep {
        id: step.id.clone(),
        max_attempts: step.retry.policy.max_attempts.map(u32::from),
    };
    pipeline.steps.iter().map(step).collect()
}

/// The steps of a recorded run: those of its pipeline, or the known ones if that cannot be read any more.
pub(crate) fn recorded_steps(run: &Run) -> Vec<PlannedStep> {
    if let Some(pipeline) = run_view::parse_pipeline(run) {
        return planned_steps(&pipeline);
    }
    let steps = run_view::steps_by_start(run, &[]).into_iter();
    let step = |(id, _): (&String, _)| PlannedStep {
        id: id.clone(),
        max_attempts: None,
    };
    steps.map(step).collect()
}

/// The data of a run's status lines.
pub(crate) struct StatusLines<'a> {
    pub(crate) steps: &'a [PlannedStep],
    pub(crate) run: &'a Run,
    /// What is known only while it runs.
    pub(crate) live: &'a BTreeMap<String, LiveStep>,
    pub(crate) status: RunStatus,
    pub(crate) now: Timestamp,
}

impl StatusLines<'_> {
    /// A line for the run, and one for each step.
    pub(crate) fn lines(&self, columns: usize) -> Vec<String> {
        self.filtered_lines(columns, |_| true)
    }

    /// A line for the run, and one for each step that something is done about just now.
    pub(crate) fn active_lines(&self, columns: usize) -> Vec<String> {
        self.filtered_lines(columns, Phase::is_active)
    }

    fn filtered_lines(&self, columns: usize, is_shown: impl Fn(Phase) -> bool) -> Vec<String> {
        let steps = self.steps.iter();
        let shown: Vec<&PlannedStep> = steps
            .filter(|step| is_shown(self.run.phase(&step.id)))
            .collect();
        let names = shown.iter().map(|step| width(&one_line(&step.id)));
        let names = names.max().unwrap_or_default().min(MAX_NAME_COLUMNS);
        let rows = shown.iter().map(|step| {
            let (mark, what) = self.step_line(step);
            format!("  {mark} {}  {what}", padded(&step.id, names))
        });
        let lines = std::iter::once(self.head()).chain(rows);
        lines.map(|line| truncate(&line, columns)).collect()
    }

    /// Whether what is under way is carried on.
    const fn is_in_progress(&self) -> bool {
        self.run.ended.is_none() && matches!(self.status, RunStatus::Running)
    }

    fn head(&self) -> String {
        let run = self.run;
        let over = |step: &&PlannedStep| run.phase(&step.id).is_over();
        let over = self.steps.iter().filter(over).count();
        let name = one_line(&run.parameters.name);
        let stands = match (&run.ended, self.status) {
            (Some(ended), _) => run_ended(run, ended),
            (None, RunStatus::Running) => {
                format!("running for {}", whole_seconds(self.now.since(run.started)))
            }
            (None, _) => "not finished, and no process is at work on it".to_owned(),
        };
        let (all, spent) = (self.steps.len(), spent(run.usage, run.cost));
        format!("{name}: {stands}; {over} of {all} steps are over{spent}")
    }

    fn step_line(&self, planned: &PlannedStep) -> (char, String) {
        let Some(step) = self.run.steps.get(&planned.id) else {
            return ('·', self.not_run_phrase().to_owned());
        };
        let (mark, what) = match step.phase {
            Phase::Idle | Phase::Triggered if !self.is_in_progress() => {
                ('·', self.not_run_phrase().to_owned())
            }
            Phase::Idle => ('·', self.not_run_phrase().to_owned()),
            phase if phase.is_active() && !self.is_in_progress() => {
                ('○', self.unfinished_phrase(phase).to_owned())
            }
            Phase::Triggered | Phase::Ready => ('·', "is about to begin".to_owned()),
            Phase::Working => self.active_step(planned, step),
            Phase::Waiting { until, cause, .. } => {
                let next = step.attempt().map_or(1, |attempt| attempt.number) + 1;
                let left = TimeLeft::new(until, self.now).rounded();
                let number = attempts(next, planned.max_attempts);
                (
                    '⚠',
                    format!("{}, retrying {left} ({number})", cause.phrase()),
                )
            }
            Phase::AtGate { until } => ('?', self.at_gate(&planned.id, until)),
            Phase::Reworking => ('↻', self.reworked(&planned.id)),
            Phase::Ended(outcome) => (
                formatting::outcome_mark(outcome),
                formatting::outcome_with_reason(step, outcome),
            ),
        };
        (mark, what)
    }

    const fn not_run_phrase(&self) -> &'static str {
        match self.run.ended {
            Some(_) => "was not run",
            None => "has not begun",
        }
    }

    fn active_step(&self, planned: &PlannedStep, step: &StepState) -> (char, String) {
        let live = self.live.get(&planned.id);
        if let Some(countdown) = live.and_then(|live| live.retry.as_ref()) {
            return ('⚠', countdown.remaining_text(self.now));
        }
        let since = step.attempt().map_or(self.now, |attempt| attempt.started);
        let mut what = format!("works for {}", whole_seconds(self.now.since(since)));
        let number = step.attempt().map_or(1, |attempt| attempt.number);
        if number > 1 {
            what += &format!(" ({})", attempts(number, planned.max_attempts));
        }
        if let Some(name) = step.attempt().and_then(|attempt| attempt.fallback.as_ref()) {
            what += &format!(", {} instead", one_line(name));
        }
        if let Some(last) = live.and_then(|live| live.last_activity.as_ref()) {
            what += &format!(": {}", one_line(last));
        }
        ('●', what)
    }

    fn at_gate(&self, id: &str, until: Timestamp) -> String {
        let left = whole_seconds(until.since(self.now));
        let clock = time_of_day(until, self.now);
        match self.live.get(id).and_then(|live| live.question.as_ref()) {
            Some(asked) => format!(
                "asks: {} ({left} left, until {clock})",
                question_line(asked)
            ),
            None => format!("waits until {clock} ({left} left)"),
        }
    }

    fn reworked(&self, id: &str) -> String {
        let makes_good = |(_, step): &(&String, &StepState)| step.rework_of.as_deref() == Some(id);
        match self.run.steps.iter().find(makes_good) {
            Some((by, _)) => format!("has failed, and {} makes good for it", one_line(by)),
            None => "has failed, and is made good for".to_owned(),
        }
    }

    /// What was done about a step when nothing more was.
    const fn unfinished_phrase(&self, phase: Phase) -> &'static str {
        match (phase, &self.run.ended) {
            (_, Some(_)) => "was not over when the run ended",
            (Phase::Working, None) => "was at work when its process ended",
            (Phase::Waiting { .. }, None) => "waited for its next attempt when its process ended",
            (Phase::AtGate { .. }, None) => "was at its gate when its process ended",
            (_, None) => "was under way when its process ended",
        }
    }
}

/// How a run ended, and after how long.
fn run_ended(run: &Run, ended: &EndStatus) -> String {
    let took = formatting::elapsed(ended.at.since(run.started));
    let reason = formatting::reason_suffix(ended.reason.as_deref());
    match ended.outcome {
        Outcome::Completed | Outcome::Continued => format!("completed in {took}"),
        Outcome::Canceled => format!("cancelled after {took}{reason}"),
        Outcome::Failed | Outcome::Skipped => format!("failed after {took}{reason}"),
    }
}

#[cfg(test)]
#[path = "run_view_tests.rs"]
mod tests;
