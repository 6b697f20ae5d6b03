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
    input_includes_cache: true,
};

/// The state of one streamed response.
#[derive(Debug)]
pub struct Decoder {
    provider: String,
    json: LenientParser,
    usage: UsageTracker,
    calls: ToolCalls,
    reasoning: String,
    has_content: bool,
    is_refused: bool,
    finish_reason: Option<StopReason>,
    /// Content came after a finish reason: on this server a finish reason does not mean that it is done.
    has_content_after_finish: bool,
    has_deltas: bool,
    has_opened: bool,
}

impl Decoder {
    /// Creates the decoder of one response by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            json: LenientParser::default(),
            usage: UsageTracker::default(),
            calls: ToolCalls::default(),
            reasoning: String::new(),
            has_content: false,
            is_refused: false,
            finish_reason: None,
            has_content_after_finish: false,
            has_deltas: false,
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
        if event.data.trim() == DONE {
            return self.decode_done(now, deltas);
        }
        let chunk = self.json.parse(&event.data);
        let failure = match &chunk {
            None => Some(stream_error::unreadable_event(&self.provider, event, now)),
            Some(chunk) if is_error(chunk, &event.name) => {
                Some(stream_error::from_body(&self.provider, &event.data, now))
            }
            Some(_) => None,
        };
        match (failure, chunk) {
            // Nothing undoes a completion that is complete.
            (Some(_), _) if self.is_complete() => Ok(StreamActivity::KeepAlive),
            (Some(failure), _) => Err(failure),
            (None, chunk) => self
                .decode_chunk(&chunk.unwrap_or_default(), &event.data, deltas)
                .map_err(|endless| endless.into_failure(&self.provider, now)),
        }
    }

    fn decode_chunk(
        &mut self,
        chunk: &Value,
        source: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, RunawayOutput> {
        let choice = first_choice(chunk);
        let delta = &choice["delta"];
        // A message in place of deltas counts as a delta; a message after them only repeats them.
        let message = match self.has_deltas || stream_error::is_set(delta) {
            true => delta,
            false => &choice["message"],
        };
        let said = self.decode_message(message, source, deltas)?;
        self.has_deltas |= said && std::ptr::eq(message, delta);
        if said && self.finish_reason.take().is_some() {
            self.has_content_after_finish = true;
        }
        let usage = self.usage.update(&chunk["usage"], &USAGE);
        let finish = finish_reason(choice);
        let moved = said || usage.is_some() || finish.is_some() || has_content(message);
        deltas.extend(usage);
        self.finish_reason = finish.or(self.finish_reason);
        let opens = !self.has_opened && message.is_object();
        self.has_opened |= opens || moved;
        Ok(match moved {
            true => StreamActivity::Progress,
            false if opens => StreamActivity::Opening,
            false => StreamActivity::KeepAlive,
        })
    }

    /// Returns whether the completion is complete; usage and the last frame may still come.
    pub fn is_complete(&self) -> bool {
        self.finish_reason.is_some() && !self.has_content_after_finish
    }

    /// Returns the remaining deltas when the stream ends here; none when it ends too early.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if let Some(reason) = self.finish_reason.take() {
            self.finish_with(reason, &mut deltas);
        }
        deltas
    }

    /// Reads the last frame. Some servers leave the finish reason out; their completion is still complete.
    fn decode_done(
        &mut self,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        let reason = match self.finish_reason.take() {
            Some(reason) => reason,
            None if !self.calls.is_empty() && self.calls.are_complete() => StopReason::ToolUse,
            None if self.calls.is_empty() && self.has_content => StopReason::EndTurn,
            None => return Err(stream_error::truncated_stream(&self.provider, now)),
        };
        self.finish_with(reason, deltas);
        Ok(StreamActivity::Progress)
    }

    fn finish_with(&mut self, reason: StopReason, deltas: &mut Vec<Delta>) {
        self.finish_reasoning(deltas);
        // A call that the output limit or a filter cut short was not intended.
        let was_cut = matches!(reason, StopReason::Length | StopReason::Refusal);
        let mut handed = EmittedCalls::default();
        let mut has_calls = false;
        for call in self.calls.take() {
            match was_cut {
                true => handed.note_incomplete(call.name),
                false => has_calls |= handed.emit(call, deltas),
            }
        }
        let reason = match reason {
            _ if self.is_refused => StopReason::Refusal,
            // Some servers report every end as a stop, and some use reasons of their own.
            StopReason::EndTurn | StopReason::Other if has_calls => StopReason::ToolUse,
            reason => reason,
        };
        handed.report_incomplete(deltas);
        deltas.push(Delta::Stopped(reason));
    }

    /// Reads a delta of a stream, or the message of a whole response, from that `source`, and returns whether it had
    /// content.
    fn decode_message(
        &mut self,
        message: &Value,
        source: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, RunawayOutput> {
        let before = deltas.len();
        let thought = ["reasoning_content", "reasoning"]
            .iter()
            .find_map(|name| message[*name].as_str().filter(|text| !text.is_empty()));
        self.push_reasoning(thought.unwrap_or_default(), deltas);
        match &message["content"] {
            Value::String(text) => self.push_text(text, deltas),
            Value::Array(parts) => parts.iter().for_each(|part| self.decode_part(part, deltas)),
            _ => {}
        }
        if let Some(text) = message["refusal"].as_str().filter(|text| !text.is_empty()) {
            self.is_refused = true;
            self.push_text(text, deltas);
        }
        let mut said = deltas.len() > before;
        if let Some(pieces) = message["tool_calls"].as_array() {
            said |= self.calls.add(pieces, source)?;
        }
        if message["function_call"].is_object() {
            said |= self.calls.add_function(&message["function_call"])?;
        }
        if !self.calls.is_empty() {
            self.finish_reasoning(deltas);
        }
        Ok(said)
    }

    /// Reads a content part. Some servers send the content in parts, and the reasoning as one of them.
    fn decode_part(&mut self, part: &Value, deltas: &mut Vec<Delta>) {
        match &part["thinking"] {
            Value::String(text) => self.push_reasoning(text, deltas),
            Value::Array(pieces) => {
                for piece in pieces {
                    self.push_reasoning(piece["text"].as_str().unwrap_or_default(), deltas);
                }
            }
            _ => self.push_text(part["text"].as_str().unwrap_or_default(), deltas),
        }
    }

    fn push_text(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.finish_reasoning(deltas);
            self.has_content = true;
            deltas.push(Delta::Text(text.to_owned()));
        }
    }

    fn push_reasoning(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.reasoning.push_str(text);
            deltas.push(Delta::Reasoning(text.to_owned()));
        }
    }

    fn finish_reasoning(&mut self, deltas: &mut Vec<Delta>) {
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
fn first_choice(chunk: &Value) -> &Value {
    let choices = chunk["choices"].as_array().map(Vec::as_slice);
    let is_first = |choice: &&Value| choice["index"].as_u64().unwrap_or_default() == 0;
    let first = choices.unwrap_or_default().iter().find(is_first);
    first.unwrap_or(&Value::Null)
}

/// Returns whether a chunk ends a choice, whichever it is.
pub(crate) fn has_finish_reason(chunk: &Value) -> bool {
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
        .any(|(_, value)| stream_error::is_set(value))
}

/// Returns whether a chunk reports an error: as such, as the end of its choice, or as something that is no chunk at
/// all.
fn is_error(chunk: &Value, name: &str) -> bool {
    let choice = first_choice(chunk);
    let is_chunk = !choice.is_null() || chunk["usage"].is_object();
    stream_error::is_set(&chunk["error"])
        || stream_error::is_set(&choice["error"])
        || choice["finish_reason"] == "error"
        || (!is_chunk && stream_error::is_error(chunk, name))
}

/// Reads a completion that came as a whole.
pub fn decode_response(
    provider: &str,
    body: &str,
    now: Timestamp,
) -> Result<Vec<Delta>, Box<Failure>> {
    let completion = stream_error::parse_json(provider, body, now)?;
    let choice = first_choice(&completion);
    let message = &choice["message"];
    if !message.is_object() || is_error(&completion, "") {
        return Err(stream_error::from_body(provider, body, now));
    }
    let mut stream = Decoder::new(provider);
    let mut deltas = Vec::new();
    stream
        .decode_message(message, body, &mut deltas)
        .map_err(|endless| endless.into_failure(provider, now))?;
    deltas.extend(stream.usage.update(&completion["usage"], &USAGE));
    stream.finish_reason = finish_reason(choice);
    stream.decode_done(now, &mut deltas)?;
    Ok(deltas)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
