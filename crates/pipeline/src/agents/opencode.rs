//! Parser for `opencode run --format json`: complete parts of messages, and errors.

use super::agent_output::{AgentOutput, count};
use outlast_kernel::event::Usage;
use serde_json::Value;

pub(super) fn take(story: &mut AgentOutput, event: &Value) {
    let part = &event["part"];
    match event["type"].as_str() {
        Some("step_start") => {
            story.is_over = false;
            story.activity("a step begins");
        }
        Some("text") => said(story, part),
        Some("tool_use") => {
            let tool = part["tool"].as_str().unwrap_or("tool");
            story.uses(tool, &part["state"]["input"]);
        }
        Some("step_finish") => finished(story, part),
        Some("error") => failed(story, &event["error"]),
        kind => story.activity(kind.unwrap_or("something")),
    }
}

/// Handles a text: the last message is the result.
fn said(story: &mut AgentOutput, part: &Value) {
    let (text, message) = (part["text"].as_str(), part["messageID"].as_str());
    if story.counted.as_deref() != message {
        story.counted = message.map(str::to_owned);
        story.text.clear();
    }
    story.text.push_str(text.unwrap_or_default());
    story.activity(text.unwrap_or_default());
}

fn finished(story: &mut AgentOutput, part: &Value) {
    let tokens = &part["tokens"];
    let usage = Usage {
        input: count(&tokens["input"]),
        output: count(&tokens["output"]).saturating_add(count(&tokens["reasoning"])),
        cache_read: count(&tokens["cache"]["read"]),
        cache_write: count(&tokens["cache"]["write"]),
    };
    story.used(usage, &part["cost"]);
    // The agent is not done before its tools have run; when it is done, earlier errors no longer count.
    story.is_over = part["reason"].as_str() != Some("tool-calls");
    if story.is_over {
        story.error = None;
    }
    story.activity("a step has ended");
}

fn failed(story: &mut AgentOutput, error: &Value) {
    let name = error["name"].as_str().unwrap_or("error");
    let data = &error["data"];
    let message = data["message"].as_str().unwrap_or_default();
    match data["statusCode"].as_u64() {
        Some(status) => story.fails(&format!("{status} {message}")),
        None => story.fails(&format!("{name}: {message}")),
    }
    story.activity(message);
}
