//! The turn stream: a small vocabulary for clients of a turn, translated from native events.
//!
//! Invariants: `provider-retry` is sent once for each retry, before its wait, and counts from 0; a client of this
//! vocabulary never has to take anything back, unless the session is configured to retract. Not here: events without a
//! word in this vocabulary (gates, model switches, compaction); the native dialect has them.

use outlast_kernel::event::{Body, Event, StopReason, TurnStatus, Usage};
use outlast_kernel::verdict::{Cause, Class};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// An event, with its session and turn.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnEvent {
    /// The type of the event, with its data.
    #[serde(flatten)]
    pub body: TurnEventBody,
    /// The id of the session.
    pub conversation_id: String,
    /// The id of the turn.
    pub turn_id: String,
}

/// The type of an event, with its data.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum TurnEventBody {
    /// A turn begins.
    Start {
        /// The name of the provider, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The requested model, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// The user's message.
    Input {
        /// The text of the message.
        text: String,
    },
    /// A piece of the answer.
    TextDelta {
        /// The piece.
        delta: String,
    },
    /// A piece of the model's reasoning.
    ReasoningDelta {
        /// The piece.
        delta: String,
    },
    /// The model wants a tool to run.
    ToolCall {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The arguments; as text if they are not valid JSON.
        input: Value,
    },
    /// The result of a tool call.
    ToolResult {
        /// The call's id.
        tool_call_id: String,
        /// The output of the tool.
        output: String,
        /// Whether the tool failed or was not run.
        is_error: bool,
    },
    /// The tokens that the call has used so far.
    Usage(TokenUsage),
    /// One call of the turn succeeded.
    StepComplete {
        /// The model that answered.
        model: String,
        /// The model's reason for stopping.
        finish_reason: StopReason,
    },
    /// A scheduled retry. The event is transient: it is not part of the conversation.
    ProviderRetry {
        /// The number of the retry, from 0.
        attempt: u32,
        /// The wait before the retry, in milliseconds.
        delay_ms: u64,
        /// The provider's message.
        message: String,
        /// The HTTP status or the provider's code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// The output of that attempt is discarded. Sent only in sessions that are configured to retract.
    Retracted {
        /// The number of the attempt within the turn, from 1.
        attempt: u32,
    },
    /// The turn's error, sent once.
    Error {
        /// The provider's message.
        message: String,
        /// The HTTP status or the provider's code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// The class of the failure, which says how to respond to it.
        class: Class,
        /// The cause of the failure.
        cause: Cause,
        /// The reason for which there is no further retry.
        reason: String,
    },
    /// The turn's answer is complete.
    Done {
        /// The model's reason for stopping.
        finish_reason: StopReason,
    },
    /// The turn is over; nothing follows.
    Sealed {
        /// The final status of the turn.
        status: TurnStatus,
    },
}

/// The number of tokens used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Input tokens, without those read from or written to the cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens read from the cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the cache.
    pub cache_write_tokens: u64,
}

impl TurnEvent {
    /// Translates a native event, or returns `None` if this vocabulary has no word for it.
    pub fn from_event(event: &Event) -> Option<Self> {
        Some(Self {
            body: TurnEventBody::from_body(&event.body)?,
            conversation_id: event.session_id.clone(),
            turn_id: event.turn_id.clone(),
        })
    }
}

impl TurnEventBody {
    fn from_body(body: &Body) -> Option<Self> {
        Some(match body.clone() {
            Body::Start { provider, model } => Self::Start {
                provider: non_empty(provider),
                model: non_empty(model),
            },
            Body::Input { text } => Self::Input { text },
            Body::TextDelta { text: delta } => Self::TextDelta { delta },
            Body::ReasoningDelta { text: delta } => Self::ReasoningDelta { delta },
            Body::ToolCall(call) => Self::ToolCall {
                tool_call_id: call.id,
                tool_name: call.name,
                input: serde_json::from_str(&call.arguments)
                    .unwrap_or(Value::String(call.arguments)),
            },
            Body::ToolResult {
                id,
                output,
                is_error,
            } => Self::ToolResult {
                tool_call_id: id,
                output,
                is_error,
            },
            Body::Usage(usage) => Self::Usage(usage.into()),
            Body::StepComplete { model, stop_reason } => Self::StepComplete {
                model,
                finish_reason: stop_reason,
            },
            Body::RetryScheduled {
                attempt,
                delay_ms,
                message,
                code,
                ..
            } => Self::ProviderRetry {
                attempt: attempt.saturating_sub(1),
                delay_ms,
                message,
                code,
            },
            Body::Retracted { attempt } => Self::Retracted { attempt },
            Body::Error {
                class,
                cause,
                message,
                code,
                reason,
            } => Self::Error {
                message,
                code,
                class,
                cause,
                reason,
            },
            Body::Done { stop_reason } => Self::Done {
                finish_reason: stop_reason,
            },
            Body::Sealed { status } => Self::Sealed { status },
            _ => return None,
        })
    }
}

/// Returns the name, or `None` if it is empty.
fn non_empty(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cache_write_tokens: usage.cache_write,
        }
    }
}

#[cfg(test)]
#[path = "turn_stream_tests.rs"]
mod tests;
