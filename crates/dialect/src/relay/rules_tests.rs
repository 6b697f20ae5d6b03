//! Tables: frames with content, and frames that end a response.

use crate::relay::MAX_INSPECTED_BYTES;
use crate::relay::test_support::{CONTENT, LAST, end, index_of, push, started_relay};
use crate::test_support::wire;
use crate::{Dialect, StreamActivity};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{IoKind, Phase};
use outlast_kernel::verdict::Cause;

/// Returns whether a frame is the first content of a response.
fn is_content(dialect: Dialect, data: &str) -> bool {
    let mut relay = dialect.relay("p");
    let (result, out) = push(&mut relay, &wire(&[data]));
    result.unwrap();
    assert_eq!(out.is_empty(), !relay.has_content(), "{data}");
    relay.has_content()
}

// --- content ---

#[test]
fn opening_and_keepalive_frames_are_not_content() {
    let table = [
        (
            Dialect::Anthropic,
            &[
                r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":5}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"x","input":{}}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":""}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"{"type":"ping"}"#,
                r#"{"type":"weather_report","delta":{"text":"cloudy"}}"#,
            ][..],
        ),
        (
            Dialect::OpenaiChat,
            &[
                r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
                r#"{"choices":[{"delta":{"role":"assistant","content":"","refusal":null,"tool_calls":[]}}]}"#,
                r#"{"choices":[{"delta":{"content":null}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":5}}"#,
                r#"{"choices":[],"weather_report":[{"cloud":"..."}]}"#,
            ],
        ),
        (
            Dialect::OpenaiResponses,
            &[
                r#"{"type":"response.created","response":{"status":"in_progress","instructions":"..."}}"#,
                r#"{"type":"response.queued","response":{"status":"queued"}}"#,
                r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"x"}}"#,
                r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#,
                r#"{"type":"response.reasoning_summary_part.added","part":{"type":"summary_text"}}"#,
                r#"{"type":"response.output_text.delta","delta":""}"#,
                r#"{"type":"response.output_text.done","text":""}"#,
                r#"{"type":"response.web_search_call.searching","item_id":"ws"}"#,
                r#"{"type":"keepalive"}"#,
                r#"{"type":"ping"}"#,
                "[DONE]",
            ],
        ),
    ];
    for (dialect, frames) in table {
        for data in frames {
            assert!(!is_content(dialect, data), "{data}");
        }
    }
}

#[test]
fn text_reasoning_calls_and_refusals_are_content() {
    let table = [
        (
            Dialect::Anthropic,
            &[
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"citations_delta","citation":{"url":"x"}}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"text","text":"x"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"x"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"x","input":{"a":1}}}"#,
            ][..],
        ),
        (
            Dialect::OpenaiChat,
            &[
                r#"{"choices":[{"delta":{"content":"x"}}]}"#,
                r#"{"choices":[{"delta":{"role":"assistant","content":" "}}]}"#,
                r#"{"choices":[{"delta":{"content":[{"type":"text","text":"x"}]}}]}"#,
                r#"{"choices":[{"delta":{"reasoning":"x"}}]}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"x"}}]}"#,
                r#"{"choices":[{"delta":{"refusal":"x"}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x","arguments":""}}]}}]}"#,
                r#"{"choices":[{"delta":{"function_call":{"name":"x"}}}]}"#,
                r#"{"choices":[{"delta":{"audio":{"id":"x"}}}]}"#,
                r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#,
                r#"{"choices":[{"message":{"content":"x"}}]}"#,
            ],
        ),
        (
            Dialect::OpenaiResponses,
            &[
                r#"{"type":"response.output_text.delta","delta":"x"}"#,
                r#"{"type":"response.refusal.delta","delta":"x"}"#,
                r#"{"type":"response.reasoning_summary_text.delta","delta":"x"}"#,
                r#"{"type":"response.reasoning_text.delta","delta":"x"}"#,
                r#"{"type":"response.function_call_arguments.delta","delta":"x"}"#,
                r#"{"type":"response.function_call_arguments.done","arguments":"{}"}"#,
                r#"{"type":"response.output_text.done","text":"x"}"#,
                r#"{"type":"response.refusal.done","refusal":"x"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"reasoning","summary":[]}}"#,
            ],
        ),
    ];
    for (dialect, frames) in table {
        for data in frames {
            assert!(is_content(dialect, data), "{data}");
        }
    }
}

