use super::*;
use crate::Dialect;
use crate::test_support::{NOW, call, read_all, text, wire};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::IoKind;
use outlast_kernel::verdict::Cause;

fn read(data: &[&str]) -> (Vec<Delta>, Option<Failure>) {
    read_all(Dialect::Anthropic, &wire(data))
}

#[test]
fn tool_calls_are_put_together_by_their_index() {
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
fn a_call_that_was_cut_off_is_not_handed_on() {
    let frames = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"run","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
    ];
    assert_eq!(read(&frames), (vec![], None));
}

#[test]
fn a_call_without_arguments_has_none() {
    let frames = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"run","input":{}}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
    ];
    assert_eq!(read(&frames), (vec![call("a", "run", "{}")], None));
}

#[test]
fn hidden_reasoning_is_kept_as_it_came() {
    let frames = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"Em/+=="}}"#,
    ];
    let proof = Some(Proof::Redacted {
        data: "Em/+==".to_owned(),
    });
    let text = String::new();
    let expected = vec![Delta::ReasoningDone(Reasoning { text, proof })];
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
fn errors_in_the_stream_are_failures_with_their_codes() {
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
        ("busy", Cause::TruncatedStream),
        // What the model wrote into a frame that was cut says nothing about the failure.
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
fn a_whole_message_says_the_same() {
    let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"Hm","signature":"s=="},
        {"type":"text","text":"Hello"},{"type":"tool_use","id":"a","name":"run","input":{"x":1}}],
        "stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#;
    let (signature, thought) = ("s==".to_owned(), "Hm".to_owned());
    let reasoning = Reasoning {
        text: thought.clone(),
        proof: Some(Proof::Signature { signature }),
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
    assert_eq!(read_whole("p", body, NOW).unwrap(), expected);
}

#[test]
fn an_error_or_half_a_message_is_no_answer() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failure = read_whole("p", body, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::Overloaded);
    let failure = read_whole("p", r#"{"content":[{"type":"te"#, NOW).unwrap_err();
    assert_eq!(failure.io, Some(IoKind::Protocol));
}
