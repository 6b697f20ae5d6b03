//! What a turn writes down while it runs, so that another process can carry it on.
//!
//! Invariants: the prompt is written down before the first request, a wait before its first second, a tool before it
//! starts; a turn is settled once. State is a fold over the entries, in order.
//! Not here: where they are kept (see the store) and how they are folded (see the agent's `session`).

use crate::BoxFuture;
use crate::inbox;
use crate::tools::Effect;
use outlast_dialect::{Message, StreamCursor};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::event::{CompactionReason, StopReason, TurnStatus, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback::Exclusion;
use outlast_kernel::verdict::Cause;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A turn begins.
    Prompt {
        /// The turn.
        turn_id: String,
        /// What was said; a turn that goes on from an earlier one says nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Message>,
        /// What the turn may spend.
        budget: Prompt,
        /// Whether somebody chose the model for it: whatever was held against models is void.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        chosen: bool,
        /// What the door needs to carry it on: its own business.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        options: Value,
    },
    /// A call is about to be made.
    AttemptStarted {
        /// Its number within the turn, from 1.
        attempt: u32,
    },
    /// A call failed, or was cancelled.
    AttemptFailed {
        /// Its number.
        attempt: u32,
        /// What went wrong; nothing when a person cancelled it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judged: Option<ClassifiedFailure>,
        /// As much of its answer as came. It is never sent again, unless the next call goes on with it.
        message: Message,
        /// What it used.
        usage: Usage,
        /// Whether the next call goes on with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kept: bool,
        /// Where its provider has the rest of it, if it keeps answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<StreamCursor>,
    },
    /// A wait is about to begin.
    WaitScheduled {
        /// When it began.
        since: Timestamp,
        /// When it ends.
        until: Timestamp,
        /// What it is for.
        cause: Cause,
        /// What is spent, the wait included.
        spent: Spent,
    },
    /// The wait is over.
    WaitEnded {
        /// What is spent, less what was not slept.
        spent: Spent,
    },
    /// Another account or another model is asked from here on, or the same with another key.
    Switched {
        /// The account that is left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<String>,
        /// The models, when they are others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelSwitch>,
        /// What is spent.
        spent: Spent,
    },
    /// A step's answer.
    Message {
        /// It.
        message: Message,
        /// Why the model stopped.
        stop_reason: StopReason,
        /// What its attempt used.
        usage: Usage,
        /// Who was asked.
        #[serde(default)]
        model: String,
    },
    /// The turn tells the model something that nobody said.
    Noticed {
        /// What.
        message: Message,
        /// What it is about.
        cause: Cause,
    },
    /// A message waits to be said to the model.
    Queued {
        /// Its id.
        id: String,
        /// Where it waits.
        place: inbox::QueueKind,
        /// It.
        message: Message,
    },
    /// Messages were said that waited, or a note that did not have to.
    Said {
        /// Their ids.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ids: Vec<String>,
        /// They.
        messages: Vec<Message>,
        /// Whether they are notes, which ask for no answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        note: bool,
    },
    /// Messages that waited are not to be said.
    Unqueued {
        /// Their ids.
        ids: Vec<String>,
    },
    /// The conversation was made smaller: from here on it is this.
    Compacted {
        /// Why.
        reason: CompactionReason,
        /// All of it.
        messages: Vec<Message>,
        /// How many tokens it had, about.
        before: u64,
        /// How many it has, about.
        after: u64,
        /// Who summarised it; nobody, when parts were only left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What that used.
        usage: Usage,
        /// What the turn has spent with it; nothing outside of a turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<Spent>,
    },
    /// A tool is about to run.
    ToolStarted {
        /// Which call of the last message.
        index: usize,
        /// The call's id.
        id: String,
        /// What running it again would do.
        effect: Effect,
    },
    /// A tool has run, or will not.
    ToolFinished {
        /// Which call of the last message.
        index: usize,
        /// The call's id.
        id: String,
        /// What it said.
        output: String,
        /// Whether it failed, or was not run.
        is_error: bool,
    },
    /// The turn is over.
    Settled {
        /// How.
        seal: TurnStatus,
        /// What all of its attempts used.
        usage: Usage,
        /// The error that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<TurnError>,
    },
}

/// From one model to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSwitch {
    /// The model that was asked, by its key.
    pub from: String,
    /// The model that is asked, by its key.
    pub to: String,
    /// For how long the first one is left; nothing when it is not at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Exclusion>,
}

/// What a turn has spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// In the open chain of retries.
    pub chain: Chain,
    /// In all.
    pub prompt: Prompt,
}

/// The error that ended a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnError {
    /// What went wrong.
    pub cause: Cause,
    /// The provider's message.
    pub message: String,
    /// Why nothing more was tried.
    pub reason: String,
}

impl Entry {
    /// That these messages were said: notes first, as nobody answers them.
    pub fn said(letters: Vec<inbox::QueuedMessage>) -> Vec<Self> {
        let is_note = |letter: &inbox::QueuedMessage| letter.place == inbox::QueueKind::Note;
        let (notes, others): (Vec<inbox::QueuedMessage>, Vec<inbox::QueuedMessage>) =
            letters.into_iter().partition(is_note);
        let said = |(letters, note): (Vec<inbox::QueuedMessage>, bool)| {
            let (ids, messages): (Vec<String>, Vec<Message>) = letters
                .into_iter()
                .map(|letter| (letter.id, letter.message))
                .unzip();
            (!ids.is_empty()).then_some(Self::Said {
                ids,
                messages,
                note,
            })
        };
        [(notes, true), (others, false)]
            .into_iter()
            .filter_map(said)
            .collect()
    }

    /// The word for its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Prompt { .. } => "prompt",
            Self::AttemptStarted { .. } => "attempt_started",
            Self::AttemptFailed { .. } => "attempt_failed",
            Self::WaitScheduled { .. } => "wait_scheduled",
            Self::WaitEnded { .. } => "wait_ended",
            Self::Switched { .. } => "switched",
            Self::Message { .. } => "message",
            Self::Noticed { .. } => "noticed",
            Self::Queued { .. } => "queued",
            Self::Said { .. } => "said",
            Self::Unqueued { .. } => "unqueued",
            Self::Compacted { .. } => "compacted",
            Self::ToolStarted { .. } => "tool_started",
            Self::ToolFinished { .. } => "tool_finished",
            Self::Settled { .. } => "settled",
        }
    }
}

/// Why entries were not written down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The turn belongs to another process now: it must be left alone.
    #[error("{why}")]
    Lost {
        /// What is known of it.
        why: String,
    },
    /// It may work another time.
    #[error("{why}")]
    Failed {
        /// What went wrong.
        why: String,
    },
}

/// Where a turn writes down what happens.
pub trait Journal: Send + Sync {
    /// Writes the entries down, all or none. Once this is `Ok` they survive a crash.
    fn append<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Result<(), AppendError>>;
}
