//! Sessions over a WebSocket.

use crate::rpc_driver::in_real_time;
use crate::serve_driver::socket::Socket;
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, kinds};
use crate::support::Outlast;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Returns the events of frames of one conversation, whose numbers must increase.
fn events(frames: &[Value], id: &str) -> Vec<Value> {
    let mut last = 0;
    let events = frames.iter().map(|frame| {
        assert_eq!(
            (&frame["type"], &frame["conversationId"]),
            (&json!("chat.delta"), &json!(id))
        );
        let seq = frame["seq"].as_u64().unwrap();
        assert!(seq > last, "{frame}");
        assert!(
            frame["place"]
                .as_str()
                .unwrap()
                .ends_with(&format!("-{seq}")),
            "{frame}"
        );
        assert_eq!(frame.as_object().unwrap().len(), 5, "{frame}");
        last = seq;
        frame["event"].clone()
    });
    events.collect()
}

#[test]
fn socket_sends_snapshot_then_events_of_prompt() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    server.prompt_and_follow(&id, "before").all();
    let mut socket = Socket::open(&server);
    assert_eq!(socket.done("chat.subscribe", &id, json!({})), Value::Null);
    let snapshot = socket.frame();
    assert_eq!(
        (&snapshot["type"], &snapshot["conversationId"]),
        (&json!("chat.snapshot"), &json!(id))
    );
    let inner = &snapshot["snapshot"];
    assert_eq!(
        (&snapshot["place"], &snapshot["seq"]),
        (&inner["place"], &inner["seq"])
    );
    assert_eq!(inner["events"], json!(server.snapshot_events(&id)));
    let sent = socket.done("chat.send", &id, json!({ "text": "hi" }));
    assert_eq!(sent, json!({ "disposition": "started" }));
    let frames = socket.until("sealed");
    let live = events(&frames, &id);
    assert!(frames[0]["seq"].as_u64() > snapshot["seq"].as_u64());
    assert_eq!(
        kinds(&live),
        [
            "start",
            "input",
            "usage",
            "text-delta",
            "usage",
            "step-complete",
            "done",
            "sealed"
        ]
    );
    // A client that reconnects with a cursor gets the events after it and no snapshot.
    let place = &frames[2]["place"];
    let mut other = Socket::open(&server);
    other.done("chat.subscribe", &id, json!({ "after": place }));
    assert_eq!(other.until("sealed"), frames[3..]);
    let mut native = Socket::open(&server);
    native.done(
        "chat.subscribe",
        &id,
        json!({ "after": place, "dialect": "native" }),
    );
    let native = native.until("sealed");
    assert_eq!(
        native.last().unwrap()["place"],
        frames.last().unwrap()["place"]
    );
    assert_eq!(native[0]["event"]["v"], 1);
}

#[test]
fn socket_ends_wait_by_abort_abort_retry_or_retry_now() {
    let outlast = in_real_time();
    outlast.write("home/outlast.toml", AN_HOUR);
    let server = Serve::start(&outlast, "error:503,times=1+ok:text,times=always");
    let mut socket = Socket::open(&server);
    let table = [
        ("chat.abort", &["sealed"][..], "aborted"),
        ("chat.abort_retry", &["error", "sealed"], "error"),
        (
            "chat.retry_now",
            &[
                "usage",
                "text-delta",
                "usage",
                "step-complete",
                "done",
                "sealed",
            ],
            "completed",
        ),
    ];
    for (order, expected, seal) in table {
        let id = server.session();
        socket.done("chat.subscribe", &id, json!({}));
        assert_eq!(socket.frame()["type"], "chat.snapshot");
        socket.done("chat.send", &id, json!({ "text": "hi" }));
        socket.until("provider-retry");
        assert_eq!(socket.done(order, &id, json!({})), Value::Null);
        let rest = events(&socket.until("sealed"), &id);
        assert_eq!(kinds(&rest), expected, "{order}");
        assert_eq!(rest.last().unwrap()["status"], seal);
    }
}

