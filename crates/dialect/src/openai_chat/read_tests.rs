use super::*;
use crate::Dialect;
use crate::test_support::{NOW, call, cut, read_all, read_named, signs, text, wire};
use outlast_kernel::classify::classify;
use outlast_kernel::event::Usage;
use outlast_kernel::failure::IoKind;
use outlast_kernel::verdict::Cause;

fn read(data: &[&str]) -> (Vec<Delta>, Option<Failure>) {
    read_all(Dialect::OpenaiChat, &wire(data))
}

const CONTENT: &str = r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#;
const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn completion_ends_only_with_finish_reason_or_done() {
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
fn partial_tool_call_is_not_emitted_on_done() {
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
    assert_eq!(read(&[half, length]), (vec![cut("run"), stopped], None));
}

#[test]
fn tool_calls_are_distinguished_by_index_or_id() {
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
        // All with the same index.
        [
            piece("\"index\":0,", "\"id\":\"a\",", "[1"),
            piece("\"index\":0,", "\"id\":\"b\",", "[2"),
            piece("\"index\":0,", "\"id\":\"a\",", "]"),
            piece("\"index\":0,", "\"id\":\"b\",", "]"),
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
fn every_reasoning_field_is_decoded() {
    let table = [
        r#"{"choices":[{"delta":{"reasoning_content":"Hm"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"Hm","content":null}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"","reasoning":"Hm"}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]}}]}"#,
    ];
    for frame in table {
        let thought = "Hm".to_owned();
        let done = Reasoning {
            text: thought.clone(),
            ..Reasoning::default()
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
fn refusal_text_and_content_filter_stop_as_refusal() {
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
        (r#"{"status":"429","message":"slow"}"#, Cause::RateLimited),
        (
            r#"{"code":"rate_limit_exceeded","message":"slow"}"#,
            Cause::RateLimited,
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
    assert_eq!(read(&frames), (vec![], None));
}

#[test]
fn non_streamed_completion_decodes_to_deltas() {
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hi","reasoning_content":"Hm",
        "tool_calls":[{"id":"a","type":"function","function":{"name":"run","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6}}}"#;
    let done = Reasoning {
        text: "Hm".to_owned(),
        ..Reasoning::default()
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
    assert_eq!(decode_response("p", body, NOW).unwrap(), expected);
    let failure = decode_response("p", r#"{"error":{"code":429,"message":"x"}}"#, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::RateLimited);
}

const CALL: &str = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"run","arguments":"{}"}}]}}]}"#;

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":{reason}}}]}}"#)
}

#[test]
fn complete_tool_calls_survive_any_finish_reason() {
    let half = CALL.replace("{}", r#"{\"x\":"#);
    for word in ["stop", "tool_calls", "tool_use", "novel"] {
        let finish = finish(&format!("\"{word}\""));
        let stopped = Delta::Stopped(StopReason::ToolUse);
        let expected = vec![call("a", "run", "{}"), stopped];
        assert_eq!(read(&[CALL, &finish]), (expected, None), "{word}");
        let is_call = |delta: &Delta| matches!(delta, Delta::ToolCall(_));
        assert!(!read(&[&half, &finish]).0.iter().any(is_call), "{word}");
    }
}

#[test]
fn null_or_empty_finish_reason_does_not_end_stream() {
    for word in ["null", "\"null\"", "\"\""] {
        let read = read(&[CONTENT, &finish(word)]);
        assert_eq!(read, (vec![text("Hi")], None), "{word}");
    }
}

#[test]
fn content_after_finish_reason_reopens_completion() {
    let mut reader = Dialect::OpenaiChat.decoder("p");
    let mut deltas = Vec::new();
    let both = CONTENT.replace("null", "\"stop\"");
    let frames = [
        (STOP, true),
        (r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, true),
        (CONTENT, false),
        (&both, false),
        (&both, false),
    ];
    for (data, is_complete) in frames {
        let (name, data) = (String::new(), data.to_owned());
        reader
            .decode(&sse::Event { name, data }, NOW, &mut deltas)
            .unwrap();
        assert_eq!(reader.is_complete(), is_complete);
    }
    let texts = deltas.iter().filter(|delta| **delta == text("Hi"));
    assert_eq!(texts.count(), 3);
    assert_eq!(reader.finish(), [Delta::Stopped(StopReason::EndTurn)]);
    // Without another end, the completion was cut off.
    assert_eq!(read(&[STOP, CONTENT]), (vec![text("Hi")], None));
}

#[test]
fn late_error_does_not_undo_finished_completion() {
    let expected = vec![text("Hi"), Delta::Stopped(StopReason::EndTurn)];
    for late in [r#"{"error":{"message":"late"}}"#, "<html>", "{"] {
        assert_eq!(read(&[CONTENT, STOP, late]), (expected.clone(), None));
    }
}

#[test]
fn status_ok_frames_are_keepalives_not_errors() {
    let table = [
        r#"{"type":"ping","status":"ok"}"#,
        r#"{"code":0,"message":"success"}"#,
        r#"{"code":200,"message":"ok"}"#,
        r#"{"status":"ok","message":"pong"}"#,
        r#"{"error":null,"detail":""}"#,
    ];
    for frame in table {
        assert_eq!(read(&[frame]), (vec![], None), "{frame}");
        assert_eq!(
            signs(Dialect::OpenaiChat, &[frame]),
            [StreamActivity::KeepAlive],
            "{frame}"
        );
    }
}

#[test]
fn error_event_is_failure_unless_its_data_is_known() {
    for data in [r#"{"oops":1}"#, "Overloaded", r#"{"message":"Overl"#] {
        assert!(
            read_named(Dialect::OpenaiChat, "error", data).is_some(),
            "{data}"
        );
    }
    assert_eq!(read_named(Dialect::OpenaiChat, "error", CONTENT), None);
}

#[test]
fn only_completion_events_count_as_progress() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1}}"#;
    use StreamActivity::{KeepAlive, Opening, Progress};
    let table = [
        (r#"{"choices":[]}"#, KeepAlive),
        (ROLE, Opening),
        (ROLE, KeepAlive),
        (r#"{"choices":[{"delta":{}}]}"#, KeepAlive),
        (r#"{"object":"novel"}"#, KeepAlive),
        (
            r#"{"choices":[{"delta":{"reasoning_details":[1]}}]}"#,
            Progress,
        ),
        (CONTENT, Progress),
        (CALL, Progress),
        (STOP, Progress),
        (usage, Progress),
        (usage, KeepAlive),
    ];
    let frames = table.map(|(frame, _)| frame);
    let expected = table.map(|(_, sign)| sign);
    assert_eq!(signs(Dialect::OpenaiChat, &frames), expected);
}

#[test]
fn only_choice_with_index_zero_is_decoded() {
    let both = r#"{"choices":[{"index":1,"delta":{"content":"No"}},{"index":0,"delta":{"content":"Hi"}}]}"#;
    let other = r#"{"choices":[{"index":1,"delta":{"content":"No"},"finish_reason":"stop"}]}"#;
    assert_eq!(read(&[both, other]), (vec![text("Hi")], None));
}

#[test]
fn legacy_and_nonstandard_chunks_are_decoded() {
    let stopped = || Delta::Stopped(StopReason::ToolUse);
    let table = [
        (
            r#"{"choices":[{"message":{"content":"Hi"}}]}"#,
            vec![text("Hi"), Delta::Stopped(StopReason::EndTurn)],
        ),
        (
            r#"{"choices":[{"delta":{"function_call":{"name":"run","arguments":"[1]"}}}]}"#,
            vec![call("call_1", "run", "[1]"), stopped()],
        ),
        (
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"run","arguments":{"z": 1.0,"a":2}}}]}}]}"#,
            vec![call("a", "run", r#"{"z": 1.0,"a":2}"#), stopped()],
        ),
        (
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"run","arguments":"[1]"}},{"function":{"name":"run","arguments":"[2]"}}]}}]}"#,
            vec![
                call("call_1", "run", "[1]"),
                call("call_2", "run", "[2]"),
                stopped(),
            ],
        ),
    ];
    for (frame, expected) in table {
        assert_eq!(read(&[frame, STOP]), (expected, None), "{frame}");
    }
    // A message at the end repeats the deltas.
    let repeated = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    let expected = vec![text("Hi"), Delta::Stopped(StopReason::EndTurn)];
    assert_eq!(read(&[CONTENT, repeated]), (expected, None));
    // With a new id for each piece.
    let more = CALL
        .replace(r#""a""#, r#""b""#)
        .replace(r#""name":"run","#, "");
    let begun = CALL.replace("{}", "[1");
    let expected = vec![call("a", "run", "[1]"), stopped()];
    assert_eq!(
        read(&[&begun, &more.replace("{}", "]"), STOP]),
        (expected, None)
    );
}

#[test]
fn too_many_tool_calls_are_a_protocol_failure() {
    let calls: Vec<String> = (0..80_000)
        .map(|index| format!(r#"{{"index":{index},"id":"c{index}","function":{{"name":"run"}}}}"#))
        .collect();
    let frame = |calls: &[String]| {
        let calls = calls.join(",");
        format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{calls}]}}}}]}}"#)
    };
    let read = |wire: &str| {
        let event = sse::Event {
            name: String::new(),
            data: wire.to_owned(),
        };
        let mut reader = Dialect::OpenaiChat.decoder("p");
        reader.decode(&event, NOW, &mut Vec::new())
    };
    assert!(read(&frame(&calls[..1000])).is_ok());
    assert_eq!(read(&frame(&calls)).unwrap_err().io, Some(IoKind::Protocol));
}

