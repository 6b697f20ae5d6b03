//! The status of a run for outside observers: a word, the order of its steps, and the open questions.
//!
//! Not here: reading entries (see `history`), and folding them (see `state`).

use super::definition::Pipeline;
use super::entry::{Entry, Outcome};
use super::file;
use super::history::{Error, RecordedEntry};
use super::state::{Run, StepState};
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::path::Path;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// A process is executing the run.
    Running,
    /// The run is not over, and no process is executing it.
    Unfinished,
    /// The process ended before the run's first entry.
    Empty,
    /// The run succeeded.
    Completed,
    /// The run was cancelled.
    Cancelled,
    /// The run failed.
    Failed,
    /// The run is over, with an outcome that only a later version knows.
    Finished,
}

impl RunStatus {
    /// Returns the status of a run with the given outcome.
    pub const fn from_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed | Outcome::Continued => Self::Completed,
            Outcome::Canceled => Self::Cancelled,
            Outcome::Failed | Outcome::Skipped => Self::Failed,
        }
    }

    /// Returns the status in a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::Empty => "empty",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Finished => "finished",
        }
    }
}

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

/// Returns the steps of a run without its pipeline: those that have begun, in that order, and then all others with
/// entries.
pub fn steps_by_start(run: &Run) -> Vec<&str> {
    let first = |step: &StepState| step.visits.first().map(|visit| visit.started);
    let known = run.steps.iter();
    let mut steps: Vec<_> = known
        .map(|(id, step)| (first(step).is_none(), first(step), id.as_str()))
        .collect();
    steps.sort_unstable();
    steps.into_iter().map(|(_, _, id)| id).collect()
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
