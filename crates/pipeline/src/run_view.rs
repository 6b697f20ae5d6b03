//! A run as outside observers see it: HTTP clients, the terminal, reports.
//!
//! The types are published as they are. Invariant: a view is bounded, and contains no terminal escapes. Not here: how a
//! view is made of what is recorded (see `snapshot`).

mod snapshot;

pub use snapshot::{
    Question, RunSnapshot, open_question, parse_pipeline, run_status, steps_by_start,
};

use super::entry::Outcome;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::{Cause, Class};
use serde::Serialize;

/// A run, as a row of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunRow {
    /// The id of the run.
    pub id: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The folder in which the run works.
    pub directory: String,
    /// The state of the run.
    pub state: RunStatus,
    /// The time at which the run began.
    pub created: Timestamp,
    /// The time of the last change.
    pub changed: Timestamp,
}

/// A run, with its state and its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Run"))]
pub struct RunView {
    /// The id of the run.
    pub id: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The path of the pipeline's file; empty when nothing has happened in the run yet.
    pub file: String,
    /// The folder in which the run works.
    pub directory: String,
    /// The state of the run.
    pub state: RunStatus,
    /// The time at which the run began.
    pub created: Timestamp,
    /// The time of the last change.
    pub changed: Timestamp,
    /// The time of the end; absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// The reason for which the run did not succeed, or will not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The steps, in the order of the pipeline's file; only those that have begun, if that file cannot be read any
    /// more.
    pub steps: Vec<RunStep>,
}

/// The outcome of a run or a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Success.
    Completed,
    /// Failure; the following steps continue all the same.
    Continued,
    /// Skipped.
    Skipped,
    /// Failure.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunStep {
    /// The name of the step.
    pub id: String,
    /// The kind of the step; absent when the pipeline cannot be read any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<RunStepKind>,
    /// The steps that must be done before this step.
    pub needs: Vec<String>,
    /// The steps that can follow this step, beside those that need it: by an edge, by an answer, or to repair it.
    pub leads_to: Vec<String>,
    /// The loop that contains the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// The phase of the step.
    pub phase: RunStepPhase,
    /// The last attempts, over all visits, in order.
    pub attempts: Vec<RunAttempt>,
    /// The number of earlier attempts, which are left out.
    pub earlier_attempts: usize,
    /// The wait of the step, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<RunWait>,
    /// The question of the step, if it asks one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<RunQuestion>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStepKind {
    /// A prompt for a model.
    Prompt,
    /// A command.
    Command,
    /// An agent program.
    Agent,
    /// A wait for a person, or for a time.
    Gate,
    /// A loop, which repeats its steps until a condition holds.
    Loop,
}

/// The phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStepPhase {
    /// The step has not begun.
    Idle,
    /// The step is about to begin.
    Ready,
    /// The step is running.
    Working,
    /// The step waits for its next attempt, or for a provider within an attempt.
    Waiting,
    /// The step waits for a person or a time.
    AtGate,
    /// The step has failed, and another step repairs it.
    Reworking,
    /// The step was under way when its process ended; it continues when the run is resumed.
    Interrupted,
    /// Success.
    Completed,
    /// Failure; the run continues all the same.
    Continued,
    /// Skipped.
    Skipped,
    /// Failure.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// An attempt of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunAttempt {
    /// The number of the attempt within the visit, from 1.
    pub number: u32,
    /// The number of the visit, from 1: edges and loops lead to a step more than once.
    pub visit: u32,
    /// The time at which the attempt began.
    pub began: Timestamp,
    /// The time of the end; absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunAttemptOutcome>,
    /// The class of the failure, which says how to respond to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The cause of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The failure, as text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time until which the step waits, or waited, for the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_until: Option<Timestamp>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunAttemptOutcome {
    /// Success.
    Completed,
    /// Failure.
    Failed,
    /// Cancelled before its end.
    Cancelled,
}

/// The wait of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunWait {
    /// The end of the wait; at a gate, the time at which its default applies if nobody answers.
    pub until: Timestamp,
    /// The cause of the wait; absent at a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The number of the next attempt, from 1: of the step, or of its call to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The failure, as text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The question of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunQuestion {
    /// The text of the question.
    pub text: String,
    /// The possible answers; the first one continues the run.
    pub choices: Vec<RunChoice>,
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunChoice {
    /// The key of the answer, as it is sent.
    pub key: String,
    /// The meaning of the answer, as text for people.
    pub label: String,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", schemars(rename = "RunState"))]
pub enum RunStatus {
    /// A process executes the run.
    Running,
    /// The run has not ended, and no process executes it: `outlast run --resume` resumes it.
    Unfinished,
    /// The process ended before anything happened in the run.
    Empty,
    /// Success.
    Completed,
    /// Cancelled by a person or by its deadline.
    Cancelled,
    /// Failure.
    Failed,
    /// The run has ended, with an outcome that only a later version of the program can read.
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

impl From<Outcome> for RunOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Continued => Self::Continued,
            Outcome::Skipped => Self::Skipped,
            Outcome::Failed => Self::Failed,
            Outcome::Canceled => Self::Cancelled,
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "run_view_tests.rs"]
mod tests;
