//! Tests of responses on paths that the gateway does not read: they come back as they were sent, and a response that
//! breaks off does not look whole.

use super::dice::Dice;
use super::exact::{answering, write};
use super::rig::{Plan, limited};
use super::upstream::{ReceivedRequest, ScriptedResponse, Then, Upstream, response};
use super::wire::{self, TestRequest};

/// The response that a client sees on a path that the gateway does not read, and the response that the provider sent.
struct Row {
    method: &'static str,
    status: &'static str,
    headers: &'static str,
    body: Vec<u8>,
}

fn rows() -> Vec<Row> {
    let row = |status, headers, body: &[u8]| Row {
        method: "GET",
        status,
        headers,
        body: body.to_vec(),
    };
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x4b\x4c\x4a\x4e\x49\x05\x00\xa0\x41\xe4\x38\x05\x00\x00\x00";
    vec![
        row(
            "200 OK",
            "content-type: application/octet-stream\r\n",
            &binary,
        ),
        row(
            "200 OK",
            "content-type: text/plain\r\ncontent-encoding: gzip\r\n",
            gzip,
        ),
        row(
            "201 Created",
            "location: /v1/files/1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nx-odd: caf\u{e9}\r\n",
            b"{}",
        ),
        row(
            "206 Partial Content",
            "content-range: bytes 0-1/5\r\n",
            b"ab",
        ),
        row(
            "302 Found",
            "location: https://elsewhere.invalid/?a=%20b\r\n",
            b"moved",
        ),
        row("307 Temporary Redirect", "location: /there\r\n", b""),
        row("404 Not Found", "x-request-id: r1\r\n", b"{\"error\":{}}"),
        row(
            "418 I'm a teapot",
            "x-tea: 1\r\nretry-after: 7\r\n",
            b"short and stout",
        ),
        row(
            "500 Internal Server Error",
            "x-should-retry: true\r\n",
            b"broken",
        ),
        row("529 ", "retry-after: 90\r\n", b"overloaded"),
        row("200 OK", "", b""),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_on_other_paths_are_relayed_unchanged() {
    limited(async {
        for row in rows() {
            let bytes = response(row.status, row.headers, &row.body);
            let (upstream, rig) = answering(bytes, Then::Next).await;
            let answer = rig
                .ask(&TestRequest::plain(row.method, "/v1/anything"))
                .await;
            assert_eq!(answer.status.to_string(), row.status[..3]);
            assert!(answer.body == row.body && answer.is_whole, "{answer:?}");
            let mut expected = wire::headers(row.headers.as_bytes());
            let length = row.body.len().to_string().into_bytes();
            expected.push(("content-length".to_owned(), length));
            let ours = |name: &str| name.starts_with("x-outlast-") || name == "connection";
            let mut headers = answer.headers.clone();
            headers.retain(|(name, _)| !ours(name));
            headers.sort_by(|(a, _), (b, _)| a.cmp(b));
            expected.sort_by(|(a, _), (b, _)| a.cmp(b));
            assert_eq!(headers, expected, "{answer:?}");
            assert_eq!(upstream.counts().requests, 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodyless_responses_are_relayed_without_body() {
    limited(async {
        let head = |status: &str, headers: &str| format!("HTTP/1.1 {status}\r\n{headers}\r\n");
        let table = [
            ("GET", head("204 No Content", "x-a: 1\r\n"), None),
            ("GET", head("304 Not Modified", "etag: \"x\"\r\n"), None),
            (
                "HEAD",
                head("200 OK", "content-length: 1234\r\n"),
                Some("1234"),
            ),
            (
                "HEAD",
                head("404 Not Found", "x-a: 1\r\ncontent-length: 0\r\n"),
                Some("0"),
            ),
        ];
        for (method, bytes, length) in table {
            let (_upstream, rig) = answering(bytes.clone().into(), Then::Next).await;
            let answer = rig.ask(&TestRequest::plain(method, "/v1/anything")).await;
            assert_eq!(answer.status.to_string(), bytes[9..12], "{answer:?}");
            assert!(answer.raw.ends_with(b"\r\n\r\n"), "{answer:?}");
            assert_eq!(answer.body, b"", "{answer:?}");
            assert_eq!(answer.header("content-length"), length, "{answer:?}");
            assert_eq!(answer.header("transfer-encoding"), None, "{answer:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_body_is_relayed_as_incomplete() {
    limited(async {
        let whole = response("200 OK", "", vec![b'x'; 1000]);
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n400\r\nabc".to_vec();
        for (bytes, then) in [
            (whole[..500].to_vec(), Then::Close),
            (whole[..500].to_vec(), Then::Reset),
            (chunked.clone(), Then::Close),
            (chunked, Then::Reset),
        ] {
            let (_upstream, rig) = answering(bytes, then).await;
            let answer = rig.ask(&TestRequest::plain("GET", "/v1/anything")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(!answer.is_whole, "{answer:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_get_responses_in_order() {
    limited(async {
        let upstream = Upstream::start(|seen: &ReceivedRequest| {
            let body = [seen.line().as_bytes(), b" ", &seen.body[..]].concat();
            ScriptedResponse::at_once(response("200 OK", "", body), Then::Next)
        });
        let upstream = upstream.await;
        let rig = Plan::before(upstream.address, 1).start().await;
        let mut bytes = Vec::new();
        for number in 0..20 {
            let mut ask = TestRequest::plain("PUT", &format!("/v1/files/{number}"));
            ask = ask.with("connection", "keep-alive");
            ask.body = vec![b'a'; number * 100];
            bytes.extend(ask.bytes(rig.gateway));
        }
        let last = TestRequest::plain("GET", "/v1/last").bytes(rig.gateway);
        bytes.extend(last);
        // All at once, cut anywhere.
        let client = write(&rig, Dice::new(3).pieces(&bytes, 500)).await;
        let answer = client.answer().await;
        let all = String::from_utf8(answer.raw).unwrap();
        let mut rest = all.as_str();
        for number in 0..20 {
            let said = format!(
                "PUT /v1/files/{number} HTTP/1.1 {}HTTP/1.1 200",
                "a".repeat(number * 100)
            );
            let place = rest
                .find(&said)
                .unwrap_or_else(|| panic!("{number}: {all}"));
            rest = &rest[place..];
        }
        assert!(rest.ends_with("GET /v1/last HTTP/1.1 "), "{rest}");
    })
    .await;
}
