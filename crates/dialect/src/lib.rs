//! Translates: provider bytes to facts and events, and back.
//!
//! Pure: no sockets, no clock. Bytes go in, [`Delta`]s and [`Failure`](outlast_kernel::failure::Failure)s come out.
//! Not here: making requests (see the engine) and judging failures (see the kernel).
#![warn(missing_docs)]

pub mod anthropic;
pub mod error_body;
pub mod sse;

use outlast_kernel::event::{StopReason, ToolCall, Usage};
use serde::{Deserialize, Serialize};

/// What is asked of a model, in no provider's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The model's name.
    pub model: String,
    /// The conversation so far, the newest message last.
    pub messages: Vec<Message>,
    /// The most tokens that the answer may have.
    pub max_tokens: u32,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: String,
}

impl Message {
    /// Something that the user said.
    pub fn user(content: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            content: content.into(),
        }
    }
}

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person or program that asks.
    User,
    /// The model.
    Assistant,
}

/// One thing that a model's stream said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// A piece of the answer.
    Text(String),
    /// A piece of the reasoning.
    Reasoning(String),
    /// A tool call, complete.
    ToolCall(ToolCall),
    /// What the call has used so far; each one replaces the one before.
    Usage(Usage),
    /// The end: a stream without it was cut off.
    Stopped(StopReason),
}

impl Delta {
    /// Whether a consumer that saw this must not see it again. A report of usage is not content.
    pub fn is_content(&self) -> bool {
        match self {
            Self::Text(text) | Self::Reasoning(text) => !text.is_empty(),
            Self::ToolCall(_) => true,
            Self::Usage(_) | Self::Stopped(_) => false,
        }
    }
}
