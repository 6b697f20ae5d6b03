use super::*;
use crate::Dialect;
use crate::test_support::{NOW, call, cut, read_all, read_named, signs, text, wire};
use outlast_kernel::classify::classify;
use outlast_kernel::event::Usage;
use outlast_kernel::failure::IoKind;
use outlast_kernel::verdict::Cause;

fn read(data: &[&str]) -> (Vec<Delta>, Option<Failure>) {
    read_all(Dialect::Anthropic, &wire(data))
}

#[test]
fn tool_calls_are_assembled_by_index() {
    let block = |index: u32, id: &str| {
        format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"{id}","name":"run","input":{{}}}}}}"#
        )
    };
    let part = |index: u32, text: &str| {
        format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{text}"}}}}"#
        )
    };
    let stop = |index: u32| format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    let frames = [
        block(0, "a"),
        block(1, "b"),
        part(0, "[1"),
        part(1, "[2"),
        part(0, "]"),
        part(1, "]"),
        stop(1),
        stop(0),
    ];
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    let expected = vec![call("b", "run", "[2]"), call("a", "run", "[1]")];
    assert_eq!(read(&frames), (expected, None));
}

#[test]
fn tool_call_is_dropped_when_stream_is_truncated() {
    let frames = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"run","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
    ];
    assert_eq!(read(&frames), (vec![], None));
}

const TOOL: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"run","input":{}}}"#;
const BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

fn piece(text: &str) -> String {
    let delta = serde_json::json!({ "type": "input_json_delta", "partial_json": text });
    serde_json::json!({ "type": "content_block_delta", "index": 0, "delta": delta }).to_string()
}

fn because(reason: &str) -> String {
    format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#)
}

#[test]
fn call_without_arguments_gets_empty_object_unless_cut() {
    let none = || call("a", "run", "{}");
    let ended = |reason: &str| read(&[TOOL, BLOCK_STOP, &because(reason)]).0;
    assert_eq!(ended("tool_use"), [none()]);
    assert_eq!(ended("max_tokens"), []);
    assert_eq!(read(&[TOOL, BLOCK_STOP, TOOL]).0, [none()]);
    let stopped = Delta::Stopped(StopReason::Other);
    let expected = [none(), stopped];
    assert_eq!(read(&[TOOL, BLOCK_STOP, MESSAGE_STOP]).0, expected);
}

#[test]
fn partial_tool_call_is_never_emitted() {
    let (half, rest) = (piece(r#"{"x":"#), piece("1}"));
    let whole = || call("a", "run", r#"{"x":1}"#);
    let stopped = || Delta::Stopped(StopReason::Other);
    let table: [(&[&str], &[Delta]); 6] = [
        (&[TOOL, &half, BLOCK_STOP], &[]),
        (&[TOOL, &half, &rest, BLOCK_STOP], &[whole()]),
        // Without the end of the block, a complete call counts.
        (&[TOOL, &half, MESSAGE_STOP], &[cut("run"), stopped()]),
        (&[TOOL, MESSAGE_STOP], &[cut("run"), stopped()]),
        (&[TOOL, &half, &rest, MESSAGE_STOP], &[whole(), stopped()]),
        (&[TOOL, &half, &rest, TOOL], &[whole()]),
    ];
    for (frames, expected) in table {
        assert_eq!(read(frames).0, expected, "{frames:?}");
    }
}

#[test]
fn unclosed_thinking_block_counts_only_when_signed() {
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"Hm"}}"#;
    let signature = r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s=="}}"#;
    let is_done = |delta: &Delta| matches!(delta, Delta::ReasoningDone(_));
    let done = |frames: &[&str]| read(frames).0.iter().any(is_done);
    assert!(done(&[start, signature, MESSAGE_STOP]));
    assert!(!done(&[start, MESSAGE_STOP]));
}

#[test]
fn tool_input_is_kept_verbatim_and_deltas_override_it() {
    let input = r#"{"z": 1.0, "a": 12345678901234567890123}"#;
    let block = format!(r#"{{"type":"tool_use","id":"a","name":"run","input":{input}}}"#);
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
    let exact = || call("a", "run", input);
    assert_eq!(read(&[&start, BLOCK_STOP]).0, [exact()]);
    let pieces = [call("a", "run", "[2]")];
    assert_eq!(read(&[&start, &piece("[2]"), BLOCK_STOP]).0, pieces);
    let whole = |reason: &str| {
        let body = format!(r#"{{"content":[{block}],"stop_reason":"{reason}"}}"#);
        decode_response("p", &body, NOW).unwrap()
    };
    assert_eq!(
        whole("tool_use"),
        [exact(), Delta::Stopped(StopReason::ToolUse)]
    );
    assert_eq!(
        whole("max_tokens"),
        [cut("run"), Delta::Stopped(StopReason::Length)]
    );
}

#[test]
fn later_empty_usage_does_not_reset_counts() {
    let used = |usage: &str| format!(r#"{{"type":"message_delta","usage":{usage}}}"#);
    let reports = [
        r#"{"input_tokens":3,"output_tokens":4}"#,
        "{}",
        r#"{"input_tokens":-1,"output_tokens":"9"}"#,
        r#"{"input_tokens":0,"output_tokens":5}"#,
    ];
    let frames = reports.map(used);
    let usage = |output| Usage {
        input: 3,
        output,
        ..Usage::default()
    };
    let expected = [4, 5].map(|output| Delta::Usage(usage(output)));
    assert_eq!(read(&frames.each_ref().map(String::as_str)).0, expected);
}

#[test]
fn only_completion_events_count_as_progress() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":1}}}"#;
    let frames = [
        r#"{"type":"ping"}"#,
        start,
        start,
        r#"{"type":"brand_new"}"#,
        TOOL,
        BLOCK_STOP,
        start,
        MESSAGE_STOP,
    ];
    use StreamActivity::{KeepAlive, Opening, Progress};
    let expected = [
        KeepAlive, Opening, KeepAlive, KeepAlive, Progress, Progress, KeepAlive, Progress,
    ];
    assert_eq!(signs(Dialect::Anthropic, &frames), expected);
}

#[test]
fn surrogate_pair_split_across_deltas_is_joined() {
    let half = |text: &str| {
        format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
        )
    };
    let frames = [half(r"Hi \ud83d"), half(r"\ude00!")];
    let read = read(&frames.each_ref().map(String::as_str));
    assert_eq!(read, (vec![text("Hi "), text("😀!")], None));
}

#[test]
fn redacted_thinking_is_kept_verbatim() {
    let frames = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"Em/+=="}}"#,
    ];
    let proof = Some(Proof::Redacted {
        data: "Em/+==".to_owned(),
    });
    let text = String::new();
    let expected = vec![Delta::ReasoningDone(Reasoning {
        text,
        proof,
        ..Reasoning::default()
    })];
    assert_eq!(read(&frames), (expected, None));
}

