//! How a run stands, for whoever looks at it from outside: in a word, by its steps, and with what it asks.
//!
//! Not here: reading its entries (see `history`), and what they come to (see `state`).

use super::definition::Pipeline;
use super::entry::{Entry, Outcome};
use super::file;
use super::history::{Error, RecordedEntry};
use super::state::{Run, StepState};
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::path::Path;

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// A process is at work on it.
    Running,
    /// It is not over, and no process is at work on it.
    Unfinished,
    /// Nothing had happened in it yet when its process ended.
    Empty,
    /// It ended well.
    Completed,
    /// Somebody ended it.
    Cancelled,
    /// It failed.
    Failed,
    /// It is over, and a later version has written how.
    Finished,
}

impl RunStatus {
    /// How a run stands that ended so.
    pub const fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed | Outcome::Continued => Self::Completed,
            Outcome::Canceled => Self::Cancelled,
            Outcome::Failed | Outcome::Skipped => Self::Failed,
        }
    }

    /// In a word.
    pub const fn word(self) -> &'static str {
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

/// How that run stands.
pub async fn standing(runs: &Journal, run: &Summary) -> Result<RunStatus, Error> {
    match (run.state, run.open_turn) {
        (Availability::InUse, _) => return Ok(RunStatus::Running),
        (_, Some(_)) => return Ok(RunStatus::Unfinished),
        _ => {}
    }
    let Some(last) = runs.last(&run.id, "settled").await? else {
        return Ok(RunStatus::Empty);
    };
    Ok(match serde_json::from_str(&last.line.body) {
        Ok(Entry::RunEnded { outcome, .. }) => RunStatus::of(outcome),
        _ => RunStatus::Finished,
    })
}

/// The pipeline of a run, unless it cannot be read any more: by another version, or because a file is gone that it names.
pub fn pipeline(run: &Run) -> Option<Pipeline> {
    file::read(&run.begun.source, Path::new(&run.begun.file)).ok()
}

/// The steps of a run whose pipeline is not at hand: those that have begun, in that order, and then what else was heard of.
pub fn order(run: &Run) -> Vec<&str> {
    let first = |step: &StepState| step.visits.first().map(|visit| visit.started);
    let known = run.steps.iter();
    let mut steps: Vec<_> = known
        .map(|(id, step)| (first(step).is_none(), first(step), id.as_str()))
        .collect();
    steps.sort_unstable();
    steps.into_iter().map(|(_, _, id)| id).collect()
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question.
    pub message: String,
    /// What can be answered: each a key, and after a colon what it means.
    pub choices: Vec<String>,
}

impl Question {
    /// Whether that is the key of one of its choices.
    pub fn has(&self, key: &str) -> bool {
        self.choices.iter().any(|choice| split(choice).0 == key)
    }

    /// Its choices: the key of each, and what it means.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.choices.iter().map(|choice| split(choice))
    }
}

/// A key is a name, in which there is no colon.
fn split(choice: &str) -> (&str, &str) {
    choice.split_once(": ").unwrap_or((choice, choice))
}

/// What a step that is at its gate asks; nothing when it waits for a time.
pub fn asked(step: &str, entries: &[RecordedEntry]) -> Option<Question> {
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
