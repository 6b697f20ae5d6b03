//! Encodes the body of a request.

use crate::request::with_conversation;
use crate::{Delivery, Image, Message, Part, Request, Role, Tool};
use outlast_kernel::event::{Proof, Reasoning};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Returns the body of a request. It contains the whole conversation, reasoning included, and relies on nothing that
/// the provider stores. The provider stores a completion that is to be resumable, and nothing else.
pub fn request(request: &Request) -> String {
    let is_streamed = request.delivery == Delivery::Streamed;
    // In background mode a request without streaming gets only the announcement of a response, not its content.
    let is_kept = request.resumable && is_streamed;
    let mut body = json!({
        "model": request.model,
        "stream": is_streamed,
        "store": is_kept,
        "include": ["reasoning.encrypted_content"],
    });
    if is_kept {
        body["background"] = json!(true);
    }
    if let Some(system) = &request.system {
        body["instructions"] = json!(system);
    }
    if let Some(limit) = request.max_tokens {
        body["max_output_tokens"] = json!(limit);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    with_conversation(body, "input", Items(request))
}

struct Items<'a>(&'a Request);

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let messages = self.0.messages.iter();
        serializer.collect_seq(messages.flat_map(|message| items(message, &self.0.model)))
    }
}

fn tool(tool: &Tool) -> Value {
    json!({
        "type": "function", "name": tool.name, "description": tool.description,
        "parameters": tool.parameters, "strict": false,
    })
}

/// Returns the items of a message. Text and pictures are content of one item; every other part is an item of its own.
fn items(message: &Message, model: &str) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for part in &message.parts {
        if let Some(content) = content(message.role, part) {
            match items.last_mut() {
                Some(last) if last["type"] == "message" => {
                    if let Some(parts) = last["content"].as_array_mut() {
                        parts.push(content);
                    }
                }
                _ => items.push(message_item(message.role, content)),
            }
        } else {
            items.extend(item(part, model));
        }
    }
    items
}

fn message_item(role: Role, content: Value) -> Value {
    let role = match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    json!({ "type": "message", "role": role, "content": [content] })
}

fn content(role: Role, part: &Part) -> Option<Value> {
    match (role, part) {
        (Role::User, Part::Text { text }) => Some(json!({ "type": "input_text", "text": text })),
        (Role::Assistant, Part::Text { text }) => {
            Some(json!({ "type": "output_text", "text": text }))
        }
        (_, Part::Image(Image { media_type, data })) => Some(json!({
            "type": "input_image", "image_url": format!("data:{media_type};base64,{data}"),
        })),
        _ => None,
    }
}

fn item(part: &Part, model: &str) -> Option<Value> {
    match part {
        Part::ToolCall(call) => Some(json!({
            "type": "function_call", "call_id": call.id, "name": call.name,
            "arguments": call.arguments,
        })),
        Part::ToolResult(result) => Some(json!({
            "type": "function_call_output", "call_id": result.id, "output": result.output,
        })),
        Part::Reasoning(reasoning) if reasoning.can_be_sent_to(model) => reasoning_item(reasoning),
        Part::Reasoning(_) => None,
        Part::Text { .. } | Part::Image(_) => None,
    }
}

/// Returns reasoning as an item. This provider cannot use another provider's reasoning, or reasoning without its
/// content.
fn reasoning_item(reasoning: &Reasoning) -> Option<Value> {
    let Some(Proof::Encrypted {
        id,
        content: Some(content),
    }) = &reasoning.proof
    else {
        return None;
    };
    let summary = match reasoning.text.as_str() {
        "" => json!([]),
        text => json!([{ "type": "summary_text", "text": text }]),
    };
    Some(json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": content }))
}
