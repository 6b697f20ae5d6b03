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
    cache_is_in_input: false,
};

/// The state of one streamed response.
#[derive(Debug)]
pub struct Decoder {
    provider: String,
    json: LenientParser,
    used: UsageTracker,
    stop_reason: Option<StopReason>,
    /// The blocks that have begun and not ended, by their index.
    blocks: BTreeMap<u64, Block>,
    /// A finished call without arguments, held until it is clear that the output limit did not cut it off.
    held: Option<ToolCall>,
    handed: EmittedCalls,
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
            used: UsageTracker::default(),
            stop_reason: None,
            blocks: BTreeMap::new(),
            held: None,
            handed: EmittedCalls::default(),
            has_opened: false,
        }
    }

    /// Adds the deltas of one frame to `deltas`.
    pub fn read(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        let Some(mut frame) = self.json.parse(&event.data) else {
            return Err(stream_error::unreadable(&self.provider, event, now));
        };
        let index = frame["index"].as_u64().unwrap_or_default();
        match frame["type"].as_str().unwrap_or(&event.name) {
            "message_start" => {
                deltas.extend(self.used.report(&frame["message"]["usage"], &USAGE));
                if !std::mem::replace(&mut self.has_opened, true) {
                    return Ok(StreamActivity::Opening);
                }
                return Ok(StreamActivity::Alive);
            }
            "content_block_start" => {
                if let Some(block) = frame.get_mut("content_block") {
                    preserve_raw_input(block, || {
                        tool_arguments::field(&event.data, "content_block")
                    });
                    self.begin(index, block, deltas);
                }
            }
            "content_block_delta" => self
                .go_on(index, &frame["delta"], deltas)
                .map_err(|endless| endless.failure(&self.provider, now))?,
            "content_block_stop" => self.end_block(index, deltas),
            "message_delta" => {
                let reason = frame["delta"]["stop_reason"].as_str().map(stop_reason);
                self.stop_reason = reason.or(self.stop_reason);
                if self.stop_reason.is_some() {
                    self.resolve_pending_call(deltas);
                }
                deltas.extend(self.used.report(&frame["usage"], &USAGE));
            }
            "message_stop" => self.end(deltas),
            _ if stream_error::is_error(&frame, &event.name) => {
                return Err(stream_error::error(&self.provider, &event.data, now));
            }
            _ => return Ok(StreamActivity::Alive),
        }
        self.has_opened = true;
        Ok(StreamActivity::Progress)
    }

    /// Begins a block, which may already have content.
    fn begin(&mut self, index: u64, block: &Value, deltas: &mut Vec<Delta>) {
        if let Some(held) = self.held.take() {
            self.handed.call(held, deltas);
        }
        let begun = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                say(&block["text"], Delta::Text, deltas);
                None
            }
            "thinking" => {
                say(&block["thinking"], Delta::Reasoning, deltas);
                let (text, signature) = (owned(&block["thinking"]), owned(&block["signature"]));
                Some(Block::Thinking { text, signature })
            }
            "redacted_thinking" => {
                deltas.push(redacted(block));
                None
            }
            "tool_use" => {
                let call = ToolCall {
                    id: owned(&block["id"]),
                    name: owned(&block["name"]),
                    arguments: String::new(),
                };
                let input = tool_arguments::in_field(&block["input"]);
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

    fn go_on(
        &mut self,
        index: u64,
        delta: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), RunawayOutput> {
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
            (Some("input_json_delta"), Some(Block::Tool { call, .. })) => {
                tool_arguments::add(call, piece("partial_json"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end_block(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.blocks.remove(&index) {
            Some(Block::Tool { call, input }) if call.arguments.is_empty() && input.is_empty() => {
                if let Some(before) = self.held.replace(call) {
                    self.handed.call(before, deltas);
                }
            }
            Some(block) => self.close(block, deltas),
            None => {}
        }
    }

    fn close(&mut self, block: Block, deltas: &mut Vec<Delta>) {
        match block {
            Block::Tool { mut call, input } => {
                if call.arguments.is_empty() {
                    call.arguments = input;
                }
                self.handed.call(call, deltas);
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
                self.handed.cut(call.name);
            }
            Block::Thinking { signature, .. } if signature.is_empty() => {}
            block => self.close(block, deltas),
        }
    }

    fn resolve_pending_call(&mut self, deltas: &mut Vec<Delta>) {
        let was_cut = matches!(
            self.stop_reason,
            Some(StopReason::Length | StopReason::Refusal)
        );
        match self.held.take() {
            Some(held) if was_cut => self.handed.cut(held.name),
            Some(held) => drop(self.handed.call(held, deltas)),
            None => {}
        }
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) {
        self.resolve_pending_call(deltas);
        for block in std::mem::take(&mut self.blocks).into_values() {
            self.finish_unclosed_block(block, deltas);
        }
        self.handed.report_incomplete(deltas);
        let reason = self.stop_reason.unwrap_or(StopReason::Other);
        deltas.push(Delta::Stopped(reason));
    }
}

/// Reads a message that came as a whole.
pub fn read_whole(provider: &str, body: &str, now: Timestamp) -> Result<Vec<Delta>, Box<Failure>> {
    let mut message = stream_error::json(provider, body, now)?;
    let content = message.get_mut("content").map(Value::take);
    let Some(Value::Array(mut blocks)) = content.filter(|_| !stream_error::says(&message["error"]))
    else {
        return Err(stream_error::error(provider, body, now));
    };
    let mut stream = Decoder::new(provider);
    stream.stop_reason = message["stop_reason"].as_str().map(stop_reason);
    let is_call = |block: &Value| block["type"] == "tool_use";
    if stream.stop_reason == Some(StopReason::Length) && blocks.last().is_some_and(is_call) {
        // The limit was reached within this call.
        let cut = blocks.pop().unwrap_or_default();
        stream.handed.cut(owned(&cut["name"]));
    }
    let source = tool_arguments::field(body, "content").map(tool_arguments::elements);
    let mut source = source.unwrap_or_default().into_iter();
    let mut deltas = Vec::new();
    for mut block in blocks {
        let text = source.next();
        preserve_raw_input(&mut block, || text);
        stream.begin(0, &block, &mut deltas);
        stream.end_block(0, &mut deltas);
    }
    stream.resolve_pending_call(&mut deltas);
    deltas.extend(stream.used.report(&message["usage"], &USAGE));
    stream.end(&mut deltas);
    Ok(deltas)
}

/// Keeps the input of a call in the model's own text; `source` is the text of its block.
fn preserve_raw_input<'a>(block: &mut Value, source: impl FnOnce() -> Option<&'a str>) {
    let input = block.get_mut("input");
    let input = input.filter(|input| input.is_object() && stream_error::says(input));
    let text = || tool_arguments::field(source()?, "input");
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

fn redacted(block: &Value) -> Delta {
    let data = owned(&block["data"]);
    Delta::ReasoningDone(Reasoning {
        proof: Some(Proof::Redacted { data }),
        ..Reasoning::default()
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
