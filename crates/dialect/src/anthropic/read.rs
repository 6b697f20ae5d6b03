//! From the wire: frames and whole messages to deltas.

use crate::{Delta, Sign, in_band, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};
use outlast_kernel::failure::Failure;
use serde_json::Value;
use std::collections::BTreeMap;

/// The state of one streamed answer.
#[derive(Debug)]
pub struct Stream {
    provider: String,
    usage: Usage,
    stop_reason: Option<StopReason>,
    /// The blocks that have begun and not ended, by their index.
    blocks: BTreeMap<u64, Block>,
}

/// A part of the answer that is still coming.
#[derive(Debug)]
enum Block {
    Tool(ToolCall),
    Thinking { text: String, signature: String },
}

impl Stream {
    /// The beginning of an answer by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            usage: Usage::default(),
            stop_reason: None,
            blocks: BTreeMap::new(),
        }
    }

    /// Adds what one frame says to `deltas`.
    pub fn read(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<Sign, Box<Failure>> {
        let frame = in_band::json(&self.provider, &event.data, now)?;
        let index = frame["index"].as_u64().unwrap_or_default();
        match frame["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.used(&frame["message"]["usage"], deltas),
            "content_block_start" => self.begin(index, &frame["content_block"], deltas),
            "content_block_delta" => self.go_on(index, &frame["delta"], deltas),
            "content_block_stop" => deltas.extend(self.blocks.remove(&index).map(Block::end)),
            "message_delta" => {
                let reason = frame["delta"]["stop_reason"].as_str().map(stop_reason);
                self.stop_reason = reason.or(self.stop_reason);
                self.used(&frame["usage"], deltas);
            }
            "message_stop" => {
                let reason = self.stop_reason.unwrap_or(StopReason::Other);
                deltas.push(Delta::Stopped(reason));
            }
            "ping" => return Ok(Sign::Alive),
            "error" => return Err(in_band::error(&self.provider, &event.data, now)),
            _ if frame["type"].is_null() && !frame["error"].is_null() => {
                return Err(in_band::error(&self.provider, &event.data, now));
            }
            _ => {}
        }
        Ok(Sign::Progress)
    }

    /// A block may bring its beginning along.
    fn begin(&mut self, index: u64, block: &Value, deltas: &mut Vec<Delta>) {
        match block["type"].as_str().unwrap_or_default() {
            "text" => say(&block["text"], Delta::Text, deltas),
            "thinking" => {
                say(&block["thinking"], Delta::Reasoning, deltas);
                let (text, signature) = (owned(&block["thinking"]), owned(&block["signature"]));
                self.blocks
                    .insert(index, Block::Thinking { text, signature });
            }
            "redacted_thinking" => deltas.push(redacted(block)),
            "tool_use" => {
                let call = ToolCall {
                    id: owned(&block["id"]),
                    name: owned(&block["name"]),
                    arguments: whole_input(&block["input"]),
                };
                self.blocks.insert(index, Block::Tool(call));
            }
            _ => {}
        }
    }

    fn go_on(&mut self, index: u64, delta: &Value, deltas: &mut Vec<Delta>) {
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        match (delta["type"].as_str(), self.blocks.get_mut(&index)) {
            (Some("text_delta"), _) => say(&delta["text"], Delta::Text, deltas),
            (Some("thinking_delta"), Some(Block::Thinking { text, .. })) => {
                text.push_str(piece("thinking"));
                say(&delta["thinking"], Delta::Reasoning, deltas);
            }
            (Some("signature_delta"), Some(Block::Thinking { signature, .. })) => {
                signature.push_str(piece("signature"));
            }
            (Some("input_json_delta"), Some(Block::Tool(call))) => {
                call.arguments.push_str(piece("partial_json"));
            }
            _ => {}
        }
    }

    /// Each number replaces what was known before, where it is given.
    fn used(&mut self, usage: &Value, deltas: &mut Vec<Delta>) {
        if !usage.is_object() {
            return;
        }
        let known = self.usage;
        let number = |name: &str, known: u64| usage[name].as_u64().unwrap_or(known);
        self.usage = Usage {
            input: number("input_tokens", known.input),
            output: number("output_tokens", known.output),
            cache_read: number("cache_read_input_tokens", known.cache_read),
            cache_write: number("cache_creation_input_tokens", known.cache_write),
        };
        deltas.push(Delta::Usage(self.usage));
    }
}

impl Block {
    fn end(self) -> Delta {
        match self {
            Self::Tool(call) => Delta::ToolCall(complete(call)),
            Self::Thinking { text, signature } => Delta::ReasoningDone(Reasoning {
                text,
                proof: (!signature.is_empty()).then_some(Proof::Signature { signature }),
            }),
        }
    }
}

/// What a message that came as a whole says.
pub fn read_whole(provider: &str, body: &str, now: Timestamp) -> Result<Vec<Delta>, Box<Failure>> {
    let message = in_band::json(provider, body, now)?;
    let Some(blocks) = message["content"].as_array() else {
        return Err(in_band::error(provider, body, now));
    };
    let mut stream = Stream::new(provider);
    let mut deltas = Vec::new();
    for block in blocks {
        stream.begin(0, block, &mut deltas);
        deltas.extend(stream.blocks.remove(&0).map(Block::end));
    }
    stream.used(&message["usage"], &mut deltas);
    let reason = message["stop_reason"].as_str().map(stop_reason);
    deltas.push(Delta::Stopped(reason.unwrap_or(StopReason::Other)));
    Ok(deltas)
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        _ => StopReason::Other,
    }
}

/// A streamed call begins with an empty object that its pieces replace.
fn whole_input(input: &Value) -> String {
    match input {
        Value::Object(fields) if !fields.is_empty() => input.to_string(),
        _ => String::new(),
    }
}

/// A tool without arguments is called with none, not with nothing.
fn complete(mut call: ToolCall) -> ToolCall {
    if call.arguments.is_empty() {
        call.arguments.push_str("{}");
    }
    call
}

fn redacted(block: &Value) -> Delta {
    let data = owned(&block["data"]);
    Delta::ReasoningDone(Reasoning {
        text: String::new(),
        proof: Some(Proof::Redacted { data }),
    })
}

fn say(text: &Value, delta: fn(String) -> Delta, deltas: &mut Vec<Delta>) {
    let text = owned(text);
    if !text.is_empty() {
        deltas.push(delta(text));
    }
}

fn owned(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
