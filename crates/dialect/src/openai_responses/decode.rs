//! Decodes events and whole responses into deltas.
//!
//! Text comes in pieces and again at the end of its item; text that came in pieces is not repeated, and text that a
//! server sends only at the end is not lost. A call is emitted with its item, or at the end if its item's end was not
//! reported.

use super::cursor::CursorTracker;
use super::item::FinishedItem;
use super::items::Items;
use crate::lenient_json::LenientParser;
use crate::tool_arguments::{EmittedCalls, RunawayOutput};
use crate::usage::{UsagePointers, UsageTracker};
use crate::{Delta, StreamActivity, StreamCursor, sse, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::event::StopReason;
use outlast_kernel::failure::Failure;
use serde_json::Value;

const USAGE: UsagePointers = UsagePointers {
    input: "/input_tokens",
    output: "/output_tokens",
    cache_read: &["/input_tokens_details/cached_tokens"],
    cache_write: None,
    input_includes_cache: true,
};
/// The events that announce a completion.
const OPENING_EVENTS: [&str; 3] = [
    "response.created",
    "response.queued",
    "response.in_progress",
];

/// The state of one streamed response.
#[derive(Debug)]
pub struct Decoder {
    provider: String,
    json: LenientParser,
    usage: UsageTracker,
    items: Items,
    emitted_calls: EmittedCalls,
    has_calls: bool,
    is_refused: bool,
    /// The opening events that came. All of them count as soon as any other event arrives.
    seen_openings: [bool; OPENING_EVENTS.len()],
    cursor: CursorTracker,
}

impl Decoder {
    /// Creates the decoder of one response by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            json: LenientParser::default(),
            usage: UsageTracker::default(),
            items: Items::default(),
            emitted_calls: EmittedCalls::default(),
            has_calls: false,
            is_refused: false,
            seen_openings: [false; OPENING_EVENTS.len()],
            cursor: CursorTracker::default(),
        }
    }

    /// Creates the decoder of the rest of a response by that provider, after that cursor.
    pub fn resume_after(provider: &str, place: &StreamCursor) -> Self {
        Self {
            items: Items::resumed(),
            cursor: CursorTracker::resumed_at(place),
            ..Self::new(provider)
        }
    }

    /// Adds the deltas of one event to `deltas`.
    pub fn decode(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        // Some servers end this dialect's streams like those of Chat Completions.
        if event.data.trim() == crate::openai_chat::DONE {
            return Ok(StreamActivity::KeepAlive);
        }
        let Some(frame) = self.json.parse(&event.data) else {
            return Err(stream_error::unreadable_event(&self.provider, event, now));
        };
        let kind = frame["type"].as_str().unwrap_or(&event.name);
        match kind {
            "response.failed" | "response.cancelled" => return Err(self.failure(&frame, now)),
            _ if is_final_event(kind) && has_failed(&frame["response"]) => {
                return Err(self.failure(&frame, now));
            }
            _ if is_known_event(kind) || OPENING_EVENTS.contains(&kind) => {}
            _ if stream_error::is_error(&frame, &event.name) => {
                return Err(self.failure(&frame, now));
            }
            _ => {}
        }
        if self.cursor.is_replayed(&frame) {
            return Ok(StreamActivity::KeepAlive);
        }
        let before = deltas.len();
        self.decode_event(kind, &frame, deltas)
            .map_err(|endless| endless.into_failure(&self.provider, now))?;
        deltas.extend(self.cursor.advance(&frame, &deltas[before..]));
        Ok(self.activity(kind))
    }

    fn activity(&mut self, kind: &str) -> StreamActivity {
        if let Some(place) = OPENING_EVENTS.iter().position(|opening| *opening == kind) {
            return match std::mem::replace(&mut self.seen_openings[place], true) {
                true => StreamActivity::KeepAlive,
                false => StreamActivity::Opening,
            };
        }
        if !is_known_event(kind) {
            return StreamActivity::KeepAlive;
        }
        self.seen_openings = [true; OPENING_EVENTS.len()];
        StreamActivity::Progress
    }

    fn decode_event(
        &mut self,
        kind: &str,
        frame: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), RunawayOutput> {
        let index = frame["output_index"].as_u64();
        match kind {
            "response.output_text.delta" | "response.output_text.done" => {
                deltas.extend(self.item_text(frame, "message")?.map(Delta::Text));
            }
            "response.refusal.delta" | "response.refusal.done" => {
                self.is_refused = true;
                deltas.extend(self.item_text(frame, "message")?.map(Delta::Text));
            }
            "response.reasoning_summary_text.delta"
            | "response.reasoning_summary_text.done"
            | "response.reasoning_text.delta"
            | "response.reasoning_text.done" => {
                deltas.extend(self.item_text(frame, "reasoning")?.map(Delta::Reasoning));
            }
            "response.reasoning_summary_part.added" => {
                let item = self.items.for_event(frame, "reasoning")?;
                deltas.extend(item.next_paragraph(frame).map(Delta::Reasoning));
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                let item = self.items.for_event(frame, "function_call")?;
                item.add_arguments(frame)?;
            }
            "response.output_item.added" => self.items.start(&frame["item"], index)?,
            "response.output_item.done" => {
                let item = self.items.for_finished(&frame["item"], index)?;
                let end = item.finish(&frame["item"]);
                self.emit_finished(end, deltas);
            }
            _ if is_final_event(kind) => self.finish(&frame["response"], deltas)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the failure in a frame. A failed response repeats the whole request; only its error is about the
    /// failure.
    fn failure(&self, frame: &Value, now: Timestamp) -> Box<Failure> {
        let response = &frame["response"];
        let cause = match (&response["error"], &response["incomplete_details"]) {
            (Value::Null, Value::Null) if response.is_null() => frame,
            (Value::Null, details) => details,
            (error, _) => error,
        };
        stream_error::from_body(&self.provider, &cause.to_string(), now)
    }

    fn item_text(&mut self, frame: &Value, kind: &str) -> Result<Option<String>, RunawayOutput> {
        Ok(self.items.for_event(frame, kind)?.take_text(frame))
    }

    fn emit_finished(&mut self, end: FinishedItem, deltas: &mut Vec<Delta>) {
        self.is_refused |= end.is_refusal;
        // A call that was reported before the rest began is not reported again.
        self.has_calls |= end.is_call && end.deltas.is_empty();
        for delta in end.deltas {
            match delta {
                Delta::ToolCall(call) => self.has_calls |= self.emitted_calls.emit(call, deltas),
                delta => deltas.push(delta),
            }
        }
    }

    /// Reads the last event: its unreported content, its usage, and the reason for the end.
    fn finish(&mut self, response: &Value, deltas: &mut Vec<Delta>) -> Result<(), RunawayOutput> {
        let output = response["output"].as_array().map(Vec::as_slice);
        for (place, item) in (0..).zip(output.unwrap_or_default()) {
            let end = self.items.finish_listed(item, place)?;
            self.emit_finished(end, deltas);
        }
        let end = self.items.finish_open_calls();
        self.emit_finished(end, deltas);
        let cut = self.items.incomplete_calls();
        cut.for_each(|name| self.emitted_calls.note_incomplete(name.to_owned()));
        deltas.extend(self.usage.update(&response["usage"], &USAGE));
        self.emitted_calls.report_incomplete(deltas);
        deltas.push(Delta::Stopped(self.stop_reason(response)));
        Ok(())
    }

    fn stop_reason(&self, response: &Value) -> StopReason {
        match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => StopReason::Length,
            Some("content_filter") => StopReason::Refusal,
            Some(_) => StopReason::Other,
            None if response["status"] == "incomplete" => StopReason::Length,
            None if self.is_refused => StopReason::Refusal,
            None if self.has_calls => StopReason::ToolUse,
            None => StopReason::EndTurn,
        }
    }
}

