//! Estimates the size of a request before a provider has counted it.
//!
//! Tokens are estimated from the bytes of the texts, on the low side: four bytes of prose are one token, punctuation
//! and non-ASCII characters count more. Invariants: nothing is serialized to be measured; adding a message never makes
//! a request smaller; a conversation is the sum of its messages; no text has less than one token for four bytes.
//! Not here: how large a request may be (see [`crate::compaction::Size`]).

use outlast_dialect::{Message, Part, Request, Tool};
use outlast_kernel::event::{Proof, Reasoning};
use serde_json::Value;

/// The weight of one token, in the unit in which texts are weighed.
const WEIGHT_PER_TOKEN: u64 = 12;
/// The tokens that an image counts as: providers scale images down until they have about that many.
const IMAGE_TOKENS: u64 = 1500;
/// The tokens that the wire format adds around the parts of a message, and around the description of a tool.
const FRAMING_TOKENS: u64 = 4;

/// The size of the request that the provider billed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BilledTokens {
    /// The number of tokens that it read.
    pub tokens: u64,
    /// The number of messages at the beginning of the conversation that those tokens cover, with the system prompt and
    /// tools.
    pub messages: usize,
}

/// Estimates the tokens of a request.
pub fn request_tokens(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, text_tokens);
    let tools: u64 = request.tools.iter().map(tool_tokens).sum();
    system + tools + messages_tokens(&request.messages)
}

/// Estimates the tokens of messages.
pub fn messages_tokens(messages: &[Message]) -> u64 {
    messages.iter().map(message_tokens).sum()
}

/// Estimates the tokens of a message.
pub fn message_tokens(message: &Message) -> u64 {
    FRAMING_TOKENS
        + message
            .parts
            .iter()
            .map(part_weight)
            .sum::<u64>()
            .div_ceil(WEIGHT_PER_TOKEN)
}

/// Estimates the tokens of a text.
pub fn text_tokens(text: &str) -> u64 {
    text_weight(text).div_ceil(WEIGHT_PER_TOKEN)
}

/// Returns the tokens of a request: the larger of the full estimate and of the billed tokens plus an estimate for the
/// messages after them. Tokens that were billed for a longer conversation are ignored.
pub fn request_tokens_with_billing(request: &Request, seen: Option<BilledTokens>) -> u64 {
    let billed = seen.and_then(|seen| {
        let after = request.messages.get(seen.messages..)?;
        Some(seen.tokens.saturating_add(messages_tokens(after)))
    });
    request_tokens(request).max(billed.unwrap_or_default())
}

/// Estimates the bytes of a request: those of its texts, without the wire format around them.
pub fn request_bytes(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, length);
    let tools: u64 = request.tools.iter().map(tool_bytes).sum();
    let messages: u64 = request.messages.iter().map(message_bytes).sum();
    system + tools + messages
}

/// Estimates the bytes of a message.
pub fn message_bytes(message: &Message) -> u64 {
    message.parts.iter().map(part_bytes).sum()
}

/// Returns the bytes of all images of a request.
pub fn image_bytes(request: &Request) -> u64 {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let images = parts.filter(|part| matches!(part, Part::Image(_)));
    images.map(part_bytes).sum()
}

// --- Weights ---

fn tool_tokens(tool: &Tool) -> u64 {
    let texts = text_weight(&tool.name) + text_weight(&tool.description);
    FRAMING_TOKENS + (texts + json_weight(&tool.parameters)).div_ceil(WEIGHT_PER_TOKEN)
}

fn part_weight(part: &Part) -> u64 {
    match part {
        Part::Text { text } => text_weight(text),
        Part::Image(_) => IMAGE_TOKENS * WEIGHT_PER_TOKEN,
        Part::Reasoning(reasoning) => reasoning_weight(reasoning),
        Part::ToolCall(call) => {
            text_weight(&call.id) + text_weight(&call.name) + text_weight(&call.arguments)
        }
        Part::ToolResult(result) => text_weight(&result.id) + text_weight(&result.output),
    }
}

/// Encrypted reasoning is longer than its plain text, and a signature has no text.
fn reasoning_weight(reasoning: &Reasoning) -> u64 {
    let hidden = match &reasoning.proof {
        Some(Proof::Redacted { data }) => length(data),
        Some(Proof::Encrypted { content, .. }) if reasoning.text.is_empty() => {
            content.as_deref().map_or(0, length)
        }
        _ => 0,
    };
    text_weight(&reasoning.text) + 2 * hidden
}

fn text_weight(text: &str) -> u64 {
    text.bytes().map(byte_weight).sum()
}

/// A character is weighed by its first byte. Words of non-Latin scripts have fewer letters per token.
const fn byte_weight(byte: u8) -> u64 {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0..=b' ' | 0x7f => 3,
        0x80..=0xbf => 0,
        0xe0..=0xef => 12,
        0xf0.. => 24,
        _ => 6,
    }
}

fn json_weight(value: &Value) -> u64 {
    const SIGNS: u64 = 12;
    SIGNS
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text_weight(text),
            Value::Array(values) => values.iter().map(json_weight).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| SIGNS + text_weight(name) + json_weight(value))
                .sum(),
        }
}

// --- Bytes ---

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn tool_bytes(tool: &Tool) -> u64 {
    length(&tool.name) + length(&tool.description) + json_bytes(&tool.parameters)
}

fn part_bytes(part: &Part) -> u64 {
    match part {
        Part::Text { text } => length(text),
        Part::Image(image) => length(&image.data),
        Part::Reasoning(reasoning) => length(&reasoning.text) + proof_bytes(reasoning),
        Part::ToolCall(call) => length(&call.id) + length(&call.name) + length(&call.arguments),
        Part::ToolResult(result) => length(&result.id) + length(&result.output),
    }
}

fn proof_bytes(reasoning: &Reasoning) -> u64 {
    match &reasoning.proof {
        Some(Proof::Signature { signature }) => length(signature),
        Some(Proof::Redacted { data }) => length(data),
        Some(Proof::Encrypted { id, content }) => length(id) + content.as_deref().map_or(0, length),
        None => 0,
    }
}

fn json_bytes(value: &Value) -> u64 {
    const SIGNS: u64 = 4;
    SIGNS
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => length(text),
            Value::Array(values) => values.iter().map(json_bytes).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| SIGNS + length(name) + json_bytes(value))
                .sum(),
        }
}

#[cfg(test)]
#[path = "token_estimate_tests.rs"]
mod tests;
