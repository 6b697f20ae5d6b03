//! Parser for `pi -p --mode json`: messages, tools and retries as they begin and end.
//!
//! Its exit status is always 0, so only the last message tells whether it succeeded.

use super::agent_output::{AgentOutput, token_count};
use outlast_kernel::event::Usage;
use serde_json::Value;

pub(super) fn apply_event(story: &mut AgentOutput, event: &Value) {
    match event["type"].as_str() {
        Some("message_end") if event["message"]["role"] == "assistant" => {
            apply_message(story, &event["message"]);
        }
        Some("tool_execution_start") => {
            let tool = event["toolName"].as_str().unwrap_or("tool");
            story.record_tool_use(tool, &event["args"]);
        }
        Some("auto_retry_start") => story.set_waiting(),
        Some("auto_retry_end") => {
            if let Some(error) = event["finalError"].as_str() {
                story.record_error(error);
            }
            story.activity("auto_retry_end");
        }
        kind => story.activity(kind.unwrap_or("something")),
    }
}

fn apply_message(story: &mut AgentOutput, message: &Value) {
    let used = &message["usage"];
    let usage = Usage {
        input: token_count(&used["input"]),
        output: token_count(&used["output"]),
        cache_read: token_count(&used["cacheRead"]),
        cache_write: token_count(&used["cacheWrite"]),
    };
    story.add_usage(usage, &used["cost"]["total"]);
    let parts = message["content"].as_array().into_iter().flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    story.text = texts.concat();
    story.error = None;
    story.is_finished = matches!(message["stopReason"].as_str(), Some("stop" | "length"));
    if let Some("error" | "aborted") = message["stopReason"].as_str() {
        story.record_error(message["errorMessage"].as_str().unwrap_or("aborted"));
    }
    story.activity("a message has ended");
}
