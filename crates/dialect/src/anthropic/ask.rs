//! To the wire: the body of a request.

use crate::{Delivery, Message, Part, Request, Role, Tool};
use outlast_kernel::event::{Proof, Reasoning};
use serde_json::{Value, json};

/// The API wants a limit; every current model can write this much.
const MAX_TOKENS: u32 = 8192;

/// The body of a request.
pub fn request(request: &Request) -> Value {
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens.unwrap_or(MAX_TOKENS),
        "stream": request.delivery == Delivery::Streamed,
        "messages": request.messages.iter().map(message).collect::<Vec<_>>(),
    });
    if let Some(system) = &request.system {
        body["system"] = json!(system);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body
}

fn tool(tool: &Tool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters })
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    json!({ "role": role, "content": message.parts.iter().filter_map(part).collect::<Vec<_>>() })
}

fn part(part: &Part) -> Option<Value> {
    Some(match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image(image) => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": image.media_type, "data": image.data },
        }),
        Part::Reasoning(reasoning) => thinking(reasoning)?,
        Part::ToolCall(call) => json!({
            "type": "tool_use", "id": call.id, "name": call.name, "input": input(&call.arguments),
        }),
        Part::ToolResult(result) => json!({
            "type": "tool_result", "tool_use_id": result.id, "content": result.output,
            "is_error": result.is_error,
        }),
    })
}

/// Reasoning without a signature of this API is refused by it.
fn thinking(reasoning: &Reasoning) -> Option<Value> {
    match reasoning.proof.as_ref()? {
        Proof::Signature { signature } => {
            Some(json!({ "type": "thinking", "thinking": reasoning.text, "signature": signature }))
        }
        Proof::Redacted { data } => Some(json!({ "type": "redacted_thinking", "data": data })),
        Proof::Encrypted { .. } => None,
    }
}

/// The API takes an object; what the model wrote and is none goes back as the text that it was.
fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ => json!({ "text": arguments }),
    }
}
