//! Parser for `claude -p --output-format stream-json`: messages as they arrive, and one `result` at the end.

use super::agent_output::{AgentOutput, cost, token_count};
use outlast_kernel::Timestamp;
use outlast_kernel::event::Usage;
use serde_json::Value;

pub(super) fn apply_event(story: &mut AgentOutput, event: &Value) {
    match (event["type"].as_str(), event["subtype"].as_str()) {
        (Some("assistant"), _) => apply_message(story, event),
        (Some("result"), subtype) => apply_result(story, event, subtype.unwrap_or_default()),
        (Some("system"), Some("api_retry")) => story.set_waiting(),
        (Some("rate_limit_event"), _) => apply_limit(story, &event["rate_limit_info"]),
        (Some("user"), _) => story.activity("a tool has ended"),
        (kind, subtype) => story.activity(subtype.or(kind).unwrap_or("something")),
    }
}

/// Handles the limit of a plan. Only this event states its end to the second; texts state a time of day.
fn apply_limit(story: &mut AgentOutput, limit: &Value) {
    let is_reached = limit["status"] == "rejected";
    let end = limit["resetsAt"].as_u64().filter(|_| is_reached);
    let end = end.map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000)));
    story.not_before = story.not_before.max(end);
    story.activity("a limit of the plan");
}

fn apply_message(story: &mut AgentOutput, event: &Value) {
    let message = &event["message"];
    for part in message["content"].as_array().into_iter().flatten() {
        match part["type"].as_str() {
            Some("tool_use") => {
                story.record_tool_use(part["name"].as_str().unwrap_or("tool"), &part["input"])
            }
            Some("text") => story.activity(part["text"].as_str().unwrap_or_default()),
            kind => story.activity(kind.unwrap_or("something")),
        }
    }
    // This usage counts if no `result` follows; each part of a message repeats it.
    let id = event["request_id"].as_str().or(message["id"].as_str());
    if id.is_some() && story.last_counted_id.as_deref() != id {
        story.last_counted_id = id.map(str::to_owned);
        story.add_usage(usage(&message["usage"]), &Value::Null);
    }
}

fn apply_result(story: &mut AgentOutput, event: &Value, subtype: &str) {
    story.is_finished = true;
    story.usage = total_usage(event);
    story.cost = cost(&event["total_cost_usd"]);
    let said = event["result"].as_str().unwrap_or_default();
    let is_error = event["is_error"].as_bool().unwrap_or_default();
    if !is_error && !subtype.starts_with("error") {
        said.clone_into(&mut story.text);
        return story.activity("done");
    }
    let errors = event["errors"].as_array().into_iter().flatten();
    let errors: Vec<&str> = errors.filter_map(Value::as_str).collect();
    let why = match errors.is_empty() {
        true => said.to_owned(),
        false => errors.join("; "),
    };
    match (subtype, why.is_empty()) {
        ("success" | "", _) => story.record_error(&why),
        (subtype, true) => story.record_error(subtype),
        (subtype, false) => story.record_error(&format!("{subtype}: {why}")),
    }
}

/// Sums the usage of all models; if they are not listed, takes the main model's.
fn total_usage(event: &Value) -> Usage {
    let models = event["modelUsage"].as_object().into_iter().flatten();
    let all = models.map(|(_, model)| Usage {
        input: token_count(&model["inputTokens"]),
        output: token_count(&model["outputTokens"]),
        cache_read: token_count(&model["cacheReadInputTokens"]),
        cache_write: token_count(&model["cacheCreationInputTokens"]),
    });
    all.reduce(Usage::plus)
        .unwrap_or_else(|| usage(&event["usage"]))
}

fn usage(usage: &Value) -> Usage {
    Usage {
        input: token_count(&usage["input_tokens"]),
        output: token_count(&usage["output_tokens"]),
        cache_read: token_count(&usage["cache_read_input_tokens"]),
        cache_write: token_count(&usage["cache_creation_input_tokens"]),
    }
}
