//! The journal of a turn: the records from which another process can resume it.
//!
//! Invariants: the prompt is written before the first request, a wait before it begins, a tool call before it starts; a
//! turn is settled once. The state is a fold over the entries, in order.
//! Not here: the storage (see the store crate) and the fold (see `state` in the session crate).

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

/// One record of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A turn begins.
    Prompt {
        /// The turn's id.
        turn_id: String,
        /// The user's message; `None` when the turn continues an earlier one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Message>,
        /// The turn's budget.
        budget: Prompt,
        /// Whether the user chose the model for this turn: earlier exclusions of models are void.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        chosen: bool,
        /// Options of the front end that it needs to resume the turn; opaque to the engine.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        options: Value,
    },
    /// A call is about to be made.
    AttemptStarted {
        /// The attempt's number within the turn, from 1.
        attempt: u32,
    },
    /// A call failed, or was cancelled.
    AttemptFailed {
        /// The attempt's number.
        attempt: u32,
        /// The classified failure; `None` when the user cancelled the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judged: Option<ClassifiedFailure>,
        /// The part of the completion that arrived. It is never sent again, unless the next call continues it.
        message: Message,
        /// The tokens that the attempt used.
        usage: Usage,
        /// Whether the next call continues the partial completion.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kept: bool,
        /// The cursor from which the provider can send the rest, if it stores completions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<StreamCursor>,
    },
    /// A wait is about to begin.
    WaitScheduled {
        /// The time at which the wait began.
        since: Timestamp,
        /// The time at which the wait ends.
        until: Timestamp,
        /// The cause of the wait.
        cause: Cause,
        /// The expenses so far, including the wait.
        spent: Spent,
    },
    /// The wait is over.
    WaitEnded {
        /// The expenses so far, without the part of the wait that was not slept.
        spent: Spent,
    },
    /// The next call uses another account or another model, or the same account with another key.
    Switched {
        /// The account that was left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<String>,
        /// The change of model, if the model changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelSwitch>,
        /// The expenses so far.
        spent: Spent,
    },
    /// The completion of a step.
    Message {
        /// The completion's message.
        message: Message,
        /// The reason why the model stopped.
        stop_reason: StopReason,
        /// The tokens that the attempt used.
        usage: Usage,
        /// The model that was asked.
        #[serde(default)]
        model: String,
    },
    /// The turn sends the model a notice that no user wrote.
    Noticed {
        /// The notice.
        message: Message,
        /// The cause of the notice.
        cause: Cause,
    },
    /// A message is queued for the model.
    Queued {
        /// The message's id.
        id: String,
        /// The queue in which it waits.
        place: inbox::QueueKind,
        /// The message.
        message: Message,
    },
    /// Messages were sent to the model: queued ones, or a note that did not have to wait.
    #[serde(rename = "said")]
    Delivered {
        /// The ids of the queued messages.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ids: Vec<String>,
        /// The messages.
        messages: Vec<Message>,
        /// Whether they are notes, which need no completion.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        note: bool,
    },
    /// Queued messages were withdrawn.
    Unqueued {
        /// The ids of the withdrawn messages.
        ids: Vec<String>,
    },
    /// The conversation was compacted: these messages replace it.
    Compacted {
        /// The reason for the compaction.
        reason: CompactionReason,
        /// All messages of the compacted conversation.
        messages: Vec<Message>,
        /// The estimated number of tokens before.
        before: u64,
        /// The estimated number of tokens after.
        after: u64,
        /// The model that wrote the summary; `None` when parts were only left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The tokens that the compaction used.
        usage: Usage,
        /// The turn's expenses including the compaction; `None` outside of a turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spent: Option<Spent>,
    },
    /// A tool is about to run.
    ToolStarted {
        /// The index of the call in the last message.
        index: usize,
        /// The call's id.
        id: String,
        /// The effect of running the tool again.
        effect: Effect,
    },
    /// A tool has run, or will not run.
    ToolFinished {
        /// The index of the call in the last message.
        index: usize,
        /// The call's id.
        id: String,
        /// The tool's output.
        output: String,
        /// Whether the call failed, or was not run.
        is_error: bool,
    },
    /// The turn is over.
    Settled {
        /// The turn's final status.
        seal: TurnStatus,
        /// The tokens that all attempts used.
        usage: Usage,
        /// The error that ended the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<TurnError>,
    },
}

/// A switch from one model to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSwitch {
    /// The key of the previous model.
    pub from: String,
    /// The key of the new model.
    pub to: String,
    /// The exclusion of the previous model; `None` when it is not at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Exclusion>,
}

/// The expenses of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Those of the open retry chain.
    pub chain: Chain,
    /// Those of the whole prompt.
    pub prompt: Prompt,
}

/// The error that ended a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnError {
    /// The cause of the error.
    pub cause: Cause,
    /// The provider's message.
    pub message: String,
    /// The reason why no further attempt was made.
    pub reason: String,
}

impl Entry {
    /// Returns the entries that record these messages as sent: notes first, as they need no completion.
    pub fn delivered(letters: Vec<inbox::QueuedMessage>) -> Vec<Self> {
        let is_note = |letter: &inbox::QueuedMessage| letter.place == inbox::QueueKind::Note;
        let (notes, others): (Vec<inbox::QueuedMessage>, Vec<inbox::QueuedMessage>) =
            letters.into_iter().partition(is_note);
        let said = |(letters, note): (Vec<inbox::QueuedMessage>, bool)| {
            let (ids, messages): (Vec<String>, Vec<Message>) = letters
                .into_iter()
                .map(|letter| (letter.id, letter.message))
                .unzip();
            (!ids.is_empty()).then_some(Self::Delivered {
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

    /// Returns the serialized name of the entry's kind.
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
            Self::Delivered { .. } => "said",
            Self::Unqueued { .. } => "unqueued",
            Self::Compacted { .. } => "compacted",
            Self::ToolStarted { .. } => "tool_started",
            Self::ToolFinished { .. } => "tool_finished",
            Self::Settled { .. } => "settled",
        }
    }
}

/// The reason why entries were not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another process owns the turn now: this one must stop working on it.
    #[error("{0}")]
    OwnershipLost(String),
    /// The write failed, but may succeed later.
    #[error("{0}")]
    Failed(String),
}

/// The durable log of a turn.
pub trait Journal: Send + Sync {
    /// Appends the entries, all or none. Once this returns `Ok`, they survive a crash.
    fn append<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Result<(), AppendError>>;
}
