use super::*;
use crate::test_support::{NOW, call, text};
use crate::{Dialect, StreamDecoder, sse};
use outlast_kernel::event::StopReason;

/// Reasoning, text and two calls whose arguments alternate.
const STREAM: &str = include_str!("../../../../corpus/streams/openai_responses.sse");

fn events(stream: &str) -> Vec<sse::Event> {
    let mut decoder = sse::Decoder::new(1 << 20);
    decoder.push(stream.as_bytes());
    std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
}

fn stored_stream() -> Vec<sse::Event> {
    events(&STREAM.replace(r#""background":false"#, r#""background":true"#))
}

/// Converts data lines to events numbered in their order.
fn numbered(data: &[&str]) -> Vec<sse::Event> {
    let event = |(number, data): (usize, &&str)| {
        let mut data: Value = serde_json::from_str(data).unwrap();
        data["sequence_number"] = number.into();
        let (name, data) = (String::new(), data.to_string());
        sse::Event { name, data }
    };
    data.iter().enumerate().map(event).collect()
}

fn read(mut reader: StreamDecoder, events: &[sse::Event]) -> Vec<Delta> {
    let mut deltas = Vec::new();
    for event in events {
        reader.decode(event, NOW, &mut deltas).unwrap();
    }
    deltas
}

fn read_from_start(events: &[sse::Event]) -> Vec<Delta> {
    read(Dialect::OpenaiResponses.decoder("p"), events)
}

fn read_resumed(place: &StreamCursor, events: &[sse::Event]) -> Vec<Delta> {
    read(
        Dialect::OpenaiResponses.decoder_after("p", place),
        &rest(place, events),
    )
}

/// Returns the events that the server has after that cursor.
fn rest(place: &StreamCursor, events: &[sse::Event]) -> Vec<sse::Event> {
    let number = |event: &sse::Event| {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        data["sequence_number"].as_u64().unwrap()
    };
    let is_after = |event: &&sse::Event| number(event) > place.after;
    events.iter().filter(is_after).cloned().collect()
}

/// Splits the deltas from the cursor after them, the last delta before a cut.
fn apart(deltas: Vec<Delta>) -> (Vec<Delta>, Option<StreamCursor>) {
    let is_place = |delta: &Delta| matches!(delta, Delta::Cursor(_));
    let place = match deltas.last() {
        Some(Delta::Cursor(place)) => Some(place.clone()),
        _ => None,
    };
    let said = deltas.into_iter().filter(|delta| !is_place(delta));
    (said.collect(), place)
}

/// Cuts the stream after every event, and its rest after every event again.
fn assert_once_wherever_it_is_cut_twice(events: &[sse::Event]) {
    let whole = read_from_start(events);
    assert!(matches!(whole.last(), Some(Delta::Stopped(_))), "{whole:?}");
    let (whole, _) = apart(whole);
    for first in 1..events.len() {
        let (before, place) = apart(read_from_start(&events[..first]));
        let place = place.unwrap_or_else(|| panic!("no place at {first}: {before:?}"));
        for second in first..=events.len() {
            let (between, next) = apart(read_resumed(&place, &events[..second]));
            let is_over = matches!(between.last(), Some(Delta::Stopped(_)));
            let said = [before.clone(), between].concat();
            let said = match is_over {
                true => said,
                // An event without deltas does not move the cursor.
                false => {
                    let place = next.as_ref().unwrap_or(&place);
                    [said, apart(read_resumed(place, events)).0].concat()
                }
            };
            assert_eq!(said, whole, "cut after {first} and {second}");
        }
    }
}

#[test]
fn stream_cut_twice_and_resumed_yields_each_delta_once() {
    assert_once_wherever_it_is_cut_twice(&stored_stream());
}

#[test]
fn replayed_events_before_cursor_are_skipped() {
    let events = stored_stream();
    let (whole, _) = apart(read_from_start(&events));
    for cut in 1..events.len() {
        let (before, place) = apart(read_from_start(&events[..cut]));
        let reader = Dialect::OpenaiResponses.decoder_after("p", &place.unwrap());
        let after = apart(read(reader, &events)).0;
        assert_eq!([before, after].concat(), whole, "cut after {cut}");
    }
}

#[test]
fn reasoning_refusals_and_empty_calls_resume_exactly_once() {
    let created = r#"{"type":"response.created","response":{"id":"resp_1","background":true}}"#;
    let thoughts = [
        created,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs","type":"reasoning"}}"#,
        r#"{"type":"response.reasoning_summary_part.added","item_id":"rs","output_index":0,"summary_index":0}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs","output_index":0,"summary_index":0,"delta":"One"}"#,
        r#"{"type":"response.reasoning_summary_text.done","item_id":"rs","output_index":0,"summary_index":0,"text":"One"}"#,
        r#"{"type":"response.reasoning_summary_part.added","item_id":"rs","output_index":0,"summary_index":1}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs","output_index":0,"summary_index":1,"delta":"Two"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","summary":[{"type":"summary_text","text":"One"},{"type":"summary_text","text":"Two"}]}}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"id":"rs","type":"reasoning","summary":[{"type":"summary_text","text":"One"},{"type":"summary_text","text":"Two"}]}]}}"#,
    ];
    let refusal = [
        created,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message"}}"#,
        r#"{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":0,"delta":"I"}"#,
        r#"{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":0,"delta":" won't"}"#,
        r#"{"type":"response.refusal.done","item_id":"m","output_index":0,"content_index":0,"refusal":"I won't"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"refusal","refusal":"I won't"}]}}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"id":"m","type":"message","content":[{"type":"refusal","refusal":"I won't"}]}]}}"#,
    ];
    let calls = [
        created,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"a","type":"function_call","call_id":"call_a","name":"run","arguments":""}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"b","type":"function_call","call_id":"call_b","name":"run","arguments":""}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"a","type":"function_call","call_id":"call_a","name":"run","arguments":""}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"b","type":"function_call","call_id":"call_b","name":"run","arguments":""}}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"id":"a","type":"function_call","call_id":"call_a","name":"run","arguments":""},{"id":"b","type":"function_call","call_id":"call_b","name":"run","arguments":""}]}}"#,
    ];
    for data in [&thoughts[..], &refusal, &calls] {
        assert_once_wherever_it_is_cut_twice(&numbered(data));
    }
}

