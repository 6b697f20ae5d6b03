//! Conversions from our own types to the messages of the pi protocol.

use super::{Block, Cost, EmptyObject, ErrorDetails, PricedUsage, Stop, ToolResult, User};
use outlast_dialect::Part;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::verdict::{Cause, Class};
use outlast_session::factory::ModelCost;
use serde_json::value::RawValue;

impl PricedUsage {
    /// Returns the usage with its cost at the given prices.
    pub fn new(usage: Usage, price: &ModelCost) -> Self {
        let of = |tokens: u64, million: f64| tokens as f64 * million / 1e6;
        let (input, output) = (of(usage.input, price.input), of(usage.output, price.output));
        let cache_read = of(usage.cache_read, price.cache_read);
        let cache_write = of(usage.cache_write, price.cache_write);
        Self {
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            total_tokens: usage.total_input().saturating_add(usage.output),
            cost: Cost {
                input,
                output,
                cache_read,
                cache_write,
                total: input + output + cache_read + cache_write,
            },
        }
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::ToolUse => Self::ToolUse,
            StopReason::Length => Self::Length,
            StopReason::Refusal => Self::Error,
            // `EndTurn`, `Other`, and reasons that are not known yet.
            _ => Self::Stop,
        }
    }
}

impl Stop {
    /// Returns the error of a completion that ended with this reason, if it counts as one.
    pub fn problem(self) -> Option<String> {
        (self == Self::Error).then(|| "the model refused to answer".to_owned())
    }
}

impl ErrorDetails {
    /// Returns the details that follow from a cause alone.
    pub const fn of(cause: Cause, code: Option<String>) -> Self {
        let class = cause.class();
        Self {
            class,
            cause,
            code,
            reason: None,
            retryable: matches!(class, Class::Transient),
        }
    }
}

impl From<&ClassifiedFailure> for ErrorDetails {
    fn from(judged: &ClassifiedFailure) -> Self {
        let vetoed = judged.failure.retryable == Some(false);
        let details = Self::of(judged.verdict.cause, judged.failure.public_code());
        let retryable = details.retryable && !vetoed;
        Self {
            retryable,
            ..details
        }
    }
}

impl User {
    /// Creates a message of the user from a text.
    pub fn from_text(text: String, time: Timestamp) -> Self {
        let content = vec![Block::Text { text }];
        let timestamp = time.as_millis();
        Self { content, timestamp }
    }
}

impl ToolResult {
    /// Creates the message of a tool result.
    pub fn new(result: outlast_dialect::ToolResult, tool_name: String, timestamp: u64) -> Self {
        let text = result.output;
        Self {
            tool_call_id: result.id,
            tool_name,
            content: vec![Block::Text { text }],
            details: EmptyObject {},
            is_error: result.is_error,
            timestamp,
        }
    }
}

impl Block {
    /// Returns the content blocks of a message, without tool results: those are messages of their own.
    pub fn from_parts(parts: &[Part]) -> Vec<Self> {
        parts.iter().filter_map(Self::from_part).collect()
    }

    fn from_part(part: &Part) -> Option<Self> {
        Some(match part {
            Part::Text { text } => Self::Text { text: text.clone() },
            Part::Image(image) => Self::Image {
                data: image.data.clone(),
                mime_type: image.media_type.clone(),
            },
            Part::Reasoning(reasoning) => Self::from_reasoning(reasoning.clone()),
            Part::ToolCall(call) => Self::from_tool_call(call.clone()),
            Part::ToolResult(_) => return None,
        })
    }

    /// Returns all text of the blocks.
    pub fn text_of(blocks: &[Self]) -> String {
        let texts = blocks.iter().filter_map(|block| match block {
            Self::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Creates the block of a model's reasoning.
    pub fn from_reasoning(reasoning: Reasoning) -> Self {
        let redacted = matches!(reasoning.proof, Some(Proof::Redacted { .. }));
        let thinking_signature = reasoning.proof.map(|proof| match proof {
            Proof::Signature { signature } => signature,
            Proof::Redacted { data } => data,
            Proof::Encrypted { id, content } => content.unwrap_or(id),
        });
        Self::Thinking {
            thinking: reasoning.text,
            thinking_signature,
            redacted,
        }
    }

    /// Creates the block of a tool call.
    pub fn from_tool_call(call: ToolCall) -> Self {
        Self::ToolCall {
            id: call.id,
            name: call.name,
            arguments: arguments(&call.arguments),
        }
    }
}

/// Returns the arguments of a call as an object on one line; an empty one if they are invalid.
pub fn arguments(text: &str) -> Box<RawValue> {
    // Strings in JSON contain no raw line breaks, so these are between tokens.
    let line = text.trim().replace(['\n', '\r'], " ");
    let object = line.starts_with('{').then(|| RawValue::from_string(line));
    object.and_then(Result::ok).unwrap_or_else(no_arguments)
}

/// Returns an object without fields.
pub fn no_arguments() -> Box<RawValue> {
    // An empty object always serializes.
    serde_json::value::to_raw_value(&EmptyObject {}).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
