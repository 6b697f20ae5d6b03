//! Following a session over HTTP: cursors, snapshots, reconnects.

use crate::rpc_driver::in_real_time;
use crate::serve_driver::http::Message;
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, kinds};
use crate::support::Outlast;
use serde_json::{Value, json};

/// A script with retries, two tool calls, and text.
const BUSY: &str = "overloaded:2+ok:agent,times=always";
const PROMPT: &str = "call grep {\"pattern\":\"x\"}\ncall read {\"path\":\"a\"}\nsay done";

/// Splits a cursor into its log and its number.
fn number(place: &str) -> (&str, u64) {
    let (log, seq) = place.split_once('-').unwrap();
    assert_eq!(log.len(), 8, "{place}");
    (log, seq.parse().unwrap())
}

#[test]
fn stream_without_cursor_starts_with_snapshot() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let mut stream = server.sse(&id, None);
    let first = stream.next().unwrap();
    assert_eq!(first.event, "snapshot");
    assert_eq!(first.id, first.data["place"]);
    assert_eq!(number(&first.id).1, 0);
    assert_eq!(
        (&first.data["events"], &first.data["session"]["state"]),
        (&json!([]), &json!("new"))
    );
    let events = server.prompt_and_follow(&id, "hi").all();
    let live = stream.until("sealed");
    let data: Vec<Value> = live.iter().map(|it| it.data.clone()).collect();
    assert_eq!(data, events);
    assert!(live.iter().all(|it| it.event.is_empty()));
    let mut last = number(&first.id);
    for message in &live {
        let (log, seq) = number(&message.id);
        assert!(log == last.0 && seq > last.1, "{message:?}");
        last = (log, seq);
    }
    let later = server.sse(&id, None).next().unwrap();
    assert_eq!(
        (later.event.as_str(), &*later.id),
        ("snapshot", &*live.last().unwrap().id)
    );
    assert_eq!(
        Transcript::of(later.data["events"].as_array().unwrap()),
        Transcript::of(&events)
    );
}

/// Returns the turn of the busy script as a live client receives it.
fn uninterrupted_stream(server: &Serve, id: &str) -> Vec<Message> {
    let mut stream = server.sse(id, None);
    stream.next().unwrap();
    server.leave(id, PROMPT);
    stream.until("sealed")
}

#[test]
fn reconnect_at_any_cursor_gets_each_event_once() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, BUSY);
    let id = server.session();
    let heard = uninterrupted_stream(&server, &id);
    assert!(heard.len() > 15, "{heard:?}");
    for (place, message) in heard.iter().enumerate() {
        let expected = &heard[place + 1..];
        if expected.is_empty() {
            continue;
        }
        let again = server.sse(&id, Some(&message.id)).until("sealed");
        assert_eq!(again, expected, "after {}", message.id);
        let lines = server.envelopes(&id, &message.id).until("sealed");
        let lines: Vec<(&Value, &Value)> = lines
            .iter()
            .map(|line| (&line["place"], &line["event"]))
            .collect();
        let expected: Vec<(Value, &Value)> =
            expected.iter().map(|it| (json!(it.id), &it.data)).collect();
        let expected: Vec<(&Value, &Value)> = expected.iter().map(|(id, it)| (id, *it)).collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn reconnect_mid_turn_continues_live() {
    let outlast = in_real_time();
    outlast.write("home/outlast.toml", AN_HOUR);
    let server = Serve::start(&outlast, "overloaded:1");
    let id = server.session();
    let mut all = server.sse(&id, None);
    let mut one = server.sse(&id, None);
    assert_eq!(all.next().unwrap().id, one.next().unwrap().id);
    server.leave(&id, "hi");
    let mut came = one.until("input");
    drop(one);
    // One event happens while the client is disconnected, and one after it is back.
    let before = all.until("provider-retry");
    let mut back = server.sse(&id, Some(&came.last().unwrap().id));
    came.extend(back.until("provider-retry"));
    assert_eq!(came, before);
    server.order(&id, "retry_now");
    assert_eq!(back.until("sealed"), all.until("sealed"));
}

#[test]
fn unknown_cursor_gets_snapshot_or_gone() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, BUSY);
    let id = server.session();
    let heard = uninterrupted_stream(&server, &id);
    let last = &heard.last().unwrap().id;
    let (log, seq) = number(last);
    let other_log = format!("{:08x}-1", !u32::from_str_radix(log, 16).unwrap());
    let future = format!("{log}-{}", seq + 1);
    let other_session = server.current_cursor(&server.session());
    for place in [&*other_log, &future, &other_session] {
        let first = server.sse(&id, Some(place)).next().unwrap();
        assert_eq!((&*first.event, &first.id), ("snapshot", last), "{place}");
        let gone = server.follow(&id, &format!("after={place}")).problem();
        assert_eq!((gone.0, &*gone.1), (410, "stale"), "{place}");
    }
    // A browser may send any value and gets a snapshot; a program gets an error.
    let first = server.sse(&id, Some("nonsense")).next().unwrap();
    assert_eq!(first.event, "snapshot");
    let (status, code, detail) = server.follow(&id, "after=nonsense").problem();
    assert_eq!((status, &*code), (400, "invalid_request"));
    assert!(detail.contains("a place is"), "{detail}");
    let wrong = server.follow(&id, "dialect=latin").problem();
    assert_eq!((wrong.0, &*wrong.1), (400, "invalid_request"));
    let unknown = server.follow(&id, "since=1").problem();
    assert!(
        unknown.0 == 400 && unknown.2.contains("since"),
        "{unknown:?}"
    );
}

