//! The commands that a client may send, as they are written on its lines.

use super::surrogates;
use outlast_dialect::{Image, Message, Part, Role};
use outlast_kernel::text;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

const MAX_ID_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 64;

/// A line that a client has sent.
pub(super) struct Request {
    pub(super) caller: Caller,
    pub(super) command: Result<Command, String>,
}

/// The command that a reply belongs to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Caller {
    id: Option<Value>,
    command: Option<String>,
}

/// A command.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Command {
    Prompt {
        #[serde(flatten)]
        input: PromptInput,
        streaming_behavior: Option<StreamingBehavior>,
    },
    Steer(PromptInput),
    FollowUp(PromptInput),
    Abort,
    ClearQueue,
    NewSession,
    GetState,
    SetModel {
        provider: String,
        model_id: String,
    },
    CycleModel,
    GetAvailableModels,
    SetThinkingLevel {
        level: ThinkingLevel,
    },
    CycleThinkingLevel,
    GetAvailableThinkingLevels,
    SetSteeringMode {
        mode: QueueMode,
    },
    SetFollowUpMode {
        mode: QueueMode,
    },
    Compact {
        custom_instructions: Option<String>,
    },
    SetAutoCompaction {
        enabled: bool,
    },
    SetAutoRetry {
        enabled: bool,
    },
    AbortRetry,
    RetryNow,
    Resume,
    Bash {
        command: String,
        #[serde(default)]
        exclude_from_context: bool,
    },
    AbortBash,
    GetSessionStats,
    ExportHtml {
        output_path: Option<String>,
    },
    SwitchSession {
        session_path: String,
    },
    Fork {
        entry_id: String,
    },
    Clone,
    GetForkMessages,
    GetLastAssistantText,
    SetSessionName {
        name: String,
    },
    GetMessages,
    GetEntries {
        since: Option<String>,
    },
    GetTree,
    GetCommands,
    Snapshot,
    Follow(Map<String, Value>),
}

/// The names of the commands on the wire.
pub(super) const COMMANDS: [&str; 37] = [
    "prompt",
    "steer",
    "follow_up",
    "abort",
    "clear_queue",
    "new_session",
    "get_state",
    "set_model",
    "cycle_model",
    "get_available_models",
    "set_thinking_level",
    "cycle_thinking_level",
    "get_available_thinking_levels",
    "set_steering_mode",
    "set_follow_up_mode",
    "compact",
    "set_auto_compaction",
    "set_auto_retry",
    "abort_retry",
    "retry_now",
    "resume",
    "bash",
    "abort_bash",
    "get_session_stats",
    "export_html",
    "switch_session",
    "fork",
    "clone",
    "get_fork_messages",
    "get_last_assistant_text",
    "set_session_name",
    "get_messages",
    "get_entries",
    "get_tree",
    "get_commands",
    "snapshot",
    "follow",
];

/// The fields of the commands.
const FIELDS: [&str; 16] = [
    "message",
    "images",
    "streamingBehavior",
    "provider",
    "modelId",
    "level",
    "mode",
    "customInstructions",
    "enabled",
    "command",
    "excludeFromContext",
    "outputPath",
    "sessionPath",
    "entryId",
    "name",
    "since",
];

/// The content of a prompt.
#[derive(Debug, Deserialize)]
pub(super) struct PromptInput {
    message: String,
    images: Option<Vec<Picture>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Picture {
    #[serde(deserialize_with = "base64")]
    data: String,
    mime_type: String,
}

/// Checks base64 early: the provider would refuse an invalid picture with every later call.
fn base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let data = String::deserialize(deserializer)?;
    let digits = data.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    match !digits.is_empty() && digits.bytes().all(is_digit) && data.len() - digits.len() <= 2 {
        true => Ok(data),
        false => Err(D::Error::custom("expected a picture in base 64")),
    }
}

impl From<PromptInput> for Message {
    fn from(said: PromptInput) -> Self {
        let text = Part::Text { text: said.message };
        let pictures = said.images.into_iter().flatten();
        let pictures = pictures.map(|picture| {
            Part::Image(Image {
                media_type: picture.mime_type,
                data: picture.data,
            })
        });
        Self {
            role: Role::User,
            parts: std::iter::once(text).chain(pictures).collect(),
        }
    }
}

/// How to deliver a prompt while a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StreamingBehavior {
    Steer,
    FollowUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum QueueMode {
    All,
    OneAtATime,
}

/// The requested thinking level. It is checked but has no effect: the server cannot set it yet, and says so to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ThinkingLevel {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

/// Reads a line; the error is the reply to a line without a readable command.
pub(super) fn parse_line(line: &str) -> Result<Option<Request>, Box<RawValue>> {
    let value = serde_json::from_str(line);
    let value: Value = match value {
        Ok(value) => value,
        Err(error) => serde_json::from_str(&surrogates::replace_lone_surrogates(line))
            .map_err(|_| parse_error_reply(&error.to_string()))?,
    };
    let field = |name: &str| value.get(name).cloned();
    let name = field("type").and_then(|name| name.as_str().map(str::to_owned));
    // The server never sends a request that this could answer.
    if name.as_deref() == Some("extension_ui_response") {
        return Ok(None);
    }
    let caller = Caller {
        id: field("id").filter(|id| !id.is_null()),
        command: name
            .as_deref()
            .map(|name| text::bounded(name, MAX_NAME_BYTES).into_owned()),
    };
    // The id is repeated with every reply.
    if caller
        .id
        .as_ref()
        .is_some_and(|id| id.to_string().len() > MAX_ID_BYTES)
    {
        return Err(parse_error_reply(&format!(
            "its `id` has more than {MAX_ID_BYTES} bytes"
        )));
    }
    let command = match name {
        Some(name) if COMMANDS.contains(&name.as_str()) => Command::deserialize(&value)
            .map_err(|error| format!("{name}: {}", describe_error(value, &error))),
        name => {
            let name = name.as_deref().unwrap_or("undefined");
            let name = text::bounded(name, MAX_NAME_BYTES);
            Err(format!("Unknown command: {name}"))
        }
    };
    Ok(Some(Request { caller, command }))
}

