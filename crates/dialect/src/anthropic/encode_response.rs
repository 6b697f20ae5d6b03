//! Encodes the frames and bodies that a provider would send.

use crate::completion::{
    ApiError, Completion, ReasoningSegment, Segment, arguments_object, event_frame,
    interleaved_arguments,
};
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};
use serde_json::{Value, json};

const DEFAULT_MESSAGE_ID: &str = "msg_scripted";

/// Returns the frames of a completion, in pieces.
pub(crate) fn frames(answer: &Completion<'_>) -> Vec<String> {
    let usage = answer.usage.unwrap_or_default();
    let opening = Usage {
        output: usage.output.min(1),
        ..usage
    };
    let message = message(answer, &[], opening);
    let mut writer = Writer {
        pieces: vec![event_frame(
            &json!({ "type": "message_start", "message": message }),
        )],
        index: 0,
    };
    for part in &answer.segments {
        match part {
            Segment::Text(pieces) => writer.text(pieces),
            Segment::Reasoning(thought) => writer.reasoning(thought),
            Segment::ToolCalls(calls) => writer.calls(calls),
        }
    }
    writer
        .pieces
        .extend(answer.stop.map(|stop| end_frames(stop, usage)));
    writer.pieces
}

fn end_frames(stop: StopReason, usage: Usage) -> String {
    let delta = json!({
        "stop_reason": stop_reason(stop), "stop_sequence": null, "stop_details": stop_details(stop),
    });
    let usage = self::usage(usage);
    event_frame(&json!({ "type": "message_delta", "delta": delta, "usage": usage }))
        + &event_frame(&json!({ "type": "message_stop" }))
}

struct Writer {
    pieces: Vec<String>,
    /// The index of the next block.
    index: usize,
}

impl Writer {
    fn text(&mut self, pieces: &[&str]) {
        let deltas: Vec<Value> = pieces
            .iter()
            .map(|text| json!({ "type": "text_delta", "text": text }))
            .collect();
        let index = self.block(&json!({ "type": "text", "text": "" }), &deltas);
        self.add_to_last(&stop_frame(index));
    }

    fn reasoning(&mut self, thought: &ReasoningSegment<'_>) {
        if let Some(Proof::Redacted { data }) = thought.done.and_then(|done| done.proof.as_ref()) {
            let index = self.block(&json!({ "type": "redacted_thinking", "data": data }), &[]);
            self.add_to_last(&stop_frame(index));
            return;
        }
        let deltas: Vec<Value> = thought
            .pieces
            .iter()
            .map(|text| json!({ "type": "thinking_delta", "thinking": text }))
            .collect();
        let index = self.block(
            &json!({ "type": "thinking", "thinking": "", "signature": "" }),
            &deltas,
        );
        let Some(done) = thought.done else {
            return;
        };
        // Reasoning that was cut short has none.
        let proof = match signature(done) {
            "" => String::new(),
            signature => delta_frame(
                index,
                &json!({ "type": "signature_delta", "signature": signature }),
            ),
        };
        self.pieces.push(proof + &stop_frame(index));
    }

    fn calls(&mut self, calls: &[&ToolCall]) {
        let first = self.index;
        for call in calls {
            let block =
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
            let index = self.block(&block, &[]);
            let nothing = json!({ "type": "input_json_delta", "partial_json": "" });
            self.add_to_last(&delta_frame(index, &nothing));
        }
        for (call, piece) in interleaved_arguments(calls) {
            let piece = json!({ "type": "input_json_delta", "partial_json": piece });
            self.pieces.push(delta_frame(first + call, &piece));
        }
        let stops = (first..self.index).map(stop_frame);
        self.pieces.extend(stops);
    }

    /// Begins a block and writes its deltas, the first in the same piece.
    fn block(&mut self, block: &Value, deltas: &[Value]) -> usize {
        let index = self.index;
        self.index += 1;
        let start = event_frame(
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
        let mut deltas = deltas.iter().map(|one| delta_frame(index, one));
        self.pieces.push(start + &deltas.next().unwrap_or_default());
        self.pieces.extend(deltas);
        index
    }

    fn add_to_last(&mut self, frame: &str) {
        if let Some(last) = self.pieces.last_mut() {
            last.push_str(frame);
        }
    }
}

fn delta_frame(index: usize, delta: &Value) -> String {
    event_frame(&json!({ "type": "content_block_delta", "index": index, "delta": delta }))
}

fn stop_frame(index: usize) -> String {
    event_frame(&json!({ "type": "content_block_stop", "index": index }))
}

/// Returns the completion as one body.
pub(crate) fn body(answer: &Completion<'_>) -> Value {
    let blocks: Vec<Value> = answer.segments.iter().flat_map(blocks).collect();
    let mut message = message(answer, &blocks, answer.usage.unwrap_or_default());
    message["stop_reason"] = json!(answer.stop.map(stop_reason));
    message["stop_details"] = answer.stop.map(stop_details).unwrap_or_default();
    message
}

fn blocks(part: &Segment<'_>) -> Vec<Value> {
    let tool_use = |call: &&ToolCall| {
        let input = arguments_object(&call.arguments);
        json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
    };
    match part {
        Segment::Text(pieces) => vec![json!({ "type": "text", "text": pieces.concat() })],
        Segment::Reasoning(thought) => vec![thinking(thought)],
        Segment::ToolCalls(calls) => calls.iter().map(tool_use).collect(),
    }
}

fn thinking(thought: &ReasoningSegment<'_>) -> Value {
    match thought.done.and_then(|done| done.proof.as_ref()) {
        Some(Proof::Redacted { data }) => json!({ "type": "redacted_thinking", "data": data }),
        _ => json!({
            "type": "thinking",
            "thinking": thought.pieces.concat(),
            "signature": thought.done.map(signature).unwrap_or_default(),
        }),
    }
}

fn signature(reasoning: &Reasoning) -> &str {
    match &reasoning.proof {
        Some(Proof::Signature { signature }) => signature,
        _ => "",
    }
}

fn message(answer: &Completion<'_>, content: &[Value], usage: Usage) -> Value {
    let id = answer.response_id.unwrap_or(DEFAULT_MESSAGE_ID);
    json!({
        "id": id, "type": "message", "role": "assistant", "model": answer.model, "content": content,
        "stop_reason": null, "stop_sequence": null, "stop_details": null,
        "usage": self::usage(usage),
    })
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    })
}

fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Refusal => "refusal",
        _ => "pause_turn",
    }
}

fn stop_details(reason: StopReason) -> Value {
    match reason {
        StopReason::Refusal => json!({ "type": "refusal", "category": null, "explanation": null }),
        _ => Value::Null,
    }
}

/// Returns an error, as the body of a response or the data of a frame.
pub(crate) fn error(problem: &ApiError) -> Value {
    let mut error = problem.fields.clone();
    error.insert("type".to_owned(), json!(problem.kind));
    error.insert("message".to_owned(), json!(problem.message));
    json!({ "type": "error", "error": error, "request_id": problem.request_id })
}
