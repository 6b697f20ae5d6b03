//! Tests of the spans that a collector receives.

use super::*;
use crate::observe::log::{Outcome, RequestRef, WaitReason, sample};
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Cause;
use secrecy::SecretString;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ID: &str = "0199f4a0-1111-7222-8333-444455556666";

/// Starts a collector that takes one batch and responds with that status; the task returns the bytes that it received.
async fn collector(status: &'static str) -> (SocketAddr, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let taking = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let received = receive(&mut stream).await;
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        received
    });
    (address, taking)
}

async fn receive(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "cut off");
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { continue };
        let head = String::from_utf8(bytes[..end].to_vec())
            .unwrap()
            .to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().parse().unwrap();
        while bytes.len() < end + 4 + length {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "cut off");
        }
        return (head, bytes.split_off(end + 4));
    }
}

/// Returns the length-delimited fields with that number of a protobuf message.
fn fields(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                varint(&mut message);
                continue;
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut message)).unwrap(),
            other => panic!("wire type {other}"),
        };
        let (value, rest) = message.split_at(length);
        message = rest;
        if key & 7 == 2 && key >> 3 == wanted {
            found.push(value);
        }
    }
    found
}

fn at_path<'a>(message: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    path.iter().fold(vec![message], |messages, number| {
        let inner = messages
            .into_iter()
            .flat_map(|message| fields(message, *number));
        inner.collect()
    })
}

/// Returns the string attributes of a span or an event; `at` is their field number.
fn words(message: &[u8], at: u64) -> HashMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pair = |pair: &[u8]| {
        let value = at_path(pair, &[2, 1]);
        Some((text(fields(pair, 1)[0]), text(value.first()?)))
    };
    fields(message, at).into_iter().filter_map(pair).collect()
}

fn settings(base_url: String) -> HttpSettings {
    HttpSettings {
        base_url,
        headers: vec![("x-tenant".to_owned(), SecretString::from("mine".to_owned()))],
        ..HttpSettings::default()
    }
}

fn emit_sample_request(otel: &SpanSink) {
    let at = Timestamp::from_millis(1_794_715_200_500);
    let tell = |kind| {
        otel.emit(&Event {
            at,
            request: Some(RequestRef {
                id: ID,
                ..RequestRef::default()
            }),
            kind,
        });
    };
    tell(EventKind::AttemptFailed {
        cause: Cause::Overloaded,
        attempt: 1,
        status: Some(529),
        account: None,
        message: "sk-secret-that-must-not-be-here",
    });
    tell(EventKind::Waiting {
        cause: Cause::Overloaded,
        attempt: 1,
        reason: WaitReason::Schedule,
        wake: Some(at),
    });
    let record = Record {
        outcome: Outcome::Failed,
        cause: Some(Cause::Overloaded),
        status: Some(529),
        ..sample::record()
    };
    tell(EventKind::Finished(&record));
}

#[tokio::test]
async fn collector_receives_span_with_attributes_and_events() {
    let (address, taking) = collector("200 OK").await;
    let (otel, exporting) = start(&settings(format!("http://{address}/"))).unwrap();
    emit_sample_request(&otel);
    assert!(otel.pending_events.lock().is_empty());
    exporting.shutdown().await;
    let (head, body) = taking.await.unwrap();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    assert!(head.contains("x-tenant: mine"), "{head}");
    let spans = at_path(&body, &[1, 2, 2]);
    assert_eq!(spans.len(), 1);
    let span = spans[0];
    let id = uuid::Uuid::parse_str(ID).unwrap();
    assert_eq!(fields(span, 1), [id.as_bytes()], "the trace is the request");
    assert_eq!(fields(span, 5), [b"chat claude-opus-5"]);
    let said = words(span, 9);
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "anthropic"),
        ("gen_ai.request.model", "claude-opus-5"),
        ("url.path", "/v1/messages"),
        ("outlast.client", "claude-code"),
        ("outlast.account", "work"),
        ("outlast.outcome", "failed"),
        ("error.type", "overloaded"),
    ] {
        assert_eq!(said.get(key).map(String::as_str), Some(value), "{key}");
    }
    let events = fields(span, 11);
    let names: Vec<_> = events.iter().map(|event| fields(event, 2)[0]).collect();
    assert_eq!(names, [&b"attempt_failed"[..], b"waiting"]);
    assert_eq!(
        words(events[1], 3)["outlast.wake"],
        "2026-11-15T04:00:00.500Z"
    );
    assert_eq!(at_path(span, &[15, 2]), [b"Server overloaded"]);
    let resource = at_path(&body, &[1, 1]);
    assert_eq!(words(resource[0], 1)["service.name"], "outlast-gateway");
    let text = String::from_utf8_lossy(&body);
    assert!(!text.contains("secret") && !text.contains("0123456789"));
}

#[tokio::test]
async fn collector_url_may_include_traces_path() {
    let (address, taking) = collector("200 OK").await;
    let whole = format!("http://{address}/otlp/v1/traces");
    let (otel, exporting) = start(&settings(whole)).unwrap();
    emit_sample_request(&otel);
    exporting.shutdown().await;
    let (head, _) = taking.await.unwrap();
    assert!(head.starts_with("post /otlp/v1/traces http/1.1"), "{head}");
}

#[tokio::test]
async fn a_batch_that_is_refused_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refusing = async {
        let mut refused = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            receive(&mut stream).await;
            refused += 1;
            assert_eq!(refused, 1, "it was sent again");
            let answer = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    };
    let (otel, exporting) = start(&settings(format!("http://{address}"))).unwrap();
    emit_sample_request(&otel);
    tokio::select! {
        () = exporting.shutdown() => {}
        () = refusing => {}
    }
}

#[tokio::test]
async fn unsent_spans_and_events_are_bounded() {
    // Nobody responds there: it listens and does not accept.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (otel, _exporting) = start(&settings(format!("http://{address}"))).unwrap();
    let record = sample::record();
    for _ in 0..2 * MAX_QUEUED_SPANS {
        otel.finish_span("r-1", &record);
    }
    assert_eq!(otel.spans.capacity(), 0);
    let what = EventKind::Resumed {
        attempts: 1,
        resent: 1,
        since: record.received_at,
    };
    let moment = SpanEvent::from_event(record.received_at, what).unwrap();
    for number in 0..REQUESTS + 10 {
        otel.record_event(&number.to_string(), moment);
    }
    for _ in 0..2 * MAX_EVENTS_PER_REQUEST {
        otel.record_event("0", moment);
    }
    let moments = otel.pending_events.lock();
    assert_eq!(
        (moments.len(), moments["0"].len()),
        (REQUESTS, MAX_EVENTS_PER_REQUEST)
    );
}

#[tokio::test]
async fn invalid_collector_url_is_a_settings_error() {
    let wrong = start(&settings("collector:4318".to_owned()));
    assert!(matches!(wrong.err(), Some(OtelError::Settings(_))));
}
