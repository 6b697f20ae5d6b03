//! How large a request is, before anybody has counted it.
//!
//! Tokens are guessed from the bytes of what is said, rather too few than too many: four bytes of prose are one, signs and
//! what is not ASCII are more. Invariants: nothing is written out to be measured; adding a message never makes a request
//! smaller; a conversation is as large as its messages together; no text has less than a token for four bytes.
//! Not here: how large a request may be (see [`crate::compaction::Size`]).

use outlast_dialect::{Message, Part, Request, Tool};
use outlast_kernel::event::{Proof, Reasoning};
use serde_json::Value;

/// A token, in the unit that texts are weighed in.
const WEIGHT_PER_TOKEN: u64 = 12;
/// What an image is counted as, in tokens: providers make it smaller until it has about that many.
const IMAGE_TOKENS: u64 = 1500;
/// What a message has around its parts, and a tool around its description, in tokens.
const FRAMING_TOKENS: u64 = 4;

/// What the provider last billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BilledTokens {
    /// The tokens that it read.
    pub tokens: u64,
    /// How many messages those were, with all that stands before them.
    pub messages: usize,
}

/// The tokens of a request, about.
pub fn tokens(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, text_tokens);
    let tools: u64 = request.tools.iter().map(tool_tokens).sum();
    system + tools + messages_tokens(&request.messages)
}

/// The tokens of messages, about.
pub fn messages_tokens(messages: &[Message]) -> u64 {
    messages.iter().map(message_tokens).sum()
}

/// The tokens of a message, about.
pub fn message_tokens(message: &Message) -> u64 {
    FRAMING_TOKENS
        + message
            .parts
            .iter()
            .map(weight)
            .sum::<u64>()
            .div_ceil(WEIGHT_PER_TOKEN)
}

/// The tokens of a text, about.
pub fn text_tokens(text: &str) -> u64 {
    weight_of(text).div_ceil(WEIGHT_PER_TOKEN)
}

/// The tokens of a request: what was billed for its beginning and the rest by estimate, or all of it by estimate, whichever
/// is more. What was billed for a longer conversation says nothing about this one.
pub fn known(request: &Request, seen: Option<BilledTokens>) -> u64 {
    let billed = seen.and_then(|seen| {
        let after = request.messages.get(seen.messages..)?;
        Some(seen.tokens.saturating_add(messages_tokens(after)))
    });
    tokens(request).max(billed.unwrap_or_default())
}

/// The bytes of a request, about: of what is said, without what the wire puts around it.
pub fn bytes(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, length);
    let tools: u64 = request.tools.iter().map(tool_bytes).sum();
    let messages: u64 = request.messages.iter().map(message_bytes).sum();
    system + tools + messages
}

/// The bytes of a message, about.
pub fn message_bytes(message: &Message) -> u64 {
    message.parts.iter().map(part_bytes).sum()
}

/// The bytes of all images of a request.
pub fn image_bytes(request: &Request) -> u64 {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let images = parts.filter(|part| matches!(part, Part::Image(_)));
    images.map(part_bytes).sum()
}

// --- Weights ---

fn tool_tokens(tool: &Tool) -> u64 {
    let texts = weight_of(&tool.name) + weight_of(&tool.description);
    FRAMING_TOKENS + (texts + json_weight(&tool.parameters)).div_ceil(WEIGHT_PER_TOKEN)
}

fn weight(part: &Part) -> u64 {
    match part {
        Part::Text { text } => weight_of(text),
        Part::Image(_) => IMAGE_TOKENS * WEIGHT_PER_TOKEN,
        Part::Reasoning(reasoning) => reasoning_weight(reasoning),
        Part::ToolCall(call) => {
            weight_of(&call.id) + weight_of(&call.name) + weight_of(&call.arguments)
        }
        Part::ToolResult(result) => weight_of(&result.id) + weight_of(&result.output),
    }
}

/// What is encrypted is longer than what it says, and a signature says nothing.
fn reasoning_weight(reasoning: &Reasoning) -> u64 {
    let hidden = match &reasoning.proof {
        Some(Proof::Redacted { data }) => length(data),
        Some(Proof::Encrypted { content, .. }) if reasoning.text.is_empty() => {
            content.as_deref().map_or(0, length)
        }
        _ => 0,
    };
    weight_of(&reasoning.text) + 2 * hidden
}

fn weight_of(text: &str) -> u64 {
    text.bytes().map(byte_weight).sum()
}

/// A character counts with its first byte. Words of other scripts than the Latin one have fewer letters to a token.
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
            Value::String(text) => weight_of(text),
            Value::Array(values) => values.iter().map(json_weight).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| SIGNS + weight_of(name) + json_weight(value))
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
#[path = "size_tests.rs"]
mod tests;
