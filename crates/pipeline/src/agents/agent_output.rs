//! The state of an agent's output, updated line by line.
//!
//! Invariant: an agent waits from the line that says so until the next line that does not.

use super::tool_use::{self, ToolEffect};
use super::{AgentResult, Format, NO_RESULT, claude, codex, opencode, pi};
use crate::process::sanitize_and_redact;
use crate::step::watchdog::WatchEvent;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::text;
use serde_json::Value;

/// Maximum length of an event's text in bytes.
const MAX_EVENT_BYTES: usize = 160;

/// The output parsed so far.
pub(super) struct AgentOutput {
    pub(super) text: String,
    pub(super) usage: Usage,
    pub(super) cost: Cost,
    pub(super) error: Option<String>,
    /// The end of a limit that the agent reached.
    pub(super) not_before: Option<Timestamp>,
    /// Whether the output has reached its proper end.
    pub(super) is_finished: bool,
    /// The id of the message whose usage was counted last, since its usage may be repeated.
    pub(super) last_counted_id: Option<String>,
    /// The events that are not yet reported.
    pub(super) watch_events: Vec<WatchEvent>,
    is_waiting: bool,
}

impl AgentOutput {
    pub(super) const fn new() -> Self {
        Self {
            text: String::new(),
            usage: Usage {
                input: 0,
                output: 0,
                cache_read: 0,
                cache_write: 0,
            },
            cost: Cost(0),
            error: None,
            not_before: None,
            is_finished: false,
            last_counted_id: None,
            watch_events: Vec::new(),
            is_waiting: false,
        }
    }

    /// Parses a line.
    pub(super) fn push_line(&mut self, line: &str, format: Format) {
        // The line repeats the whole message with each delta: too much to parse for the little it says.
        if line.starts_with(r#"{"type":"message_update""#) {
            return self.apply(|story| story.activity("writing"));
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return self.apply(|story| story.activity(line));
        };
        self.apply(|story| match format {
            Format::Claude => claude::apply_event(story, &event),
            Format::Codex => codex::apply_event(story, &event),
            Format::Opencode => opencode::apply_event(story, &event),
            Format::Pi => pi::apply_event(story, &event),
            Format::Plain => {}
        });
    }

    fn apply(&mut self, take: impl FnOnce(&mut Self)) {
        let (waited, before) = (
            std::mem::take(&mut self.is_waiting),
            self.watch_events.len(),
        );
        take(self);
        match (waited, self.is_waiting) {
            (true, false) => self.watch_events.insert(before, WatchEvent::Resumed),
            (false, true) => self.watch_events.push(WatchEvent::Paused),
            _ => {}
        }
    }

    /// Records activity.
    pub(super) fn activity(&mut self, what: &str) {
        self.watch_events.push(WatchEvent::Activity(short(what)));
    }

    /// Records progress.
    pub(super) fn progress(&mut self, what: &str) {
        self.watch_events.push(WatchEvent::Progress(short(what)));
    }

    /// Records that the agent waits for its provider.
    pub(super) fn set_waiting(&mut self) {
        self.is_waiting = true;
    }

    /// Records the use of a tool.
    pub(super) fn record_tool_use(&mut self, tool: &str, input: &Value) {
        let what = tool_use::summary(tool, input);
        match tool_use::tool_effect(tool, input) {
            ToolEffect::ReadOnly => self.activity(&what),
            ToolEffect::MayChange => self.progress(&what),
        }
    }

    /// Records an error that the agent reports.
    pub(super) fn record_error(&mut self, error: &str) {
        self.error = Some(provider_message(error));
    }

    /// Adds usage and cost.
    pub(super) fn add_usage(&mut self, usage: Usage, dollars: &Value) {
        self.usage = self.usage.plus(usage);
        self.cost = Cost(self.cost.0.saturating_add(cost(dollars).0));
    }

    /// Returns the result of the agent.
    pub(super) fn into_result(self) -> AgentResult {
        let lost = (!self.is_finished).then(|| NO_RESULT.to_owned());
        AgentResult {
            text: self.text,
            usage: self.usage,
            cost: self.cost,
            error: self.error.or(lost),
            not_before: self.not_before,
        }
    }
}

fn short(what: &str) -> String {
    let line = sanitize_and_redact(text::bounded(what, 4 * MAX_EVENT_BYTES).as_ref())
        .replace(['\n', '\t'], " ");
    text::bounded(line.trim(), MAX_EVENT_BYTES).into_owned()
}

/// Converts dollars to an amount in millionths, rounded up.
pub(super) fn cost(dollars: &Value) -> Cost {
    let millionths = dollars.as_f64().unwrap_or_default() * 1e6;
    // The conversion through text excludes values that are too large or negative. Sums of parts are never exact.
    let millionths = format!("{:.0}", (millionths - 0.01).ceil());
    Cost(millionths.parse().unwrap_or_default())
}

/// Reads a number of tokens.
pub(super) fn token_count(number: &Value) -> u64 {
    number.as_u64().unwrap_or_default()
}

/// Extracts a provider's response from an error, in its own words: `401 authentication_error: …`.
fn provider_message(error: &str) -> String {
    let Some(start) = error.find('{') else {
        return error.trim().to_owned();
    };
    let body: Option<Value> = serde_json::from_str(error[start..].trim()).ok();
    let inner = body.as_ref().map(|body| match &body["error"] {
        Value::Object(_) => &body["error"],
        _ => body,
    });
    let Some(message) = inner.and_then(|inner| inner["message"].as_str()) else {
        return error.trim().to_owned();
    };
    let word = inner.and_then(|inner| inner["code"].as_str().or(inner["type"].as_str()));
    let before = error[..start].trim();
    let parts = [
        before,
        &word.map(|word| format!("{word}:")).unwrap_or_default(),
        message,
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}
