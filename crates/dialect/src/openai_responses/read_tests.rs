use super::*;
use crate::Dialect;
use crate::test_support::{NOW, call, read_all, text, wire};
use outlast_kernel::classify::classify;
use outlast_kernel::event::{Proof, Reasoning, Usage};
use outlast_kernel::failure::IoKind;
use outlast_kernel::verdict::Cause;

fn read(data: &[&str]) -> (Vec<Delta>, Option<Failure>) {
    read_all(Dialect::OpenaiResponses, &wire(data))
}

const ITEM: &str = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}"#;
pub(super) const COMPLETED: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]}}"#;

#[test]
fn text_repeated_by_later_events_is_emitted_once() {
    let pieces = [
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"Hel"}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"lo"}"#,
    ];
    let stopped = Delta::Stopped(StopReason::EndTurn);
    let in_pieces = vec![text("Hel"), text("lo"), stopped.clone()];
    let at_once = vec![text("Hello"), stopped];
    assert_eq!(
        read(&[pieces[0], pieces[1], ITEM, COMPLETED]),
        (in_pieces.clone(), None)
    );
    assert_eq!(read(&[pieces[0], pieces[1], COMPLETED]), (in_pieces, None));
    assert_eq!(read(&[ITEM, COMPLETED]), (at_once.clone(), None));
    assert_eq!(read(&[COMPLETED]), (at_once, None));
}

#[test]
fn interleaved_arguments_stay_apart() {
    let piece = |place: u32, text: &str| {
        format!(
            r#"{{"type":"response.function_call_arguments.delta","output_index":{place},"delta":"{text}"}}"#
        )
    };
    let done = |place: u32, id: &str| {
        format!(
            r#"{{"type":"response.output_item.done","output_index":{place},"item":{{"type":"function_call","call_id":"{id}","name":"run"}}}}"#
        )
    };
    let frames = [
        piece(0, "[1"),
        piece(1, "[2"),
        piece(0, "]"),
        piece(1, "]"),
        done(0, "a"),
        done(1, "b"),
    ];
    let mut frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    frames.push(r#"{"type":"response.completed","response":{"status":"completed"}}"#);
    let stopped = Delta::Stopped(StopReason::ToolUse);
    let expected = vec![call("a", "run", "[1]"), call("b", "run", "[2]"), stopped];
    assert_eq!(read(&frames), (expected, None));
}

#[test]
fn reasoning_parts_are_joined_and_keep_their_proof() {
    let frames = [
        r#"{"type":"response.reasoning_summary_part.added","output_index":0}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"One"}"#,
        r#"{"type":"response.reasoning_summary_part.added","output_index":0}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"Two"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","encrypted_content":"gA=="}}"#,
    ];
    let reasoning = |text: &str| Delta::Reasoning(text.to_owned());
    let proof = Proof::Encrypted {
        id: "rs_1".to_owned(),
        content: Some("gA==".to_owned()),
    };
    let done = Reasoning {
        text: "One\n\nTwo".to_owned(),
        proof: Some(proof),
        ..Reasoning::default()
    };
    let expected = vec![
        reasoning("One"),
        reasoning("\n\n"),
        reasoning("Two"),
        Delta::ReasoningDone(done),
    ];
    assert_eq!(read(&frames), (expected, None));
}

#[test]
fn end_events_map_to_stop_reasons() {
    let ended = |kind: &str, response: &str| {
        read(&[&format!(
            r#"{{"type":"response.{kind}","response":{response}}}"#
        )])
        .0
    };
    let table = [
        ("completed", "{}", StopReason::EndTurn),
        (
            "incomplete",
            r#"{"incomplete_details":{"reason":"max_output_tokens"}}"#,
            StopReason::Length,
        ),
        (
            "incomplete",
            r#"{"incomplete_details":{"reason":"content_filter"}}"#,
            StopReason::Refusal,
        ),
        (
            "incomplete",
            r#"{"incomplete_details":{"reason":"novel"}}"#,
            StopReason::Other,
        ),
        (
            "incomplete",
            r#"{"status":"incomplete"}"#,
            StopReason::Length,
        ),
    ];
    for (kind, response, reason) in table {
        assert_eq!(
            ended(kind, response),
            [Delta::Stopped(reason)],
            "{response}"
        );
    }
    let refusal =
        r#"{"output":[{"type":"message","content":[{"type":"refusal","refusal":"No"}]}]}"#;
    let stopped = Delta::Stopped(StopReason::Refusal);
    assert_eq!(ended("completed", refusal), [text("No"), stopped]);
}

#[test]
fn errors_in_the_stream_are_failures() {
    let table = [
        (
            r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"Rate limit reached. Please try again in 11.054s."}}}"#,
            Cause::RateLimited,
        ),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"oops"},"instructions":"the context window is exceeded"}}"#,
            Cause::ServerError,
        ),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"too long"}}}"#,
            Cause::ContextOverflow,
        ),
        (
            r#"{"type":"error","code":"insufficient_quota","message":"You exceeded your current quota"}"#,
            Cause::Billing,
        ),
        (
            r#"{"type":"error","status":429,"error":{"type":"usage_limit_reached","message":"The usage limit has been reached"}}"#,
            Cause::UsageLimit,
        ),
        (
            r#"{"type":"response.completed","response":{"status":"failed","error":{"code":"server_error","message":"x"}}}"#,
            Cause::ServerError,
        ),
        (
            r#"{"type":"response.done","response":{"status":"completed","error":{"code":"rate_limit_exceeded","message":"x"}}}"#,
            Cause::RateLimited,
        ),
        (
            r#"{"type":"response.error","error":{"code":"rate_limit_exceeded","message":"x"}}"#,
            Cause::RateLimited,
        ),
        (r#"{"code":429,"message":"slow down"}"#, Cause::RateLimited),
        (r#"{"detail":"Invalid API key"}"#, Cause::Auth),
        ("502 Bad Gateway", Cause::ServerError),
    ];
    for (frame, cause) in table {
        let failure = read(&[frame]).1.unwrap();
        assert_eq!(classify(&failure).cause, cause, "{frame}");
    }
}

