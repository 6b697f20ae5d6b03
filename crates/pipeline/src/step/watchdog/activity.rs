//! Translates the events of a turn for the watchdog: activity, or progress?
//!
//! Invariant: every wait that pauses the watchdog is followed by an event that resumes it: the next call, or the end of
//! the waiting operation. Text and changes by tools are progress; reading and reasoning are activity.

use super::WatchEvent;
use outlast_kernel::event::Body;
use std::collections::HashMap;

/// Tools that change nothing.
const READ_ONLY_TOOLS: [&str; 2] = ["grep", "read"];
/// Maximum number of running tools to track; if the ends of so many got lost, their names are dropped.
const MAX_RUNNING_TOOLS: usize = 256;

/// Reads the events of one attempt, in order.
#[derive(Debug, Default)]
pub(crate) struct ActivityTracker {
    /// The names of the running tools, by the ids of their calls.
    running: HashMap<String, String>,
}

impl ActivityTracker {
    /// Returns the observation that an event stands for, if any.
    pub(crate) fn event_for(&mut self, body: &Body) -> Option<WatchEvent> {
        let activity = |name: &str| Some(WatchEvent::Activity(name.to_owned()));
        match body {
            // A provider can send empty deltas forever.
            Body::TextDelta { text } if text.trim().is_empty() => activity("empty text"),
            Body::TextDelta { .. } => Some(WatchEvent::Progress("text".to_owned())),
            Body::ReasoningDelta { .. } | Body::ReasoningDone(_) => activity("reasoning"),
            Body::ToolCall(call) => activity(&format!("wants `{}`", call.name)),
            Body::ToolStarted { id, name } => {
                self.start(id, name);
                activity(&format!("`{name}` runs"))
            }
            Body::ToolResult { id, .. } => Some(self.finish(id)),
            Body::Usage(_) => activity("usage"),
            Body::StepComplete { .. } => activity("answer complete"),
            Body::AutoCompactionStarted { .. } => activity("compaction"),
            Body::RetryScheduled { .. } | Body::Held { .. } | Body::AutoCompactionRetry { .. } => {
                Some(WatchEvent::Paused)
            }
            Body::AttemptStarted { .. }
            | Body::AutoCompactionEnded { .. }
            | Body::RetryEnded { .. }
            | Body::Sealed { .. } => Some(WatchEvent::Resumed),
            _ => None,
        }
    }

    fn start(&mut self, id: &str, name: &str) {
        if self.running.len() >= MAX_RUNNING_TOOLS {
            self.running.clear();
        }
        self.running.insert(id.to_owned(), name.to_owned());
    }

    /// Ends a tool; a tool that did not run has changed nothing.
    fn finish(&mut self, id: &str) -> WatchEvent {
        match self.running.remove(id) {
            None => WatchEvent::Activity("a tool was not run".to_owned()),
            Some(name) => {
                let ended = format!("`{name}` has ended");
                if READ_ONLY_TOOLS.contains(&name.as_str()) {
                    WatchEvent::Activity(ended)
                } else {
                    WatchEvent::Progress(ended)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_kernel::Timestamp;
    use outlast_kernel::event::{
        CompactionReason, Reasoning, StopReason, ToolCall, TurnStatus, Usage,
    };
    use outlast_kernel::verdict::Cause;

    const AT: Timestamp = Timestamp::from_millis(1_794_780_000_000);

    /// Returns the observations for the events, in words.
    fn signs(events: impl IntoIterator<Item = Body>) -> Vec<String> {
        let mut reader = ActivityTracker::default();
        let word = |sign| match sign {
            Some(WatchEvent::Activity(name)) => format!("activity: {name}"),
            Some(WatchEvent::Progress(name)) => format!("progress: {name}"),
            Some(WatchEvent::Paused) => "paused".to_owned(),
            Some(WatchEvent::Resumed) => "resumed".to_owned(),
            None => "-".to_owned(),
        };
        let events = events.into_iter();
        events.map(|body| word(reader.event_for(&body))).collect()
    }

    fn tool(id: &str, name: &str) -> [Body; 2] {
        let started = Body::ToolStarted {
            id: id.to_owned(),
            name: name.to_owned(),
        };
        let ended = Body::ToolResult {
            id: id.to_owned(),
            output: "done".to_owned(),
            is_error: false,
        };
        [started, ended]
    }

    #[test]
    fn reading_is_activity_and_changing_is_progress() {
        let table = [
            ("read", "activity"),
            ("grep", "activity"),
            ("write", "progress"),
            ("edit", "progress"),
            ("bash", "progress"),
            ("mcp__tickets__open", "progress"),
        ];
        for (name, kind) in table {
            let expected = [
                format!("activity: `{name}` runs"),
                format!("{kind}: `{name}` has ended"),
            ];
            assert_eq!(signs(tool("1", name)), expected);
        }
    }

    #[test]
    fn concurrent_tools_are_classified_separately() {
        let ([reads, has_read], [writes, has_written]) = (tool("1", "read"), tool("2", "write"));
        let said = signs([reads, writes, has_written.clone(), has_read, has_written]);
        let ends = [
            "progress: `write` has ended",
            "activity: `read` has ended",
            "activity: a tool was not run",
        ];
        assert_eq!(said[2..], ends);
    }

    #[test]
    fn text_is_progress_and_thinking_is_not() {
        let text = |text: &str| Body::TextDelta {
            text: text.to_owned(),
        };
        let thought = Body::ReasoningDelta {
            text: "hm".to_owned(),
        };
        let said = signs([
            text("Once"),
            text(" \n"),
            text(""),
            thought,
            Body::ReasoningDone(Reasoning::default()),
            Body::ToolCall(ToolCall {
                name: "write".to_owned(),
                ..ToolCall::default()
            }),
            Body::Usage(Usage::default()),
        ]);
        let expected = [
            "progress: text",
            "activity: empty text",
            "activity: empty text",
            "activity: reasoning",
            "activity: reasoning",
            "activity: wants `write`",
            "activity: usage",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn wait_events_pause_and_their_ends_resume() {
        let said = signs([
            Body::RetryScheduled {
                attempt: 1,
                max_attempts: None,
                delay_ms: 5,
                retry_at: AT,
                cause: Cause::Overloaded,
                message: String::new(),
                code: None,
            },
            Body::Held {
                until: AT,
                cause: None,
            },
            Body::AttemptStarted { attempt: 2 },
            Body::AutoCompactionStarted {
                reason: CompactionReason::Overflow,
                tokens: 1,
            },
            Body::AutoCompactionRetry {
                attempt: 1,
                retry_at: AT,
                cause: Cause::Overloaded,
                message: String::new(),
            },
            Body::AutoCompactionEnded {
                reason: CompactionReason::Overflow,
                before: 2,
                after: 1,
                will_retry: true,
                summary: None,
                error: None,
            },
            Body::RetryEnded {
                success: true,
                attempt: 1,
                error: None,
            },
            Body::Done {
                stop_reason: StopReason::EndTurn,
            },
            Body::Sealed {
                status: TurnStatus::Completed,
            },
        ]);
        let expected = [
            "paused",
            "paused",
            "resumed",
            "activity: compaction",
            "paused",
            "resumed",
            "resumed",
            "-",
            "resumed",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn tracked_running_tools_are_bounded() {
        let mut reader = ActivityTracker::default();
        for number in 0..10_000 {
            reader.event_for(&tool(&number.to_string(), "bash")[0]);
        }
        assert!(reader.running.len() <= MAX_RUNNING_TOOLS);
    }
}
