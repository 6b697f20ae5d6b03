//! The journal entries of a run: one for each event, written before the event takes effect.
//!
//! Invariants: an attempt is recorded before it begins, and a wait before its first second. The decision about a
//! failure is part of its entry, so that no later process decides again. A run is a fold over its entries (see
//! `state`). Not here: the storage of entries (the store's journal, in a file for runs).

use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::{Cause, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A run begins, or begins again after it had ended.
    RunStarted(Box<RunParameters>),
    /// A process resumes a run that an earlier process left.
    RunResumed {},
    /// A visit of a step begins.
    StepStarted {
        /// The step.
        step: String,
        /// The number of the visit, from 1.
        visit: u32,
    },
    /// An attempt is about to begin.
    AttemptStarted {
        /// The step.
        step: String,
        /// The visit.
        visit: u32,
        /// The number of the attempt within the visit, from 1.
        attempt: u32,
        /// The agent or model that works, if it is not the first choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead: Option<String>,
        /// The session in which a model is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    /// A process of an attempt has started.
    ProcessStarted {
        /// The step.
        step: String,
        /// The process id.
        pid: u32,
        /// The start time that the system reports; it tells the process from a later one with the same id.
        born: u64,
    },
    /// An attempt has ended.
    AttemptEnded {
        /// The step.
        step: String,
        /// The visit.
        visit: u32,
        /// The number of the attempt within the visit.
        attempt: u32,
        /// The tokens that the attempt used.
        #[serde(default)]
        usage: Usage,
        /// The cost of the attempt, where it is known.
        #[serde(default)]
        cost: Cost,
        /// The problem that ended the attempt; `None` after success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<Problem>,
        /// The next action.
        next: NextAction,
        /// Warnings that do not fail the attempt.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The wait for the next attempt is over.
    WaitEnded {
        /// The step.
        step: String,
    },
    /// A gate starts to wait for a person or a time.
    GateOpened {
        /// The step.
        step: String,
        /// The visit.
        visit: u32,
        /// The question to the person; `None` for a timer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The possible answers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        choices: Vec<String>,
        /// The end of the wait.
        until: Timestamp,
    },
    /// A gate has closed.
    GateClosed {
        /// The step.
        step: String,
        /// The answer, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
        /// Whether the answer is the default because nobody answered.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_default: bool,
    },
    /// A step that failed for good is repaired by another step.
    ReworkStarted {
        /// The step that failed.
        step: String,
        /// The step that repairs it.
        by: String,
    },
    /// The steps of a loop run again.
    LoopRepeated {
        /// The loop.
        step: String,
        /// The number of iterations so far.
        iterations: u32,
        /// The steps that are reset to their state before the first run.
        resets: Vec<String>,
    },
    /// A step has ended.
    StepEnded {
        /// The step.
        step: String,
        /// The visit; 0 if the step was never visited.
        visit: u32,
        /// The outcome.
        outcome: Outcome,
        /// The artifacts of the step, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        artifacts: BTreeMap<String, Artifact>,
        /// The fields of the output that conditions can use.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        context: BTreeMap<String, String>,
        /// Whether the run fails with this step.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fails_run: bool,
        /// The reason why the step did not succeed, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A step leads to another step, or to the end.
    EdgeTaken {
        /// The step.
        from: String,
        /// The target step; `None` for the end of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The steps that are reset to their state before the first run, because their inputs are about to change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        resets: Vec<String>,
    },
    /// The run has ended.
    RunEnded {
        /// The outcome.
        outcome: Outcome,
        /// The reason why the run did not succeed, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl Entry {
    /// Returns the kind under which the journal stores the entry: a run is one open turn until it ends.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "prompt",
            Self::RunEnded { .. } => "settled",
            _ => "happened",
        }
    }

    /// Returns the step that the entry is about.
    pub fn step(&self) -> Option<&str> {
        match self {
            Self::RunStarted(_) | Self::RunResumed {} | Self::RunEnded { .. } => None,
            Self::StepStarted { step, .. }
            | Self::AttemptStarted { step, .. }
            | Self::ProcessStarted { step, .. }
            | Self::AttemptEnded { step, .. }
            | Self::WaitEnded { step }
            | Self::GateOpened { step, .. }
            | Self::GateClosed { step, .. }
            | Self::ReworkStarted { step, .. }
            | Self::LoopRepeated { step, .. }
            | Self::StepEnded { step, .. }
            | Self::EdgeTaken { from: step, .. } => Some(step),
        }
    }
}

/// The parameters of a new run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunParameters {
    /// The name of the pipeline.
    pub name: String,
    /// The path of the pipeline's file.
    pub file: String,
    /// The folder in which the run works.
    pub folder: String,
    /// The content of the file at the start: the run keeps using it when the file changes or disappears.
    pub source: String,
    /// The inputs of the run.
    pub inputs: BTreeMap<String, String>,
    /// Options of the front end that it needs to resume the run; opaque here.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// The problem that an attempt ended with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The class, which follows from the cause; it is stored for readers.
    pub class: Class,
    /// The cause.
    pub cause: Cause,
    /// The message, bounded and without secrets and terminal escapes.
    pub message: String,
    /// The earliest time at which a retry makes sense, if a source states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The violations of the result, one by one, or the end of the output of failing tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// The last events before the watchdog ended the attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_events: Vec<String>,
    /// Whether a turn has already spent its retries on the problem.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retries_spent: bool,
}

impl Problem {
    /// Creates a problem from a cause and a message.
    pub fn new(cause: Cause, message: impl AsRef<str>) -> Self {
        Self {
            class: cause.class(),
            cause,
            message: outlast_kernel::text::sanitized_message(message.as_ref()),
            not_before: None,
            violations: Vec::new(),
            last_events: Vec::new(),
            retries_spent: false,
        }
    }
}

/// The action after an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum NextAction {
    /// The step has succeeded and ends.
    Finish,
    /// The step is retried after a wait.
    Wait {
        /// The beginning of the wait.
        since: Timestamp,
        /// The end of the wait.
        until: Timestamp,
    },
    /// The step is retried at once, with feedback about the violations.
    Again,
    /// Another agent or model takes over at once.
    FallBack {
        /// The name of the agent or model.
        to: String,
    },
    /// The step is not retried.
    Stop {
        /// The reason, in words.
        why: String,
    },
}

/// The outcome of a step or a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded.
    Completed,
    /// It failed, and its dependents run anyway.
    Continued,
    /// It was skipped.
    Skipped,
    /// It failed.
    Failed,
    /// It was cancelled.
    Canceled,
}

/// An artifact of a step, stored by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The SHA-256 hash of the content, in hexadecimal.
    pub hash: String,
    /// The size in bytes.
    pub size: u64,
}