#[test]
fn one_socket_follows_many_sessions_without_duplicates() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let ids = [server.session(), server.session(), server.session()];
    let mut socket = Socket::open(&server);
    for id in &ids {
        // The second subscription replaces the first.
        for _ in 0..2 {
            socket.done("chat.subscribe", id, json!({}));
        }
    }
    assert_eq!(
        socket.done("chat.unsubscribe", &ids[2], json!({})),
        Value::Null
    );
    for id in ids.iter().rev() {
        server.prompt_and_follow(id, "hi").all();
    }
    let mut shown = ids.clone().map(|_| Transcript::default());
    while shown[..2].iter().any(|it| it.seals() != ["completed"]) {
        let frame = socket.frame();
        let place = ids
            .iter()
            .position(|id| frame["conversationId"] == *id)
            .unwrap();
        match frame["type"].as_str().unwrap() {
            "chat.snapshot" => assert_eq!(frame["snapshot"]["events"], json!([])),
            _ => shown[place].apply(&frame["event"]),
        }
    }
    for (id, shown) in ids.iter().zip(&shown).take(2) {
        assert_eq!(*shown, Transcript::of(&server.snapshot_events(id)));
    }
    assert_eq!(shown[2], Transcript::default(), "it was left");
}

#[test]
fn invalid_request_gets_problem_with_its_id() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let mut socket = Socket::open(&server);
    let nobody = "01900000-0000-7000-8000-000000000001";
    let table = [
        ("chat.subscribe", nobody, json!({}), (404, "not_found")),
        ("chat.send", "", json!({ "text": "hi" }), (404, "not_found")),
        ("chat.dance", &id, json!({}), (400, "invalid_request")),
        (
            "chat.subscribe",
            &id,
            json!({ "after": "x" }),
            (400, "invalid_request"),
        ),
        (
            "chat.subscribe",
            &id,
            json!({ "dialect": "latin" }),
            (422, "invalid_value"),
        ),
        (
            "chat.send",
            &id,
            json!({ "text": "" }),
            (422, "invalid_value"),
        ),
        ("chat.send", &id, json!({}), (422, "invalid_value")),
        (
            "chat.send",
            &id,
            json!({ "text": "hi", "deliver": "pigeon" }),
            (422, "invalid_value"),
        ),
        (
            "chat.send",
            &id,
            json!({ "text": "hi", "images": 7 }),
            (422, "invalid_value"),
        ),
    ];
    for (kind, id, more, (status, code)) in table {
        let reply = socket.ask(kind, id, more.clone());
        assert_eq!(reply["ok"], false, "{reply}");
        assert_eq!(reply.get("data"), None);
        let problem = &reply["problem"];
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(status), &json!(code)),
            "{kind} {more}: {reply}"
        );
        assert_eq!(problem["type"], "about:blank");
    }
    // An id may be any JSON value.
    for own in [json!("a"), json!({ "x": [1] }), Value::Null] {
        let request = json!({ "type": "chat.unsubscribe", "id": own, "conversationId": id });
        socket.send(Message::text(request.to_string()));
        assert_eq!(socket.reply(&own)["ok"], true);
    }
    assert_eq!(server.show(&id)["state"], "new");
}

#[test]
fn malformed_message_gets_problem_and_keeps_socket_open() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let mut socket = Socket::open(&server);
    for message in [
        Message::text("nonsense"),
        Message::text(""),
        Message::text("[]"),
        Message::text("{}"),
        Message::text("{\"type\": 7}"),
        Message::text("{\"type\": \"chat.abort\"} trailing"),
        Message::binary(vec![0xff, 0, 1]),
        Message::binary(b"{\"type\": \"chat.abort\"}".to_vec()),
        Message::text("[".repeat(5000)),
    ] {
        socket.send(message.clone());
        let reply = socket.reply(&Value::Null);
        assert_eq!(reply["ok"], false, "{message}");
        let status = reply["problem"]["status"].as_u64().unwrap();
        assert!([400, 422].contains(&status), "{message}: {reply}");
    }
    socket.send(Message::Ping(b"there?".to_vec().into()));
    socket.done("chat.subscribe", &id, json!({}));
    assert_eq!(socket.frame()["type"], "chat.snapshot");
}
