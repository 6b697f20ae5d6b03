//! Whole responses, requests, and the proxy's own messages.

use crate::relay::test_support::{push, started_relay};
use crate::relay::{BodyKind, sniff_body};
use crate::test_support::{NOW, read_all};
use crate::{ApiError, Dialect};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Phase;
use outlast_kernel::verdict::Cause;
use serde_json::Value;

// --- bodies that are no stream ---

#[test]
fn body_kind_is_detected_from_first_bytes() {
    let table: [(&[u8], Option<BodyKind>); 8] = [
        (b"", None),
        (b" \r\n", None),
        (b"\n {\"a\":1}", Some(BodyKind::Json)),
        (b"[", Some(BodyKind::Json)),
        (b"\xef\xbb\xbf{", Some(BodyKind::Json)),
        (b"<!doctype html>", Some(BodyKind::Html)),
        (b"event: x", Some(BodyKind::EventStream)),
        (b": x", Some(BodyKind::EventStream)),
    ];
    for (bytes, looks) in table {
        assert_eq!(sniff_body(bytes), looks, "{}", bytes.escape_ascii());
    }
}

#[test]
fn check_response_accepts_completions_and_rejects_errors() {
    let deltas = [
        crate::test_support::text("Hi"),
        crate::Delta::Stopped(outlast_kernel::event::StopReason::EndTurn),
    ];
    for dialect in Dialect::ALL {
        let check = |body: &[u8]| dialect.check_response("p", body, NOW);
        assert!(check(dialect.encode_response("m", &deltas).as_bytes()).is_ok());
        let error = dialect.encode_error(&ApiError::new("overloaded_error", "Overloaded"));
        let failure = check(error.as_bytes()).unwrap_err();
        assert_eq!(classify(&failure).cause, Cause::Overloaded);
        assert_eq!(failure.phase, Phase::BeforeContent);
        for body in [
            &b""[..],
            b"  ",
            b"<html>502</html>",
            b"{\"choi",
            b"\xff\xfe",
            b"{}",
            b"null",
        ] {
            assert!(check(body).is_err(), "{}", body.escape_ascii());
        }
    }
    let begun = |background: bool| {
        format!(
            r#"{{"object":"response","background":{background},"status":"queued","output":[]}}"#
        )
    };
    let check = |body: String| Dialect::OpenaiResponses.check_response("p", body.as_bytes(), NOW);
    assert!(check(begun(true)).is_ok());
    assert!(check(begun(false)).is_err());
}

// --- requests ---

#[test]
fn peek_request_reads_model_and_stream_flag() {
    let table: [(&[u8], Option<&str>, bool); 14] = [
        (br#"{"model":"m","stream":true}"#, Some("m"), true),
        (
            br#" {"messages":[{"model":"x","stream":true}],"model":"m"}"#,
            Some("m"),
            false,
        ),
        (br#"{"stream":false,"model":"m"}"#, Some("m"), false),
        (br#"{"stream":"true","model":5}"#, None, false),
        (br#"{"stream":true,"model":null}"#, None, true),
        (br#"{"stream":[[true]],"model":{"a":1}}"#, None, false),
        (br#"{"model":"a\u0062c"}"#, Some("abc"), false),
        (
            br#"{"model":"a","model":"b","stream":true,"stream":false}"#,
            Some("b"),
            false,
        ),
        (b"{\"text\":\"\xff\xfe\",\"model\":\"m\"}", Some("m"), false),
        (b"{\"model\":\"\xff\"}", None, false),
        (br#"["m",true]"#, None, false),
        (br#"{"model":"m""#, None, false),
        (b"model=m&stream=true", None, false),
        (b"", None, false),
    ];
    for (body, model, stream) in table {
        let asked = Dialect::peek_request(body);
        assert_eq!(asked.model.as_deref(), model, "{}", body.escape_ascii());
        assert_eq!(asked.stream, stream, "{}", body.escape_ascii());
    }
}

#[test]
fn peek_request_handles_huge_and_deeply_nested_bodies() {
    let fields: String = (0..1_000_000)
        .map(|number| format!("\"f{number}\":1,"))
        .collect();
    let body = format!("{{{fields}\"model\":\"m\",\"stream\":true}}");
    assert_eq!(
        Dialect::peek_request(body.as_bytes()).model.as_deref(),
        Some("m")
    );
    let deep = ["[".repeat(1 << 20), "]".repeat(1 << 20)].concat();
    for name in ["deep", "stream", "model"] {
        let body = format!("{{\"{name}\":{deep},\"model\":\"m\"}}");
        assert_eq!(
            Dialect::peek_request(body.as_bytes()).model.as_deref(),
            Some("m")
        );
    }
    let open = format!("{{\"model\":{}", "[".repeat(1 << 20));
    assert_eq!(Dialect::peek_request(open.as_bytes()).model, None);
}

// --- the proxy's own messages ---

#[test]
fn final_error_frame_is_a_failure_in_every_dialect() {
    for dialect in Dialect::ALL {
        let frame =
            dialect.final_error_frame("overloaded_error", 529, "the provider is overloaded");
        let failure = read_all(dialect, &frame).1.unwrap();
        assert_eq!(classify(&failure).cause, Cause::Overloaded, "{frame}");
        assert_eq!(failure.message, "the provider is overloaded");
        let mut relay = started_relay(dialect);
        push(&mut relay, &frame).0.unwrap();
        assert!(relay.relayed_error().is_some());
    }
}

#[test]
fn final_error_frame_has_fields_of_each_dialect() {
    let frame = |dialect: Dialect| dialect.final_error_frame("overloaded_error", 529, "busy");
    insta::assert_snapshot!(frame(Dialect::Anthropic), @r#"
    event: error
    data: {"error":{"message":"busy","type":"overloaded_error"},"request_id":null,"type":"error"}
    "#);
    insta::assert_snapshot!(frame(Dialect::OpenaiChat), @r#"data: {"error":{"code":"529","message":"busy","param":null,"type":"overloaded_error"}}"#);
    let responses = frame(Dialect::OpenaiResponses);
    let (error, failed) = responses.split_once("\n\n").unwrap();
    insta::assert_snapshot!(error, @r#"
    event: error
    data: {"code":"overloaded_error","error":{"code":"overloaded_error","message":"busy","param":null,"type":"overloaded_error"},"message":"busy","param":null,"sequence_number":0,"type":"error"}
    "#);
    let failed = failed
        .strip_prefix("event: response.failed\ndata: ")
        .unwrap();
    let failed: Value = serde_json::from_str(failed).unwrap();
    assert_eq!(failed["response"]["status"], "failed");
    assert_eq!(failed["response"]["error"]["code"], "overloaded_error");
}

#[test]
fn error_body_has_shape_of_each_dialect() {
    let body = |dialect: Dialect| dialect.error_body("overloaded_error", "busy");
    insta::assert_snapshot!(body(Dialect::Anthropic), @r#"{"error":{"message":"busy","type":"overloaded_error"},"request_id":null,"type":"error"}"#);
    insta::assert_snapshot!(body(Dialect::OpenaiChat), @r#"{"error":{"code":null,"message":"busy","param":null,"type":"overloaded_error"}}"#);
    assert_eq!(body(Dialect::OpenaiChat), body(Dialect::OpenaiResponses));
}
