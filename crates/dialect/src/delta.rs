//! The pieces of a model's completion.

use outlast_kernel::event::{Reasoning, StopReason, ToolCall, Usage};
use serde::{Deserialize, Serialize};

/// One piece of information in a model's stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// A piece of the text. A refusal in words is text, too; the stop reason marks it.
    Text(String),
    /// A piece of the reasoning.
    Reasoning(String),
    /// Reasoning that is complete, with its proof; its pieces came before.
    ReasoningDone(Reasoning),
    /// A complete tool call: it has a name, and an id, which is generated if the provider gave none.
    ToolCall(ToolCall),
    /// A tool call that began and is incomplete; reported just before the end. Most often the output limit cut it off,
    /// but a call that names no tool, which could neither be run nor sent back, counts, too.
    IncompleteToolCall {
        /// The tool's name, as far as it was received.
        name: String,
    },
    /// The usage of the call so far; each one replaces the one before.
    Usage(Usage),
    /// The cursor of a completion that its server keeps: a stream that is cut off right after this can be resumed
    /// here. Any later delta makes the cursor stale, until the next one.
    Cursor(StreamCursor),
    /// The end: a stream without it was cut off.
    Stopped(StopReason),
}

/// A position in a completion that its server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCursor {
    /// The id of the response.
    pub response: String,
    /// The number of the last event that was received.
    pub after: u64,
}

impl Delta {
    /// Returns whether this shows that the provider has begun to answer. Reports of usage come before that, too, and a
    /// completion that is only announced has a cursor.
    pub fn is_output(&self) -> bool {
        !matches!(self, Self::Usage(_) | Self::Cursor(_))
    }

    /// Returns whether a consumer that received this must not receive it again. A report of usage is not content, and
    /// neither is the summary of earlier pieces.
    pub fn is_content(&self) -> bool {
        match self {
            Self::Text(text) | Self::Reasoning(text) => !text.is_empty(),
            Self::ToolCall(_) => true,
            Self::ReasoningDone(_)
            | Self::IncompleteToolCall { .. }
            | Self::Usage(_)
            | Self::Cursor(_)
            | Self::Stopped(_) => false,
        }
    }
}