fn is_final_event(kind: &str) -> bool {
    matches!(
        kind,
        "response.completed" | "response.incomplete" | "response.done"
    )
}

/// Returns whether an event is part of a completion. The tools that the provider itself runs report, too.
fn is_known_event(kind: &str) -> bool {
    let ends = [".added", ".delta", ".done"];
    let is_part = || kind.contains("_call.") || ends.iter().any(|end| kind.ends_with(end));
    is_final_event(kind) || (kind.starts_with("response.") && is_part())
}

fn has_failed(response: &Value) -> bool {
    let status = response["status"].as_str();
    matches!(status, Some("failed" | "cancelled")) || stream_error::is_set(&response["error"])
}

/// Reads a response that came as a whole.
pub fn decode_response(
    provider: &str,
    body: &str,
    now: Timestamp,
) -> Result<Vec<Delta>, Box<Failure>> {
    let response = stream_error::parse_json(provider, body, now)?;
    let mut stream = Decoder::new(provider);
    let is_response = response["output"].is_array() || response["object"] == "response";
    if is_response && has_failed(&response) {
        let frame = serde_json::json!({ "response": response });
        return Err(stream.failure(&frame, now));
    }
    if matches!(response["status"].as_str(), Some("queued" | "in_progress")) {
        return Err(stream_error::truncated_stream(provider, now));
    }
    if !response["output"].is_array() {
        return Err(stream_error::from_body(provider, body, now));
    }
    let mut deltas = Vec::new();
    stream
        .finish(&response, &mut deltas)
        .map_err(|endless| endless.into_failure(provider, now))?;
    Ok(deltas)
}

#[cfg(test)]
#[path = "items_tests.rs"]
mod items_tests;
#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
