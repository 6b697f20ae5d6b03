//! The views of runs, as they are published. `run_snapshot` builds them.

use outlast_kernel::Timestamp;
use outlast_kernel::verdict::{Cause, Class};
use outlast_pipeline::entry::Outcome;
use outlast_pipeline::run_store::RequestReceipt;
use outlast_pipeline::status::RunStatus;
use schemars::JsonSchema;
use serde::Serialize;

/// A run, in a row of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunRow {
    /// Its id.
    pub id: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// Where it works.
    pub directory: String,
    /// How it stands.
    pub state: StateView,
    /// When it began.
    pub created: Timestamp,
    /// When something happened in it last.
    pub changed: Timestamp,
}

/// A run: where it stands, and how it got there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub struct RunView {
    /// Its id.
    pub id: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// Where the pipeline's file was; empty when nothing has happened in the run yet.
    pub file: String,
    /// Where it works.
    pub directory: String,
    /// How it stands.
    pub state: StateView,
    /// When it began.
    pub created: Timestamp,
    /// When something happened in it last.
    pub changed: Timestamp,
    /// When it ended; left out while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
    /// Why it did not end well, or will not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its steps, in the order of the pipeline's file; those that have begun, where that cannot be read any more.
    pub steps: Vec<StepView>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunState")]
pub enum StateView {
    /// A process is at work on it.
    Running,
    /// It is not over, and no process is at work on it: `outlast run --resume` carries it on.
    Unfinished,
    /// Nothing had happened in it yet when its process ended.
    Empty,
    /// It ended well.
    Completed,
    /// Somebody ended it, or its time was over.
    Cancelled,
    /// It failed.
    Failed,
    /// It is over, and a later version has written how.
    Finished,
}

/// How a run or a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunOutcome")]
pub enum OutcomeView {
    /// Well.
    Completed,
    /// It failed, and what follows goes on all the same.
    Continued,
    /// It was left out.
    Skipped,
    /// It failed.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunStep")]
pub struct StepView {
    /// Its name.
    pub id: String,
    /// What it does; left out when the pipeline cannot be read any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindView>,
    /// The steps that must be done before it.
    pub needs: Vec<String>,
    /// The steps that it can lead to beside those that need it: by an edge, by an answer, or to make good for it.
    pub leads_to: Vec<String>,
    /// The loop that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// What it is doing.
    pub phase: PhaseView,
    /// Its last attempts, over all visits, in order.
    pub attempts: Vec<AttemptView>,
    /// How many attempts came before those.
    pub earlier_attempts: usize,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitView>,
    /// What it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<QuestionView>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunStepKind")]
pub enum KindView {
    /// It asks a model.
    Prompt,
    /// It runs a command.
    Command,
    /// It runs an agent program.
    Agent,
    /// It waits for a person, or for a time.
    Gate,
    /// It has its steps run again until something holds.
    Loop,
}

/// What a step is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunStepPhase")]
pub enum PhaseView {
    /// Nothing yet.
    Idle,
    /// It is about to begin.
    Ready,
    /// It works.
    Working,
    /// It waits for its next attempt, or within it for a provider.
    Waiting,
    /// It waits for a person or a time.
    AtGate,
    /// It has failed, and another step makes good for it.
    Reworking,
    /// It was under way when its process ended, and goes on when the run is resumed.
    Interrupted,
    /// It ended well.
    Completed,
    /// It failed, and the run goes on all the same.
    Continued,
    /// It was left out.
    Skipped,
    /// It failed.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// An attempt of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunAttempt")]
pub struct AttemptView {
    /// Its number within the visit, from 1.
    pub number: u32,
    /// The number of the visit, from 1: edges and loops lead to a step more than once.
    pub visit: u32,
    /// When it began.
    pub began: Timestamp,
    /// When it ended; left out while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// What could be done about what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Until when the step waited, or waits, for the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_until: Option<Timestamp>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunAttemptOutcome")]
pub enum AttemptOutcome {
    /// Well.
    Completed,
    /// Something went wrong.
    Failed,
    /// It was ended in the middle.
    Cancelled,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunWait")]
pub struct WaitView {
    /// Until then; at a gate, what counts when nobody answers counts then.
    pub until: Timestamp,
    /// What went wrong; left out at a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Which attempt follows, from 1: of the step, or of the call that its model is asked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What went wrong, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a step asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunQuestion")]
pub struct QuestionView {
    /// The question.
    pub text: String,
    /// What can be answered; the first is to go on.
    pub choices: Vec<ChoiceView>,
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunChoice")]
pub struct ChoiceView {
    /// What is answered.
    pub key: String,
    /// What it means.
    pub label: String,
}

/// A run that was told something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunTold")]
pub struct RunRequestView {
    /// Its id.
    pub id: String,
    /// Whether a process is at work on it, which hears it within a second; else whoever resumes it does.
    pub is_at_work: bool,
}

impl From<RequestReceipt> for RunRequestView {
    fn from(told: RequestReceipt) -> Self {
        Self {
            id: told.run,
            is_at_work: told.is_at_work,
        }
    }
}

impl From<RunStatus> for StateView {
    fn from(standing: RunStatus) -> Self {
        match standing {
            RunStatus::Running => Self::Running,
            RunStatus::Unfinished => Self::Unfinished,
            RunStatus::Empty => Self::Empty,
            RunStatus::Completed => Self::Completed,
            RunStatus::Cancelled => Self::Cancelled,
            RunStatus::Failed => Self::Failed,
            RunStatus::Finished => Self::Finished,
        }
    }
}

impl From<Outcome> for OutcomeView {
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
