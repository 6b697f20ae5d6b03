#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

use super::*;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{ToolCall, VERSION};
use serde_json::json;

fn encoded(body: Body) -> Value {
    let event = Event {
        v: VERSION,
        seq: 7,
        time: Timestamp::from_millis(1_800_000_000_000),
        session_id: "c".to_owned(),
        turn_id: "t".to_owned(),
        attempt_id: Some("a".to_owned()),
        body,
    };
    TurnEvent::from_event(&event).map_or(Value::Null, |event| serde_json::to_value(event).unwrap())
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

/// Exactly these fields with these types: clients depend on them.
#[test]
fn retry_event_has_exact_client_fields() {
    let expected = json!({
        "type": "provider-retry", "conversationId": "c", "turnId": "t", "attempt": 0, "delayMs": 5000,
        "message": "The service is temporarily overloaded. Please retry.", "code": "429",
    });
    assert_eq!(encoded(retry(1, Some("429"))), expected);
    let mut third = expected;
    third["attempt"] = 2.into();
    third.as_object_mut().unwrap().remove("code");
    assert_eq!(encoded(retry(3, None)), third);
}

fn call(arguments: &str) -> Body {
    Body::ToolCall(ToolCall {
        id: "1".to_owned(),
        name: "read".to_owned(),
        arguments: arguments.to_owned(),
    })
}

/// Returns events of every kind, each with the word that the turn stream uses for it.
fn vocabulary() -> Vec<(Body, &'static str)> {
    let text = || "a".to_owned();
    let usage = Usage {
        input: 1,
        output: 2,
        cache_read: 3,
        cache_write: 4,
    };
    vec![
        (
            Body::Start {
                provider: text(),
                model: text(),
            },
            r#"{"type":"start","provider":"a","model":"a"}"#,
        ),
        (
            Body::Start {
                provider: String::new(),
                model: String::new(),
            },
            r#"{"type":"start"}"#,
        ),
        (
            Body::Input { text: text() },
            r#"{"type":"input","text":"a"}"#,
        ),
        (
            Body::TextDelta { text: text() },
            r#"{"type":"text-delta","delta":"a"}"#,
        ),
        (
            Body::ReasoningDelta { text: text() },
            r#"{"type":"reasoning-delta","delta":"a"}"#,
        ),
        (
            call(r#"{"p":"a"}"#),
            r#"{"type":"tool-call","toolCallId":"1","toolName":"read","input":{"p":"a"}}"#,
        ),
        (
            call("{"),
            r#"{"type":"tool-call","toolCallId":"1","toolName":"read","input":"{"}"#,
        ),
        (
            Body::ToolResult {
                id: text(),
                output: text(),
                is_error: true,
            },
            r#"{"type":"tool-result","toolCallId":"a","output":"a","isError":true}"#,
        ),
        (
            Body::Usage(usage),
            r#"{"type":"usage","inputTokens":1,"outputTokens":2,"cacheReadTokens":3,"cacheWriteTokens":4}"#,
        ),
        (
            Body::StepComplete {
                model: text(),
                stop_reason: StopReason::EndTurn,
            },
            r#"{"type":"step-complete","model":"a","finishReason":"end_turn"}"#,
        ),
        (
            Body::Retracted { attempt: 2 },
            r#"{"type":"retracted","attempt":2}"#,
        ),
        (
            Body::Done {
                stop_reason: StopReason::Length,
            },
            r#"{"type":"done","finishReason":"length"}"#,
        ),
        (
            Body::Sealed {
                status: TurnStatus::Aborted,
            },
            r#"{"type":"sealed","status":"aborted"}"#,
        ),
    ]
}

#[test]
fn every_known_event_is_encoded() {
    for (body, expected) in vocabulary() {
        let mut expected: Value = serde_json::from_str(expected).unwrap();
        expected["conversationId"] = "c".into();
        expected["turnId"] = "t".into();
        assert_eq!(encoded(body), expected);
    }
}

#[test]
fn events_without_encoding_are_omitted() {
    assert_eq!(encoded(Body::AttemptStarted { attempt: 1 }), Value::Null);
    assert_eq!(
        encoded(Body::Warning {
            message: "w".to_owned()
        }),
        Value::Null
    );
}
