use super::*;
use outlast_dialect::Part;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_session::factory::ModelCost;
use serde_json::{Value, json};

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

#[test]
fn tool_arguments_become_one_line_json_object() {
    let table = [
        (
            "{\n  \"b\": 1,\r\n\"a\": \"x\\ny\"\n}\n",
            r#"{   "b": 1,  "a": "x\ny" }"#,
        ),
        (
            r#"{"n":12345678901234567890123}"#,
            r#"{"n":12345678901234567890123}"#,
        ),
        ("", "{}"),
        ("[1]", "{}"),
        ("{\"cut", "{}"),
        ("null", "{}"),
    ];
    for (written, expected) in table {
        assert_eq!(arguments(written).get(), expected, "{written}");
    }
    let deep = format!(
        "{}{}",
        "{\"a\":".repeat(100_000),
        "1".to_owned() + &"}".repeat(100_000)
    );
    assert_eq!(arguments(&deep).get(), deep);
}

#[test]
fn tokens_are_priced_by_the_million() {
    let usage = Usage {
        input: 1_000_000,
        output: 500_000,
        cache_read: 2_000_000,
        cache_write: 0,
    };
    let price = ModelCost {
        input: 3.0,
        output: 10.0,
        cache_read: 0.5,
        cache_write: 7.0,
    };
    let used = PricedUsage::new(usage, &price);
    assert_eq!(used.total_tokens, 3_500_000);
    let cost = used.cost;
    assert_eq!((cost.input, cost.output), (3.0, 5.0));
    assert_eq!((cost.cache_read, cost.cache_write), (1.0, 0.0));
    assert_eq!(cost.total, 9.0);
}

#[test]
fn each_stop_reason_maps_to_its_protocol_name() {
    let table = [
        (StopReason::EndTurn, "stop"),
        (StopReason::ToolUse, "toolUse"),
        (StopReason::Length, "length"),
        (StopReason::Refusal, "error"),
        (StopReason::Other, "stop"),
    ];
    for (reason, word) in table {
        assert_eq!(value(&Stop::from(reason)), word);
    }
    assert!(Stop::from(StopReason::Refusal).problem().is_some());
    assert_eq!(Stop::Stop.problem(), None);
}

#[test]
fn message_parts_map_to_blocks() {
    let reasoning = |proof| {
        Part::Reasoning(Reasoning {
            text: "hm".to_owned(),
            proof,
            model: None,
        })
    };
    let signature = Proof::Signature {
        signature: "s".to_owned(),
    };
    let data = "d".to_owned();
    let image = outlast_dialect::Image {
        media_type: "image/png".to_owned(),
        data: "AA==".to_owned(),
    };
    let parts = [
        Part::Text {
            text: "hi".to_owned(),
        },
        Part::Image(image),
        reasoning(None),
        reasoning(Some(signature)),
        reasoning(Some(Proof::Redacted { data })),
        Part::ToolCall(ToolCall {
            id: "c1".to_owned(),
            name: "read".to_owned(),
            arguments: r#"{"path":"a"}"#.to_owned(),
        }),
        Part::ToolResult(outlast_dialect::ToolResult {
            id: "c1".to_owned(),
            output: "x".to_owned(),
            is_error: false,
        }),
    ];
    let expected = json!([
        {"type": "text", "text": "hi"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "d", "redacted": true},
        {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}},
    ]);
    assert_eq!(value(&Block::from_parts(&parts)), expected);
}

#[test]
fn messages_have_the_fields_that_clients_read() {
    let bash = BashExecution {
        command: "ls".to_owned(),
        output: "a\n".to_owned(),
        exit_code: Some(0),
        cancelled: false,
        truncated: false,
        full_output_path: None,
        exclude_from_context: false,
        timestamp: 7,
    };
    let expected = json!({
        "role": "bashExecution", "command": "ls", "output": "a\n", "exitCode": 0, "cancelled": false,
        "truncated": false, "timestamp": 7,
    });
    assert_eq!(value(&Message::BashExecution(bash)), expected);
    let summary = CompactionSummary {
        summary: "s".to_owned(),
        tokens_before: 9,
        timestamp: 7,
    };
    let expected = json!({
        "role": "compactionSummary", "summary": "s", "tokensBefore": 9, "timestamp": 7,
    });
    assert_eq!(value(&Message::CompactionSummary(summary)), expected);
    let result = outlast_dialect::ToolResult {
        id: "c1".to_owned(),
        output: "x".to_owned(),
        is_error: true,
    };
    let expected = json!({
        "role": "toolResult", "toolCallId": "c1", "toolName": "read", "details": {}, "isError": true,
        "content": [{"type": "text", "text": "x"}], "timestamp": 7,
    });
    let result = ToolResult::new(result, "read".to_owned(), 7);
    assert_eq!(value(&Message::ToolResult(result)), expected);
}

#[test]
fn error_details_keep_provider_retryable_flag() {
    let failure = |retryable| {
        let failure = Failure::http("mock", 529, "busy", Timestamp::default());
        ClassifiedFailure::new(failure.with_retryable(retryable))
    };
    for retryable in [true, false] {
        assert_eq!(
            ErrorDetails::from(&*failure(retryable)).retryable,
            retryable
        );
    }
}
