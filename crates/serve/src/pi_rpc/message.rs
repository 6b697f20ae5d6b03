//! Messages in the format of the pi protocol.
//!
//! Invariant: a message is one line of JSON, whatever it contains, including the arguments that a model wrote.

mod convert;

pub use convert::{arguments, no_arguments};

use outlast_kernel::verdict::{Cause, Class};
use serde::Serialize;
use serde_json::value::RawValue;

/// The error message of a completion that the user aborted.
pub const ABORTED_MESSAGE: &str = "Request was aborted.";

/// A message.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// A message of the user.
    User(User),
    /// A message of the model.
    Assistant(Assistant),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A command that the user ran.
    BashExecution(BashExecution),
    /// A summary in place of earlier messages.
    CompactionSummary(CompactionSummary),
}

impl Message {
    /// Creates the message of a user's input: text, or a command that the user ran.
    pub fn from_user(content: Vec<Block>, timestamp: u64) -> Self {
        match super::bash_message::parse_message(&Block::text_of(&content), timestamp) {
            Some(ran) => Self::BashExecution(ran),
            None => Self::User(User { content, timestamp }),
        }
    }
}

/// A message of the user.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "user")]
pub struct User {
    /// The content of the message.
    pub content: Vec<Block>,
    /// Time in milliseconds since 1970.
    pub timestamp: u64,
}

/// A message of the model.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "assistant", rename_all = "camelCase")]
pub struct Assistant {
    /// The content of the message.
    pub content: Vec<Block>,
    /// The API of the provider.
    pub api: String,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The tokens used, and their cost.
    pub usage: PricedUsage,
    /// The reason why the model stopped.
    pub stop_reason: Stop,
    /// Time in milliseconds since 1970.
    pub timestamp: u64,
    /// The error of a failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Details of that error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlast: Option<ErrorDetails>,
}

/// The result of a tool call.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "toolResult", rename_all = "camelCase")]
pub struct ToolResult {
    /// The id of the call.
    pub tool_call_id: String,
    /// The name of the tool.
    pub tool_name: String,
    /// The output of the tool.
    pub content: Vec<Block>,
    /// An empty object; clients expect the field.
    pub details: EmptyObject,
    /// Whether the tool failed, or was not run.
    pub is_error: bool,
    /// Time in milliseconds since 1970.
    pub timestamp: u64,
}

/// An object without fields.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct EmptyObject {}

/// A command that the user ran.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "bashExecution", rename_all = "camelCase")]
pub struct BashExecution {
    /// The command line.
    pub command: String,
    /// The output of the command.
    pub output: String,
    /// The exit code, if the command exited by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether the command was cancelled.
    pub cancelled: bool,
    /// Whether parts of the output are missing.
    pub truncated: bool,
    /// The path of the file with the full output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Whether the model does not see this command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclude_from_context: bool,
    /// Time in milliseconds since 1970.
    pub timestamp: u64,
}

/// A summary in place of earlier messages.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename = "compactionSummary", rename_all = "camelCase")]
pub struct CompactionSummary {
    /// The text of the summary.
    pub summary: String,
    /// Approximate size of the summarised messages, in tokens.
    pub tokens_before: u64,
    /// Time in milliseconds since 1970.
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
        /// The text.
        text: String,
    },
    /// Reasoning of the model.
    Thinking {
        /// The readable part of it.
        thinking: String,
        /// The signature that the provider expects back with it.
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<String>,
        /// Whether the provider hides its text.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// A tool call of the model.
    ToolCall {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments, an object.
        arguments: Box<RawValue>,
    },
    /// An image.
    Image {
        /// Its bytes in base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
}

/// The reason why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    /// The completion is complete.
    Stop,
    /// The output limit was reached.
    Length,
    /// The model wants to call tools.
    ToolUse,
    /// The attempt failed.
    Error,
    /// The user aborted it.
    Aborted,
}

/// Details of an error, in addition to the provider's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorDetails {
    /// The error class.
    pub class: Class,
    /// The cause.
    pub cause: Cause,
    /// The HTTP status or the provider's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The reason why there was no further attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether a retry may succeed.
    pub retryable: bool,
}

/// Tokens, and their cost in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PricedUsage {
    /// Input tokens, without those from the cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
    /// Total of all tokens.
    pub total_tokens: u64,
    /// The cost of the tokens.
    pub cost: Cost,
}

/// A cost in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Cost of the input.
    pub input: f64,
    /// Cost of the output.
    pub output: f64,
    /// Cost of reads from the cache.
    pub cache_read: f64,
    /// Cost of writes to the cache.
    pub cache_write: f64,
    /// Total cost.
    pub total: f64,
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
