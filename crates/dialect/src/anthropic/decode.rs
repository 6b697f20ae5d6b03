//! Decodes frames and whole messages into deltas.
//!
//! A call is emitted when its block ends and its arguments are complete. A call without arguments may be one that the
//! output limit cut off before them: it waits until more comes or the reason for the end is known.

use crate::lenient_json::LenientParser;
use crate::tool_arguments::{self, EmittedCalls, RunawayOutput};
use crate::usage::{UsagePointers, UsageTracker};
use crate::{Delta, StreamActivity, sse, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall};
use outlast_kernel::failure::Failure;
use serde_json::Value;
use std::collections::BTreeMap;

const USAGE: UsagePointers = UsagePointers {
    input: "/input_tokens",
    output: "/output_tokens",
    cache_read: &["/cache_read_input_tokens"],
    cache_write: Some("/cache_creation_input_tokens"),
    input_includes_cache: false,
};

/// The state of one streamed response.
#[derive(Debug)]
pub struct Decoder {
    provider: String,
    json: LenientParser,
    usage: UsageTracker,
    stop_reason: Option<StopReason>,
    /// The blocks that have begun and not ended, by their index.
    blocks: BTreeMap<u64, Block>,
    /// A finished call without arguments, held until it is clear that the output limit did not cut it off.
    pending_call: Option<ToolCall>,
    emitted_calls: EmittedCalls,
    has_opened: bool,
}

/// A part of the completion that is still coming.
#[derive(Debug)]
enum Block {
    /// A tool call whose arguments arrive in pieces; its initial input counts only if no piece arrives.
    Tool {
        call: ToolCall,
        input: String,
    },
    Thinking {
        text: String,
        signature: String,
    },
}

