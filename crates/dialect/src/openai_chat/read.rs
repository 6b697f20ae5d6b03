//! From the wire: chunks and whole completions to deltas.
//!
//! Servers differ in small ways, and all are met here: reasoning under two names or as content parts, calls without an
//! index or without an id after their first chunk, usage in a last chunk or in every one.

use super::DONE;
use crate::{Delta, Sign, in_band, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Reasoning, StopReason, ToolCall, Usage};
use outlast_kernel::failure::Failure;
use serde_json::Value;

/// The state of one streamed answer.
#[derive(Debug)]
pub struct Stream {
    provider: String,
    /// The calls that have begun, in their order; they are complete when the answer is.
    calls: Vec<Call>,
    reasoning: String,
    has_content: bool,
    refused: bool,
    finish: Option<StopReason>,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    call: ToolCall,
}

impl Stream {
    /// The beginning of an answer by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            calls: Vec::new(),
            reasoning: String::new(),
            has_content: false,
            refused: false,
            finish: None,
        }
    }

    /// Adds what one frame says to `deltas`.
    pub fn read(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<Sign, Box<Failure>> {
        if event.data.trim() == DONE {
            return self.done(now, deltas);
        }
        let chunk = in_band::json(&self.provider, &event.data, now)?;
        let choice = &chunk["choices"][0];
        if is_error(&chunk, choice) {
            return Err(in_band::error(&self.provider, &event.data, now));
        }
        self.message(&choice["delta"], deltas);
        deltas.extend(usage(&chunk["usage"]));
        if let Some(reason) = choice["finish_reason"]
            .as_str()
            .filter(|word| !word.is_empty())
        {
            self.finish = Some(self.stop_reason(reason));
        }
        Ok(Sign::Progress)
    }

    /// Whether the answer is complete; usage and the last frame may still come.
    pub fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    /// What is left to say when the stream ends here; nothing when it ends too early.
    pub fn end(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if let Some(reason) = self.finish.take() {
            self.close(reason, &mut deltas);
        }
        deltas
    }

    /// The last frame. Some servers leave the finish reason out; what they sent is still all of it.
    fn done(&mut self, now: Timestamp, deltas: &mut Vec<Delta>) -> Result<Sign, Box<Failure>> {
        let whole = |call: &Call| {
            serde_json::from_str::<serde::de::IgnoredAny>(&call.call.arguments).is_ok()
        };
        let reason = match self.finish.take() {
            Some(reason) => reason,
            None if !self.calls.is_empty() && self.calls.iter().all(whole) => StopReason::ToolUse,
            None if self.calls.is_empty() && self.has_content => StopReason::EndTurn,
            None => return Err(in_band::cut_off(&self.provider, now)),
        };
        self.close(reason, deltas);
        Ok(Sign::Progress)
    }

    fn close(&mut self, reason: StopReason, deltas: &mut Vec<Delta>) {
        self.end_reasoning(deltas);
        // Arguments that the output limit or a filter cut short are nobody's wish.
        let runnable = matches!(reason, StopReason::ToolUse | StopReason::EndTurn);
        let has_calls = !self.calls.is_empty();
        for Call { call, .. } in self.calls.drain(..).filter(|_| runnable) {
            deltas.push(Delta::ToolCall(complete(call)));
        }
        let reason = match reason {
            _ if self.refused => StopReason::Refusal,
            // Some servers call every end a stop.
            StopReason::EndTurn if has_calls => StopReason::ToolUse,
            reason => reason,
        };
        deltas.push(Delta::Stopped(reason));
    }

    /// A delta of a stream, or the message of a whole answer.
    fn message(&mut self, message: &Value, deltas: &mut Vec<Delta>) {
        let thought = ["reasoning_content", "reasoning"]
            .iter()
            .find_map(|name| message[*name].as_str());
        self.think(thought.unwrap_or_default(), deltas);
        match &message["content"] {
            Value::String(text) => self.say(text, deltas),
            Value::Array(parts) => parts.iter().for_each(|part| self.part(part, deltas)),
            _ => {}
        }
        if let Some(text) = message["refusal"].as_str().filter(|text| !text.is_empty()) {
            self.refused = true;
            self.say(text, deltas);
        }
        if let Some(pieces) = message["tool_calls"].as_array() {
            self.end_reasoning(deltas);
            pieces.iter().for_each(|piece| self.call(piece));
        }
    }

    /// Some servers send the content in parts, and the reasoning as one of them.
    fn part(&mut self, part: &Value, deltas: &mut Vec<Delta>) {
        match &part["thinking"] {
            Value::String(text) => self.think(text, deltas),
            Value::Array(pieces) => {
                for piece in pieces {
                    self.think(piece["text"].as_str().unwrap_or_default(), deltas);
                }
            }
            _ => self.say(part["text"].as_str().unwrap_or_default(), deltas),
        }
    }

    fn say(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.end_reasoning(deltas);
            self.has_content = true;
            deltas.push(Delta::Text(text.to_owned()));
        }
    }

    fn think(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.reasoning.push_str(text);
            deltas.push(Delta::Reasoning(text.to_owned()));
        }
    }

    fn end_reasoning(&mut self, deltas: &mut Vec<Delta>) {
        if !self.reasoning.is_empty() {
            let text = std::mem::take(&mut self.reasoning);
            deltas.push(Delta::ReasoningDone(Reasoning { text, proof: None }));
        }
    }

    /// A piece belongs to the call with its index or, without one, with its id; without either, to the last.
    fn call(&mut self, piece: &Value) {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().filter(|id| !id.is_empty());
        let known = self.calls.iter().rposition(|known| match (index, id) {
            (Some(index), _) => known.index == Some(index),
            (None, Some(id)) => known.call.id == id,
            (None, None) => true,
        });
        let place = known.unwrap_or_else(|| {
            self.calls.push(Call {
                index,
                call: ToolCall::default(),
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[place].call;
        if let Some(id) = id {
            id.clone_into(&mut call.id);
        }
        let function = &piece["function"];
        // The name comes once; a server that repeats it does not mean it twice.
        if let Some(name) = function["name"].as_str().filter(|name| !name.is_empty()) {
            name.clone_into(&mut call.name);
        }
        match &function["arguments"] {
            Value::String(arguments) => call.arguments.push_str(arguments),
            arguments @ Value::Object(_) => call.arguments = arguments.to_string(),
            _ => {}
        }
    }

    fn stop_reason(&self, word: &str) -> StopReason {
        match word {
            "stop" | "eos" | "end_turn" => StopReason::EndTurn,
            "tool_calls" | "function_call" => StopReason::ToolUse,
            "length" | "max_tokens" => StopReason::Length,
            "content_filter" | "refusal" | "safety" => StopReason::Refusal,
            _ => StopReason::Other,
        }
    }
}

/// A chunk that reports an error: as one, as the end of its choice, or as something that is no chunk at all.
fn is_error(chunk: &Value, choice: &Value) -> bool {
    let says = |value: &Value| !value.is_null() && *value != Value::Bool(false);
    let is_chunk = chunk["choices"].is_array() || chunk["usage"].is_object();
    says(&chunk["error"])
        || says(&choice["error"])
        || choice["finish_reason"] == "error"
        || (!is_chunk
            && ["code", "message", "detail", "status"]
                .iter()
                .any(|name| says(&chunk[*name])))
        || chunk["type"] == "error"
        || chunk["object"] == "error"
}

/// What a completion that came as a whole says.
pub fn read_whole(provider: &str, body: &str, now: Timestamp) -> Result<Vec<Delta>, Box<Failure>> {
    let completion = in_band::json(provider, body, now)?;
    let choice = &completion["choices"][0];
    if !choice["message"].is_object() || is_error(&completion, choice) {
        return Err(in_band::error(provider, body, now));
    }
    let mut stream = Stream::new(provider);
    let mut deltas = Vec::new();
    stream.message(&choice["message"], &mut deltas);
    deltas.extend(usage(&completion["usage"]));
    let reason = choice["finish_reason"].as_str().unwrap_or("stop");
    stream.close(stream.stop_reason(reason), &mut deltas);
    Ok(deltas)
}

/// Here the tokens read from the cache are counted among those read; with us they are counted apart.
fn usage(usage: &Value) -> Option<Delta> {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let cached = usage["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .or_else(|| usage["prompt_cache_hit_tokens"].as_u64())
        .unwrap_or_default();
    usage.is_object().then(|| {
        Delta::Usage(Usage {
            input: number(&usage["prompt_tokens"]).saturating_sub(cached),
            output: number(&usage["completion_tokens"]),
            cache_read: cached,
            cache_write: 0,
        })
    })
}

/// A tool without arguments is called with none, not with nothing.
fn complete(mut call: ToolCall) -> ToolCall {
    if call.arguments.is_empty() {
        call.arguments.push_str("{}");
    }
    call
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
