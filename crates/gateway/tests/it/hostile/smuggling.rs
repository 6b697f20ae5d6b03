//! Tests of requests hidden within others: the provider gets exactly the request that the gateway understood, and the
//! rest of a connection on which two readings are possible is never read.

use super::super::raw::{Provider, RawResponse, Reader, TestGateway, responses, within};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const HIDDEN: &str = "GET /v1/hidden HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn received_bodies(provider: &Provider) -> Vec<String> {
    let line = |head: &str| head.lines().next().unwrap().to_owned();
    provider
        .seen()
        .iter()
        .map(|seen| line(&seen.head))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn length_and_chunked_together_close_the_connection() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    for lines in [
        "content-length: LENGTH\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: LENGTH",
        "Transfer-Encoding: Chunked\r\ncontent-length: 4",
        "transfer-encoding:\tchunked\r\nContent-Length: 4",
    ] {
        let body = format!("5\r\nhello\r\n0\r\n\r\n{HIDDEN}");
        let lines = lines.replace("LENGTH", &body.len().to_string());
        let request = format!("POST /v1/echo HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n\r\n{body}");
        let answers = responses(&bench.exchange(request.as_bytes()).await);
        let statuses: Vec<u16> = answers.iter().map(|got| got.status).collect();
        assert!(
            statuses == [200] || statuses == [400],
            "{lines}: {statuses:?}"
        );
    }
    let asked = received_bodies(&provider);
    assert!(
        asked.iter().all(|line| line == "POST /v1/echo HTTP/1.1"),
        "{asked:?}"
    );
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_request_has_one_length_no_hop_headers() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    for (lines, body) in [
        (
            "transfer-encoding: chunked\r\ntrailer: x-late",
            "5;a=b\r\nhello\r\n0\r\nx-late: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (
            "content-length: 5\r\ncontent-length: 5\r\nte: trailers\r\nkeep-alive: timeout=5\r\nproxy-authorization: x",
            "hello",
        ),
    ] {
        let request = format!(
            "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close, x-private\r\nx-private: 1\r\n{lines}\r\n\r\n{body}"
        );
        let answers = responses(&bench.exchange(request.as_bytes()).await);
        assert_eq!(
            (answers.len(), answers[0].text().as_str()),
            (1, "hello"),
            "{lines}"
        );
        let head = provider.seen().pop().unwrap().head.to_lowercase();
        assert_eq!(head.matches("content-length: 5").count(), 1, "{head}");
        for left_out in [
            "transfer-encoding",
            "x-private",
            "x-late",
            "trailer",
            "te:",
            "keep-alive",
            "proxy-",
        ] {
            assert!(
                !head.contains(&format!("\r\n{left_out}")),
                "{left_out} in {head}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_inside_body_is_not_parsed() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    let body = HIDDEN.repeat(3);
    let request = format!(
        "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}POST /v1/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        body.len()
    );
    let answers = responses(&bench.exchange(request.as_bytes()).await);
    let bodies: Vec<String> = answers.iter().map(RawResponse::text).collect();
    assert_eq!(bodies, [body.as_str(), "ok"]);
    assert_eq!(received_bodies(&provider), ["POST /v1/echo HTTP/1.1"; 2]);
}

/// A line that ends without a CR may be read as one, but then for good: no server behind the gateway reads it another
/// way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bare_line_feed_hides_no_request() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    for request in [
        "POST /v1/echo HTTP/1.1\nhost: localhost\ncontent-length: 5\nconnection: close\n\nhello"
            .to_owned(),
        format!(
            "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\nx: a\ncontent-length: 5\r\nconnection: close\r\n\r\nhello{HIDDEN}"
        ),
        format!(
            "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\n0\n\n{HIDDEN}"
        ),
    ] {
        let before = provider.seen().len();
        let answers = responses(&bench.exchange(request.as_bytes()).await);
        let seen = provider.seen().split_off(before);
        assert_eq!(answers.len(), 1, "{request}");
        match answers[0].status {
            400 => assert!(seen.is_empty(), "{request}"),
            _ => {
                assert_eq!(answers[0].text(), "hello", "{request}");
                assert_eq!(seen.len(), 1, "{request}");
                assert!(
                    !seen[0].head.replace("\r\n", "").contains('\n'),
                    "{request}"
                );
            }
        }
    }
    bench.serves().await;
}

/// A client that does not wait for its responses: the bytes that it sent meanwhile are kept, and read as they were
/// sent, however they are cut. If a piece were lost, the rest of a body would be read as a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_bytes_are_parsed_as_sent() {
    let provider = Provider::playing(|seen, mut stream| async move {
        // The time in which all the rest is read ahead.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            seen.body.len()
        );
        stream
            .write_all(&[head.as_bytes(), &seen.body].concat())
            .await
            .ok()?;
        Some(stream)
    })
    .await;
    let bench = TestGateway::before(provider.address).await;
    let body = |number: usize| format!("{number}:{}", HIDDEN.repeat(150 + number));
    let bodies: Vec<String> = (0..6).map(body).collect();
    let requests: String = bodies
        .iter()
        .map(|body| {
            let length = body.len();
            format!("POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
        })
        .collect();
    let mut stream = bench.connect().await;
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut reader = Reader::new();
    for body in bodies {
        let got = within("an answer", reader.next(&mut stream)).await.unwrap();
        assert_eq!(got.status, 200);
        assert!(got.text() == body, "not the answer to {}", &body[..1]);
    }
    assert_eq!(received_bodies(&provider), ["POST /v1/echo HTTP/1.1"; 6]);
}