#[test]
fn event_name_is_used_when_data_has_no_type() {
    let mut relay = Dialect::Anthropic.relay("p");
    let named = "event: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n";
    push(&mut relay, named).0.unwrap();
    assert!(relay.has_content());
    let (sign, _) = push(&mut relay, "event: message_stop\ndata: {}\n\n");
    assert_eq!(sign.unwrap(), StreamActivity::Progress);
    assert!(relay.is_complete());
}

// --- the end ---

#[test]
fn completion_without_content_is_relayed_at_its_end() {
    let answers = [
        &[r#"{"type":"message_start","message":{}}"#, LAST[0]][..],
        &[
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#,
            LAST[1],
        ],
        &[
            r#"{"type":"response.created","response":{}}"#,
            r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#,
        ],
    ];
    for (dialect, answer) in Dialect::ALL.into_iter().zip(answers) {
        let mut relay = dialect.relay("p");
        let (last, before) = answer.split_last().unwrap();
        for data in before {
            let (result, out) = push(&mut relay, &wire(&[data]));
            result.unwrap();
            assert!(out.is_empty() && !relay.is_complete());
        }
        let (sign, out) = push(&mut relay, &wire(&[last]));
        assert_eq!(sign.unwrap(), StreamActivity::Progress);
        assert!(relay.is_complete() && !relay.has_content());
        assert_eq!(out.concat(), wire(answer).as_bytes());
        end(&mut relay).0.unwrap();
    }
}

#[test]
fn final_event_completes_stream_and_later_bytes_pass() {
    for dialect in Dialect::ALL {
        let mut relay = started_relay(dialect);
        let last = wire(&[LAST[index_of(dialect)]]);
        let (_, out) = push(&mut relay, &last);
        assert_eq!(out.concat(), last.as_bytes());
        assert!(relay.is_complete() && relay.is_between_frames());
        let (_, out) = push(&mut relay, ": bye");
        assert_eq!(out.concat(), b": bye");
        assert!(!relay.is_between_frames());
        assert_eq!(push(&mut relay, "\n\n").1.concat(), b"\n\n");
        assert!(relay.is_between_frames() && end(&mut relay).0.is_ok());
    }
}

#[test]
fn chat_stream_may_end_without_done_frame() {
    let finish = wire(&[r#"{"choices":[{"delta":{},"finish_reason": "stop"}]}"#]);
    let mut relay = started_relay(Dialect::OpenaiChat);
    assert!(!relay.is_content_complete());
    push(&mut relay, &finish).0.unwrap();
    assert!(relay.is_content_complete() && !relay.is_complete());
    let usage = wire(&[r#"{"choices":[],"usage":{"prompt_tokens":5}}"#]);
    assert_eq!(
        push(&mut relay, &usage).0.unwrap(),
        StreamActivity::Progress
    );
    push(&mut relay, "data: [DO").0.unwrap();
    let (result, out) = end(&mut relay);
    assert!(result.is_ok() && relay.is_complete());
    assert_eq!(out.concat(), b"data: [DO");

    let mut relay = Dialect::OpenaiChat.relay("p");
    push(&mut relay, &(finish.clone() + ": b")).0.unwrap();
    let (result, out) = end(&mut relay);
    assert!(result.is_ok() && relay.is_complete() && !relay.has_content());
    assert_eq!(out.concat(), (finish + ": b").as_bytes());
}

#[test]
fn multiline_data_is_joined_before_parsing() {
    let mut relay = started_relay(Dialect::OpenaiChat);
    let lines = [
        "{\"choices\":[{\"delta\":{\"content\":\"x\"}",
        ",\"finish_reason\":\"stop\"}]}",
    ];
    let frame = format!("data: {}\r\ndata: {}\r\n\r\n", lines[0], lines[1]);
    assert_eq!(
        push(&mut relay, &frame).0.unwrap(),
        StreamActivity::Progress
    );
    assert!(relay.is_content_complete());
}

#[test]
fn error_after_finish_reason_is_ignored() {
    let mut relay = started_relay(Dialect::OpenaiChat);
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    push(
        &mut relay,
        &wire(&[finish, r#"{"error":{"message":"usage is not known"}}"#]),
    )
    .0
    .unwrap();
    assert!(relay.relayed_error().is_none() && relay.is_content_complete());
    assert!(end(&mut relay).0.is_ok());
}

#[test]
fn content_after_finish_reason_reopens_relayed_stream() {
    let both = wire(&[r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#]);
    let content = wire(&[CONTENT[1]]);
    for begin in [&both, &content] {
        let mut relay = Dialect::OpenaiChat.relay("p");
        push(&mut relay, begin).0.unwrap();
        push(&mut relay, &both).0.unwrap();
        push(&mut relay, &content).0.unwrap();
        assert!(!relay.is_content_complete());
        push(&mut relay, &both).0.unwrap();
        // The server's finish reason means nothing any more, until it closes the connection.
        assert!(!relay.is_content_complete());
        assert!(end(&mut relay).0.is_ok());
    }
    let mut relay = Dialect::OpenaiChat.relay("p");
    push(&mut relay, &both).0.unwrap();
    push(
        &mut relay,
        &format!("data: {}", "x".repeat(2 * MAX_INSPECTED_BYTES)),
    )
    .0
    .unwrap();
    assert!(relay.is_content_complete());
    push(&mut relay, "\n\n").0.unwrap();
    assert!(!relay.is_content_complete() && end(&mut relay).0.is_err());
    let mut relay = Dialect::OpenaiChat.relay("p");
    push(&mut relay, &(both + &content)).0.unwrap();
    assert_eq!(end(&mut relay).0.unwrap_err().phase, Phase::AfterContent);
}

#[test]
fn each_choice_needs_its_own_finish_reason() {
    let choice = |index: u8, rest: &str| format!(r#"{{"choices":[{{"index":{index},{rest}}}]}}"#);
    let (said, done) = (
        r#""delta":{"content":"x"}"#,
        r#""delta":{},"finish_reason":"stop""#,
    );
    let mut relay = started_relay(Dialect::OpenaiChat);
    push(&mut relay, &wire(&[&choice(0, done), &choice(1, said)]))
        .0
        .unwrap();
    assert!(end(&mut relay).0.is_err());
    push(&mut relay, &wire(&[&choice(1, done)])).0.unwrap();
    assert!(end(&mut relay).0.is_ok());
}

#[test]
fn stream_ending_early_is_a_truncated_failure() {
    for dialect in Dialect::ALL {
        let mut relay = started_relay(dialect);
        push(&mut relay, "data: {\"ty").0.unwrap();
        let (result, out) = end(&mut relay);
        let failure = result.unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Truncated));
        assert_eq!(failure.phase, Phase::AfterContent);
        assert!(out.is_empty());

        let mut relay = dialect.relay("p");
        push(&mut relay, &dialect.keepalive_frame()).0.unwrap();
        let failure = end(&mut relay).0.unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Truncated));
        assert_eq!(failure.phase, Phase::BeforeContent);

        // A strange frame after an opening is not an error in place of a stream.
        let mut relay = dialect.relay("p");
        let opening = dialect.encode_stream("m", &[]).concat();
        push(&mut relay, &(opening + "<html>502</html>")).0.unwrap();
        let failure = end(&mut relay).0.unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Truncated));
    }
}

#[test]
fn error_body_instead_of_stream_is_classified() {
    let table = [
        ("<html><h1>502 Bad Gateway</h1></html>", Cause::ServerError),
        (
            r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Cause::Overloaded,
        ),
        (
            "upstream connect error or disconnect/reset before headers",
            Cause::Network,
        ),
    ];
    for dialect in Dialect::ALL {
        for (page, cause) in table {
            let mut relay = dialect.relay("p");
            push(&mut relay, page).0.unwrap();
            let failure = end(&mut relay).0.unwrap_err();
            assert_eq!(classify(&failure).cause, cause, "{page}");
        }
    }
}
