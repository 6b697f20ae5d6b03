//! Clients of `outlast serve` that disconnect at once, connect at the same time, or connect through a proxy.

use crate::serve_driver::Serve;
use crate::support::Outlast;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Sends a prompt and disconnects before the response.
fn say_and_go(server: &Serve, session: &str, delay: Duration) {
    let body = json!({ "text": "hello" }).to_string();
    let head = format!(
        "POST /api/sessions/{session}/prompt HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    let mut socket = TcpStream::connect(&server.address).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(delay);
}

/// A request that was received whole is handled, however soon its client disconnects.
#[test]
fn prompt_runs_after_its_client_disconnects() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok");
    let sessions: Vec<String> = (0..24).map(|_| server.session()).collect();
    // Half of them disconnect with their last byte.
    for (number, session) in (-12_i64..).zip(&sessions) {
        let delay = Duration::from_millis(number.max(0).unsigned_abs());
        say_and_go(&server, session, delay);
    }
    for session in &sessions {
        server.when(session, |it| it["turns"] == 1 && it["state"] == "idle");
    }
}

/// Many prompts at once in one session: each that begins a turn gets the stream of that turn only.
#[test]
fn prompt_stream_contains_only_its_own_turn() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok");
    let session = server.session();
    let path = format!("/api/sessions/{session}/prompt");
    let answers: Vec<String> = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let said = json!({ "text": format!("number {number}") });
            let ask = server.ask("POST", &path).json(&said);
            ask.with("accept", "application/x-ndjson").send().text()
        };
        let asking: Vec<_> = (0..24)
            .map(|number| scope.spawn(move || ask(number)))
            .collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut streams = 0;
    for (number, answer) in answers.iter().enumerate() {
        let lines: Vec<Value> = answer
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if lines[0]["disposition"] == "queued" {
            continue;
        }
        streams += 1;
        let kinds: Vec<&str> = lines
            .iter()
            .map(|line| line["type"].as_str().unwrap())
            .collect();
        assert_eq!((kinds[0], kinds[1]), ("start", "input"), "{answer}");
        assert_eq!(lines[1]["text"], format!("number {number}"));
        assert_eq!(
            kinds.iter().filter(|kind| **kind == "sealed").count(),
            1,
            "{answer}"
        );
        assert_eq!(kinds.last(), Some(&"sealed"), "{answer}");
        assert!(
            lines
                .iter()
                .all(|line| line["turnId"] == lines[0]["turnId"]),
            "{answer}"
        );
    }
    assert!(streams > 0, "{answers:?}");
}

/// A proxy on this machine counts as a local client, so its requests need a token.
#[test]
fn proxied_request_is_refused_without_token() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok");
    for header in ["x-forwarded-for", "forwarded", "x-real-ip", "via"] {
        let answer = server
            .ask("GET", "/api/sessions")
            .with(header, "192.0.2.1")
            .send();
        let (status, said) = (answer.status, answer.text());
        assert_eq!(status, 403, "{header}");
        assert!(said.contains("serve.require_token"), "{said}");
    }
}
