//! Encodes the body of a request.

use crate::request::with_conversation;
use crate::{Delivery, Message, Part, Request, Role, Tool};
use outlast_kernel::event::{Proof, Reasoning, ToolCall};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The API requires a limit; every current model can write this much.
const DEFAULT_MAX_TOKENS: u32 = 8192;

/// Returns the body of a request.
pub fn request(request: &Request) -> String {
    let mut settings = json!({
        "model": request.model,
        "max_tokens": request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        "stream": request.delivery == Delivery::Streamed,
    });
    if let Some(system) = &request.system {
        settings["system"] = json!(system);
    }
    if !request.tools.is_empty() {
        settings["tools"] = request.tools.iter().map(tool).collect();
    }
    with_conversation(settings, "messages", Messages(request))
}

struct Messages<'a>(&'a Request);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let messages = self.0.messages.iter();
        let messages = messages.map(|said| message(said, &self.0.model));
        serializer.collect_seq(messages.filter(is_sendable))
    }
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Any(Value),
    /// The model's input goes back unchanged, to the letter, or the provider's cache misses.
    Call {
        r#type: &'static str,
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    },
}

fn tool(tool: &Tool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters })
}

/// Returns whether a message has content. Without its omitted reasoning and blanks it may be empty, and the API
/// refuses that.
fn is_sendable(said: &WireMessage<'_>) -> bool {
    said.role == "user" || !said.content.is_empty()
}

fn message<'a>(message: &'a Message, model: &str) -> WireMessage<'a> {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let is_said = |part: &&Part| message.role == Role::User || !is_blank(part);
    let parts = message.parts.iter().filter(is_said);
    let content = parts.filter_map(|said| part(said, model)).collect();
    WireMessage { role, content }
}

/// Returns whether a text is blank: some models begin with blanks before they call a tool, and the API refuses them
/// here.
fn is_blank(part: &Part) -> bool {
    matches!(part, Part::Text { text } if text.trim().is_empty())
}

fn part<'a>(part: &'a Part, model: &str) -> Option<Content<'a>> {
    Some(Content::Any(match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image(image) => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": image.media_type, "data": image.data },
        }),
        Part::Reasoning(reasoning) => thinking(reasoning, model)?,
        Part::ToolCall(call) => return Some(tool_use(call)),
        Part::ToolResult(result) => json!({
            "type": "tool_result", "tool_use_id": result.id, "content": result.output,
            "is_error": result.is_error,
        }),
    }))
}

/// Returns reasoning as a block. The API refuses reasoning without a signature of its own, or of another model.
fn thinking(reasoning: &Reasoning, model: &str) -> Option<Value> {
    let proof = reasoning.proof.as_ref();
    match proof.filter(|_| reasoning.can_be_sent_to(model))? {
        Proof::Signature { signature } => {
            Some(json!({ "type": "thinking", "thinking": reasoning.text, "signature": signature }))
        }
        Proof::Redacted { data } => Some(json!({ "type": "redacted_thinking", "data": data })),
        Proof::Encrypted { .. } => None,
    }
}

/// Returns a call as a block. The API takes an object; input that is none goes back as text.
fn tool_use(call: &ToolCall) -> Content<'_> {
    let ToolCall {
        id,
        name,
        arguments,
    } = call;
    // Input that is kept unchanged must still be JSON to the strictest reader.
    let is_object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
    let input: Option<&RawValue> = serde_json::from_str(arguments).ok();
    match input.filter(|_| is_object) {
        Some(input) => Content::Call {
            r#type: "tool_use",
            id,
            name,
            input,
        },
        None => Content::Any(json!({
            "type": "tool_use", "id": id, "name": name, "input": { "text": arguments },
        })),
    }
}
