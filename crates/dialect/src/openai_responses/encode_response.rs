//! Encodes the frames and bodies that a provider would send.

use crate::completion::{
    ApiError, CREATED_AT, Completion, ErrorForm, Interruption, ReasoningSegment, Segment,
    event_frame, interleaved_arguments,
};
use crate::openai_chat::encode_response::error_object;
use crate::tool_arguments::is_complete_json;
use outlast_kernel::event::{Proof, StopReason, ToolCall, Usage};
use serde_json::{Value, json};

const DEFAULT_RESPONSE_ID: &str = "resp_scripted";

/// Returns the frames of a completion, in pieces.
pub(crate) fn frames(answer: &Completion<'_>) -> Vec<String> {
    let begun = response(answer, "in_progress");
    let mut writer = Writer {
        outcome: SegmentOutcome::default(),
        pieces: vec![String::new()],
        items: Vec::new(),
        sequence: 0,
    };
    writer.event(json!({ "type": "response.created", "response": begun }));
    writer.event(json!({ "type": "response.in_progress", "response": begun }));
    for (place, part) in answer.segments.iter().enumerate() {
        writer.outcome = SegmentOutcome::for_segment(answer, place);
        match part {
            Segment::Text(pieces) => writer.message(pieces),
            Segment::Reasoning(thought) => writer.reasoning(thought),
            Segment::ToolCalls(calls) => writer.calls(calls),
        }
    }
    if let Some(stop) = answer.stop {
        let response = finished_response(answer, &writer.items);
        let name = match status(answer, stop) {
            ("completed", _) => "response.completed",
            _ => "response.incomplete",
        };
        writer.next_piece();
        writer.event(json!({ "type": name, "response": response }));
    }
    writer.pieces
}

/// The effect of a completion's end on one of its parts.
#[derive(Clone, Copy, Default)]
struct SegmentOutcome {
    is_refused: bool,
    is_cut_short: bool,
}

impl SegmentOutcome {
    /// Returns the outcome of a part. Only the last part can have been cut short.
    fn for_segment(answer: &Completion<'_>, place: usize) -> Self {
        let is_last = place + 1 == answer.segments.len();
        Self {
            is_refused: answer.is_refusal(),
            is_cut_short: is_last && answer.stop == Some(StopReason::Length),
        }
    }

    fn status(self) -> &'static str {
        match self.is_cut_short {
            true => "incomplete",
            false => "completed",
        }
    }
}

struct Writer {
    outcome: SegmentOutcome,
    pieces: Vec<String>,
    /// The items that are complete, and those that have begun, in their final form.
    items: Vec<Value>,
    sequence: usize,
}

impl Writer {
    /// Adds an event to the current piece.
    fn event(&mut self, mut event: Value) {
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        if let Some(last) = self.pieces.last_mut() {
            last.push_str(&event_frame(&event));
        }
    }

    fn next_piece(&mut self) {
        self.pieces.push(String::new());
    }

    /// Begins an item that will be `done`, and returns its index.
    fn start_item(&mut self, begun: &Value, done: Value) -> usize {
        let place = self.items.len();
        self.items.push(done);
        self.event(json!({
            "type": "response.output_item.added", "output_index": place, "item": begun,
        }));
        place
    }

    fn finish_item(&mut self, place: usize) {
        let item = self.items[place].clone();
        self.event(json!({
            "type": "response.output_item.done", "output_index": place, "item": item,
        }));
    }

