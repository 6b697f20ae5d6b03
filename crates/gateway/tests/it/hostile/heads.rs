//! Tests of request heads that are too large, malformed, or meant for another server.

use super::super::raw::{Provider, TestGateway, responses};

/// The statuses that a request may be answered with; 0 is a connection that ends without a response.
type Allowed = &'static [u16];

/// Sends each of these; none may reach the provider, and after each of them other requests are served.
async fn refused(cases: Vec<(&str, Vec<u8>, Allowed)>) {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    for (name, bytes, allowed) in cases {
        let answer = bench.exchange(&bytes).await;
        let answers = responses(&answer);
        let statuses: Vec<u16> = answers.iter().map(|got| got.status).collect();
        let status = statuses.first().copied().unwrap_or_default();
        assert!(allowed.contains(&status), "{name}: {statuses:?}");
        assert!(statuses.len() <= 1, "{name}: {statuses:?}");
        assert!(provider.seen().is_empty(), "{name}: {:?}", provider.seen());
    }
    bench.serves().await;
}

fn get(lines: &str) -> Vec<u8> {
    format!("GET /v1/models HTTP/1.1\r\n{lines}\r\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_request_head_is_refused() {
    let many = "x-many: 1\r\n".repeat(10_000);
    refused(vec![
        (
            "one header of 1 MiB",
            get(&format!(
                "host: localhost\r\nx-big: {}\r\n",
                "x".repeat(1 << 20)
            )),
            &[431],
        ),
        (
            "a header of 1 MiB whose end never comes",
            get(&format!("x-big: {}", "x".repeat(1 << 20))),
            &[431],
        ),
        (
            "10,000 headers",
            get(&format!("host: localhost\r\n{many}")),
            &[431],
        ),
        (
            "a target of 1 MiB",
            format!(
                "GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
                "x".repeat(1 << 20)
            )
            .into(),
            &[414, 431],
        ),
        (
            "a method of 1 MiB",
            format!(
                "{} / HTTP/1.1\r\nhost: localhost\r\n\r\n",
                "G".repeat(1 << 20)
            )
            .into(),
            &[400, 431],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_request_head_is_refused() {
    let host = "host: localhost\r\n";
    refused(vec![
        (
            "a NUL in a value",
            get(&format!("{host}x: a\0b\r\n")),
            &[400],
        ),
        (
            "a NUL in a name",
            get(&format!("{host}x\0y: a\r\n")),
            &[400],
        ),
        (
            "a space before the colon",
            get("host : localhost\r\n"),
            &[400],
        ),
        (
            "a folded line",
            get(&format!("{host}x: a\r\n b\r\n")),
            &[400],
        ),
        (
            "a folded length",
            get(&format!("{host}content-length:\r\n 5\r\n")),
            &[400],
        ),
        (
            "a line without a colon",
            get(&format!("{host}nothing\r\n")),
            &[400],
        ),
        ("a name of blanks", get(&format!("{host} : a\r\n")), &[400]),
        (
            "a bare CR in a value",
            get(&format!("{host}x: a\rb\r\n")),
            &[400],
        ),
        (
            "a name in Latin-1",
            [b"GET / HTTP/1.1\r\n", host.as_bytes(), b"\xe9: 1\r\n\r\n"].concat(),
            &[400],
        ),
        ("HTTP/0.9", b"GET /v1/models\r\n\r\n".to_vec(), &[400]),
        (
            "HTTP/3.7",
            b"GET /v1/models HTTP/3.7\r\nhost: localhost\r\n\r\n".to_vec(),
            &[400],
        ),
        (
            "two blanks in the first line",
            b"GET  /v1/models  HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
            &[400],
        ),
        (
            "a method that is none",
            b"G\x01T / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
            &[400],
        ),
        (
            "a target with a blank",
            b"GET /a b HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
            &[400],
        ),
        (
            "a target without a slash",
            b"GET v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
            &[400],
        ),
        ("noise", vec![0x80; 4096], &[400]),
        (
            "a greeting of TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            &[400],
        ),
        (
            "the preface of HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
            &[0, 400],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_body_length_is_refused() {
    let post = |lines: &str| {
        format!("POST /v1/echo HTTP/1.1\r\nhost: localhost\r\n{lines}\r\nhello").into_bytes()
    };
    refused(vec![
        ("two lengths", post("content-length: 5\r\ncontent-length: 6\r\n"), &[400]),
        ("two lengths in one line", post("content-length: 5, 6\r\n"), &[400]),
        ("a signed length", post("content-length: +5\r\n"), &[400]),
        ("a negative length", post("content-length: -5\r\n"), &[400]),
        ("a length in hexadecimal", post("content-length: 0x5\r\n"), &[400]),
        ("an empty length", post("content-length: \r\n"), &[400]),
        ("a length beyond all numbers", post("content-length: 99999999999999999999999\r\n"), &[400]),
        ("a length with a blank", post("content-length: 5 5\r\n"), &[400]),
        ("an encoding that nobody knows", post("transfer-encoding: xchunked\r\n"), &[400]),
        ("chunked and then another", post("transfer-encoding: chunked, identity\r\n"), &[400]),
        ("chunked and then another line", post("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n"), &[400]),
        ("chunked with a tab in it", post("transfer-encoding: chun\tked\r\n"), &[400]),
        ("chunked in HTTP/1.0", b"POST /v1/echo HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec(), &[400]),
    ])
    .await;
}

/// Requests that are not meant for this gateway, or that another site's page sent: refused, with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_host_or_origin_is_refused_with_reason() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    let get = |lines: &str| format!("GET /v1/models HTTP/1.1\r\n{lines}\r\n");
    let cases = [
        (
            get("host: evil.example\r\n"),
            403,
            "unknown_host",
            "evil.example",
        ),
        (
            get("host: localhost.evil.example\r\n"),
            403,
            "unknown_host",
            "gateway.allowed_hosts",
        ),
        (
            get("host: 127.0.0.1.evil.example\r\n"),
            403,
            "unknown_host",
            "gateway.allowed_hosts",
        ),
        (get(""), 400, "no_host", "Host"),
        (get("host: \r\n"), 400, "no_host", "Host"),
        (
            get("host: localhost\r\nhost: evil.example\r\n"),
            400,
            "no_host",
            "exactly one",
        ),
        (get("host: localhost:port\r\n"), 400, "no_host", "Host"),
        (
            get("host: localhost\r\norigin: https://evil.example\r\n"),
            403,
            "unknown_origin",
            "evil.example",
        ),
        (
            get("host: localhost\r\norigin: null\r\n"),
            403,
            "unknown_origin",
            "gateway.origins",
        ),
        (
            get("host: localhost\r\nsec-fetch-site: cross-site\r\n"),
            403,
            "cross_site",
            "other sites",
        ),
        (
            get("host: localhost\r\nsec-fetch-site: same-site\r\n"),
            403,
            "cross_site",
            "other sites",
        ),
        (
            "GET http://evil.example/v1/models HTTP/1.1\r\nhost: evil.example\r\n\r\n".into(),
            403,
            "unknown_host",
            "evil.example",
        ),
        (
            "GET http://evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n".into(),
            403,
            "unknown_host",
            "evil.example",
        ),
        (
            "GET http://127.0.0.1/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n".into(),
            400,
            "no_host",
            "exactly one",
        ),
        (
            "CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n".into(),
            403,
            "unknown_host",
            "evil.example",
        ),
        (
            "CONNECT localhost:443 HTTP/1.1\r\nhost: localhost:443\r\n\r\n".into(),
            405,
            "method_not_allowed",
            "base URL",
        ),
        (
            get(
                "host: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n",
            ),
            426,
            "upgrade_required",
            "POST",
        ),
    ];
    for (request, status, kind, words) in cases {
        let request = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        let answer = bench.exchange(request.as_bytes()).await;
        let answers = responses(&answer);
        assert_eq!(answers.len(), 1, "{request}");
        let (said, message) = answers[0].problem();
        assert_eq!(
            (answers[0].status, said.as_str()),
            (status, kind),
            "{request}"
        );
        assert!(message.contains(words), "{request}: {message}");
        assert!(provider.seen().is_empty(), "{request}");
    }
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_path_is_sent_only_to_provider() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    let host = format!("host: {}", provider.address);
    for (target, asked) in [
        ("//evil.example/v1/models", "//evil.example/v1/models"),
        ("/\\evil.example/v1", "//evil.example/v1"),
        ("/v1/models?a=b%20c&x=//evil", "/v1/models?a=b%20c&x=//evil"),
        ("/v1/%00%ff", "/v1/%00%ff"),
        ("/http://evil.example/", "/http://evil.example/"),
        ("/@evil.example/", "/@evil.example/"),
        ("/v1/models?key=a?b#c", "/v1/models?key=a?b"),
    ] {
        let before = provider.seen().len();
        let request =
            format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = bench.exchange(request.as_bytes()).await;
        let status = responses(&answer)[0].status;
        let seen = provider.seen().split_off(before);
        if status == 400 {
            assert!(seen.is_empty(), "{target}");
            continue;
        }
        let head = &seen[0].head;
        assert_eq!(seen.len(), 1, "{target}");
        assert_eq!(
            head.lines().next().unwrap(),
            format!("GET {asked} HTTP/1.1"),
            "{target}"
        );
        assert!(head.lines().any(|line| line == host), "{target}: {head}");
    }
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_utf8_body_and_headers_pass_but_path_gets_400() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    let body = b"\xff\xfe\x00\xc3\x28";
    let mut request = b"POST /v1/echo HTTP/1.1\r\nhost: localhost\r\nx-odd: caf\xe9\r\nuser-agent: \xff\xfe\r\nx-outlast-client: \xff\r\nconnection: close\r\ncontent-length: 5\r\n\r\n".to_vec();
    request.extend_from_slice(body);
    let answer = responses(&bench.exchange(&request).await);
    assert_eq!(
        (answer[0].status, answer[0].body.as_slice()),
        (200, &body[..])
    );
    let head = &provider.seen()[0].head;
    assert!(head.contains("x-odd: caf\u{fffd}"), "{head}");
    let path = b"GET /v1/\xff\xfe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = responses(&bench.exchange(path).await);
    assert_eq!(answer[0].status, 400);
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dot_segments_in_path_are_refused() {
    let climbing = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into()
    };
    refused(vec![
        ("plainly", climbing("/v1/../../other"), &[400]),
        ("in other words", climbing("/v1/%2E%2e/other"), &[400]),
        ("half and half", climbing("/v1/.%2e"), &[400]),
    ])
    .await;
}
