//! Errors inside a stream, before content and after it.

use crate::relay::test_support::{end, push, started_relay};
use crate::test_support::{read_all, wire};
use crate::{ApiError, Dialect, ErrorForm, Interruption, StreamActivity};
use outlast_kernel::failure::Phase;

fn problems() -> Vec<ApiError> {
    let table = [
        ("overloaded_error", "Overloaded"),
        ("rate_limit_error", "Please try again in 20s."),
        ("server_error", "The server had an error"),
        ("insufficient_quota", "You exceeded your current quota"),
        ("authentication_error", "invalid x-api-key"),
        (
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        ("api_error", "Internal server error"),
    ];
    let problem = |(kind, message): &(&str, &str)| ApiError::new(kind, message).with_code(kind);
    table.iter().map(problem).collect()
}

#[test]
fn error_before_content_fails_like_the_decoder() {
    let openings = [
        r#"{"type":"message_start","message":{}}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"type":"response.created","response":{}}"#,
    ];
    for (dialect, opening) in Dialect::ALL.into_iter().zip(openings) {
        for (form, problem) in forms().zip(problems().into_iter().cycle()).take(21) {
            let here = Interruption {
                form,
                ..Interruption::default()
            };
            let error = dialect.encode_error_frame(&problem, &here);
            for before in [String::new(), wire(&[opening]), dialect.keepalive_frame()] {
                let stream = before + &error;
                let mut relay = dialect.relay("p");
                let (result, out) = push(&mut relay, &stream);
                let failure = result.unwrap_err();
                assert_eq!(Some(*failure), read_all(dialect, &stream).1, "{stream}");
                assert!(out.is_empty() && !relay.has_content());
            }
        }
    }
}

fn forms() -> impl Iterator<Item = ErrorForm> {
    [ErrorForm::Standard, ErrorForm::Event, ErrorForm::End]
        .into_iter()
        .cycle()
}

#[test]
fn unusual_errors_before_content_fail_like_the_decoder() {
    let table = [
        (
            Dialect::Anthropic,
            "event: error\ndata: upstream timed out\n\n",
        ),
        (
            Dialect::Anthropic,
            "data: {\"error\":{\"message\":\"busy\"}}\n\n",
        ),
        (
            Dialect::Anthropic,
            "data: {\"type\":\"content_block_delta\",\"del\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"code\":529,\"message\":\"busy\"}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n",
        ),
        (Dialect::OpenaiChat, "data: {\"detail\":\"no room\"}\n\n"),
        (Dialect::OpenaiChat, "data: [DONE]\n\n"),
        (Dialect::OpenaiChat, "data: busy\n\n"),
        (
            Dialect::OpenaiResponses,
            "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"}}}\n\n",
        ),
        (
            Dialect::OpenaiResponses,
            "data: {\"type\":\"response.cancelled\",\"response\":{}}\n\n",
        ),
        (
            Dialect::OpenaiResponses,
            "data: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\"}\n\n",
        ),
    ];
    for (dialect, stream) in table {
        let mut relay = dialect.relay("p");
        let failure = push(&mut relay, stream).0.unwrap_err();
        assert_eq!(Some(*failure), read_all(dialect, stream).1, "{stream}");
    }
}

#[test]
fn error_after_content_is_relayed_and_recorded() {
    for dialect in Dialect::ALL {
        for (form, problem) in forms().zip(problems().into_iter().cycle()).take(21) {
            let here = Interruption {
                form,
                ..Interruption::default()
            };
            let error = dialect.encode_error_frame(&problem, &here);
            let mut relay = started_relay(dialect);
            let (result, out) = push(&mut relay, &error);
            result.unwrap();
            assert_eq!(out.concat(), error.as_bytes());
            let mut told = read_all(dialect, &error).1.unwrap();
            told.phase = Phase::AfterContent;
            assert_eq!(relay.relayed_error(), Some(&told), "{error}");
            let (_, out) = push(&mut relay, "data: cut");
            assert_eq!(out.is_empty(), !relay.is_complete(), "{error}");
            let (result, out) = end(&mut relay);
            assert!(result.is_ok() && out.is_empty());
        }
    }
}

#[test]
fn error_inside_content_frame_is_detected() {
    let table = [
        (
            Dialect::Anthropic,
            "event: content_block_delta\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"error\": {\"message\":\"busy\"},\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"x\"},\"error\":{\"message\":\"busy\"}}]}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"error\"}]}\n\n",
        ),
        (
            Dialect::OpenaiResponses,
            "event: response.output_text.delta\ndata: {\"type\":\"error\",\"message\":\"busy\"}\n\n",
        ),
    ];
    for (dialect, frame) in table {
        let mut relay = started_relay(dialect);
        push(&mut relay, frame).0.unwrap();
        assert!(relay.relayed_error().is_some(), "{frame}");
    }
}

#[test]
fn model_text_is_never_taken_for_error_or_end() {
    let words = r#"\"error\": {\"x\"} \"finish_reason\":\"stop\" \"type\":\"message_stop\" response.completed"#;
    let frames = [
        [
            format!(
                r#"{{"type":"content_block_delta","delta":{{"type":"text_delta","text":"{words}"}}}}"#
            ),
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"error"}}"#
                .to_owned(),
        ],
        [
            format!(r#"{{"choices":[{{"delta":{{"content":"{words}"}},"finish_reason":null}}]}}"#),
            r#"{"choices":[{"delta":{"content":"error","role":"finish_reason"}}],"error":null}"#
                .to_owned(),
        ],
        [
            format!(r#"{{"type":"response.output_text.delta","delta":"{words}"}}"#),
            r#"{"delta":"error","type":"response.output_text.delta"}"#.to_owned(),
        ],
    ];
    for (dialect, frames) in Dialect::ALL.into_iter().zip(frames) {
        for data in frames {
            let mut relay = started_relay(dialect);
            let (sign, _) = push(&mut relay, &wire(&[&data]));
            assert_eq!(sign.unwrap(), StreamActivity::Progress, "{data}");
            assert!(
                relay.relayed_error().is_none() && !relay.is_content_complete(),
                "{data}"
            );
        }
    }
}

#[test]
fn undecodable_frame_after_content_is_still_relayed() {
    for dialect in Dialect::ALL {
        let mut relay = started_relay(dialect);
        let (sign, out) = push(&mut relay, "data: {\"type\":\"mess\n\n");
        assert_eq!(sign.unwrap(), StreamActivity::KeepAlive);
        assert_eq!(out.len(), 1);
        assert!(relay.relayed_error().is_none() && end(&mut relay).0.is_err());
    }
    // The same holds for a call that the decoder would refuse to read further.
    let mut relay = started_relay(Dialect::OpenaiChat);
    let blanks = " ".repeat(5000);
    let call = format!(
        r#"{{"choices":[{{"delta":{{"content":null,"tool_calls":[{{"function":{{"arguments":"{blanks}"}}}}]}},"finish_reason":""}}]}}"#
    );
    assert!(read_all(Dialect::OpenaiChat, &wire(&[&call])).1.is_some());
    push(&mut relay, &wire(&[&call])).0.unwrap();
    assert_eq!(relay.relayed_error(), None);
}