    fn message(&mut self, pieces: &[&str]) {
        let kind = match self.outcome.is_refused {
            true => "refusal",
            false => "output_text",
        };
        let item = message(self.items.len(), &pieces.concat(), self.outcome);
        let mut begun = item.clone();
        begun["content"] = json!([]);
        begun["status"] = json!("in_progress");
        let (id, part) = (item["id"].clone(), item["content"][0].clone());
        self.next_piece();
        let place = self.start_item(&begun, item);
        let event = |writer: &mut Self, name: String, field: &str, value: Value| {
            let mut event = json!({
                "type": format!("response.{name}"), "item_id": id, "output_index": place,
                "content_index": 0, field: value,
            });
            if name.starts_with("output_text") {
                event["logprobs"] = json!([]);
            }
            writer.event(event);
        };
        let empty = content("", self.outcome.is_refused);
        event(self, "content_part.added".to_owned(), "part", empty);
        for (number, piece) in pieces.iter().enumerate() {
            if number > 0 {
                self.next_piece();
            }
            event(self, format!("{kind}.delta"), "delta", json!(piece));
        }
        let field = if self.outcome.is_refused {
            "refusal"
        } else {
            "text"
        };
        event(self, format!("{kind}.done"), field, part[field].clone());
        event(self, "content_part.done".to_owned(), "part", part);
        self.finish_item(place);
    }

    fn reasoning(&mut self, thought: &ReasoningSegment<'_>) {
        let item = reasoning(self.items.len(), thought);
        let mut begun = item.clone();
        begun["summary"] = json!([]);
        let (id, text) = (item["id"].clone(), thought.pieces.concat());
        self.next_piece();
        let place = self.start_item(&begun, item);
        let event = |name: &str, field: &str, value: Value| {
            json!({
                "type": format!("response.reasoning_summary_{name}"), "item_id": id,
                "output_index": place, "summary_index": 0, field: value,
            })
        };
        let part = |text: &str| json!({ "type": "summary_text", "text": text });
        for (number, piece) in thought.pieces.iter().enumerate() {
            match number {
                0 => self.event(event("part.added", "part", part(""))),
                _ => self.next_piece(),
            }
            self.event(event("text.delta", "delta", json!(piece)));
        }
        if thought.done.is_none() {
            return;
        }
        self.next_piece();
        if !text.is_empty() {
            self.event(event("text.done", "text", json!(text)));
            self.event(event("part.done", "part", part(&text)));
        }
        self.finish_item(place);
    }

    fn calls(&mut self, calls: &[&ToolCall]) {
        let first = self.items.len();
        for call in calls {
            let item = function_call(self.items.len(), call, self.outcome);
            let mut begun = item.clone();
            begun["arguments"] = json!("");
            begun["status"] = json!("in_progress");
            self.next_piece();
            self.start_item(&begun, item);
        }
        let event = |writer: &mut Self, name: &str, place: usize, value: Value| {
            let (kind, field) = match name {
                "delta" => ("response.function_call_arguments.delta", "delta"),
                _ => ("response.function_call_arguments.done", "arguments"),
            };
            let id = writer.items[place]["id"].clone();
            writer
                .event(json!({ "type": kind, "item_id": id, "output_index": place, field: value }));
        };
        for (call, piece) in interleaved_arguments(calls) {
            self.next_piece();
            event(self, "delta", first + call, json!(piece));
        }
        for (place, call) in (first..).zip(calls) {
            self.next_piece();
            event(self, "done", place, json!(call.arguments));
            self.finish_item(place);
        }
    }
}

/// Returns the completion as one body.
pub(crate) fn body(answer: &Completion<'_>) -> Value {
    let mut items = Vec::new();
    for (place, part) in answer.segments.iter().enumerate() {
        let shape = SegmentOutcome::for_segment(answer, place);
        match part {
            Segment::Text(pieces) => items.push(message(items.len(), &pieces.concat(), shape)),
            Segment::Reasoning(thought) => items.push(reasoning(items.len(), thought)),
            Segment::ToolCalls(calls) => {
                for call in calls {
                    items.push(function_call(items.len(), call, shape));
                }
            }
        }
    }
    finished_response(answer, &items)
}

fn message(place: usize, text: &str, shape: SegmentOutcome) -> Value {
    json!({
        "id": format!("msg_scripted_{place}"), "type": "message", "role": "assistant",
        "status": shape.status(), "content": [content(text, shape.is_refused)],
    })
}

fn content(text: &str, refused: bool) -> Value {
    match refused {
        true => json!({ "type": "refusal", "refusal": text }),
        false => json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }),
    }
}

