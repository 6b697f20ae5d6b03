
use super::*;
use crate::anthropic::write;
use outlast_kernel::classify::classify;
use outlast_kernel::verdict::Cause;

const NOW: Timestamp = Timestamp::from_millis(1);

fn read_all(frames: &[String]) -> Vec<Delta> {
    let mut decoder = sse::Decoder::new(1 << 20);
    let mut stream = Stream::new("anthropic");
    let mut deltas = Vec::new();
    decoder.push(frames.concat().as_bytes());
    while let Some(event) = decoder.next_event().unwrap() {
        deltas.extend(stream.read(&event, NOW).unwrap());
    }
    deltas
}

#[test]
fn what_is_written_is_read() {
    let usage = Usage {
        input: 12,
        output: 3,
        cache_read: 4,
        cache_write: 5,
    };
    let frames = [
        write::start("m", usage),
        write::ping(),
        write::text("Hel"),
        write::text("lo"),
        write::stop(7),
    ];
    let deltas = read_all(&frames);
    let after = Usage { output: 7, ..usage };
    assert_eq!(
        deltas,
        [
            Delta::Usage(usage),
            Delta::Text("Hel".to_owned()),
            Delta::Text("lo".to_owned()),
            Delta::Usage(after),
            Delta::Stopped(StopReason::EndTurn),
        ]
    );
}

#[test]
fn tool_calls_are_put_together_by_their_index() {
    let frame = |json: &str| format!("data: {json}\n\n");
    let block = |index: u32, id: &str| {
        frame(&format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"{id}","name":"run","input":{{}}}}}}"#
        ))
    };
    let part = |index: u32, text: &str| {
        frame(&format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{text}"}}}}"#
        ))
    };
    let stop = |index: u32| {
        frame(&format!(
            r#"{{"type":"content_block_stop","index":{index}}}"#
        ))
    };
    let call = |id: &str, arguments: &str| {
        Delta::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "run".to_owned(),
            arguments: arguments.to_owned(),
        })
    };
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
    assert_eq!(read_all(&frames), [call("b", "[2]"), call("a", "[1]")]);
}

#[test]
fn unknown_frames_and_fields_are_skipped() {
    let frames = [
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"novel_delta\"}}\n\n".to_owned(),
            "data: {\"type\":\"brand_new\",\"x\":1}\n\n".to_owned(),
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"image\"}}\n\n".to_owned(),
        ];
    assert_eq!(read_all(&frames), []);
}

#[test]
fn an_error_in_the_stream_is_a_failure_with_its_code() {
    let event = sse::Event {
        name: "error".to_owned(),
        data: write::error_body("overloaded_error", "Overloaded"),
    };
    let failure = Stream::new("anthropic").read(&event, NOW).unwrap_err();
    assert_eq!(classify(&failure).cause, Cause::Overloaded);
    assert_eq!(failure.code.as_deref(), Some("overloaded_error"));
}

#[test]
fn garbage_is_a_failure_and_not_a_panic() {
    let event = sse::Event {
        name: String::new(),
        data: "<html>busy</html>".to_owned(),
    };
    let failure = Stream::new("anthropic").read(&event, NOW).unwrap_err();
    assert_eq!(failure.io, Some(IoKind::Protocol));
}
