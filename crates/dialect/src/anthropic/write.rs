//! To the wire: requests, and the frames and bodies that a provider would send.

use crate::sse;
use outlast_kernel::event::Usage;
use serde_json::{Value, json};

/// The first frames of an answer: the message and its one text block.
pub fn start(model: &str, usage: Usage) -> String {
    let message = json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_input_tokens": usage.cache_write,
        },
    });
    let block = json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } });
    frame(&json!({ "type": "message_start", "message": message })) + &frame(&block)
}

/// A sign of life without content.
pub fn ping() -> String {
    frame(&json!({ "type": "ping" }))
}

/// A piece of the answer.
pub fn text(text: &str) -> String {
    frame(
        &json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
    )
}

/// The last frames of an answer.
pub fn stop(output_tokens: u64) -> String {
    let delta = json!({
        "type": "message_delta",
        "delta": { "stop_reason": "end_turn", "stop_sequence": null },
        "usage": { "output_tokens": output_tokens },
    });
    frame(&json!({ "type": "content_block_stop", "index": 0 }))
        + &frame(&delta)
        + &frame(&json!({ "type": "message_stop" }))
}

/// An error, as the body of a response or the data of a frame.
pub fn error_body(kind: &str, message: &str) -> String {
    json!({ "type": "error", "error": { "type": kind, "message": message } }).to_string()
}

fn frame(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default();
    sse::Event {
        name: name.to_owned(),
        data: data.to_string(),
    }
    .to_wire()
}