#[test]
fn ndjson_without_cursor_starts_now_and_sse_takes_after() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let first = server.prompt_and_follow(&id, "one").all();
    let mut lines = server.follow(&id, "").lines();
    let second = server.prompt_and_follow(&id, "two").all();
    assert_eq!(lines.until("sealed"), second);
    let place = server.current_cursor(&id);
    let (log, _) = number(&place);
    let path = format!("/api/sessions/{id}/events?after={log}-0");
    let ask = server.ask("GET", &path).with("accept", "text/event-stream");
    let mut stream = ask.send().messages();
    let again: Vec<Value> = stream
        .until("sealed")
        .into_iter()
        .map(|it| it.data)
        .collect();
    assert_eq!(again, first);
}

#[test]
fn native_events_are_complete_and_share_cursors() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "overloaded:1");
    let id = server.session();
    let place = server.current_cursor(&id);
    let turn = server.prompt_and_follow(&id, "hi").all();
    let native = server
        .follow(&id, &format!("dialect=native&envelope=true&after={place}"))
        .lines()
        .until("sealed");
    for (number, line) in (1..).zip(&native) {
        assert_eq!(
            (&line["seq"], &line["event"]["seq"]),
            (&json!(number), &json!(number))
        );
        assert_eq!(line["event"]["v"], 1);
    }
    let of = |kind: &str| {
        native
            .iter()
            .find(|it| it["event"]["type"] == kind)
            .unwrap()
    };
    let scheduled = of("retry_scheduled");
    assert_eq!(scheduled["event"]["attempt"], 1);
    assert!(scheduled["event"]["retry_at"].is_string());
    of("attempt_started");
    let lines = server.envelopes(&id, &place).until("sealed");
    let retry = lines
        .iter()
        .find(|it| it["event"]["type"] == "provider-retry")
        .unwrap();
    assert_eq!(retry["place"], scheduled["place"]);
    let events: Vec<Value> = lines.into_iter().map(|it| it["event"].clone()).collect();
    assert_eq!(events, turn);
    let path = format!("/api/sessions/{id}/snapshot?dialect=native");
    let told = server.get(&path)["events"].clone();
    let told = kinds(told.as_array().unwrap());
    assert!(told.contains(&"step_complete".to_owned()), "{told:?}");
}

#[test]
fn prompt_response_can_be_server_sent_events() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let path = format!("/api/sessions/{id}/prompt");
    let ask = server.ask("POST", &path).json(&json!({ "text": "hi" }));
    let answer = ask.with("accept", "text/event-stream").send();
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let mut stream = answer.messages();
    let came = stream.until("sealed");
    assert_eq!(came[0].data["type"], "start");
    assert_eq!(stream.next(), None, "it ends with the turn");
    let rest = server.sse(&id, Some(&came[2].id)).until("sealed");
    assert_eq!(rest, came[3..]);
}
