//! Items in many forms, each emitted once.

use super::tests::COMPLETED;
use super::*;
use crate::Dialect;
use crate::test_support::{call, cut, read_all, read_named, signs, text, wire};
use outlast_kernel::failure::IoKind;

fn read(data: &[&str]) -> (Vec<Delta>, Option<Failure>) {
    read_all(Dialect::OpenaiResponses, &wire(data))
}

fn event(kind: &str, rest: &str) -> String {
    format!(r#"{{"type":"response.{kind}",{rest}}}"#)
}

/// Returns the deltas of the events.
fn emitted_deltas(events: &[(&str, &str)]) -> Vec<Delta> {
    let frames: Vec<String> = events
        .iter()
        .map(|(kind, rest)| event(kind, rest))
        .collect();
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    let (deltas, failure) = read(&frames);
    assert_eq!(failure, None);
    deltas
}

const CALL: &str =
    r#""item":{"type":"function_call","id":"fc","call_id":"a","name":"run","arguments":"[1]"}"#;
const OUTPUT_LIST: &str = r#""response":{"output":[{"type":"function_call","id":"fc","call_id":"a","name":"run","arguments":"[1]"}]}"#;
const ITEM_STARTED: &str =
    r#""item":{"type":"function_call","id":"fc","call_id":"a","name":"run","arguments":""}"#;
const EMPTY: &str = r#""response":{}"#;

#[test]
fn tool_call_is_emitted_once_and_only_when_complete() {
    let added = ("output_item.added", ITEM_STARTED);
    let pieces = (
        "function_call_arguments.delta",
        r#""item_id":"fc","delta":"[1]""#,
    );
    let half = (
        "function_call_arguments.delta",
        r#""item_id":"fc","delta":"[1""#,
    );
    let all = (
        "function_call_arguments.done",
        r#""item_id":"fc","arguments":"[1]""#,
    );
    let done = ("output_item.done", CALL);
    let (end, listed) = (("completed", EMPTY), ("completed", OUTPUT_LIST));
    let once: [&[(&str, &str)]; 8] = [
        &[done, end],
        &[done, listed],
        &[done, done, listed],
        &[listed],
        &[added, pieces, end],
        &[added, half, all, end],
        &[added, pieces, ("output_item.done", ITEM_STARTED), listed],
        &[added, half, done, listed],
    ];
    for events in once {
        let stopped = Delta::Stopped(StopReason::ToolUse);
        assert_eq!(
            emitted_deltas(events),
            [call("a", "run", "[1]"), stopped],
            "{events:?}"
        );
    }
    let half_told = CALL.replace("[1]", "[1");
    let incomplete = CALL.replace(r#""id":"fc""#, r#""id":"fc","status":"incomplete""#);
    let never: [&[(&str, &str)]; 4] = [
        &[added, half, end],
        &[added, end],
        &[("output_item.done", &half_told), end],
        &[added, pieces, ("output_item.done", &incomplete), end],
    ];
    for events in never {
        assert_eq!(
            emitted_deltas(events),
            [cut("run"), Delta::Stopped(StopReason::EndTurn)],
            "{events:?}"
        );
    }
}

#[test]
fn items_are_matched_by_id_then_index_then_content() {
    let item = |id: &str, text: &str| {
        format!(r#"{{{id}"type":"message","content":[{{"type":"output_text","text":"{text}"}}]}}"#)
    };
    let (a, b) = (item(r#""id":"a","#, "One"), item(r#""id":"b","#, "Two"));
    let (c, d) = (item(r#""id":"c","#, "One"), item(r#""id":"d","#, "Two"));
    let (nameless_one, nameless_two) = (item("", "One"), item("", "Two"));
    let piece =
        |rest: &str, text: &str| ("output_text.delta", format!(r#"{rest}"delta":"{text}""#));
    let done = |rest: &str, item: &str| ("output_item.done", format!(r#"{rest}"item":{item}"#));
    let end = |items: &[&str]| {
        let output = items.join(",");
        (
            "completed",
            format!(r#""response":{{"output":[{output}]}}"#),
        )
    };
    let (first, second) = (r#""output_index":0,"#, r#""output_index":1,"#);
    let table = [
        // Without indexes.
        vec![
            piece(r#""item_id":"a","#, "One"),
            done("", &a),
            piece(r#""item_id":"b","#, "Two"),
            done("", &b),
            end(&[&a, &b]),
        ],
        // Without ids and indexes.
        vec![
            piece("", "One"),
            done("", &nameless_one),
            piece("", "Two"),
            done("", &nameless_two),
            end(&[&nameless_one, &nameless_two]),
        ],
        // All at the same index.
        vec![done(first, &a), done(first, &b), end(&[&a, &b])],
        // With other ids at the end, and not all of them listed.
        vec![
            piece(first, "One"),
            done(first, &a),
            piece(second, "Two"),
            done(second, &b),
            end(&[&d]),
        ],
        vec![piece(first, "One"), piece(second, "Two"), end(&[&c, &d])],
        // The last one only in the list, at another index.
        vec![done(second, &a), end(&[&a, &b])],
        vec![piece(second, "One"), end(&[&b])],
    ];
    for events in table {
        let events: Vec<(&str, &str)> = events
            .iter()
            .map(|(kind, rest)| (*kind, rest.as_str()))
            .collect();
        let expected = [
            text("One"),
            text("Two"),
            Delta::Stopped(StopReason::EndTurn),
        ];
        assert_eq!(emitted_deltas(&events), expected, "{events:?}");
    }
}

#[test]
fn unstreamed_content_part_is_taken_from_done_event() {
    let piece = |part: u64, text: &str| {
        (
            "output_text.delta",
            format!(r#""output_index":0,"content_index":{part},"delta":"{text}""#),
        )
    };
    let whole = (
        "output_text.done",
        r#""output_index":0,"content_index":1,"text":"Two""#.to_owned(),
    );
    let done = (
        "output_item.done",
        r#""output_index":0,"item":{"type":"message","content":[{"text":"One"},{"text":"Two"}]}"#
            .to_owned(),
    );
    let table = [
        vec![piece(0, "One"), done.clone()],
        vec![piece(0, "One"), piece(0, "Two"), done.clone()],
        vec![piece(0, "One"), whole.clone(), done.clone()],
        vec![piece(0, "One"), piece(1, "Two"), whole, done.clone()],
    ];
    for events in table {
        let events: Vec<(&str, &str)> = events
            .iter()
            .map(|(kind, rest)| (*kind, rest.as_str()))
            .collect();
        assert_eq!(
            emitted_deltas(&events),
            [text("One"), text("Two")],
            "{events:?}"
        );
    }
    let second = piece(1, "Two");
    let events = [(second.0, second.1.as_str()), (done.0, &done.1)];
    assert_eq!(emitted_deltas(&events), [text("Two"), text("One")]);
}

#[test]
fn only_completion_events_count_as_progress() {
    use StreamActivity::{KeepAlive, Opening, Progress};
    let table = [
        ("created", Opening),
        ("queued", Opening),
        ("in_progress", Opening),
        ("in_progress", KeepAlive),
        ("queued", KeepAlive),
        ("weather.report", KeepAlive),
        ("output_item.added", Progress),
        ("content_part.added", Progress),
        ("output_text.delta", Progress),
        ("web_search_call.searching", Progress),
        ("in_progress", KeepAlive),
        ("completed", Progress),
    ];
    let frames = table.map(|(kind, _)| event(kind, r#""response":{}"#));
    let expected = table.map(|(_, sign)| sign);
    let dialect = Dialect::OpenaiResponses;
    assert_eq!(
        signs(dialect, &frames.each_ref().map(String::as_str)),
        expected
    );
    // An opening event after the beginning opens nothing.
    let late = [
        event("output_item.added", r#""item":{}"#),
        event("created", r#""response":{}"#),
    ];
    assert_eq!(
        signs(dialect, &late.each_ref().map(String::as_str)),
        [Progress, KeepAlive]
    );
}

#[test]
fn error_event_is_failure_unless_its_data_is_known() {
    let dialect = Dialect::OpenaiResponses;
    for data in [r#"{"oops":1}"#, "Overloaded", r#"{"message":"Overl"#] {
        assert!(read_named(dialect, "error", data).is_some(), "{data}");
    }
    assert_eq!(read_named(dialect, "error", COMPLETED), None);
}

#[test]
fn too_many_items_are_a_failure() {
    let frames: Vec<String> = (0..1001)
        .map(|place| {
            event(
                "output_item.added",
                &format!(r#""output_index":{place},"item":{{"id":"i{place}"}}"#),
            )
        })
        .collect();
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    assert_eq!(read(&frames[..1000]).1, None);
    assert_eq!(read(&frames).1.unwrap().io, Some(IoKind::Protocol));
}

/// Returns the events of a completion as a server with that habit would send them.
fn with_habit(habit: &str, number: usize, mut event: Value) -> Vec<Value> {
    let is_piece = event["delta"].is_string();
    let fields = event.as_object_mut().unwrap();
    match habit {
        "no places" => fields.retain(|name, _| name != "output_index"),
        "no ids" => fields.retain(|name, _| name != "item_id"),
        "one place" if fields.contains_key("output_index") => event["output_index"] = 0.into(),
        "new ids" if fields.contains_key("item_id") => event["item_id"] = number.to_string().into(),
        "no list" if event["type"] == "response.completed" => {
            event["response"]["output"] = Value::Null;
        }
        "no items" if event["type"] == "response.output_item.done" => return Vec::new(),
        "twice" if !is_piece => return vec![event.clone(), event],
        _ => {}
    }
    vec![event]
}

#[test]
fn server_quirks_do_not_change_decoded_deltas() {
    let deltas = [
        text("Hel"),
        text("lo"),
        call("a", "run", r#"{"one":1,"x":2}"#),
        call("b", "run", r#"{"one":1,"x":2}"#),
        Delta::Stopped(StopReason::ToolUse),
    ];
    let frames = Dialect::OpenaiResponses
        .encode_stream("m", &deltas)
        .concat();
    let data = frames
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    for habit in [
        "no places",
        "no ids",
        "one place",
        "new ids",
        "no list",
        "no items",
        "twice",
    ] {
        let events = events.iter().cloned().enumerate();
        let events = events.flat_map(|(number, event)| with_habit(habit, number, event));
        let frames: Vec<String> = events.map(|event| event.to_string()).collect();
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        let (read, failure) = read(&frames);
        assert_eq!(failure, None, "{habit}");
        assert_eq!(read[..deltas.len()], deltas, "{habit}");
    }
}
