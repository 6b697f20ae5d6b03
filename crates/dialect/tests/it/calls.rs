//! Malformed tool calls, in every dialect, streamed and whole.

use outlast_dialect::{Delta, Dialect, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::event::{StopReason, ToolCall};
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::Cause;
use serde_json::{Value, json};

/// A call as it is reported: its id, its name and its arguments.
type ExpectedCall<'a> = (&'a str, &'a str, &'a str);

const ENDS: [(&str, &str, StopReason); 2] = [
    ("tool_use", "tool_calls", StopReason::ToolUse),
    ("max_tokens", "length", StopReason::Length),
];

/// A stream of calls, in as many frames as they have pieces.
fn frames(dialect: Dialect, calls: &[ExpectedCall<'_>], is_cut: bool) -> Vec<Value> {
    let (stop_reason, finish_reason, _) = ENDS[usize::from(is_cut)];
    let mut frames = Vec::new();
    for (index, (id, name, arguments)) in calls.iter().enumerate() {
        let item = json!({ "type": "function_call", "id": format!("fc_{index}"), "call_id": id, "name": name });
        let done = |status: &str| {
            let mut item = item.clone();
            item["status"] = json!(status);
            item["arguments"] = json!(arguments);
            json!({ "type": "response.output_item.done", "output_index": index, "item": item })
        };
        frames.extend(match dialect {
            Dialect::Anthropic => vec![
                json!({ "type": "content_block_start", "index": index,
                    "content_block": { "type": "tool_use", "id": id, "name": name, "input": {} } }),
                json!({ "type": "content_block_delta", "index": index,
                    "delta": { "type": "input_json_delta", "partial_json": arguments } }),
                json!({ "type": "content_block_stop", "index": index }),
            ],
            Dialect::OpenaiChat => vec![json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [
                { "index": index, "id": id, "function": { "name": name, "arguments": arguments } },
            ] } }] })],
            Dialect::OpenaiResponses => vec![
                json!({ "type": "response.output_item.added", "output_index": index, "item": item }),
                json!({ "type": "response.function_call_arguments.delta", "output_index": index,
                    "item_id": format!("fc_{index}"), "delta": arguments }),
                done(if is_cut { "incomplete" } else { "completed" }),
            ],
        });
    }
    frames.extend(match dialect {
        Dialect::Anthropic => vec![
            json!({ "type": "message_delta", "delta": { "stop_reason": stop_reason } }),
            json!({ "type": "message_stop" }),
        ],
        Dialect::OpenaiChat => {
            vec![json!({ "choices": [{ "delta": {}, "finish_reason": finish_reason }] })]
        }
        Dialect::OpenaiResponses if is_cut => vec![json!({ "type": "response.incomplete",
            "response": { "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" } } })],
        Dialect::OpenaiResponses => {
            vec![json!({ "type": "response.completed", "response": { "status": "completed" } })]
        }
    });
    frames
}

fn streamed(dialect: Dialect, frames: &[Value]) -> (Vec<Delta>, Option<Failure>) {
    let (mut reader, mut deltas) = (dialect.decoder("p"), Vec::new());
    for frame in frames {
        let name = String::new();
        let data = frame.to_string();
        let event = sse::Event { name, data };
        if let Err(failure) = reader.decode(&event, Timestamp::default(), &mut deltas) {
            return (deltas, Some(*failure));
        }
    }
    deltas.extend(reader.finish());
    (deltas, None)
}