#[test]
fn later_empty_usage_does_not_reset_counts() {
    let frames = [
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_cache_hit_tokens":6}}"#,
        r#"{"choices":[],"usage":{}}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":"x"}}"#,
    ];
    let usage = Usage {
        input: 4,
        output: 4,
        cache_read: 6,
        cache_write: 0,
    };
    assert_eq!(read(&frames), (vec![Delta::Usage(usage)], None));
}

#[test]
fn body_without_finish_reason_needs_content() {
    let read = |content: &str| {
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":{content}}},"finish_reason":null}}]}}"#
        );
        decode_response("p", &body, NOW)
    };
    let expected = [text("Hi"), Delta::Stopped(StopReason::EndTurn)];
    assert_eq!(read("\"Hi\"").unwrap(), expected);
    assert_eq!(read("null").unwrap_err().io, Some(IoKind::Truncated));
}

#[test]
fn lenient_json_chunks_are_decoded() {
    let odd = CONTENT.replace("null", r#"null,"x":NaN,"y":1e999"#);
    let expected = (vec![text("Hi"), Delta::Stopped(StopReason::EndTurn)], None);
    assert_eq!(read(&[&odd, STOP]), expected);
    let deep = format!("null,\"x\":{}{}", "[".repeat(500), "]".repeat(500));
    assert_eq!(read(&[&CONTENT.replace("null", &deep), STOP]), expected);
}
