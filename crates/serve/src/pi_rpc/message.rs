//! Messages as the pi protocol has them.
//!
//! Invariant: a message is one line of JSON whatever is in it, also the arguments that a model has written.

mod convert;

pub use convert::{arguments, no_arguments};

use outlast_kernel::verdict::{Cause, Class};
use serde::Serialize;
use serde_json::value::RawValue;

/// What is said of an answer that somebody cut short.
pub const ABORTED_MESSAGE: &str = "Request was aborted.";

/// A message.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// Somebody said something.
    User(User),
    /// The model answered.
    Assistant(Assistant),
    /// A tool gave a result.
    ToolResult(ToolResult),
    /// Somebody ran a command.
    BashExecution(BashExecution),
    /// A summary stands for what was said before.
    CompactionSummary(CompactionSummary),
}

impl Message {
    /// What somebody said, or ran.
    pub fn of_user(content: Vec<Block>, timestamp: u64) -> Self {
        match super::bash_message::read(&Block::text_of(&content), timestamp) {
            Some(ran) => Self::BashExecution(ran),
            None => Self::User(User { content, timestamp }),
        }
    }
}

/// What somebody said.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "user")]
pub struct User {
    /// What.
    pub content: Vec<Block>,
    /// When, in milliseconds since 1970.
    pub timestamp: u64,
}

/// What a model answered.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "assistant", rename_all = "camelCase")]
pub struct Assistant {
    /// What.
    pub content: Vec<Block>,
    /// What was spoken with the provider.
    pub api: String,
    /// Who answered.
    pub provider: String,
    /// As which model.
    pub model: String,
    /// What it used.
    pub usage: PricedUsage,
    /// Why it stopped.
    pub stop_reason: Stop,
    /// When, in milliseconds since 1970.
    pub timestamp: u64,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What is known of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlast: Option<ErrorDetails>,
}

/// What came of a tool call.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "toolResult", rename_all = "camelCase")]
pub struct ToolResult {
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// What it said.
    pub content: Vec<Block>,
    /// Nothing; clients look for it.
    pub details: EmptyObject,
    /// Whether it failed, or was not run.
    pub is_error: bool,
    /// When, in milliseconds since 1970.
    pub timestamp: u64,
}

/// An object without fields.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct EmptyObject {}

/// A command that somebody ran.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "bashExecution", rename_all = "camelCase")]
pub struct BashExecution {
    /// The command.
    pub command: String,
    /// What it wrote.
    pub output: String,
    /// How it ended, if it did by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether somebody ended it.
    pub cancelled: bool,
    /// Whether there was more output.
    pub truncated: bool,
    /// Where all of it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Whether the model is told nothing of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclude_from_context: bool,
    /// When, in milliseconds since 1970.
    pub timestamp: u64,
}

/// A summary in place of what was said before.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "compactionSummary", rename_all = "camelCase")]
pub struct CompactionSummary {
    /// It.
    pub summary: String,
    /// How many tokens that had, about.
    pub tokens_before: u64,
    /// When, in milliseconds since 1970.
    pub timestamp: u64,
}

/// A part of a message.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Block {
    /// Text.
    Text {
        /// It.
        text: String,
    },
    /// What the model thought.
    Thinking {
        /// As much of it as may be read.
        thinking: String,
        /// What its provider wants back with it.
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<String>,
        /// Whether it may not be read.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// A tool that the model called.
    ToolCall {
        /// The call.
        id: String,
        /// The tool.
        name: String,
        /// An object.
        arguments: Box<RawValue>,
    },
    /// A picture.
    Image {
        /// Its bytes, in base 64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    /// It was done.
    Stop,
    /// It reached the output limit.
    Length,
    /// It wants tools to run.
    ToolUse,
    /// Something went wrong.
    Error,
    /// Somebody ended it.
    Aborted,
}

/// What is known of what went wrong, beside the provider's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorDetails {
    /// What may be done about it.
    pub class: Class,
    /// What it was.
    pub cause: Cause,
    /// The HTTP status or the provider's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why nothing more was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it can pass by itself.
    pub retryable: bool,
}

/// Tokens, and what they cost in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PricedUsage {
    /// Read, those from the cache not counted.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
    /// All of them.
    pub total_tokens: u64,
    /// What they cost.
    pub cost: Cost,
}

/// Dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// For what was read.
    pub input: f64,
    /// For what was written.
    pub output: f64,
    /// For what was read from the cache.
    pub cache_read: f64,
    /// For what was written to the cache.
    pub cache_write: f64,
    /// For all of it.
    pub total: f64,
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