fn reasoning(place: usize, thought: &ReasoningSegment<'_>) -> Value {
    let (id, encrypted) = match thought.done.and_then(|done| done.proof.as_ref()) {
        Some(Proof::Encrypted { id, content }) => (id.clone(), content.clone()),
        _ => (format!("rs_scripted_{place}"), None),
    };
    let text = thought.pieces.concat();
    let summary = match text.is_empty() {
        true => json!([]),
        false => json!([{ "type": "summary_text", "text": text }]),
    };
    let mut item = json!({ "id": id, "type": "reasoning", "summary": summary });
    if let Some(encrypted) = encrypted {
        item["encrypted_content"] = json!(encrypted);
    }
    item
}

/// Returns a call item. A call whose arguments are complete was complete, even if nothing else came after it.
fn function_call(place: usize, call: &ToolCall, shape: SegmentOutcome) -> Value {
    let status = match is_complete_json(&call.arguments) {
        true => "completed",
        false => shape.status(),
    };
    json!({
        "id": format!("fc_scripted_{place}"), "type": "function_call", "status": status,
        "call_id": call.id, "name": call.name, "arguments": call.arguments,
    })
}

fn response(answer: &Completion<'_>, status: &str) -> Value {
    let mut response = unstored_response(answer.model, status);
    if let Some(id) = answer.response_id {
        response["id"] = json!(id);
        response["background"] = json!(true);
        response["store"] = json!(true);
    }
    response
}

fn unstored_response(model: &str, status: &str) -> Value {
    json!({
        "id": DEFAULT_RESPONSE_ID, "object": "response", "created_at": CREATED_AT, "status": status,
        "background": false, "error": null, "incomplete_details": null, "instructions": null,
        "max_output_tokens": null, "metadata": {}, "model": model, "output": [],
        "parallel_tool_calls": true, "previous_response_id": null,
        "reasoning": { "effort": null, "summary": null }, "service_tier": "default",
        "store": false, "temperature": 1.0, "text": { "format": { "type": "text" } },
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled",
        "usage": null, "user": null,
    })
}

fn finished_response(answer: &Completion<'_>, items: &[Value]) -> Value {
    let (status, reason) = match answer.stop {
        Some(stop) => status(answer, stop),
        None => ("in_progress", None),
    };
    let mut response = response(answer, status);
    if let Some(reason) = reason {
        response["incomplete_details"] = json!({ "reason": reason });
    }
    response["output"] = json!(items);
    response["usage"] = answer.usage.map(usage).unwrap_or_default();
    response
}

/// Returns the status and reason. A refusal in words ends like any completion; one without words is the filter's.
fn status(answer: &Completion<'_>, stop: StopReason) -> (&'static str, Option<&'static str>) {
    match stop {
        StopReason::EndTurn | StopReason::ToolUse => ("completed", None),
        StopReason::Refusal if answer.has_text() => ("completed", None),
        StopReason::Refusal => ("incomplete", Some("content_filter")),
        StopReason::Length => ("incomplete", Some("max_output_tokens")),
        _ => ("incomplete", Some("max_messages")),
    }
}

/// Returns the usage. Here the tokens read from the cache are counted among the input tokens.
fn usage(usage: Usage) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + usage.output,
    })
}

pub(crate) fn error_frame(problem: &ApiError, interruption: &Interruption<'_>) -> String {
    let error = error_object(problem);
    let mut event = match interruption.form {
        ErrorForm::Event => json!({ "type": "error", "error": error }),
        ErrorForm::Standard | ErrorForm::End => {
            let mut response = unstored_response(interruption.model, "failed");
            // A failed response has a code; if the error has only a type, the type replaces it.
            let code = problem.code.as_ref().unwrap_or(&problem.kind);
            response["error"] = error;
            response["error"]["code"] = json!(code);
            json!({ "type": "response.failed", "response": response })
        }
    };
    event["sequence_number"] = json!(interruption.frames_before);
    event_frame(&event)
}
