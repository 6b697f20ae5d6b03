//! What happens in a run, as it is written down: one entry for each thing that did, before it counts.
//!
//! Invariants: an attempt is written down before it begins, a wait before its first second; what is decided about a
//! failure is part of its entry, so that nobody has to decide it again. A run is a fold over its entries (see `state`).
//! Not here: where they are kept (the store's journal, in a file for runs).

use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::{Cause, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A run begins, or is begun again after it had ended.
    RunStarted(Box<RunParameters>),
    /// A process takes up what another one left.
    RunResumed {},
    /// A step is visited.
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
        /// Its number within the visit, from 1.
        attempt: u32,
        /// Which agent or model works, when it is not the first choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead: Option<String>,
        /// The session in which a model is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    /// A process of an attempt has begun.
    ProcessStarted {
        /// The step.
        step: String,
        /// Its number.
        pid: u32,
        /// When the system says that it began, by which it is told from another one of the same number.
        born: u64,
    },
    /// An attempt is over.
    AttemptEnded {
        /// The step.
        step: String,
        /// The visit.
        visit: u32,
        /// Its number within the visit.
        attempt: u32,
        /// What it used.
        #[serde(default)]
        usage: Usage,
        /// What it cost, where that is known.
        #[serde(default)]
        cost: Cost,
        /// What went wrong; nothing when it ended well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<Problem>,
        /// What is done about it.
        next: NextAction,
        /// What is worth saying and fails nothing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The wait for the next attempt is over.
    WaitEnded {
        /// The step.
        step: String,
    },
    /// A person is asked, or a time is waited for.
    GateOpened {
        /// The step.
        step: String,
        /// The visit.
        visit: u32,
        /// What is asked; nothing for a time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// What can be answered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        choices: Vec<String>,
        /// Until when.
        until: Timestamp,
    },
    /// A gate is open no more.
    GateClosed {
        /// The step.
        step: String,
        /// What was answered, if anything was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
        /// Whether nobody answered, and it is what counts then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_default: bool,
    },
    /// A step that failed for good is made good for by another one.
    ReworkStarted {
        /// The step.
        step: String,
        /// The other one.
        by: String,
    },
    /// The steps of a loop run again.
    LoopRepeated {
        /// The loop.
        step: String,
        /// How often they have run.
        iterations: u32,
        /// The steps that are as though they had not run yet.
        resets: Vec<String>,
    },
    /// A step is over.
    StepEnded {
        /// The step.
        step: String,
        /// The visit; 0 when it was never visited.
        visit: u32,
        /// How.
        outcome: Outcome,
        /// What it has made, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        artifacts: BTreeMap<String, Artifact>,
        /// The fields of its output that conditions can ask for.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        context: BTreeMap<String, String>,
        /// Whether the run has failed with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fails_run: bool,
        /// Why it did not end well, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A step leads to another one, or to the end.
    EdgeTaken {
        /// The step.
        from: String,
        /// The other one; nothing for the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The steps that are as though they had not run yet: what they made is made of what will change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        resets: Vec<String>,
    },
    /// The run is over.
    RunEnded {
        /// How.
        outcome: Outcome,
        /// Why it did not end well, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl Entry {
    /// The word by which the journal knows it: a run is one open turn until it ends.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "prompt",
            Self::RunEnded { .. } => "settled",
            _ => "happened",
        }
    }

    /// The step that it is about.
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

/// What a run is begun with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunParameters {
    /// The name of the pipeline.
    pub name: String,
    /// Where its file was.
    pub file: String,
    /// Where it works.
    pub folder: String,
    /// The file as it was: the run goes on with it, whatever becomes of the file.
    pub source: String,
    /// What it was given.
    pub inputs: BTreeMap<String, String>,
    /// What the door needs to carry it on: its own business.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// What went wrong with an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// What may be done about it; it follows from the cause, and is written for readers.
    pub class: Class,
    /// What went wrong.
    pub cause: Cause,
    /// The same in words, with secrets and terminal escapes taken out, and bounded.
    pub message: String,
    /// When trying again makes sense, if anyone said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// What the result breaks, one by one; or the end of what failing tests printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// What was seen last, when it was ended because nothing more came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_events: Vec<String>,
    /// Whether a turn has spent its retries on it already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retries_spent: bool,
}

impl Problem {
    /// A problem in words.
    pub fn new(cause: Cause, message: impl AsRef<str>) -> Self {
        Self {
            class: cause.class(),
            cause,
            message: outlast_kernel::text::message(message.as_ref()),
            not_before: None,
            violations: Vec::new(),
            last_events: Vec::new(),
            retries_spent: false,
        }
    }
}

/// What is done after an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum NextAction {
    /// The step has what it needs: it is over.
    Finish,
    /// It is tried again at that time.
    Wait {
        /// When it began.
        since: Timestamp,
        /// When it ends.
        until: Timestamp,
    },
    /// It is tried again at once, and told what was wrong.
    Again,
    /// Another agent or model takes its place, at once.
    FallBack {
        /// Its name.
        to: String,
    },
    /// Nothing more is tried.
    Stop {
        /// Why, in words.
        why: String,
    },
}

/// How a step or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Well.
    Completed,
    /// It failed, and what follows goes on all the same.
    Continued,
    /// It was left out.
    Skipped,
    /// It failed.
    Failed,
    /// Somebody ended it.
    Canceled,
}

/// Something that a step has made, kept by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// What its content is known by: its SHA-256 in hexadecimal.
    pub hash: String,
    /// How many bytes it has.
    pub size: u64,
}