/// Describes the error of a command, and names the field at fault: the one without which the error changes.
fn describe_error(mut value: Value, error: &serde_json::Error) -> String {
    let error = error.to_string();
    let field = FIELDS.into_iter().find(|field| {
        let fields = value.as_object_mut();
        let Some(taken) = fields.and_then(|fields| fields.remove(*field)) else {
            return false;
        };
        let other = Command::deserialize(&value).err();
        value[*field] = taken;
        other.is_none_or(|other| other.to_string() != error)
    });
    match field {
        Some(field) => format!("`{field}`: {error}"),
        None => error,
    }
}

/// Returns the reply to a line that cannot be parsed.
pub(super) fn parse_error_reply(why: &str) -> Box<RawValue> {
    let caller = Caller {
        id: None,
        command: Some("parse".to_owned()),
    };
    caller.error(&format!("Failed to parse command: {why}"))
}

/// A reply.
#[derive(Serialize)]
struct Reply<'a, D> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<D>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    command_error: Option<&'a CommandError>,
}

/// The error of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct CommandError {
    /// The message for people.
    pub(super) error: String,
    /// The code for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    /// The oldest event that is still available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oldest: Option<u64>,
}

impl Caller {
    fn reply<D: Serialize>(
        &self,
        data: Option<D>,
        command_error: Option<&CommandError>,
    ) -> Box<RawValue> {
        let reply = Reply {
            id: self.id.as_ref(),
            r#type: "response",
            command: self.command.as_deref(),
            success: command_error.is_none(),
            data,
            command_error,
        };
        // Only maps with keys other than strings cannot be serialized, and there are none.
        to_raw_value(&reply).unwrap_or_default()
    }

    /// Returns the reply of success without data.
    pub(super) fn success(&self) -> Box<RawValue> {
        self.reply(None::<()>, None)
    }

    /// Returns the reply of success with data.
    pub(super) fn data(&self, data: impl Serialize) -> Box<RawValue> {
        self.reply(Some(data), None)
    }

    /// Returns the reply of failure with a message.
    pub(super) fn error(&self, error: &str) -> Box<RawValue> {
        let error = error.to_owned();
        self.error_with_code(&CommandError {
            error,
            ..CommandError::default()
        })
    }

    /// Returns the reply of failure with a message and a code for programs.
    pub(super) fn error_with_code(&self, refusal: &CommandError) -> Box<RawValue> {
        self.reply(None::<()>, Some(refusal))
    }

    /// Returns whether the command is a prompt.
    pub(super) fn is_prompt(&self) -> bool {
        self.command.as_deref() == Some("prompt")
    }

    /// Returns the id that the client gave to its command.
    pub(super) fn id(&self) -> Option<&Value> {
        self.id.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(reply: &RawValue) -> Value {
        serde_json::from_str(reply.get()).unwrap()
    }

    #[test]
    fn every_command_name_parses() {
        for name in COMMANDS {
            let fields = json!({
                "type": name, "message": "m", "provider": "p", "modelId": "m", "level": "high", "mode": "all",
                "enabled": true, "command": "true", "sessionPath": "s", "entryId": "e", "name": "n",
            });
            let request = parse_line(&fields.to_string()).unwrap().unwrap();
            assert!(
                request.command.is_ok(),
                "{name}: {:?}",
                request.command.err()
            );
        }
    }

    #[test]
    fn invalid_command_error_is_returned_to_caller() {
        let table = [
            (
                "[]",
                json!({"type": "response", "success": false, "error": "Unknown command: undefined"}),
            ),
            (
                r#"{"id":7,"type":"bogus"}"#,
                json!({"id": 7, "type": "response", "command": "bogus", "success": false, "error": "Unknown command: bogus"}),
            ),
            (
                r#"{"id":"a","type":"prompt"}"#,
                json!({"id": "a", "type": "response", "command": "prompt", "success": false, "error": "prompt: missing field `message`"}),
            ),
            (
                r#"{"id":"a","type":"prompt","message":"m","images":5}"#,
                json!({"id": "a", "type": "response", "command": "prompt", "success": false, "error": "prompt: `images`: invalid type: integer `5`, expected a sequence"}),
            ),
        ];
        for (line, expected) in table {
            let request = parse_line(line).unwrap().unwrap();
            let error = request.command.unwrap_err();
            assert_eq!(value(&request.caller.error(&error)), expected, "{line}");
        }
        let refused = value(&parse_line("{bad json").err().unwrap());
        assert_eq!(refused["command"], "parse");
        assert_eq!(refused.get("id"), None);
    }
}
