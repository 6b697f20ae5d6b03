//! Decodes chunks and whole completions into deltas.
//!
//! Servers differ in small ways, and all are handled here: reasoning under two names or as content parts, calls without
//! an index or without an id after their first chunk, usage in a last chunk or in every one, a finish reason in every
//! one.

use super::DONE;
use super::tool_calls::ToolCalls;
use crate::lenient_json::LenientParser;
use crate::tool_arguments::{EmittedCalls, RunawayOutput};
use crate::usage::{UsagePointers, UsageTracker};
use crate::{Delta, StreamActivity, sse, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Reasoning, StopReason};
use outlast_kernel::failure::Failure;
use serde_json::Value;

const USAGE: UsagePointers = UsagePointers {
    input: "/prompt_tokens",
    output: "/completion_tokens",
    cache_read: &[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
    ],
    cache_write: None,
    cache_is_in_input: true,
};

/// The state of one streamed response.
#[derive(Debug)]
pub struct Decoder {
    provider: String,
    json: LenientParser,
    used: UsageTracker,
    calls: ToolCalls,
    reasoning: String,
    has_content: bool,
    refused: bool,
    finish: Option<StopReason>,
    /// Content came after a finish reason: on this server a finish reason does not mean that it is done.
    is_contradicted: bool,
    has_deltas: bool,
    has_opened: bool,
}

impl Decoder {
    /// Creates the decoder of one response by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            json: LenientParser::default(),
            used: UsageTracker::default(),
            calls: ToolCalls::default(),
            reasoning: String::new(),
            has_content: false,
            refused: false,
            finish: None,
            is_contradicted: false,
            has_deltas: false,
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
        if event.data.trim() == DONE {
            return self.done(now, deltas);
        }
        let chunk = self.json.parse(&event.data);
        let failure = match &chunk {
            None => Some(stream_error::unreadable(&self.provider, event, now)),
            Some(chunk) if is_error(chunk, &event.name) => {
                Some(stream_error::error(&self.provider, &event.data, now))
            }
            Some(_) => None,
        };
        match (failure, chunk) {
            // Nothing undoes a completion that is complete.
            (Some(_), _) if self.is_complete() => Ok(StreamActivity::Alive),
            (Some(failure), _) => Err(failure),
            (None, chunk) => self
                .chunk(&chunk.unwrap_or_default(), &event.data, deltas)
                .map_err(|endless| endless.failure(&self.provider, now)),
        }
    }

    fn chunk(
        &mut self,
        chunk: &Value,
        source: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, RunawayOutput> {
        let choice = choice(chunk);
        let delta = &choice["delta"];
        // A message in place of deltas counts as a delta; a message after them only repeats them.
        let message = match self.has_deltas || stream_error::says(delta) {
            true => delta,
            false => &choice["message"],
        };
        let said = self.message(message, source, deltas)?;
        self.has_deltas |= said && std::ptr::eq(message, delta);
        if said && self.finish.take().is_some() {
            self.is_contradicted = true;
        }
        let usage = self.used.report(&chunk["usage"], &USAGE);
        let finish = finish_reason(choice);
        let moved = said || usage.is_some() || finish.is_some() || has_content(message);
        deltas.extend(usage);
        self.finish = finish.or(self.finish);
        let opens = !self.has_opened && message.is_object();
        self.has_opened |= opens || moved;
        Ok(match moved {
            true => StreamActivity::Progress,
            false if opens => StreamActivity::Opening,
            false => StreamActivity::Alive,
        })
    }

    /// Returns whether the completion is complete; usage and the last frame may still come.
    pub fn is_complete(&self) -> bool {
        self.finish.is_some() && !self.is_contradicted
    }

    /// Returns the remaining deltas when the stream ends here; none when it ends too early.
    pub fn end(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if let Some(reason) = self.finish.take() {
            self.close(reason, &mut deltas);
        }
        deltas
    }

    /// Reads the last frame. Some servers leave the finish reason out; their completion is still complete.
    fn done(
        &mut self,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        let reason = match self.finish.take() {
            Some(reason) => reason,
            None if !self.calls.is_empty() && self.calls.are_whole() => StopReason::ToolUse,
            None if self.calls.is_empty() && self.has_content => StopReason::EndTurn,
            None => return Err(stream_error::cut_off(&self.provider, now)),
        };
        self.close(reason, deltas);
        Ok(StreamActivity::Progress)
    }

    fn close(&mut self, reason: StopReason, deltas: &mut Vec<Delta>) {
        self.end_reasoning(deltas);
        // A call that the output limit or a filter cut short was not intended.
        let was_cut = matches!(reason, StopReason::Length | StopReason::Refusal);
        let mut handed = EmittedCalls::default();
        let mut has_calls = false;
        for call in self.calls.take() {
            match was_cut {
                true => handed.cut(call.name),
                false => has_calls |= handed.call(call, deltas),
            }
        }
        let reason = match reason {
            _ if self.refused => StopReason::Refusal,
            // Some servers report every end as a stop, and some use reasons of their own.
            StopReason::EndTurn | StopReason::Other if has_calls => StopReason::ToolUse,
            reason => reason,
        };
        handed.report_incomplete(deltas);
        deltas.push(Delta::Stopped(reason));
    }

    /// Reads a delta of a stream, or the message of a whole response, from that `source`, and returns whether it had
    /// content.
    fn message(
        &mut self,
        message: &Value,
        source: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, RunawayOutput> {
        let before = deltas.len();
        let thought = ["reasoning_content", "reasoning"]
            .iter()
            .find_map(|name| message[*name].as_str().filter(|text| !text.is_empty()));
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
        let mut said = deltas.len() > before;
        if let Some(pieces) = message["tool_calls"].as_array() {
            said |= self.calls.add(pieces, source)?;
        }
        if message["function_call"].is_object() {
            said |= self.calls.add_function(&message["function_call"])?;
        }
        if !self.calls.is_empty() {
            self.end_reasoning(deltas);
        }
        Ok(said)
    }

    /// Reads a content part. Some servers send the content in parts, and the reasoning as one of them.
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
            deltas.push(Delta::ReasoningDone(Reasoning {
                text,
                ..Reasoning::default()
            }));
        }
    }
}

