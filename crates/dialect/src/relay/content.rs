//! Detects content: text, reasoning, a tool call, a refusal. All other frames are announcements or keep-alives.

use crate::Dialect;
use crate::stream_error::is_set;
use serde_json::Value;

/// The fields of a block that may contain content.
const BLOCK_CONTENT_FIELDS: [&str; 5] = ["text", "thinking", "data", "input", "content"];
/// The fields of a chat's delta that contain content.
const DELTA_CONTENT_FIELDS: [&str; 10] = [
    "content",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
    "images",
];
/// The fields in which an event that ends a part repeats it.
const DONE_CONTENT_FIELDS: [&str; 7] = [
    "text",
    "refusal",
    "arguments",
    "input",
    "code",
    "part",
    "transcript",
];

/// Returns whether a frame carries content; `name` is that of its event.
pub(super) fn is_content(dialect: Dialect, name: &str, frame: &Value) -> bool {
    let kind = frame["type"].as_str().unwrap_or(name);
    match dialect {
        Dialect::Anthropic => match kind {
            "content_block_start" => block_has_content(&frame["content_block"]),
            "content_block_delta" => delta_has_content(&frame["delta"]),
            _ => false,
        },
        Dialect::OpenaiChat => {
            let choices = frame["choices"].as_array().into_iter().flatten();
            let mut messages = choices.flat_map(|choice| [&choice["delta"], &choice["message"]]);
            messages.any(|message| any_set(message, &DELTA_CONTENT_FIELDS))
        }
        Dialect::OpenaiResponses => match kind.rsplit_once('.') {
            _ if kind == "response.output_item.done" => true,
            Some((_, "delta")) => is_set(&frame["delta"]),
            Some((_, "done")) => any_set(frame, &DONE_CONTENT_FIELDS),
            _ => false,
        },
    }
}

/// Returns whether a block has content. Most blocks begin empty.
fn block_has_content(block: &Value) -> bool {
    block["type"] == "redacted_thinking" || any_set(block, &BLOCK_CONTENT_FIELDS)
}

fn delta_has_content(delta: &Value) -> bool {
    let fields = delta.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| *name != "type")
        .any(|(_, value)| is_set(value))
}

fn any_set(object: &Value, fields: &[&str]) -> bool {
    fields.iter().any(|field| is_set(&object[*field]))
}
