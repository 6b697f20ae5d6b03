//! How much there may be of everything: what is beyond is refused with the name of the setting, and room that is given
//! back is used again.

use super::raw::{Bench, Got, Provider, Reader, responses, within};
use futures_util::future::select_all;
use outlast_server::gateway::Limits;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_connections_than_allowed_are_told_which_setting_it_is() {
    let provider = Provider::echo().await;
    let limits = Limits {
        connections: 3,
        ..Limits::default()
    };
    let bench = Bench::with(provider.address, 1, |setup| setup.limits = limits).await;
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
    // However much it has sent already, it hears why.
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

async fn ask(bench: &Bench, path: &str, number: usize) -> (TcpStream, Reader) {
    let body = format!(r#"{{"model":"m","stream":false,"messages":[],"n":{number}}}"#);
    let request = bench.post(path, body.as_bytes());
    let mut stream = bench.connect().await;
    stream.write_all(&request).await.unwrap();
    (stream, Reader::new())
}

/// How long nothing comes to somebody who waits; whoever is refused is so at once.
const SILENCE: Duration = Duration::from_millis(1500);

type Asked = (TcpStream, Reader);

/// What comes first to any of them, which is taken out.
async fn next(asked: &mut Vec<Asked>) -> Got {
    let answers = asked
        .iter_mut()
        .map(|(stream, reader)| Box::pin(reader.next(stream)));
    let (got, which, _) = select_all(answers).await;
    asked.remove(which);
    got.unwrap()
}

/// Asks once more than can wait: who is refused, and the others, who are not.
async fn refused(bench: &Bench, path: &str, places: usize) -> (Got, Vec<Asked>) {
    let mut asked = Vec::new();
    for number in 0..=places {
        asked.push(ask(bench, path, number).await);
    }
    let got = within("a refusal", next(&mut asked)).await;
    let more = tokio::time::timeout(SILENCE, next(&mut asked)).await;
    assert!(more.is_err(), "{path}: {more:?}");
    (got, asked)
}

fn is_full(got: &Got) -> bool {
    got.status == 503 && got.problem().1.contains("gateway.max_waiting")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_waiting_requests_than_allowed_are_told_which_setting_it_is() {
    let provider =
        Provider::answering(|_| b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno".to_vec()).await;
    let limits = Limits {
        waiting: 2,
        ..Limits::default()
    };
    for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
        let bench = Bench::with(provider.address, 1, |setup| setup.limits = limits).await;
        let (got, mut waiting) = refused(&bench, path, limits.waiting).await;
        assert!(is_full(&got), "{path}: {got:?}");
        assert!(got.head.contains("retry-after: 30"), "{path}: {}", got.head);
        assert!(
            got.head.contains("x-should-retry: true"),
            "{path}: {}",
            got.head
        );
        // Whoever leaves makes room.
        waiting.pop();
        let room = async {
            loop {
                let mut asked = vec![ask(&bench, path, 100).await];
                match tokio::time::timeout(SILENCE, next(&mut asked)).await {
                    Err(_) => return,
                    Ok(got) => assert!(is_full(&got), "{path}: {got:?}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within("room", room).await;
    }
}