/// Returns the one choice that was requested, wherever it stands.
fn choice(chunk: &Value) -> &Value {
    let choices = chunk["choices"].as_array().map(Vec::as_slice);
    let is_first = |choice: &&Value| choice["index"].as_u64().unwrap_or_default() == 0;
    let first = choices.unwrap_or_default().iter().find(is_first);
    first.unwrap_or(&Value::Null)
}

/// Returns whether a chunk ends a choice, whichever it is.
pub(crate) fn finishes(chunk: &Value) -> bool {
    let choices = chunk["choices"].as_array().into_iter().flatten();
    choices.filter_map(finish_reason).next().is_some()
}

fn finish_reason(choice: &Value) -> Option<StopReason> {
    match choice["finish_reason"].as_str()? {
        "" | "null" => None,
        "stop" | "eos" | "end_turn" => Some(StopReason::EndTurn),
        "tool_calls" | "function_call" | "tool_use" => Some(StopReason::ToolUse),
        "length" | "max_tokens" => Some(StopReason::Length),
        "content_filter" | "refusal" | "safety" => Some(StopReason::Refusal),
        _ => Some(StopReason::Other),
    }
}

/// Returns whether a delta has more than its role.
fn has_content(delta: &Value) -> bool {
    let fields = delta.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| *name != "role")
        .any(|(_, value)| stream_error::says(value))
}

/// Returns whether a chunk reports an error: as such, as the end of its choice, or as something that is no chunk at
/// all.
fn is_error(chunk: &Value, name: &str) -> bool {
    let choice = choice(chunk);
    let is_chunk = !choice.is_null() || chunk["usage"].is_object();
    stream_error::says(&chunk["error"])
        || stream_error::says(&choice["error"])
        || choice["finish_reason"] == "error"
        || (!is_chunk && stream_error::is_error(chunk, name))
}

/// Reads a completion that came as a whole.
pub fn read_whole(provider: &str, body: &str, now: Timestamp) -> Result<Vec<Delta>, Box<Failure>> {
    let completion = stream_error::json(provider, body, now)?;
    let choice = choice(&completion);
    let message = &choice["message"];
    if !message.is_object() || is_error(&completion, "") {
        return Err(stream_error::error(provider, body, now));
    }
    let mut stream = Decoder::new(provider);
    let mut deltas = Vec::new();
    stream
        .message(message, body, &mut deltas)
        .map_err(|endless| endless.failure(provider, now))?;
    deltas.extend(stream.used.report(&completion["usage"], &USAGE));
    stream.finish = finish_reason(choice);
    stream.done(now, &mut deltas)?;
    Ok(deltas)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
