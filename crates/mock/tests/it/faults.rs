//! Faults over real sockets, byte by byte.

use crate::client::{
    Received, TestServer, completion_request, request, streamed_completion_request,
};
use futures_util::StreamExt;
use outlast_dialect::{Delivery, Delta, Dialect, sse};
use outlast_engine::transport::{Method, Request, Transport};
use outlast_kernel::Timestamp;
use outlast_kernel::event::StopReason;
use outlast_mock::ScriptedTransport;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Decodes a streamed body.
fn read(dialect: Dialect, body: &str) -> Vec<Delta> {
    let mut decoder = sse::Decoder::new(1 << 20);
    let (mut reader, mut deltas) = (dialect.decoder("p"), Vec::new());
    decoder.push(body.as_bytes());
    while let Some(event) = decoder.next_event().unwrap() {
        reader
            .decode(&event, Timestamp::default(), &mut deltas)
            .unwrap();
    }
    deltas
}

fn text(deltas: &[Delta]) -> String {
    let text = |delta: &Delta| match delta {
        Delta::Text(text) => Some(text.clone()),
        _ => None,
    };
    deltas.iter().filter_map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn every_dialect_is_served_streamed_and_non_streamed() {
    let server = TestServer::start().await;
    for dialect in Dialect::ALL {
        let streamed = server.ask(dialect, "gpt-4o").await;
        assert_eq!(streamed.status(), 200);
        assert_eq!(
            streamed.header("content-type"),
            Some("text/event-stream; charset=utf-8")
        );
        assert_eq!(
            streamed.header("date"),
            Some("Fri, 15 Jan 2027 08:00:00 GMT")
        );
        assert!(streamed.is_complete(), "{dialect:?}");
        let deltas = read(dialect, &streamed.body());
        assert!(text(&deltas).ends_with("You said: Say hello"), "{deltas:?}");
        assert_eq!(deltas.last(), Some(&Delta::Stopped(StopReason::EndTurn)));

        let whole = server
            .send(&completion_request(dialect, "m", Delivery::Whole, &[]))
            .await;
        assert_eq!(whole.header("content-type"), Some("application/json"));
        let deltas = dialect.decode_response("p", &whole.body(), Timestamp::default());
        assert!(text(&deltas.unwrap()).ends_with("You said: Say hello"));
    }
}

#[tokio::test(start_paused = true)]
async fn cut_sends_exactly_the_stated_bytes() {
    let server = TestServer::start().await;
    let dialect = Dialect::Anthropic;
    let whole = |delivery| completion_request(dialect, "m", delivery, &[]);
    for delivery in [Delivery::Streamed, Delivery::Whole] {
        let body = server.send(&whole(delivery)).await.body_bytes();
        for bytes in [0, 1, 100, body.len() - 1, body.len(), body.len() + 10] {
            let ask = |script: &str| {
                completion_request(dialect, "m", delivery, &[("x-outlast-script", script)])
            };
            let expected = &body[..bytes.min(body.len())];

            let cut = server
                .send(&ask(&format!("cut:{bytes},times=always")))
                .await;
            assert_eq!(cut.error, None);
            assert_eq!(cut.body_bytes(), expected, "cut:{bytes}");
            let fits = delivery == Delivery::Whole && bytes >= body.len();
            assert_eq!(cut.is_complete(), fits, "cut:{bytes} {delivery:?}");

            let clean = server
                .send(&ask(&format!("cut:{bytes},clean,times=always")))
                .await;
            assert_eq!(clean.body_bytes(), expected, "cut:{bytes},clean");
            assert!(clean.is_complete(), "cut:{bytes},clean {delivery:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reset_resets_the_connection_and_close_does_not() {
    let server = TestServer::start().await;
    let table = [
        ("reset", Some(ErrorKind::ConnectionReset), 0),
        ("close", None, 0),
        ("drop-after:2", Some(ErrorKind::ConnectionReset), 2),
    ];
    for dialect in Dialect::ALL {
        for (script, error, words) in table {
            server.control("DELETE", "script", "").await;
            let received = server.ask(dialect, script).await;
            assert_eq!(received.error, error, "{script}");
            if words == 0 {
                assert_eq!(received.bytes, b"", "{script}");
            } else {
                let said = text(&read(dialect, &received.body()));
                assert_eq!(said, "Hello from ", "{dialect:?} {script}");
            }
        }
    }
}

/// Returns the bytes that arrived within an hour, and the time of the last ones.
async fn within_an_hour(server: &TestServer, request: &str) -> (Received, Duration) {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let start = Instant::now();
    let (mut bytes, mut last) = (Vec::new(), Duration::ZERO);
    let mut buffer = [0; 4096];
    let hour = Duration::from_secs(3600);
    while let Ok(Ok(count @ 1..)) =
        tokio::time::timeout_at(start + hour, socket.read(&mut buffer)).await
    {
        bytes.extend_from_slice(&buffer[..count]);
        last = start.elapsed();
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let error = None;
    (Received { bytes, text, error }, last)
}

#[tokio::test(start_paused = true)]
async fn delays_last_as_long_as_scripted() {
    let server = TestServer::start().await;
    for dialect in Dialect::ALL {
        server.control("DELETE", "script", "").await;
        let (held, last) = within_an_hour(
            &server,
            &streamed_completion_request(dialect, "hold:90", &[]),
        )
        .await;
        assert_eq!(
            (held.is_complete(), last.as_secs()),
            (true, 90),
            "{dialect:?}"
        );

        let (dripped, last) = within_an_hour(
            &server,
            &streamed_completion_request(dialect, "drip:500", &[]),
        )
        .await;
        assert!(dripped.is_complete(), "{dialect:?}");
        assert!((7..=9).contains(&last.as_secs()), "{dialect:?} {last:?}");

        let (stalled, last) = within_an_hour(
            &server,
            &streamed_completion_request(dialect, "stall:1", &[]),
        )
        .await;
        assert_eq!(
            text(&read(dialect, &stalled.body())),
            "Hello ",
            "{dialect:?}"
        );
        assert_eq!(last.as_secs(), 0);

        let (pinged, last) = within_an_hour(
            &server,
            &streamed_completion_request(dialect, "pings:1,every=60", &[]),
        )
        .await;
        let pings = pinged.body().matches(&dialect.keepalive_frame()).count();
        assert_eq!(
            text(&read(dialect, &pinged.body())),
            "Hello ",
            "{dialect:?}"
        );
        assert!(
            (58..=60).contains(&pings) && last.as_secs() >= 3480,
            "{pings} {last:?}"
        );

        let (lingered, _) = within_an_hour(
            &server,
            &streamed_completion_request(dialect, "linger", &[]),
        )
        .await;
        let deltas = read(dialect, &lingered.body());
        assert!(
            matches!(deltas.last(), Some(Delta::Stopped(_))),
            "{deltas:?}"
        );
        assert!(!lingered.is_complete());
    }
}

#[tokio::test(start_paused = true)]
async fn errors_have_status_and_body_of_the_dialect() {
    let server = TestServer::start().await;
    let table: [(Dialect, &str, u16, &str); 8] = [
        (
            Dialect::Anthropic,
            "overloaded",
            529,
            r#""type":"overloaded_error"}"#,
        ),
        (
            Dialect::OpenaiChat,
            "overloaded",
            503,
            r#""type":"server_error"}"#,
        ),
        (
            Dialect::OpenaiResponses,
            "overloaded",
            503,
            r#""code":"server_is_overloaded""#,
        ),
        (
            Dialect::Anthropic,
            "error:418,code=teapot",
            418,
            r#""type":"teapot""#,
        ),
        (
            Dialect::OpenaiChat,
            "error:418,code=teapot",
            418,
            r#""code":"teapot""#,
        ),
        (Dialect::Anthropic, "overflow", 400, "prompt is too long"),
        (
            Dialect::OpenaiChat,
            "overflow",
            400,
            "context_length_exceeded",
        ),
        (
            Dialect::OpenaiChat,
            "json-error:billing",
            200,
            "insufficient_quota",
        ),
    ];
    for (dialect, script, status, part) in table {
        server.control("DELETE", "script", "").await;
        let received = server.ask(dialect, script).await;
        assert_eq!(received.status(), status, "{script}");
        assert_eq!(received.header("content-type"), Some("application/json"));
        let body = received.body();
        assert!(
            body.contains(part) && received.is_complete(),
            "{script}: {body}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_refused_in_provider_shape() {
    let server = TestServer::start().await;
    let anthropic: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];
    type Row<'a> = (
        &'a str,
        &'a str,
        &'a [(&'a str, &'a str)],
        &'a str,
        u16,
        &'a str,
    );
    let table: [Row<'_>; 7] = [
        (
            "POST",
            "/v1/messages",
            &[],
            "{",
            400,
            r#""message":"We could not parse"#,
        ),
        (
            "POST",
            "/v1/chat/completions",
            &[],
            "[]",
            400,
            r#""type":"invalid_request_error""#,
        ),
        (
            "GET",
            "/v1/messages",
            anthropic,
            "",
            405,
            r#""type":"error""#,
        ),
        (
            "POST",
            "/v1/embeddings",
            &[],
            "{}",
            404,
            r#"{"error":{"code":"model_not_found""#,
        ),
        (
            "POST",
            "/v1/embeddings",
            anthropic,
            "{}",
            404,
            r#""type":"not_found_error""#,
        ),
        ("PATCH", "/v1/responses", &[], "{}", 405, r#""error""#),
        (
            "POST",
            "/v1/responses",
            &[("x-outlast-script", "overlaoded")],
            "{}",
            400,
            "there is no such fault",
        ),
    ];
    for (method, path, headers, body, status, part) in table {
        let received = server.send(&request(method, path, headers, body)).await;
        assert_eq!(received.status(), status, "{method} {path}");
        let body = received.body();
        assert!(body.contains(part), "{method} {path}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_over_32_mib_is_refused_with_413() {
    let server = TestServer::start().await;
    let body = "x".repeat((32 << 20) + 1);
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let (mut reading, mut writing) = socket.split();
    let request = request("POST", "/v1/messages", &[], &body);
    let mut answer = [0; 16];
    let (_, read) = tokio::join!(
        writing.write_all(request.as_bytes()),
        reading.read_exact(&mut answer)
    );
    read.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn gzip_needs_accept_encoding_but_bomb_does_not() {
    let server = TestServer::start().await;
    let dialect = Dialect::OpenaiChat;
    let plain = server.ask(dialect, "gzip:times=always").await;
    assert_eq!(plain.header("content-encoding"), None);
    let headers = [("accept-encoding", "gzip, br")];
    let packed = server
        .send(&streamed_completion_request(
            dialect,
            "gzip:times=always",
            &headers,
        ))
        .await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut body = String::new();
    let packed = packed.body_bytes();
    flate2::read::GzDecoder::new(packed.as_slice())
        .read_to_string(&mut body)
        .unwrap();
    assert_eq!(body, plain.body());

    let bomb = server.ask(dialect, "bomb").await;
    assert_eq!(bomb.header("content-encoding"), Some("gzip"));
    let size = bomb.body_bytes().len();
    assert!((1 << 20..8 << 20).contains(&size), "{size}");
}

#[tokio::test(start_paused = true)]
async fn a_capacity_is_shared_by_all_connections() {
    let server = TestServer::start().await;
    let mut served = Vec::new();
    for _ in 0..3 {
        let mut statuses = Vec::new();
        for _ in 0..8 {
            statuses.push(
                server
                    .ask(Dialect::Anthropic, "capacity:requests=5")
                    .await
                    .status(),
            );
        }
        served.push(statuses.iter().filter(|status| **status == 200).count());
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(served, [5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn server_and_in_process_transport_send_same_bytes() {
    let clock = outlast_engine::clock::TimerClock::new(crate::client::START);
    for dialect in Dialect::ALL {
        for script in [
            "ok:tools",
            "ok:reasoning",
            "ok:agent",
            "cut:300",
            "malformed:2",
            "garbage",
            "page:503",
            "in-band:rate-limited,after=1",
            "no-finish",
            "rate-limited:as=text",
            "usage-limit",
            "echo-key",
        ] {
            let server = TestServer::start().await;
            let sent = streamed_completion_request(dialect, script, &[("x-api-key", "k")]);
            let body = sent.split_once("\r\n\r\n").unwrap().1.to_owned();
            let over_the_wire = server.send(&sent).await;
            let transport = ScriptedTransport::new(script.parse().unwrap(), Arc::new(clock));
            let request = Request {
                method: Method::Post,
                path: dialect.path().to_owned(),
                headers: vec![("x-api-key".to_owned(), "k".to_owned())],
                body: body.into(),
            };
            let response = transport.send(request).await.unwrap();
            let pieces: Vec<_> = response
                .body
                .filter_map(async |piece| piece.ok())
                .collect()
                .await;
            let place = format!("{dialect:?} {script}");
            assert_eq!(response.status, over_the_wire.status(), "{place}");
            assert_eq!(pieces.concat(), over_the_wire.body_bytes(), "{place}");
        }
    }
}
