use super::*;
use outlast_dialect::{Dialect, Message, Part, Request, Role, ToolResult};
use outlast_kernel::event::{Reasoning, ToolCall};
use serde_json::json;

fn read(dialect: Dialect, messages: Vec<Message>) -> Conversation {
    let bytes = dialect.encode_request(&Request {
        system: Some("Be brief.".to_owned()),
        messages,
        ..Request::default()
    });
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    match dialect {
        Dialect::OpenaiResponses => Conversation::parse(&body["input"]),
        _ => Conversation::parse(&body["messages"]),
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

/// Returns a completion of several parts, which are several items in the dialects that have items.
fn answer() -> Message {
    let call = |id: &str| {
        Part::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "look".to_owned(),
            arguments: "{}".to_owned(),
        })
    };
    let thought = Part::Reasoning(Reasoning {
        model: None,
        text: "Hm.".to_owned(),
        proof: None,
    });
    let text = "Let me look.".to_owned();
    Message {
        role: Role::Assistant,
        parts: vec![thought, Part::Text { text }, call("call_1"), call("call_2")],
    }
}

#[test]
fn outputs_since_last_prompt_are_found_in_every_dialect() {
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
            ..Conversation::default()
        };
        assert_eq!(read(dialect, messages.clone()), expected, "{dialect:?}");
    }
}

#[test]
fn prompt_beside_tool_results_counts_after_them() {
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
fn tool_output_parts_are_joined() {
    let parts = json!([{ "type": "text", "text": "one" }, { "type": "text", "text": "two" }]);
    let forms = [
        json!({ "role": "user", "content": [{ "type": "tool_result", "content": parts }] }),
        json!({ "role": "tool", "content": parts }),
        json!({ "type": "function_call_output", "output": parts }),
    ];
    for form in forms {
        let conversation = Conversation::parse(&json!([form]));
        assert_eq!(conversation.outputs, ["one\ntwo"], "{form}");
    }
}

#[test]
fn string_input_is_one_prompt() {
    let conversation = Conversation::parse(&json!("Look"));
    assert_eq!(
        (conversation.prompts, conversation.prompt.as_str()),
        (1, "Look")
    );
}

fn assistant_text(text: &str) -> Message {
    let text = text.to_owned();
    Message {
        role: Role::Assistant,
        parts: vec![Part::Text { text }],
    }
}

#[test]
fn partial_completion_is_recognised_for_continuation() {
    let (prompt, remark) = (
        Message::user("Look"),
        Message::user("Your last answer was cut off. Go on right after it."),
    );
    let thought = Message {
        role: Role::Assistant,
        parts: answer().parts[..1].to_vec(),
    };
    let table: [(&[Message], &[&str], bool); 5] = [
        (&[assistant_text("Let me ")], &["Let me "], true),
        (
            &[assistant_text("Let me "), remark.clone()],
            &["Let me "],
            false,
        ),
        (
            &[
                assistant_text("Let "),
                remark.clone(),
                assistant_text("me "),
                remark.clone(),
            ],
            &["Let ", "me "],
            false,
        ),
        (
            &[
                assistant_text("Let "),
                remark.clone(),
                assistant_text("me "),
            ],
            &["Let ", "me "],
            true,
        ),
        (&[thought, remark.clone()], &[], false),
    ];
    for dialect in Dialect::ALL {
        for (said, begun, is_prefilled) in table {
            let messages = [&[prompt.clone(), answer(), results(&["one"])], said].concat();
            let expected = Conversation {
                prompts: 1,
                prompt: "Look".to_owned(),
                answers: 1,
                outputs: vec!["one".to_owned()],
                partial_answer_texts: begun.iter().map(|text| (*text).to_owned()).collect(),
                is_prefilled,
            };
            assert_eq!(read(dialect, messages), expected, "{dialect:?} {said:?}");
        }
    }
}

#[test]
fn continued_completion_counts_as_one() {
    let remark = "Your last answer was cut off.";
    let mut called = results(&["one"]);
    called.parts.extend(Message::user(remark).parts);
    for dialect in Dialect::ALL {
        let messages = vec![
            Message::user("Look"),
            assistant_text("Let me "),
            Message::user(remark),
            answer(),
            called.clone(),
        ];
        let expected = Conversation {
            prompts: 1,
            prompt: "Look".to_owned(),
            answers: 1,
            outputs: vec!["one".to_owned()],
            ..Conversation::default()
        };
        assert_eq!(read(dialect, messages), expected, "{dialect:?}");
    }
}

#[test]
fn continuation_remark_without_completion_is_a_prompt() {
    let conversation = Conversation::parse(&json!("Your last answer was cut off?"));
    assert_eq!(conversation.prompt, "Your last answer was cut off?");
}

#[test]
fn completion_with_tool_call_is_not_continued() {
    let remark = Message::user("Your last answer was cut off.");
    for dialect in Dialect::ALL {
        let messages = vec![Message::user("Look"), answer(), remark.clone()];
        let expected = Conversation {
            prompts: 1,
            prompt: "Look".to_owned(),
            answers: 1,
            ..Conversation::default()
        };
        assert_eq!(read(dialect, messages), expected, "{dialect:?}");
    }
}