#[test]
fn unknown_events_and_fields_are_skipped() {
    let frames = [
        r#"{"type":"response.created","response":{}}"#,
        r#"{"type":"response.novel.delta","delta":[]}"#,
        r#"{"type":"response.output_text.delta","output_index":"x","delta":5}"#,
        r#"{"type":"response.output_item.done","item":{"type":"novel_call"}}"#,
        r#"{}"#,
        "[DONE]",
    ];
    assert_eq!(read(&frames), (vec![], None));
}

#[test]
fn non_streamed_response_decodes_to_deltas_or_failure() {
    let body = r#"{"status":"completed","output":[{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"Hm"}]},
        {"type":"message","content":[{"type":"output_text","text":"Hi"}]},
        {"type":"function_call","call_id":"a","name":"run","arguments":"{}"}],
        "usage":{"input_tokens":10,"output_tokens":4,"input_tokens_details":{"cached_tokens":6}}}"#;
    let proof = Proof::Encrypted {
        id: "rs".to_owned(),
        content: None,
    };
    let done = Reasoning {
        text: "Hm".to_owned(),
        proof: Some(proof),
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
        call("a", "run", "{}"),
        Delta::Usage(usage),
        Delta::Stopped(StopReason::ToolUse),
    ];
    assert_eq!(decode_response("p", body, NOW).unwrap(), expected);
    let failed = r#"{"status":"failed","error":{"code":"server_error","message":"x"},"output":[]}"#;
    let failure = decode_response("p", failed, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::ServerError);
    let whole = |status: &str| {
        let body = format!(r#"{{"object":"response","status":"{status}","output":[]}}"#);
        decode_response("p", &body, NOW)
    };
    let stopped = Delta::Stopped(StopReason::Length);
    assert_eq!(whole("incomplete").unwrap(), [stopped]);
    for status in ["queued", "in_progress"] {
        assert_eq!(whole(status).unwrap_err().io, Some(IoKind::Truncated));
    }
    assert!(whole("cancelled").is_err());
}
