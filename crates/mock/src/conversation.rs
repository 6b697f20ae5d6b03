//! What was said before a request, as far as a scripted agent goes by it.
//!
//! Invariant: it follows from the request alone, so that it is the same after a restart of either side.

use serde_json::Value;

/// A conversation, seen from its last prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// How often the user said something; results of tools alone are nothing said.
    pub(crate) prompts: usize,
    /// What the user said last.
    pub(crate) prompt: String,
    /// How often the model has answered since.
    pub(crate) answers: usize,
    /// What tools have said since, in order.
    pub(crate) outputs: Vec<String>,
}

/// One step of a conversation.
enum Said {
    Prompt(String),
    Answer,
    Output(String),
}

impl Conversation {
    /// Reads the messages or items of any dialect; what is strange among them is left out.
    pub(crate) fn read(messages: &Value) -> Self {
        let mut conversation = Self::default();
        let mut answering = false;
        for said in everything_said(messages) {
            // One answer may be several items: a text and each call.
            let goes_on = std::mem::replace(&mut answering, matches!(said, Said::Answer));
            match said {
                Said::Prompt(prompt) => {
                    conversation = Self {
                        prompts: conversation.prompts + 1,
                        prompt,
                        ..Self::default()
                    }
                }
                Said::Answer if goes_on => {}
                Said::Answer => conversation.answers += 1,
                Said::Output(output) => conversation.outputs.push(output),
            }
        }
        conversation
    }
}

fn everything_said(messages: &Value) -> Vec<Said> {
    match messages {
        // A text in place of items is a prompt.
        Value::String(prompt) => vec![Said::Prompt(prompt.clone())],
        messages => array(messages).iter().flat_map(said).collect(),
    }
}

fn said(message: &Value) -> Vec<Said> {
    match (message["role"].as_str(), message["type"].as_str()) {
        (Some("user"), _) => said_by_user(&message["content"]),
        (Some("assistant"), _) | (None, Some("function_call" | "reasoning")) => vec![Said::Answer],
        (Some("tool"), _) => vec![Said::Output(text(&message["content"]))],
        (None, Some("function_call_output")) => vec![Said::Output(text(&message["output"]))],
        _ => Vec::new(),
    }
}

/// Results first: what stands beside them is about what follows.
fn said_by_user(content: &Value) -> Vec<Said> {
    let results = array(content)
        .iter()
        .filter(|part| part["type"] == "tool_result");
    let mut said: Vec<Said> = results
        .map(|part| Said::Output(text(&part["content"])))
        .collect();
    let prompt = text(content);
    if !prompt.is_empty() {
        said.push(Said::Prompt(prompt));
    }
    said
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The text of a content: itself, or its parts that are text, each on lines of its own.
fn text(content: &Value) -> String {
    if let Value::String(text) = content {
        return text.clone();
    }
    let parts = array(content).iter();
    let texts = parts.filter_map(|part| part["text"].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_dialect::{Dialect, Message, Part, Request, Role, ToolResult};
    use outlast_kernel::event::{Reasoning, ToolCall};
    use serde_json::json;

    fn read(dialect: Dialect, messages: Vec<Message>) -> Conversation {
        let bytes = dialect.request(&Request {
            system: Some("Be brief.".to_owned()),
            messages,
            ..Request::default()
        });
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        match dialect {
            Dialect::OpenaiResponses => Conversation::read(&body["input"]),
            _ => Conversation::read(&body["messages"]),
        }
    }

    fn results(outputs: &[&str]) -> Message {
        let result = |output: &&str| {
            Part::ToolResult(ToolResult {
                id: "call_1".to_owned(),
                output: (*output).to_owned(),
                is_error: false,
            })
        };
        Message {
            role: Role::User,
            parts: outputs.iter().map(result).collect(),
        }
    }

    /// An answer of several parts, so that it is several items where parts are.
    fn answer() -> Message {
        let call = |id: &str| {
            Part::ToolCall(ToolCall {
                id: id.to_owned(),
                name: "look".to_owned(),
                arguments: "{}".to_owned(),
            })
        };
        let thought = Part::Reasoning(Reasoning {
            text: "Hm.".to_owned(),
            ..Reasoning::default()
        });
        let text = "Let me look.".to_owned();
        Message {
            role: Role::Assistant,
            parts: vec![thought, Part::Text { text }, call("call_1"), call("call_2")],
        }
    }

    #[test]
    fn what_was_said_since_the_last_prompt_is_found_in_every_dialect() {
        let mut second = Message::user("Look");
        second.parts.push(Part::Text {
            text: "again".to_owned(),
        });
        let messages = vec![
            Message::user("Look"),
            answer(),
            results(&["before", "before"]),
            answer(),
            second,
            answer(),
            results(&["one", "two"]),
            answer(),
            results(&["three"]),
        ];
        for dialect in Dialect::ALL {
            let expected = Conversation {
                prompts: 2,
                prompt: "Look\nagain".to_owned(),
                answers: 2,
                outputs: ["one", "two", "three"].map(str::to_owned).to_vec(),
            };
            assert_eq!(read(dialect, messages.clone()), expected, "{dialect:?}");
        }
    }

    #[test]
    fn a_prompt_beside_results_comes_after_them() {
        let mut both = results(&["before"]);
        both.parts.extend(Message::user("Stop").parts);
        for dialect in Dialect::ALL {
            let messages = vec![Message::user("Look"), answer(), both.clone()];
            let expected = Conversation {
                prompts: 2,
                prompt: "Stop".to_owned(),
                ..Conversation::default()
            };
            assert_eq!(read(dialect, messages), expected, "{dialect:?}");
        }
    }

    #[test]
    fn outputs_may_come_in_parts() {
        let parts = json!([{ "type": "text", "text": "one" }, { "type": "text", "text": "two" }]);
        let forms = [
            json!({ "role": "user", "content": [{ "type": "tool_result", "content": parts }] }),
            json!({ "role": "tool", "content": parts }),
            json!({ "type": "function_call_output", "output": parts }),
        ];
        for form in forms {
            let conversation = Conversation::read(&json!([form]));
            assert_eq!(conversation.outputs, ["one\ntwo"], "{form}");
        }
    }

    #[test]
    fn a_text_in_place_of_messages_is_a_prompt() {
        let conversation = Conversation::read(&json!("Look"));
        assert_eq!(
            (conversation.prompts, conversation.prompt.as_str()),
            (1, "Look")
        );
    }
}
