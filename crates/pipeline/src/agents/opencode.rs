//! Parser for `opencode run --format json`: complete parts of messages, and errors.

use super::agent_output::{AgentOutput, token_count};
use outlast_kernel::event::Usage;
use serde_json::Value;

pub(super) fn apply_event(story: &mut AgentOutput, event: &Value) {
    let part = &event["part"];
    match event["type"].as_str() {
        Some("step_start") => {
            story.is_finished = false;
            story.activity("a step begins");
        }
        Some("text") => append_text(story, part),
        Some("tool_use") => {
            let tool = part["tool"].as_str().unwrap_or("tool");
            story.record_tool_use(tool, &part["state"]["input"]);
        }
        Some("step_finish") => step_finished(story, part),
        Some("error") => apply_error(story, &event["error"]),
        kind => story.activity(kind.unwrap_or("something")),
    }
}

/// Handles a text: the last message is the result.
fn append_text(story: &mut AgentOutput, part: &Value) {
    let (text, message) = (part["text"].as_str(), part["messageID"].as_str());
    if story.last_counted_id.as_deref() != message {
        story.last_counted_id = message.map(str::to_owned);
        story.text.clear();
    }
    story.text.push_str(text.unwrap_or_default());
    story.activity(text.unwrap_or_default());
}

fn step_finished(story: &mut AgentOutput, part: &Value) {
    let tokens = &part["tokens"];
    let usage = Usage {
        input: token_count(&tokens["input"]),
        output: token_count(&tokens["output"]).saturating_add(token_count(&tokens["reasoning"])),
        cache_read: token_count(&tokens["cache"]["read"]),
        cache_write: token_count(&tokens["cache"]["write"]),
    };
    story.add_usage(usage, &part["cost"]);
    // The agent is not done before its tools have run; when it is done, earlier errors no longer count.
    story.is_finished = part["reason"].as_str() != Some("tool-calls");
    if story.is_finished {
        story.error = None;
    }
    story.activity("a step has ended");
}

fn apply_error(story: &mut AgentOutput, error: &Value) {
    let name = error["name"].as_str().unwrap_or("error");
    let data = &error["data"];
    let message = data["message"].as_str().unwrap_or_default();
    match data["statusCode"].as_u64() {
        Some(status) => story.record_error(&format!("{status} {message}")),
        None => story.record_error(&format!("{name}: {message}")),
    }
    story.activity(message);
}
