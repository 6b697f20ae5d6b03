//! The input of a hook: one event as a line of JSON.
//!
//! Invariant: it is made of events only, which hold no key, and long values are cut.

use super::{ExitReason, HookEvent};
use crate::Session;
use outlast_kernel::event::{Body, Event, ToolCall, TurnStatus, Usage};
use outlast_kernel::verdict::Cause;
use outlast_kernel::{Timestamp, text};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::HashMap;

/// Maximum length of a tool's output, in bytes.
const MAX_OUTPUT_BYTES: usize = 4096;
/// Maximum length of a tool's arguments, in bytes; longer ones are cut and passed as a string.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;

/// The JSON object for one event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payload {
    #[serde(rename = "type", serialize_with = "by_name")]
    pub(super) event: HookEvent,
    pub(super) session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turn_id: Option<String>,
    pub(super) folder: String,
    pub(super) time: Timestamp,
    pub(super) seq: u64,
    #[serde(flatten)]
    pub(super) fields: Fields,
}

fn by_name<S: Serializer>(moment: &HookEvent, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(moment.as_str())
}

/// The fields of each hook event.
#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum Fields {
    AutoRetryStart {
        attempt: u32,
        max_attempts: u32,
        delay_ms: u64,
        error_message: String,
        cause: Cause,
        retry_at: Timestamp,
    },
    AutoRetryEnd {
        success: bool,
        attempt: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        final_error: Option<String>,
    },
    TurnEnd {
        status: TurnStatus,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        usage: TokenUsage,
    },
    ToolStart {
        tool_call_id: String,
        tool_name: String,
        args: Value,
    },
    ToolEnd {
        tool_call_id: String,
        tool_name: String,
        is_error: bool,
        output: String,
    },
    AccountBlocked {
        account: String,
        cause: Cause,
        until: Timestamp,
    },
    SessionStopped {
        reason: ExitReason,
    },
}

/// Number of tokens used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenUsage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
        }
    }
}

impl Payload {
    /// Builds the payload of an event.
    pub(super) fn from_event(
        event: &Event,
        folder: &str,
        moment: HookEvent,
        fields: Fields,
    ) -> Self {
        Self {
            event: moment,
            session_id: event.session_id.clone(),
            turn_id: Some(event.turn_id.clone()),
            folder: folder.to_owned(),
            time: event.time,
            seq: event.seq,
            fields,
        }
    }
}

/// Translates session events to hook events; remembers the details that later events omit.
#[derive(Default)]
pub(super) struct EventTranslator {
    /// The calls without a result, by their ids.
    calls: HashMap<String, ToolCall>,
    /// The turn's usage before the current attempt.
    previous_usage: Usage,
    /// The current attempt's usage so far.
    attempt_usage: Usage,
    error: Option<String>,
}

impl EventTranslator {
    /// Creates a translator that includes the progress of a turn that another process began.
    pub(super) fn for_session(session: &Session) -> Self {
        let unfinished = session.unfinished_turn();
        let resume_state = unfinished.map(|turn| turn.resume_state).unwrap_or_default();
        let calls = resume_state
            .outstanding_calls
            .into_iter()
            .map(|outstanding| outstanding.call);
        Self {
            calls: calls.map(|call| (call.id.clone(), call)).collect(),
            previous_usage: resume_state.usage,
            ..Self::default()
        }
    }

    /// Translates an event, if hooks know such an event.
    pub(super) fn translate(&mut self, event: &Event) -> Option<(HookEvent, Fields)> {
        match &event.body {
            Body::ToolCall(call) => drop(self.calls.insert(call.id.clone(), call.clone())),
            Body::AttemptStarted { .. } => {
                self.previous_usage = self
                    .previous_usage
                    .plus(std::mem::take(&mut self.attempt_usage));
            }
            Body::Usage(usage) => self.attempt_usage = *usage,
            Body::Error { message, .. } => self.error = Some(message.clone()),
            Body::Sealed { status } => return Some((HookEvent::TurnEnd, self.end_turn(*status))),
            Body::ToolStarted { id, name } => {
                return Some((HookEvent::ToolStart, self.start_tool(id, name)));
            }
            Body::ToolResult {
                id,
                output,
                is_error,
            } => {
                let call = self.calls.remove(id).unwrap_or_default();
                let ended = Fields::ToolEnd {
                    tool_call_id: id.clone(),
                    tool_name: call.name,
                    is_error: *is_error,
                    output: text::bounded(output, MAX_OUTPUT_BYTES).into_owned(),
                };
                return Some((HookEvent::ToolEnd, ended));
            }
            body => return translate_stateless(body),
        }
        None
    }

    fn start_tool(&self, id: &str, name: &str) -> Fields {
        let call = self.calls.get(id);
        let arguments = call.map_or("null", |call| &call.arguments);
        Fields::ToolStart {
            tool_call_id: id.to_owned(),
            tool_name: name.to_owned(),
            args: args(arguments),
        }
    }

    fn end_turn(&mut self, status: TurnStatus) -> Fields {
        let Self {
            previous_usage,
            attempt_usage,
            error,
            ..
        } = std::mem::take(self);
        Fields::TurnEnd {
            status,
            error,
            usage: previous_usage.plus(attempt_usage).into(),
        }
    }
}

/// Returns the arguments as JSON. Arguments that are invalid or too long become a string.
fn args(arguments: &str) -> Value {
    let is_short = arguments.len() <= MAX_ARGUMENTS_BYTES;
    let read = is_short.then(|| serde_json::from_str(arguments).ok());
    let as_text = || text::bounded(arguments, MAX_ARGUMENTS_BYTES).into();
    read.flatten().unwrap_or_else(as_text)
}

/// Translates an event that needs no earlier one.
fn translate_stateless(body: &Body) -> Option<(HookEvent, Fields)> {
    match body {
        Body::RetryScheduled {
            attempt,
            max_attempts,
            delay_ms,
            retry_at,
            cause,
            message,
            ..
        } => Some((
            HookEvent::AutoRetryStart,
            Fields::AutoRetryStart {
                attempt: *attempt,
                // If the maximum is unknown, it is at least the number of this attempt.
                max_attempts: max_attempts.unwrap_or(*attempt),
                delay_ms: *delay_ms,
                error_message: message.clone(),
                cause: *cause,
                retry_at: *retry_at,
            },
        )),
        Body::RetryEnded {
            success,
            attempt,
            error,
        } => Some((
            HookEvent::AutoRetryEnd,
            Fields::AutoRetryEnd {
                success: *success,
                attempt: *attempt,
                final_error: error.clone(),
            },
        )),
        Body::AccountBlocked { name, cause, until } => Some((
            HookEvent::AccountBlocked,
            Fields::AccountBlocked {
                account: name.clone(),
                cause: *cause,
                until: *until,
            },
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_or_invalid_arguments_become_text() {
        assert_eq!(args(r#"{"a":1}"#), serde_json::json!({"a": 1}));
        assert_eq!(args("{\"a\":"), Value::from("{\"a\":"));
        let long = format!("[{}1]", "1,".repeat(MAX_ARGUMENTS_BYTES));
        let cut = args(&long);
        assert_eq!(cut.as_str().map(str::len), Some(MAX_ARGUMENTS_BYTES));
    }
}
