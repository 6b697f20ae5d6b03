//! Parser for `codex exec --json`: items of a turn as they begin and end, and the end of the turn.

use super::agent_output::{AgentOutput, token_count};
use outlast_kernel::event::Usage;
use serde_json::Value;

pub(super) fn apply_event(story: &mut AgentOutput, event: &Value) {
    match event["type"].as_str() {
        Some("item.started" | "item.updated") => item_started(story, &event["item"]),
        Some("item.completed") => item_completed(story, &event["item"]),
        Some("turn.completed") => {
            story.is_finished = true;
            story.error = None;
            story.add_usage(usage(&event["usage"]), &Value::Null);
            story.activity("done");
        }
        Some("turn.failed") => turn_failed(story, &event["error"]["message"]),
        Some("error") => turn_failed(story, &event["message"]),
        kind => story.activity(kind.unwrap_or("something")),
    }
}

fn item_started(story: &mut AgentOutput, item: &Value) {
    match item["type"].as_str() {
        Some("command_execution") => story.record_tool_use("command_execution", &item["command"]),
        Some("mcp_tool_call") => {
            story.record_tool_use(item["tool"].as_str().unwrap_or("tool"), &item["arguments"])
        }
        kind => story.activity(kind.unwrap_or("something")),
    }
}

fn item_completed(story: &mut AgentOutput, item: &Value) {
    match item["type"].as_str() {
        Some("agent_message") => {
            let text = item["text"].as_str().unwrap_or_default();
            text.clone_into(&mut story.text);
            story.activity(text);
        }
        Some("file_change") => story.progress("file_change"),
        Some("error") => story.activity(item["message"].as_str().unwrap_or_default()),
        kind => story.activity(kind.unwrap_or("something")),
    }
}

/// Handles an error: it is the final one, unless the agent says that it retries.
fn turn_failed(story: &mut AgentOutput, message: &Value) {
    let message = message.as_str().unwrap_or("it failed and does not say why");
    if message.starts_with("Reconnecting") {
        return story.set_waiting();
    }
    story.record_error(message);
    story.activity(message);
}

/// Reads the usage; the cached tokens are part of the input tokens.
fn usage(usage: &Value) -> Usage {
    let cache_read = token_count(&usage["cached_input_tokens"]);
    let cache_write = token_count(&usage["cache_write_input_tokens"]);
    let read = token_count(&usage["input_tokens"]);
    Usage {
        input: read.saturating_sub(cache_read).saturating_sub(cache_write),
        output: token_count(&usage["output_tokens"]),
        cache_read,
        cache_write,
    }
}