/// The first call ends before the second, although the second call's arguments come first.
#[test]
fn resumed_partial_call_is_emitted_only_when_complete() {
    let place = StreamCursor {
        response: "resp_1".to_owned(),
        after: 0,
    };
    let rest = |item: &str| {
        numbered(&[
            "{}",
            r#"{"type":"response.function_call_arguments.delta","item_id":"b","output_index":1,"delta":"2"}"#,
            &format!(r#"{{"type":"response.output_item.done","output_index":1,"item":{item}}}"#),
            r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        ])
    };
    let whole =
        r#"{"id":"b","type":"function_call","call_id":"call_b","name":"run","arguments":"[12"}"#;
    let half = apart(read_resumed(&place, &rest(whole))).0;
    let name = "run".to_owned();
    let cut = [
        Delta::IncompleteToolCall { name },
        Delta::Stopped(StopReason::EndTurn),
    ];
    assert_eq!(half, cut);
    let untold = r#"{"id":"b","type":"function_call","call_id":"call_b","name":"run"}"#;
    let none = apart(read_resumed(&place, &rest(untold))).0;
    assert_eq!(none, cut);
    let whole =
        r#"{"id":"b","type":"function_call","call_id":"call_b","name":"run","arguments":"12"}"#;
    let said = apart(read_resumed(&place, &rest(whole))).0;
    let stopped = Delta::Stopped(StopReason::ToolUse);
    assert_eq!(said, [call("call_b", "run", "12"), stopped]);
}

#[test]
fn item_started_after_cursor_is_decoded_without_deltas() {
    let place = StreamCursor {
        response: "resp_1".to_owned(),
        after: 0,
    };
    let rest = numbered(&[
        "{}",
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"m","type":"message"}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"Hello"}]}}"#,
    ]);
    assert_eq!(apart(read_resumed(&place, &rest)).0, [text("Hello")]);
}

#[test]
fn no_cursor_without_storage_valid_id_and_numbering() {
    let is_place = |delta: &Delta| matches!(delta, Delta::Cursor(_));
    assert!(!read_from_start(&events(STREAM)).iter().any(is_place));
    let hello = r#"{"type":"response.output_text.delta","output_index":0,"delta":"Hello"}"#;
    let kept = |id: &str| {
        format!(r#"{{"type":"response.created","response":{{"id":"{id}","background":true}}}}"#)
    };
    for id in ["", "..", "../models", "a/b", "a?b", "a b", "a%2Fb"] {
        assert_eq!(
            read_from_start(&numbered(&[&kept(id), hello])),
            [text("Hello")],
            "{id}"
        );
    }
    let mut uncounted = numbered(&[&kept("resp_1")]);
    uncounted.extend(numbered(&[hello]));
    let said = read_from_start(&uncounted);
    assert_eq!(said.last(), Some(&text("Hello")));
}

#[test]
fn resume_path_exists_only_for_valid_openai_response_ids() {
    let place = |id: &str| StreamCursor {
        response: id.to_owned(),
        after: 7,
    };
    let path = |dialect: Dialect, id: &str| dialect.resume_path(&place(id));
    let expected = "/v1/responses/resp_1?stream=true&starting_after=7".to_owned();
    assert_eq!(path(Dialect::OpenaiResponses, "resp_1"), Some(expected));
    assert_eq!(path(Dialect::OpenaiResponses, "../models"), None);
    assert_eq!(path(Dialect::Anthropic, "resp_1"), None);
    assert_eq!(path(Dialect::OpenaiChat, "resp_1"), None);
}
