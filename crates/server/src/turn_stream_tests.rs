#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use super::*;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{ToolCall, VERSION};
use serde_json::json;

fn said(body: Body) -> Value {
    let event = Event {
        v: VERSION,
        seq: 7,
        time: Timestamp::from_millis(1_800_000_000_000),
        session_id: "c".to_owned(),
        turn_id: "t".to_owned(),
        attempt_id: Some("a".to_owned()),
        body,
    };
    TurnEvent::of(&event).map_or(Value::Null, |event| serde_json::to_value(event).unwrap())
}

fn retry(attempt: u32, code: Option<&str>) -> Body {
    Body::RetryScheduled {
        attempt,
        max_attempts: Some(21),
        delay_ms: 5_000,
        retry_at: Timestamp::from_millis(1_800_000_005_000),
        cause: Cause::Overloaded,
        message: "The service is temporarily overloaded. Please retry.".to_owned(),
        code: code.map(str::to_owned),
    }
}

/// The fields are these and no others, and their types, too.
#[test]
fn a_retry_is_said_with_exactly_the_fields_that_clients_know() {
    let expected = json!({
        "type": "provider-retry", "conversationId": "c", "turnId": "t", "attempt": 0, "delayMs": 5000,
        "message": "The service is temporarily overloaded. Please retry.", "code": "429",
    });
    assert_eq!(said(retry(1, Some("429"))), expected);
    let mut third = expected;
    third["attempt"] = 2.into();
    third.as_object_mut().unwrap().remove("code");
    assert_eq!(said(retry(3, None)), third);
}

#[test]
fn every_word_of_the_vocabulary_is_said() {
    let call = ToolCall {
        id: "1".to_owned(),
        name: "read".to_owned(),
        arguments: r#"{"path":"a"}"#.to_owned(),
    };
    let broken = ToolCall {
        arguments: "{".to_owned(),
        ..call.clone()
    };
    let usage = Usage {
        input: 1,
        output: 2,
        cache_read: 3,
        cache_write: 4,
    };
    let table = [
        (
            Body::Start {
                provider: "p".to_owned(),
                model: "m".to_owned(),
            },
            json!({ "type": "start", "provider": "p", "model": "m" }),
        ),
        (
            Body::Input {
                text: "hi".to_owned(),
            },
            json!({ "type": "input", "text": "hi" }),
        ),
        (
            Body::TextDelta {
                text: "a".to_owned(),
            },
            json!({ "type": "text-delta", "delta": "a" }),
        ),
        (
            Body::ReasoningDelta {
                text: "b".to_owned(),
            },
            json!({ "type": "reasoning-delta", "delta": "b" }),
        ),
        (
            Body::ToolCall(call),
            json!({ "type": "tool-call", "toolCallId": "1", "toolName": "read", "input": { "path": "a" } }),
        ),
        (
            Body::ToolCall(broken),
            json!({ "type": "tool-call", "toolCallId": "1", "toolName": "read", "input": "{" }),
        ),
        (
            Body::ToolResult {
                id: "1".to_owned(),
                output: "x".to_owned(),
                is_error: true,
            },
            json!({ "type": "tool-result", "toolCallId": "1", "output": "x", "isError": true }),
        ),
        (
            Body::Usage(usage),
            json!({ "type": "usage", "inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4 }),
        ),
        (
            Body::StepComplete {
                model: "m".to_owned(),
                stop_reason: StopReason::EndTurn,
            },
            json!({ "type": "step-complete", "model": "m", "finishReason": "end_turn" }),
        ),
        (
            Body::Retracted { attempt: 2 },
            json!({ "type": "retracted", "attempt": 2 }),
        ),
        (
            Body::Done {
                stop_reason: StopReason::Length,
            },
            json!({ "type": "done", "finishReason": "length" }),
        ),
        (
            Body::Sealed {
                status: Seal::Aborted,
            },
            json!({ "type": "sealed", "status": "aborted" }),
        ),
    ];
    for (body, mut expected) in table {
        expected["conversationId"] = "c".into();
        expected["turnId"] = "t".into();
        assert_eq!(said(body), expected);
    }
}

#[test]
fn what_it_has_no_word_for_is_left_out() {
    assert_eq!(said(Body::AttemptStarted { attempt: 1 }), Value::Null);
    assert_eq!(
        said(Body::Warning {
            message: "w".to_owned()
        }),
        Value::Null
    );
}