#[test]
fn unknown_frames_and_fields_are_skipped() {
    let frames = [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"novel_delta"}}"#,
        r#"{"type":"content_block_delta","index":"zero","delta":[]}"#,
        r#"{"type":"brand_new","x":1}"#,
        r#"{"type":"message_start"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"image"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":null}"#,
        r#"[1,2]"#,
    ];
    assert_eq!(read(&frames), (vec![], None));
}

#[test]
fn stream_errors_are_failures_with_their_cause() {
    let table = [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Cause::Overloaded,
        ),
        (
            r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
            Cause::RateLimited,
        ),
        (
            "<html><h1>429 Too Many Requests</h1></html>",
            Cause::RateLimited,
        ),
        ("503 Service Unavailable", Cause::Overloaded),
        (r#"{"code":429,"message":"slow down"}"#, Cause::RateLimited),
        (r#"{"detail":"Invalid API key"}"#, Cause::Auth),
        (
            r#"{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}"#,
            Cause::ContextOverflow,
        ),
        ("busy", Cause::TruncatedStream),
        // The model's text in a frame that was cut says nothing about the failure.
        (
            r#"{"type":"content_block_delta","delta":{"text":"quota exceeded, add credits"#,
            Cause::TruncatedStream,
        ),
    ];
    for (frame, cause) in table {
        let failure = read(&[frame]).1.unwrap();
        assert_eq!(classify(&failure).cause, cause, "{frame}");
    }
}

#[test]
fn non_streamed_message_decodes_to_deltas() {
    let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"Hm","signature":"s=="},
        {"type":"text","text":"Hello"},{"type":"tool_use","id":"a","name":"run","input":{"x":1}}],
        "stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#;
    let (signature, thought) = ("s==".to_owned(), "Hm".to_owned());
    let reasoning = Reasoning {
        text: thought.clone(),
        proof: Some(Proof::Signature { signature }),
        ..Reasoning::default()
    };
    let usage = Usage {
        input: 3,
        output: 4,
        ..Usage::default()
    };
    let expected = vec![
        Delta::Reasoning(thought),
        Delta::ReasoningDone(reasoning),
        text("Hello"),
        call("a", "run", r#"{"x":1}"#),
        Delta::Usage(usage),
        Delta::Stopped(StopReason::ToolUse),
    ];
    assert_eq!(decode_response("p", body, NOW).unwrap(), expected);
}

#[test]
fn error_or_truncated_message_is_a_failure() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failure = decode_response("p", body, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::Overloaded);
    let body = r#"{"content":[],"error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failure = decode_response("p", body, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::Overloaded);
    let failure = decode_response("p", r#"{"content":[{"type":"te"#, NOW).unwrap_err();
    assert_eq!(failure.io, Some(IoKind::Protocol));
}

#[test]
fn error_event_is_failure_unless_its_data_is_known() {
    for data in [r#"{"oops":1}"#, "Overloaded", r#"{"message":"Overl"#] {
        assert!(
            read_named(Dialect::Anthropic, "error", data).is_some(),
            "{data}"
        );
    }
    assert_eq!(read_named(Dialect::Anthropic, "error", BLOCK_STOP), None);
}
