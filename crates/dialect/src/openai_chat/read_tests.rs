use super::*;
use crate::Dialect;
use crate::test_support::{NOW, call, read_all, text, wire};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::IoKind;
use outlast_kernel::verdict::Cause;

fn read(data: &[&str]) -> (Vec<Delta>, Option<Failure>) {
    read_all(Dialect::OpenaiChat, &wire(data))
}

const CONTENT: &str = r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#;
const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn only_what_says_that_it_is_over_is_over() {
    let stopped = Delta::Stopped(StopReason::EndTurn);
    let answered = || (vec![text("Hi"), stopped.clone()], None);
    // With the finish reason, with or without the last frame.
    assert_eq!(read(&[CONTENT, STOP, "[DONE]"]), answered());
    assert_eq!(read(&[CONTENT, STOP]), answered());
    // With the last frame after content, for servers that leave the finish reason out.
    assert_eq!(read(&[CONTENT, "[DONE]"]), answered());
    // With neither.
    assert_eq!(read(&[CONTENT]), (vec![text("Hi")], None));
    let failure = read(&[ROLE, "[DONE]"]).1.unwrap();
    assert_eq!(failure.io, Some(IoKind::Truncated));
}

#[test]
fn half_a_call_is_not_handed_on_by_the_last_frame() {
    let half = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"run","arguments":"{\"x\":"}}]}}]}"#;
    let (deltas, failure) = read(&[half, "[DONE]"]);
    assert_eq!(deltas, []);
    assert_eq!(failure.unwrap().io, Some(IoKind::Truncated));
    let rest =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#;
    let stopped = Delta::Stopped(StopReason::ToolUse);
    assert_eq!(
        read(&[half, rest, "[DONE]"]),
        (vec![call("a", "run", r#"{"x":1}"#), stopped], None)
    );
    let length = r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#;
    let stopped = Delta::Stopped(StopReason::Length);
    assert_eq!(read(&[half, length]), (vec![stopped], None));
}

#[test]
fn calls_are_told_apart_by_index_or_id() {
    let piece = |index: &str, id: &str, arguments: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{{index}{id}"function":{{"name":"run","arguments":"{arguments}"}}}}]}}}}]}}"#
        )
    };
    let tables = [
        [
            piece("\"index\":0,", "\"id\":\"a\",", "[1"),
            piece("\"index\":1,", "\"id\":\"b\",", "[2"),
            piece("\"index\":0,", "", "]"),
            piece("\"index\":1,", "", "]"),
        ],
        [
            piece("", "\"id\":\"a\",", "[1"),
            piece("", "\"id\":\"b\",", "[2"),
            piece("", "\"id\":\"a\",", "]"),
            piece("", "\"id\":\"b\",", "]"),
        ],
        [
            piece("", "\"id\":\"a\",", "[1"),
            piece("", "", "]"),
            piece("", "\"id\":\"b\",", "[2"),
            piece("", "", "]"),
        ],
    ];
    for frames in tables {
        let mut frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        frames.push(STOP);
        let stopped = Delta::Stopped(StopReason::ToolUse);
        let expected = vec![call("a", "run", "[1]"), call("b", "run", "[2]"), stopped];
        assert_eq!(read(&frames), (expected, None), "{frames:?}");
    }
}

#[test]
fn reasoning_has_many_forms() {
    let table = [
        r#"{"choices":[{"delta":{"reasoning_content":"Hm"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"Hm","content":null}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]}}]}"#,
    ];
    for frame in table {
        let thought = "Hm".to_owned();
        let done = Reasoning {
            text: thought.clone(),
            proof: None,
        };
        let expected = vec![
            Delta::Reasoning(thought),
            Delta::ReasoningDone(done),
            text("Hi"),
            Delta::Stopped(StopReason::EndTurn),
        ];
        assert_eq!(read(&[frame, CONTENT, STOP]), (expected, None), "{frame}");
    }
}

#[test]
fn a_refusal_is_said_and_named() {
    let refusal = r#"{"choices":[{"delta":{"refusal":"I cannot"}}]}"#;
    let stopped = Delta::Stopped(StopReason::Refusal);
    assert_eq!(
        read(&[refusal, STOP]),
        (vec![text("I cannot"), stopped.clone()], None)
    );
    let filtered = r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#;
    assert_eq!(read(&[filtered]), (vec![stopped], None));
}

#[test]
fn errors_in_the_stream_are_failures() {
    let table = [
        (
            r#"{"error":{"message":"Overloaded","code":503}}"#,
            Cause::Overloaded,
        ),
        (r#"{"code":429,"message":"slow down"}"#, Cause::RateLimited),
        (
            r#"{"id":"x","error":{"code":429,"message":"Provider returned error"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
            Cause::RateLimited,
        ),
        (
            r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#,
            Cause::ServerError,
        ),
        (
            r#"{"object":"error","message":"Internal error","code":500}"#,
            Cause::ServerError,
        ),
        (
            r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            Cause::ContextOverflow,
        ),
        ("upstream connect error", Cause::Network),
    ];
    for (frame, cause) in table {
        let failure = read(&[frame]).1.unwrap();
        assert_eq!(classify(&failure).cause, cause, "{frame}");
    }
}

#[test]
fn unknown_chunks_and_fields_are_skipped() {
    let frames = [
        r#"{"choices":[]}"#,
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"choices":[{"delta":{"content":7,"tool_calls":"none","audio":{}}}],"new":[]}"#,
        r#"{"object":"novel"}"#,
        r#"{"choices":null,"usage":{"prompt_tokens":"many"}}"#,
    ];
    assert_eq!(read(&frames), (vec![Delta::Usage(Usage::default())], None));
}

#[test]
fn a_whole_completion_says_the_same() {
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hi","reasoning_content":"Hm",
        "tool_calls":[{"id":"a","type":"function","function":{"name":"run","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6}}}"#;
    let done = Reasoning {
        text: "Hm".to_owned(),
        proof: None,
    };
    let usage = Usage {
        input: 4,
        output: 4,
        cache_read: 6,
        cache_write: 0,
    };
    let expected = vec![
        Delta::Reasoning("Hm".to_owned()),
        Delta::ReasoningDone(done),
        text("Hi"),
        Delta::Usage(usage),
        call("a", "run", "{}"),
        Delta::Stopped(StopReason::ToolUse),
    ];
    assert_eq!(read_whole("p", body, NOW).unwrap(), expected);
    let failure = read_whole("p", r#"{"error":{"code":429,"message":"x"}}"#, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::RateLimited);
}