impl Decoder {
    /// Creates the decoder of one response by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            json: LenientParser::default(),
            usage: UsageTracker::default(),
            stop_reason: None,
            blocks: BTreeMap::new(),
            pending_call: None,
            emitted_calls: EmittedCalls::default(),
            has_opened: false,
        }
    }

    /// Adds the deltas of one frame to `deltas`.
    pub fn decode(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        let Some(mut frame) = self.json.parse(&event.data) else {
            return Err(stream_error::unreadable_event(&self.provider, event, now));
        };
        let index = frame["index"].as_u64().unwrap_or_default();
        match frame["type"].as_str().unwrap_or(&event.name) {
            "message_start" => {
                deltas.extend(self.usage.update(&frame["message"]["usage"], &USAGE));
                if !std::mem::replace(&mut self.has_opened, true) {
                    return Ok(StreamActivity::Opening);
                }
                return Ok(StreamActivity::KeepAlive);
            }
            "content_block_start" => {
                if let Some(block) = frame.get_mut("content_block") {
                    preserve_raw_input(block, || {
                        tool_arguments::raw_field(&event.data, "content_block")
                    });
                    self.start_block(index, block, deltas);
                }
            }
            "content_block_delta" => self
                .apply_delta(index, &frame["delta"], deltas)
                .map_err(|endless| endless.into_failure(&self.provider, now))?,
            "content_block_stop" => self.end_block(index, deltas),
            "message_delta" => {
                let reason = frame["delta"]["stop_reason"].as_str().map(stop_reason);
                self.stop_reason = reason.or(self.stop_reason);
                if self.stop_reason.is_some() {
                    self.resolve_pending_call(deltas);
                }
                deltas.extend(self.usage.update(&frame["usage"], &USAGE));
            }
            "message_stop" => self.finish(deltas),
            _ if stream_error::is_error(&frame, &event.name) => {
                return Err(stream_error::from_body(&self.provider, &event.data, now));
            }
            _ => return Ok(StreamActivity::KeepAlive),
        }
        self.has_opened = true;
        Ok(StreamActivity::Progress)
    }

    /// Begins a block, which may already have content.
    fn start_block(&mut self, index: u64, block: &Value, deltas: &mut Vec<Delta>) {
        if let Some(held) = self.pending_call.take() {
            self.emitted_calls.emit(held, deltas);
        }
        let begun = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                push_text(&block["text"], Delta::Text, deltas);
                None
            }
            "thinking" => {
                push_text(&block["thinking"], Delta::Reasoning, deltas);
                let (text, signature) = (
                    string_value(&block["thinking"]),
                    string_value(&block["signature"]),
                );
                Some(Block::Thinking { text, signature })
            }
            "redacted_thinking" => {
                deltas.push(redacted_reasoning(block));
                None
            }
            "tool_use" => {
                let call = ToolCall {
                    id: string_value(&block["id"]),
                    name: string_value(&block["name"]),
                    arguments: String::new(),
                };
                let input = tool_arguments::from_value(&block["input"]);
                Some(Block::Tool { call, input })
            }
            _ => None,
        };
        if let Some(begun) = begun {
            let before = self.blocks.insert(index, begun);
            before
                .into_iter()
                .for_each(|block| self.finish_unclosed_block(block, deltas));
        }
    }

    fn apply_delta(
        &mut self,
        index: u64,
        delta: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), RunawayOutput> {
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        match (delta["type"].as_str(), self.blocks.get_mut(&index)) {
            (Some("text_delta"), _) => push_text(&delta["text"], Delta::Text, deltas),
            (Some("thinking_delta"), Some(Block::Thinking { text, .. })) => {
                text.push_str(piece("thinking"));
                push_text(&delta["thinking"], Delta::Reasoning, deltas);
            }
            (Some("signature_delta"), Some(Block::Thinking { signature, .. })) => {
                signature.push_str(piece("signature"));
            }
            (Some("input_json_delta"), Some(Block::Tool { call, .. })) => {
                tool_arguments::append(call, piece("partial_json"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end_block(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.blocks.remove(&index) {
            Some(Block::Tool { call, input }) if call.arguments.is_empty() && input.is_empty() => {
                if let Some(before) = self.pending_call.replace(call) {
                    self.emitted_calls.emit(before, deltas);
                }
            }
            Some(block) => self.finish_block(block, deltas),
            None => {}
        }
    }

    fn finish_block(&mut self, block: Block, deltas: &mut Vec<Delta>) {
        match block {
            Block::Tool { mut call, input } => {
                if call.arguments.is_empty() {
                    call.arguments = input;
                }
                self.emitted_calls.emit(call, deltas);
            }
            Block::Thinking { text, signature } => deltas.push(Delta::ReasoningDone(Reasoning {
                text,
                proof: (!signature.is_empty()).then_some(Proof::Signature { signature }),
                ..Reasoning::default()
            })),
        }
    }

    /// Finishes a block whose end was not reported: it is complete only if it shows that itself.
    fn finish_unclosed_block(&mut self, block: Block, deltas: &mut Vec<Delta>) {
        match block {
            Block::Tool { call, input } if call.arguments.is_empty() && input.is_empty() => {
                self.emitted_calls.note_incomplete(call.name);
            }
            Block::Thinking { signature, .. } if signature.is_empty() => {}
            block => self.finish_block(block, deltas),
        }
    }

    fn resolve_pending_call(&mut self, deltas: &mut Vec<Delta>) {
        let was_cut = matches!(
            self.stop_reason,
            Some(StopReason::Length | StopReason::Refusal)
        );
        match self.pending_call.take() {
            Some(held) if was_cut => self.emitted_calls.note_incomplete(held.name),
            Some(held) => drop(self.emitted_calls.emit(held, deltas)),
            None => {}
        }
    }

    fn finish(&mut self, deltas: &mut Vec<Delta>) {
        self.resolve_pending_call(deltas);
        for block in std::mem::take(&mut self.blocks).into_values() {
            self.finish_unclosed_block(block, deltas);
        }
        self.emitted_calls.report_incomplete(deltas);
        let reason = self.stop_reason.unwrap_or(StopReason::Other);
        deltas.push(Delta::Stopped(reason));
    }
}

/// Reads a message that came as a whole.
pub fn decode_response(
    provider: &str,
    body: &str,
    now: Timestamp,
) -> Result<Vec<Delta>, Box<Failure>> {
    let mut message = stream_error::parse_json(provider, body, now)?;
    let content = message.get_mut("content").map(Value::take);
    let Some(Value::Array(mut blocks)) =
        content.filter(|_| !stream_error::is_set(&message["error"]))
    else {
        return Err(stream_error::from_body(provider, body, now));
    };
    let mut stream = Decoder::new(provider);
    stream.stop_reason = message["stop_reason"].as_str().map(stop_reason);
    let is_call = |block: &Value| block["type"] == "tool_use";
    if stream.stop_reason == Some(StopReason::Length) && blocks.last().is_some_and(is_call) {
        // The limit was reached within this call.
        let cut = blocks.pop().unwrap_or_default();
        stream
            .emitted_calls
            .note_incomplete(string_value(&cut["name"]));
    }
    let source = tool_arguments::raw_field(body, "content").map(tool_arguments::raw_elements);
    let mut source = source.unwrap_or_default().into_iter();
    let mut deltas = Vec::new();
    for mut block in blocks {
        let text = source.next();
        preserve_raw_input(&mut block, || text);
        stream.start_block(0, &block, &mut deltas);
        stream.end_block(0, &mut deltas);
    }
    stream.resolve_pending_call(&mut deltas);
    deltas.extend(stream.usage.update(&message["usage"], &USAGE));
    stream.finish(&mut deltas);
    Ok(deltas)
}

/// Keeps the input of a call in the model's own text; `source` is the text of its block.
fn preserve_raw_input<'a>(block: &mut Value, source: impl FnOnce() -> Option<&'a str>) {
    let input = block.get_mut("input");
    let input = input.filter(|input| input.is_object() && stream_error::is_set(input));
    let text = || tool_arguments::raw_field(source()?, "input");
    if let Some((input, text)) = input.and_then(|input| Some((input, text()?))) {
        *input = Value::from(text);
    }
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

fn redacted_reasoning(block: &Value) -> Delta {
    let data = string_value(&block["data"]);
    Delta::ReasoningDone(Reasoning {
        proof: Some(Proof::Redacted { data }),
        ..Reasoning::default()
    })
}

fn push_text(text: &Value, delta: fn(String) -> Delta, deltas: &mut Vec<Delta>) {
    let text = string_value(text);
    if !text.is_empty() {
        deltas.push(delta(text));
    }
}

fn string_value(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