fn whole(dialect: Dialect, calls: &[ExpectedCall<'_>], is_cut: bool) -> Vec<Delta> {
    let (stop_reason, finish_reason, _) = ENDS[usize::from(is_cut)];
    let input = |arguments: &str| serde_json::from_str(arguments).unwrap_or(json!({}));
    let list =
        |call: &dyn Fn(&ExpectedCall<'_>) -> Value| calls.iter().map(call).collect::<Vec<_>>();
    let body = match dialect {
        Dialect::Anthropic => {
            json!({ "stop_reason": stop_reason, "content": list(&|(id, name, arguments)|
            json!({ "type": "tool_use", "id": id, "name": name, "input": input(arguments) })) })
        }
        Dialect::OpenaiChat => json!({ "choices": [{ "finish_reason": finish_reason, "message": {
            "tool_calls": list(&|(id, name, arguments)|
                json!({ "id": id, "function": { "name": name, "arguments": arguments } })) } }] }),
        Dialect::OpenaiResponses => json!({ "object": "response",
            "status": if is_cut { "incomplete" } else { "completed" },
            "output": list(&|(id, name, arguments)| json!({ "type": "function_call", "call_id": id, "name": name,
                "arguments": arguments, "status": if is_cut { "incomplete" } else { "completed" } })) }),
    };
    dialect
        .decode_response("p", &body.to_string(), Timestamp::default())
        .unwrap()
}

fn call(id: &str, name: &str, arguments: &str) -> Delta {
    Delta::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn cut(name: &str) -> Delta {
    let name = name.to_owned();
    Delta::IncompleteToolCall { name }
}

#[test]
fn truncated_call_is_reported_with_name_before_stop() {
    let calls = [("a", "write", r#"{"text":"#)];
    let expected = [cut("write"), Delta::Stopped(StopReason::Length)];
    for dialect in Dialect::ALL {
        let (deltas, failure) = streamed(dialect, &frames(dialect, &calls, true));
        assert_eq!((deltas, failure), (expected.to_vec(), None), "{dialect:?}");
        assert_eq!(whole(dialect, &calls, true), expected, "{dialect:?}");
    }
    assert!(!cut("write").is_content());
}

#[test]
fn nameless_tool_call_is_reported_as_incomplete() {
    let calls = [("a", "", r#"{"x":1}"#), ("b", "read", r#"{"x":2}"#)];
    let expected = [
        call("b", "read", r#"{"x":2}"#),
        cut(""),
        Delta::Stopped(StopReason::ToolUse),
    ];
    for dialect in Dialect::ALL {
        let (deltas, _) = streamed(dialect, &frames(dialect, &calls, false));
        assert_eq!(deltas, expected, "{dialect:?}");
        assert_eq!(whole(dialect, &calls, false), expected, "{dialect:?}");
    }
}

#[test]
fn tool_call_without_id_gets_a_unique_id() {
    let calls = [
        ("call_2", "read", r#"{"x":1}"#),
        ("", "read", r#"{"x":2}"#),
        ("", "read", r#"{"x":3}"#),
    ];
    for dialect in [Dialect::Anthropic, Dialect::OpenaiChat] {
        let (deltas, _) = streamed(dialect, &frames(dialect, &calls, false));
        let expected = [
            call("call_2", "read", r#"{"x":1}"#),
            call("call_3", "read", r#"{"x":2}"#),
            call("call_4", "read", r#"{"x":3}"#),
            Delta::Stopped(StopReason::ToolUse),
        ];
        assert_eq!(deltas, expected, "{dialect:?}");
        assert_eq!(whole(dialect, &calls, false), expected, "{dialect:?}");
    }
    // Here an item has an id of its own, which has precedence.
    let deltas = whole(Dialect::OpenaiResponses, &calls[1..2], false);
    assert_eq!(deltas[0], call("call_1", "read", r#"{"x":2}"#));
}

#[test]
fn endless_blank_arguments_fail_the_stream() {
    let blanks = " \n".repeat(1024) + "\t";
    for dialect in Dialect::ALL {
        let mut frames = frames(dialect, &[("a", "write", &blanks)], false);
        // The first two frames begin the call and bring a piece; in one dialect it is one frame.
        let pieces = if dialect == Dialect::OpenaiChat { 1 } else { 2 };
        frames.truncate(pieces);
        assert_eq!(streamed(dialect, &frames), (vec![], None), "{dialect:?}");
        frames.push(frames[pieces - 1].clone());
        let (deltas, failure) = streamed(dialect, &frames);
        let failure = failure.unwrap();
        assert_eq!(deltas, [], "{dialect:?}");
        assert!(failure.message.contains("write"), "{}", failure.message);
        assert_eq!(failure.code.as_deref(), Some("blank_arguments"));
        assert_eq!(classify(&failure).cause, Cause::MalformedOutput);
    }
}

#[test]
fn blanks_around_arguments_are_accepted() {
    let spaced = format!("{}{{\"x\":1}}{}", " ".repeat(4000), " ".repeat(9000));
    for dialect in Dialect::ALL {
        let (deltas, failure) =
            streamed(dialect, &frames(dialect, &[("a", "write", &spaced)], false));
        assert_eq!(failure, None, "{dialect:?}");
        assert!(matches!(&deltas[0], Delta::ToolCall(_)), "{dialect:?}");
    }
}
