//! Encodes the frames and bodies that a provider would send.

use super::DONE;
use crate::completion::{
    ApiError, CREATED_AT, Completion, ErrorForm, Interruption, Segment, interleaved_arguments,
};
use crate::sse;
use outlast_kernel::event::{StopReason, ToolCall, Usage};
use serde_json::{Value, json};

const COMPLETION_ID: &str = "chatcmpl-scripted";

/// Returns the frames of a completion, in pieces.
pub(crate) fn frames(answer: &Completion<'_>) -> Vec<String> {
    let speaks = answer.has_text() && !answer.is_refusal();
    let content = speaks.then_some("");
    let opening = json!({ "role": "assistant", "content": content, "refusal": null });
    let mut writer = Writer {
        answer,
        pieces: Vec::new(),
        started_calls: 0,
    };
    writer.delta(&opening);
    for part in &answer.segments {
        match part {
            Segment::Text(pieces) => {
                let name = if answer.is_refusal() {
                    "refusal"
                } else {
                    "content"
                };
                pieces
                    .iter()
                    .for_each(|text| writer.delta(&json!({ name: text })));
            }
            Segment::Reasoning(thought) => thought
                .pieces
                .iter()
                .for_each(|text| writer.delta(&json!({ "reasoning_content": text }))),
            Segment::ToolCalls(calls) => writer.calls(calls),
        }
    }
    if let Some(stop) = answer.stop {
        writer.end(stop);
    }
    writer.pieces
}

struct Writer<'a> {
    answer: &'a Completion<'a>,
    pieces: Vec<String>,
    /// The number of tool calls that have begun.
    started_calls: usize,
}

impl Writer<'_> {
    fn delta(&mut self, delta: &Value) {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null });
        let chunk = self.chunk(&[choice]);
        self.pieces.push(frame(&chunk));
    }

    fn chunk(&self, choices: &[Value]) -> Value {
        let mut chunk = chunk(self.answer.model, choices);
        if self.answer.usage.is_some() {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn calls(&mut self, calls: &[&ToolCall]) {
        let first = self.started_calls;
        self.started_calls += calls.len();
        for (index, call) in (first..).zip(calls) {
            let function = json!({ "name": call.name, "arguments": "" });
            self.delta(&json!({ "tool_calls": [
                { "index": index, "id": call.id, "type": "function", "function": function },
            ] }));
        }
        for (call, piece) in interleaved_arguments(calls) {
            let function = json!({ "arguments": piece });
            self.delta(&json!({ "tool_calls": [{ "index": first + call, "function": function }] }));
        }
    }

    fn end(&mut self, stop: StopReason) {
        let reason = finish_reason(self.answer, stop);
        let choice = json!({ "index": 0, "delta": {}, "logprobs": null, "finish_reason": reason });
        let mut end = frame(&self.chunk(&[choice]));
        if let Some(used) = self.answer.usage {
            let mut chunk = self.chunk(&[]);
            chunk["usage"] = usage(used);
            end.push_str(&frame(&chunk));
        }
        end.push_str(&done_frame());
        self.pieces.push(end);
    }
}

/// Returns the completion as one body.
pub(crate) fn body(answer: &Completion<'_>) -> Value {
    let text = |wanted: fn(&Segment<'_>) -> Option<String>| {
        let texts: Vec<String> = answer.segments.iter().filter_map(wanted).collect();
        (!texts.is_empty()).then(|| texts.concat())
    };
    let said = text(|part| match part {
        Segment::Text(pieces) => Some(pieces.concat()),
        _ => None,
    });
    let thought = text(|part| match part {
        Segment::Reasoning(thought) => Some(thought.pieces.concat()),
        _ => None,
    });
    let (content, refusal) = match answer.is_refusal() {
        true => (None, said),
        false => (said, None),
    };
    let mut message =
        json!({ "role": "assistant", "content": content, "refusal": refusal, "annotations": [] });
    if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
        message["reasoning_content"] = json!(thought);
    }
    let calls: Vec<Value> = answer.segments.iter().flat_map(calls).collect();
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    let reason = answer.stop.map(|stop| finish_reason(answer, stop));
    let choice =
        json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason });
    let mut body = chunk(answer.model, &[choice]);
    body["object"] = json!("chat.completion");
    body["usage"] = answer.usage.map(usage).unwrap_or_default();
    body
}

fn calls(part: &Segment<'_>) -> Vec<Value> {
    let call = |call: &&ToolCall| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        json!({ "id": call.id, "type": "function", "function": function })
    };
    match part {
        Segment::ToolCalls(calls) => calls.iter().map(call).collect(),
        Segment::Text(_) | Segment::Reasoning(_) => Vec::new(),
    }
}

fn chunk(model: &str, choices: &[Value]) -> Value {
    json!({
        "id": COMPLETION_ID, "object": "chat.completion.chunk", "created": CREATED_AT, "model": model,
        "service_tier": "default", "system_fingerprint": "fp_scripted", "choices": choices,
    })
}

/// Returns the usage. Here the tokens read from the cache are counted among the input tokens.
fn usage(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cache_read, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 0, "audio_tokens": 0 },
    })
}

/// Returns the finish reason. A refusal in words ends like any completion; one without words is the filter's.
fn finish_reason(answer: &Completion<'_>, stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn => "stop",
        StopReason::Refusal if answer.has_text() => "stop",
        StopReason::Refusal => "content_filter",
        StopReason::ToolUse => "tool_calls",
        StopReason::Length => "length",
        _ => "other",
    }
}

/// Returns an error, as the body of a response or the data of a frame.
pub(crate) fn error(problem: &ApiError) -> Value {
    json!({ "error": error_object(problem) })
}

pub(crate) fn error_object(problem: &ApiError) -> Value {
    let mut error = problem.fields.clone();
    error.entry("param").or_insert(Value::Null);
    error.insert("message".to_owned(), json!(problem.message));
    error.insert("type".to_owned(), json!(problem.kind));
    error.insert("code".to_owned(), json!(problem.code));
    Value::Object(error)
}

pub(crate) fn error_frame(problem: &ApiError, interruption: &Interruption<'_>) -> String {
    match interruption.form {
        ErrorForm::Standard | ErrorForm::Event => frame(&error(problem)),
        ErrorForm::End => {
            let delta = json!({ "role": "assistant", "content": "" });
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": "error" });
            let mut chunk = chunk(interruption.model, &[choice]);
            chunk["error"] = error_object(problem);
            frame(&chunk)
        }
    }
}

/// Returns an unknown frame: some servers add chunks and fields of their own.
pub(crate) fn unknown_frame(model: &str) -> String {
    let mut chunk = chunk(model, &[]);
    chunk["weather_report"] = json!([{ "cloud": "…" }]);
    frame(&chunk)
}

/// Returns the last frame.
pub(crate) fn done_frame() -> String {
    sse::Event {
        name: String::new(),
        data: DONE.to_owned(),
    }
    .to_wire()
}

/// Returns a frame; events have no name here.
fn frame(data: &Value) -> String {
    sse::Event {
        name: String::new(),
        data: data.to_string(),
    }
    .to_wire()
}
