//! What a model's answer says, piece by piece.

use outlast_kernel::event::{Reasoning, StopReason, ToolCall, Usage};
use serde::{Deserialize, Serialize};

/// One thing that a model's stream said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// A piece of the answer. A refusal in words is one, too; the stop reason tells.
    Text(String),
    /// A piece of the reasoning.
    Reasoning(String),
    /// Reasoning that is complete, with what proves it; its pieces came before.
    ReasoningDone(Reasoning),
    /// A tool call, complete: it has a name, and an id, which is made up if the provider gave none.
    ToolCall(ToolCall),
    /// A tool call that began and is not whole; said just before the end. Most often the output limit cut it off, but one
    /// that names no tool, which nobody could run or send back, is one, too.
    CallCut {
        /// The tool's name, as far as it came.
        name: String,
    },
    /// What the call has used so far; each one replaces the one before.
    Usage(Usage),
    /// How far the answer has come, when its server keeps it: a stream that is cut off right after this can be taken up
    /// here. What comes after a place makes it stale, until the next one.
    Place(StreamCursor),
    /// The end: a stream without it was cut off.
    Stopped(StopReason),
}

/// A place in an answer that its server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCursor {
    /// The answer's id.
    pub response: String,
    /// The number of the last event that was heard.
    pub after: u64,
}

impl Delta {
    /// Whether this shows that the provider has begun to answer. Reports of usage come before that, too, and an answer
    /// that is announced has a place.
    pub fn is_output(&self) -> bool {
        !matches!(self, Self::Usage(_) | Self::Place(_))
    }

    /// Whether a consumer that saw this must not see it again. A report of usage is not content, and neither is the
    /// summing up of what came before.
    pub fn is_content(&self) -> bool {
        match self {
            Self::Text(text) | Self::Reasoning(text) => !text.is_empty(),
            Self::ToolCall(_) => true,
            Self::ReasoningDone(_)
            | Self::CallCut { .. }
            | Self::Usage(_)
            | Self::Place(_)
            | Self::Stopped(_) => false,
        }
    }
}
