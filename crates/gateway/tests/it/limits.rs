//! Tests of the limits: requests beyond a limit are refused with the name of the setting, and released capacity is used
//! again.

use super::raw::{Provider, RawResponse, Reader, TestGateway, responses, within};
use futures_util::future::select_all;
use outlast_gateway::Limits;
use outlast_gateway::auth::Token;
use serde_json::Value;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excess_connection_gets_503_naming_the_setting() {
    let provider = Provider::echo().await;
    let limits = Limits {
        max_connections: 3,
        ..Limits::default()
    };
    let bench = TestGateway::with(provider.address, 1, |setup| setup.limits = limits).await;
    let mut served = Vec::new();
    for _ in 0..3 {
        let mut stream = bench.connect().await;
        let request = "GET /v1/echo HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        within("an answer", Reader::new().next(&mut stream))
            .await
            .unwrap();
        served.push(stream);
    }
    // However much the client has sent already, it receives the reason.
    for length in [5, 4 << 20] {
        let request = bench.post("/v1/echo", &vec![b'x'; length]);
        let answers = responses(&bench.exchange(&request).await);
        assert_eq!((answers.len(), answers[0].status), (1, 503), "{length}");
        let (kind, message) = answers[0].problem();
        assert_eq!(kind, "overloaded_error");
        assert!(message.contains("gateway.max_connections"), "{message}");
        assert!(
            answers[0].head.contains("retry-after: "),
            "{}",
            answers[0].head
        );
    }
    assert_eq!(provider.seen().len(), 3);
    served.pop();
    let room = async {
        let request = bench.post("/v1/echo", b"well?");
        while !bench.exchange(&request).await.starts_with(b"HTTP/1.1 200") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("room", room).await;
}

async fn ask(bench: &TestGateway, path: &str, number: usize) -> (TcpStream, Reader) {
    let body = format!(r#"{{"model":"m","stream":false,"messages":[],"n":{number}}}"#);
    let request = bench.post(path, body.as_bytes());
    let mut stream = bench.connect().await;
    stream.write_all(&request).await.unwrap();
    (stream, Reader::new())
}

type PendingRequest = (TcpStream, Reader);

/// Returns the first response to any of the requests, and removes that request.
async fn next(asked: &mut Vec<PendingRequest>) -> RawResponse {
    let answers = asked
        .iter_mut()
        .map(|(stream, reader)| Box::pin(reader.next(stream)));
    let (got, which, _) = select_all(answers).await;
    asked.remove(which);
    got.unwrap()
}

/// Waits until that many requests wait while their clients are connected.
async fn until_waiting(bench: &TestGateway, token: &Token, count: usize) {
    let request = format!(
        "GET /_outlast/status HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        bench.gateway,
        token.reveal()
    );
    loop {
        let answers = responses(&bench.exchange(request.as_bytes()).await);
        let status: Value = serde_json::from_slice(&answers[0].body).unwrap();
        let waiting = status["waiting"].as_array().unwrap().iter();
        if waiting.filter(|waits| waits["left"].is_null()).count() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn is_full(got: &RawResponse) -> bool {
    got.status == 503 && got.problem().1.contains("gateway.max_waiting")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excess_waiting_request_gets_503_naming_the_setting() {
    let provider =
        Provider::answering(|_| b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno".to_vec()).await;
    let limits = Limits {
        max_waiting: 2,
        ..Limits::default()
    };
    for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
        let home = tempfile::TempDir::new().unwrap();
        let token = Token::load_or_create_in(home.path()).unwrap();
        let bench = TestGateway::with(provider.address, 1, |setup| {
            setup.limits = limits;
            setup.token = Some(token.clone());
        });
        let bench = bench.await;
        // Waiting requests go on waiting.
        bench.clock.pause();
        let mut asked = Vec::new();
        for number in 0..limits.max_waiting {
            asked.push(ask(&bench, path, number).await);
            within("its wait", until_waiting(&bench, &token, number + 1)).await;
        }
        asked.push(ask(&bench, path, limits.max_waiting).await);
        let got = within("a refusal", next(&mut asked)).await;
        assert!(is_full(&got), "{path}: {got:?}");
        assert!(got.head.contains("retry-after: 30"), "{path}: {}", got.head);
        assert!(
            got.head.contains("x-should-retry: true"),
            "{path}: {}",
            got.head
        );
        within(
            "the others' wait",
            until_waiting(&bench, &token, limits.max_waiting),
        )
        .await;
        // A client that leaves makes room.
        asked.pop();
        within(
            "its leave",
            until_waiting(&bench, &token, limits.max_waiting - 1),
        )
        .await;
        let room = async {
            loop {
                let mut late = vec![ask(&bench, path, 100).await];
                tokio::select! {
                    () = until_waiting(&bench, &token, limits.max_waiting) => return,
                    got = next(&mut late) => assert!(is_full(&got), "{path}: {got:?}"),
                }
            }
        };
        within("room", room).await;
    }
}
