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
const TOKEN: u64 = 12;
/// What an image is counted as, in tokens: providers make it smaller until it has about that many.
const IMAGE: u64 = 1500;
/// What a message has around its parts, and a tool around its description, in tokens.
const FRAME: u64 = 4;

/// What the provider last billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The tokens that it read.
    pub tokens: u64,
    /// How many messages those were, with all that stands before them.
    pub messages: usize,
}

/// The tokens of a request, about.
pub fn tokens(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, of_text);
    let tools: u64 = request.tools.iter().map(of_tool).sum();
    system + tools + of_messages(&request.messages)
}

/// The tokens of messages, about.
pub fn of_messages(messages: &[Message]) -> u64 {
    messages.iter().map(of_message).sum()
}

/// The tokens of a message, about.
pub fn of_message(message: &Message) -> u64 {
    FRAME
        + message
            .parts
            .iter()
            .map(weight)
            .sum::<u64>()
            .div_ceil(TOKEN)
}

/// The tokens of a text, about.
pub fn of_text(text: &str) -> u64 {
    weight_of(text).div_ceil(TOKEN)
}

/// The tokens of a request: what was billed for its beginning and the rest by estimate, or all of it by estimate, whichever
/// is more. What was billed for a longer conversation says nothing about this one.
pub fn known(request: &Request, seen: Option<Seen>) -> u64 {
    let billed = seen.and_then(|seen| {
        let after = request.messages.get(seen.messages..)?;
        Some(seen.tokens.saturating_add(of_messages(after)))
    });
    tokens(request).max(billed.unwrap_or_default())
}

/// The bytes of a request, about: of what is said, without what the wire puts around it.
pub fn bytes(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, length);
    let tools: u64 = request.tools.iter().map(bytes_of_tool).sum();
    let messages: u64 = request.messages.iter().map(bytes_of_message).sum();
    system + tools + messages
}

/// The bytes of a message, about.
pub fn bytes_of_message(message: &Message) -> u64 {
    message.parts.iter().map(bytes_of_part).sum()
}

/// The bytes of all images of a request.
pub fn image_bytes(request: &Request) -> u64 {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let images = parts.filter(|part| matches!(part, Part::Image(_)));
    images.map(bytes_of_part).sum()
}

// --- Weights ---

fn of_tool(tool: &Tool) -> u64 {
    let texts = weight_of(&tool.name) + weight_of(&tool.description);
    FRAME + (texts + weight_of_json(&tool.parameters)).div_ceil(TOKEN)
}

fn weight(part: &Part) -> u64 {
    match part {
        Part::Text { text } => weight_of(text),
        Part::Image(_) => IMAGE * TOKEN,
        Part::Reasoning(reasoning) => weight_of_reasoning(reasoning),
        Part::ToolCall(call) => {
            weight_of(&call.id) + weight_of(&call.name) + weight_of(&call.arguments)
        }
        Part::ToolResult(result) => weight_of(&result.id) + weight_of(&result.output),
    }
}

/// What is encrypted is longer than what it says, and a signature says nothing.
fn weight_of_reasoning(reasoning: &Reasoning) -> u64 {
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
    text.bytes().map(weight_of_byte).sum()
}

/// A character counts with its first byte. Words of other scripts than the Latin one have fewer letters to a token.
const fn weight_of_byte(byte: u8) -> u64 {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0..=b' ' | 0x7f => 3,
        0x80..=0xbf => 0,
        0xe0..=0xef => 12,
        0xf0.. => 24,
        _ => 6,
    }
}

fn weight_of_json(value: &Value) -> u64 {
    const SIGNS: u64 = 12;
    SIGNS
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => weight_of(text),
            Value::Array(values) => values.iter().map(weight_of_json).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| SIGNS + weight_of(name) + weight_of_json(value))
                .sum(),
        }
}

// --- Bytes ---

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn bytes_of_tool(tool: &Tool) -> u64 {
    length(&tool.name) + length(&tool.description) + bytes_of_json(&tool.parameters)
}

fn bytes_of_part(part: &Part) -> u64 {
    match part {
        Part::Text { text } => length(text),
        Part::Image(image) => length(&image.data),
        Part::Reasoning(reasoning) => length(&reasoning.text) + bytes_of_proof(reasoning),
        Part::ToolCall(call) => length(&call.id) + length(&call.name) + length(&call.arguments),
        Part::ToolResult(result) => length(&result.id) + length(&result.output),
    }
}

fn bytes_of_proof(reasoning: &Reasoning) -> u64 {
    match &reasoning.proof {
        Some(Proof::Signature { signature }) => length(signature),
        Some(Proof::Redacted { data }) => length(data),
        Some(Proof::Encrypted { id, content }) => length(id) + content.as_deref().map_or(0, length),
        None => 0,
    }
}

fn bytes_of_json(value: &Value) -> u64 {
    const SIGNS: u64 = 4;
    SIGNS
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => length(text),
            Value::Array(values) => values.iter().map(bytes_of_json).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| SIGNS + length(name) + bytes_of_json(value))
                .sum(),
        }
}

#[cfg(test)]
#[path = "size_tests.rs"]
mod tests;
