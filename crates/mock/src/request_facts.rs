//! The facts of a request that determine the response, read from its dialect.

use crate::conversation::{self, Conversation};
use crate::script::BYTES_PER_TOKEN;
use outlast_dialect::Dialect;
use serde_json::Value;

/// The facts of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestFacts {
    pub(crate) model: String,
    pub(crate) is_streamed: bool,
    /// The system prompt.
    pub(crate) system: String,
    /// Whether the response is to continue without its connection, and to be stored.
    pub(crate) is_background: bool,
    /// The conversation so far.
    pub(crate) conversation: Conversation,
    pub(crate) images: Vec<Image>,
    /// The available tools: their names and the schemas of their arguments.
    pub(crate) tools: Vec<(String, Value)>,
    /// Whether a streamed response is to report the usage.
    pub(crate) wants_usage: bool,
    /// The estimated number of tokens of the request.
    pub(crate) tokens: u64,
    /// The size of the body in bytes.
    pub(crate) bytes: usize,
    pub(crate) key: Option<String>,
    pub(crate) accepts_gzip: bool,
}

/// An image of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) media_type: String,
    pub(crate) bytes: usize,
}

/// Headers, with names in lower case.
pub(crate) type Headers = [(String, String)];

pub(crate) fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let named = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
    headers.iter().find(named).map(|(_, value)| value.as_str())
}

impl RequestFacts {
    /// Reads the facts of a request; missing or malformed parts are ignored.
    pub(crate) fn parse(dialect: Dialect, headers: &Headers, body: &Value, size: usize) -> Self {
        let messages = match dialect {
            Dialect::OpenaiResponses => &body["input"],
            Dialect::Anthropic | Dialect::OpenaiChat => &body["messages"],
        };
        let usage_asked = body["stream_options"]["include_usage"] == true;
        let encodings = header(headers, "accept-encoding").unwrap_or_default();
        Self {
            model: text(&body["model"]),
            is_streamed: body["stream"] == true,
            system: system(dialect, body),
            is_background: dialect == Dialect::OpenaiResponses
                && body["stream"] == true
                && body["background"] == true,
            conversation: Conversation::parse(messages),
            images: images(messages),
            tools: array(&body["tools"]).iter().filter_map(tool).collect(),
            wants_usage: dialect != Dialect::OpenaiChat || usage_asked,
            tokens: u64::try_from(size / BYTES_PER_TOKEN).unwrap_or(u64::MAX),
            bytes: size,
            key: key(headers),
            accepts_gzip: encodings.contains("gzip"),
        }
    }
}

fn key(headers: &Headers) -> Option<String> {
    let bearer = || header(headers, "authorization")?.strip_prefix("Bearer ");
    header(headers, "x-api-key")
        .or_else(bearer)
        .map(str::to_owned)
}

/// Returns the system prompt, which one dialect has among the messages.
fn system(dialect: Dialect, body: &Value) -> String {
    match dialect {
        Dialect::Anthropic => conversation::text(&body["system"]),
        Dialect::OpenaiResponses => text(&body["instructions"]),
        Dialect::OpenaiChat => {
            let is_system =
                |message: &&Value| matches!(message["role"].as_str(), Some("system" | "developer"));
            let messages = array(&body["messages"]).iter().filter(is_system);
            let texts = messages.map(|message| conversation::text(&message["content"]));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn images(messages: &Value) -> Vec<Image> {
    array(messages)
        .iter()
        .flat_map(|message| array(&message["content"]))
        .filter_map(image)
        .collect()
}

fn image(part: &Value) -> Option<Image> {
    let source = &part["source"];
    let (media_type, data) = match part["type"].as_str()? {
        "image" => (source["media_type"].as_str()?, source["data"].as_str()?),
        "image_url" => data_url(part["image_url"]["url"].as_str()?)?,
        "input_image" => data_url(part["image_url"].as_str()?)?,
        _ => return None,
    };
    Some(Image {
        media_type: media_type.to_owned(),
        bytes: data.trim_end_matches('=').len() * 3 / 4,
    })
}

fn data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

fn tool(tool: &Value) -> Option<(String, Value)> {
    let function = if tool["function"].is_object() {
        &tool["function"]
    } else {
        tool
    };
    let schema = match &tool["input_schema"] {
        Value::Null => &function["parameters"],
        schema => schema,
    };
    Some((function["name"].as_str()?.to_owned(), schema.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_dialect::{self as dialect, Delivery, Message, Part, Role};

    #[test]
    fn request_facts_are_parsed_in_every_dialect() {
        let image = dialect::Image {
            media_type: "image/png".to_owned(),
            data: "aGVsbG8=".to_owned(),
        };
        let mut question = Message::user("What is this?");
        question.parts.push(Part::Image(image));
        let result = dialect::ToolResult {
            id: "call_1".to_owned(),
            output: "a result".to_owned(),
            is_error: false,
        };
        let result = Message {
            role: Role::User,
            parts: vec![Part::ToolResult(result)],
        };
        let request = dialect::Request {
            model: "m".to_owned(),
            system: Some("Be brief.".to_owned()),
            messages: vec![Message::user("Hello"), question, result],
            tools: vec![dialect::Tool {
                name: "look".to_owned(),
                description: "Looks.".to_owned(),
                parameters: serde_json::json!({ "type": "object" }),
            }],
            max_tokens: None,
            delivery: Delivery::Streamed,
            resumable: true,
        };
        for dialect in Dialect::ALL {
            let bytes = dialect.encode_request(&request);
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            let facts = RequestFacts::parse(dialect, &[], &body, 400);
            let image = Image {
                media_type: "image/png".to_owned(),
                bytes: 5,
            };
            let expected = RequestFacts {
                model: "m".to_owned(),
                is_streamed: true,
                system: "Be brief.".to_owned(),
                is_background: dialect == Dialect::OpenaiResponses,
                conversation: Conversation {
                    prompts: 2,
                    prompt: "What is this?".to_owned(),
                    outputs: vec!["a result".to_owned()],
                    ..Conversation::default()
                },
                images: vec![image],
                tools: vec![("look".to_owned(), serde_json::json!({ "type": "object" }))],
                wants_usage: true,
                tokens: 100,
                bytes: 400,
                key: None,
                accepts_gzip: false,
            };
            assert_eq!(facts, expected, "{dialect:?}");
        }
    }

    #[test]
    fn api_key_is_read_from_either_header() {
        for (name, value) in [("x-api-key", "k"), ("authorization", "Bearer k")] {
            let headers = [(name.to_owned(), value.to_owned())];
            let facts = RequestFacts::parse(Dialect::Anthropic, &headers, &Value::Null, 0);
            assert_eq!(facts.key.as_deref(), Some("k"), "{name}");
        }
    }
}
