//! The request to a model, independent of any provider's format.

use outlast_kernel::event::{Reasoning, ToolCall};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// One call of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The model's name.
    pub model: String,
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation so far, the newest message last.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// The maximum number of tokens of the completion; `None` leaves it to the provider.
    pub max_tokens: Option<u32>,
    /// The delivery of the completion: as a whole or in pieces.
    pub delivery: Delivery,
    /// Whether the server is to keep a streamed completion, so that it can be resumed where it was cut off. Only
    /// OpenAI's Responses API supports that; requests to others do not change.
    pub resumable: bool,
}

/// The delivery of a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In pieces, as they are written.
    #[default]
    Streamed,
    /// As one body, when it is complete.
    Whole,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The description of the tool, for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The content of the message, in order.
    pub parts: Vec<Part>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person or program that makes the request; results of tools have this role, too.
    User,
    /// The model.
    Assistant,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture from the user.
    Image(Image),
    /// The model's reasoning, to be sent back unchanged.
    Reasoning(Reasoning),
    /// A tool call of the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// Its bytes, in base 64.
    pub data: String,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The output of the tool.
    pub output: String,
    /// Whether the tool failed.
    pub is_error: bool,
}

/// Writes a body with the conversation under that name. It is written message by message: as a tree, a long one would
/// need many times its size.
pub(crate) fn with_conversation(
    settings: Value,
    name: &'static str,
    conversation: impl Serialize,
) -> String {
    struct Body<C>(Value, &'static str, C);

    impl<C: Serialize> Serialize for Body<C> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let Self(settings, name, conversation) = self;
            let mut map = serializer.serialize_map(None)?;
            for (key, value) in settings.as_object().into_iter().flatten() {
                map.serialize_entry(key, value)?;
            }
            map.serialize_entry(name, conversation)?;
            map.end()
        }
    }

    // Only maps with keys other than strings cannot be written, and there are none.
    serde_json::to_string(&Body(settings, name, conversation)).unwrap_or_default()
}

impl Message {
    /// Creates a message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            role: Role::User,
            parts: vec![Part::Text { text }],
        }
    }

    /// Returns all of its text.
    pub fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Text { text } => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// Returns the tools that it calls.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}
