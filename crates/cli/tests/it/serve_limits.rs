//! The limits of `outlast serve`, and open connections when the server ends.

use crate::mock_server::wait_for;
use crate::rpc_driver::in_real_time;
use crate::serve_driver::socket::Socket;
use crate::serve_driver::{AN_HOUR, Serve};
use crate::support::Outlast;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

#[test]
fn oversized_message_closes_only_its_socket() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", "[serve]\nmax_body = \"1KiB\"\n");
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let (mut long, mut other) = (Socket::open(&server), Socket::open(&server));
    other.done("chat.subscribe", &id, json!({}));
    let text = "x".repeat(4000);
    let request = json!({ "type": "chat.send", "id": 1, "conversationId": id, "text": text });
    long.send(Message::text(request.to_string()));
    assert_eq!(long.next(), None);
    assert_eq!(other.frame()["type"], "chat.snapshot");
    assert_eq!(server.show(&id)["state"], "new");
}

#[test]
fn server_shutdown_closes_sockets() {
    let outlast = in_real_time();
    outlast.write("home/outlast.toml", AN_HOUR);
    let server = Serve::start(&outlast, "overloaded:1");
    let id = server.session();
    let mut socket = Socket::open(&server);
    socket.done("chat.subscribe", &id, json!({}));
    socket.done("chat.send", &id, json!({ "text": "hi" }));
    socket.until("provider-retry");
    server.signal("-TERM");
    assert_eq!(socket.close_code(), Some(1001));
    assert_eq!(server.ended(), (Some(0), String::new()));
}

/// Whether there is capacity for one more connection.
fn is_answered(server: &Serve) -> bool {
    let mut socket = TcpStream::connect(&server.address).unwrap();
    let host = &server.address;
    let head = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let mut said = Vec::new();
    // A connection beyond the limit is refused without delay.
    socket.write_all(head.as_bytes()).ok();
    socket.read_to_end(&mut said).ok();
    said.starts_with(b"HTTP/1.1 200")
}

#[test]
fn socket_counts_against_max_connections() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", "[serve]\nmax_connections = 2\n");
    let server = Serve::start(&outlast, "ok");
    let (one, _two) = (Socket::open(&server), Socket::open(&server));
    assert!(!is_answered(&server));
    drop(one);
    wait_for("room", || is_answered(&server));
}

/// A stream that is cut off differs from one that has ended.
#[test]
fn slow_reader_is_disconnected_and_fast_reader_gets_all() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let path = format!("/api/sessions/{id}/settings");
    let change = server.ask("PATCH", &path);
    let change = change.json(&json!({ "auto_compaction": false }));
    change.send().well();
    let place = server.current_cursor(&id);
    let mut followed = server.follow(&id, &format!("after={place}")).lines();
    // Each is longer than the server's buffer for a stream and the buffers of the system.
    let long = "word ".repeat(1_000_000);
    for _ in 0..3 {
        let turn = server.prompt_and_follow(&id, &long).all();
        assert_eq!(turn[1]["text"], long);
        assert_eq!(turn.last().unwrap()["type"], "sealed");
    }
    let end = loop {
        match followed.try_next() {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    let cut = end.map_err(|error| error.kind());
    assert_eq!(cut, Err(ErrorKind::UnexpectedEof));
    let stale = server.follow(&id, &format!("after={place}"));
    assert_eq!(stale.problem().1, "stale");
}
