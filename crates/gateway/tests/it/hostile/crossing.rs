//! Tests that no client gets another client's data, however clients come, leave and are interrupted.

use super::super::raw::{Provider, Reader, TestGateway, within};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starts a provider that echoes the request, in two halves with a pause between them.
async fn halting() -> Provider {
    Provider::playing(|seen, mut stream| async move {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            seen.body.len()
        );
        let (first, second) = seen.body.split_at(seen.body.len() / 2);
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(first).await.ok()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        stream.write_all(second).await.ok()?;
        Some(stream)
    })
    .await
}

async fn send(stream: &mut TcpStream, body: &str) {
    let request = format!(
        "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\nx-mark: {}\r\ncontent-length: {}\r\n\r\n{body}",
        &body[..8],
        body.len()
    );
    // A client that was refused cannot write any more.
    stream.write_all(request.as_bytes()).await.ok();
}

fn body(client: usize, round: usize) -> String {
    let mark = format!("{client:03}-{round:03}.");
    mark.repeat(20 + 60 * ((client * 7 + round * 13) % 11))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_persistent_clients_get_own_responses() {
    let provider = halting().await;
    let bench = TestGateway::before(provider.address).await;
    let client = async |number: usize| {
        let (mut stream, mut reader) = (bench.connect().await, Reader::new());
        for round in 0..40 {
            let body = body(number, round);
            send(&mut stream, &body).await;
            let got = within("an answer", reader.next(&mut stream)).await.unwrap();
            assert!(got.text() == body, "{number} {round}: {}", got.text());
        }
    };
    tokio::join!(client(1), client(2), client(3), client(4));
    for seen in provider.seen() {
        let mark = String::from_utf8_lossy(&seen.body[..8]).into_owned();
        assert!(seen.head.contains(&format!("x-mark: {mark}")));
    }
}

/// Each second client leaves at another point: before its request is whole, before its response, in the midst of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_responses_reach_no_other_client() {
    let provider = halting().await;
    let bench = TestGateway::before(provider.address).await;
    let (mut steady, mut reader) = (bench.connect().await, Reader::new());
    for round in 0..60 {
        let mut leaving = bench.connect().await;
        let left = body(900, round);
        match round % 4 {
            0 => {
                let half =
                    "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf";
                leaving.write_all(half.as_bytes()).await.unwrap();
            }
            1 => send(&mut leaving, &left).await,
            2 => {
                send(&mut leaving, &left).await;
                let mut some = vec![0_u8; 100];
                within("some", leaving.read_exact(&mut some)).await.unwrap();
            }
            _ => {
                // It sends two requests and reads one response.
                send(&mut leaving, &left).await;
                send(&mut leaving, &left).await;
                within("an answer", Reader::new().next(&mut leaving)).await;
            }
        }
        drop(leaving);
        let body = body(1, round);
        send(&mut steady, &body).await;
        let got = within("an answer", reader.next(&mut steady)).await.unwrap();
        assert!(got.text() == body, "{round}: {}", got.text());
    }
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_survives_refusal_only_after_full_read() {
    let provider = Provider::echo().await;
    let bench = TestGateway::before(provider.address).await;
    for (lines, status, goes_on) in [
        ("host: localhost\r\nx-outlast-policy: nonsense", 400, true),
        ("host: localhost\r\nupgrade: websocket", 426, true),
        ("host: evil.example", 403, false),
        (
            "host: localhost\r\norigin: https://evil.example",
            403,
            false,
        ),
    ] {
        let mut stream = bench.connect().await;
        let mut reader = Reader::new();
        let refused =
            format!("POST /v1/echo HTTP/1.1\r\n{lines}\r\ncontent-length: 5\r\n\r\nhello");
        stream.write_all(refused.as_bytes()).await.unwrap();
        let got = within("an answer", reader.next(&mut stream)).await.unwrap();
        assert_eq!(got.status, status, "{lines}");
        assert_eq!(got.head.contains("connection: close"), !goes_on, "{lines}");
        send(&mut stream, "afterwards").await;
        let next = within("an answer or an end", reader.next(&mut stream)).await;
        let next = next.map(|got| got.text());
        assert_eq!(next.as_deref(), goes_on.then_some("afterwards"), "{lines}");
    }
}
