//! Parser for `codex exec --json`: items of a turn as they begin and end, and the end of the turn.

use super::agent_output::{AgentOutput, count};
use outlast_kernel::event::Usage;
use serde_json::Value;

pub(super) fn take(story: &mut AgentOutput, event: &Value) {
    match event["type"].as_str() {
        Some("item.started" | "item.updated") => began(story, &event["item"]),
        Some("item.completed") => ended(story, &event["item"]),
        Some("turn.completed") => {
            story.is_over = true;
            story.error = None;
            story.used(usage(&event["usage"]), &Value::Null);
            story.activity("done");
        }
        Some("turn.failed") => failed(story, &event["error"]["message"]),
        Some("error") => failed(story, &event["message"]),
        kind => story.activity(kind.unwrap_or("something")),
    }
}

fn began(story: &mut AgentOutput, item: &Value) {
    match item["type"].as_str() {
        Some("command_execution") => story.uses("command_execution", &item["command"]),
        Some("mcp_tool_call") => {
            story.uses(item["tool"].as_str().unwrap_or("tool"), &item["arguments"])
        }
        kind => story.activity(kind.unwrap_or("something")),
    }
}

fn ended(story: &mut AgentOutput, item: &Value) {
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
fn failed(story: &mut AgentOutput, message: &Value) {
    let message = message.as_str().unwrap_or("it failed and does not say why");
    if message.starts_with("Reconnecting") {
        return story.waits();
    }
    story.fails(message);
    story.activity(message);
}

/// Reads the usage; the cached tokens are part of the input tokens.
fn usage(usage: &Value) -> Usage {
    let cache_read = count(&usage["cached_input_tokens"]);
    let cache_write = count(&usage["cache_write_input_tokens"]);
    let read = count(&usage["input_tokens"]);
    Usage {
        input: read.saturating_sub(cache_read).saturating_sub(cache_write),
        output: count(&usage["output_tokens"]),
        cache_read,
        cache_write,
    }
}
