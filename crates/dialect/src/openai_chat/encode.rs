//! Encodes the body of a request.

use crate::request::with_conversation;
use crate::{Delivery, Image, Message, Part, Request, Role, Tool};
use outlast_kernel::event::ToolCall;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Returns the body of a request.
pub fn request(request: &Request) -> String {
    let mut body = json!({ "model": request.model });
    if request.delivery == Delivery::Streamed {
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
    }
    if let Some(limit) = request.max_tokens {
        body["max_completion_tokens"] = json!(limit);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    with_conversation(body, "messages", Messages(request))
}

struct Messages<'a>(&'a Request);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let system = self.0.system.iter();
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        let messages = self.0.messages.iter().flat_map(messages);
        serializer.collect_seq(system.chain(messages))
    }
}

fn tool(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.parameters,
        },
    })
}

/// Returns the messages for one message. Each result of a tool is a message of its own here.
fn messages(message: &Message) -> Vec<Value> {
    match message.role {
        Role::Assistant => assistant(message).into_iter().collect(),
        Role::User => {
            let results = message.parts.iter().filter_map(|part| match part {
                Part::ToolResult(result) => Some(json!({
                    "role": "tool", "tool_call_id": result.id, "content": result.output,
                })),
                _ => None,
            });
            results.chain(user(message)).collect()
        }
    }
}

fn user(message: &Message) -> Option<Value> {
    let parts: Vec<Value> = message.parts.iter().filter_map(part).collect();
    let content = match parts.as_slice() {
        [] => return None,
        // Every server of this dialect accepts plain text.
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => Value::Array(parts),
    };
    Some(json!({ "role": "user", "content": content }))
}

fn part(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => Some(json!({ "type": "text", "text": text })),
        Part::Image(Image { media_type, data }) => Some(json!({
            "type": "image_url",
            "image_url": { "url": format!("data:{media_type};base64,{data}") },
        })),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

/// Returns an assistant message without its reasoning. A message of only reasoning would be empty, which some servers
/// refuse.
fn assistant(message: &Message) -> Option<Value> {
    let text = message.text();
    let calls: Vec<Value> = message.tool_calls().map(call).collect();
    let content = match (text.is_empty(), calls.is_empty()) {
        (true, true) => return None,
        (true, false) => Value::Null,
        (false, _) => Value::String(text),
    };
    let mut body = json!({ "role": "assistant", "content": content });
    if !calls.is_empty() {
        body["tool_calls"] = Value::Array(calls);
    }
    Some(body)
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id, "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}
