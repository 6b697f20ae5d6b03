//! Tests of providers, or servers in their place, that send endless, ambiguous or unrequested responses.

use super::super::raw::{Provider, TestGateway, message, responses, within};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Faster than the wall clock, so that waits are short.
const SCALE: u32 = 20;
/// Maximum number of bytes that are read of an endless response, buffers of the system included.
const MAX_TAKEN_BYTES: usize = 24 << 20;

const STREAMED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const CHUNK: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hello\"},\"finish_reason\":null}]}\n\ndata: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Starts a provider that sends one text first, and another text for ever.
async fn endless(first: &'static str, again: &'static str) -> (Provider, Arc<AtomicUsize>) {
    let taken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&taken);
    let provider = Provider::playing(move |_, mut stream: TcpStream| {
        let counted = Arc::clone(&counted);
        async move {
            let piece = again.repeat(1 + (16 << 10) / again.len());
            stream.write_all(first.as_bytes()).await.ok()?;
            while stream.write_all(piece.as_bytes()).await.is_ok() {
                counted.fetch_add(piece.len(), Ordering::SeqCst);
            }
            None
        }
    })
    .await;
    (provider, taken)
}

fn ask(bench: &TestGateway, lines: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\nconnection: close\r\n{lines}\r\n{body}",
        bench.gateway,
        body.len()
    )
    .into_bytes()
}

const ONCE: &str = "x-outlast-policy: none\r\n";
const WHOLE: &str = r#"{"model":"m","messages":[]}"#;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_response_head_gets_502() {
    for again in ["x-more: 1\r\n", "xxxxxxxxxxxxxxxx"] {
        let (provider, taken) = endless("HTTP/1.1 200 OK\r\n", again).await;
        let bench = TestGateway::before(provider.address).await;
        let answers = responses(&bench.exchange(&ask(&bench, ONCE, WHOLE)).await);
        assert_eq!((answers.len(), answers[0].status), (1, 502), "{again}");
        assert!(!answers[0].problem().1.is_empty());
        let taken = taken.load(Ordering::SeqCst);
        assert!(taken < MAX_TAKEN_BYTES, "{taken} bytes were taken");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_responses_are_not_relayed() {
    let provider = Provider::answering(|_| {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(5000);
        [
            hints.as_bytes(),
            b"HTTP/1.1 100 Continue\r\n\r\n",
            &message("Hello"),
        ]
        .concat()
    })
    .await;
    let bench = TestGateway::before(provider.address).await;
    let answer = bench
        .exchange(&bench.post("/v1/messages", WHOLE.as_bytes()))
        .await;
    let answers = responses(&answer);
    assert_eq!((answers.len(), answers[0].status), (1, 200));
    assert!(answers[0].text().contains("Hello"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_interim_responses_stop_on_disconnect() {
    let (provider, taken) = endless("", "HTTP/1.1 102 Processing\r\n\r\n").await;
    let bench = TestGateway::before(provider.address).await;
    let mut stream = bench.connect().await;
    stream.write_all(&ask(&bench, ONCE, WHOLE)).await.unwrap();
    stops_after(&taken, stream).await;
}

/// Asserts that no more is read from the provider when the client is gone.
async fn stops_after(taken: &AtomicUsize, client: TcpStream) {
    let moves = async {
        while taken.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("a beginning", moves).await;
    drop(client);
    let stands = async {
        let mut before = usize::MAX;
        loop {
            let now = taken.load(Ordering::SeqCst);
            if now == before {
                return;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    within("an end", stands).await;
}

/// Also, a request that waits for the next attempt keeps no connection to the provider meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_retryable_error_is_retried() {
    let (asked, freed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (count, noted) = (Arc::clone(&asked), Arc::clone(&freed));
    let provider = Provider::playing(move |_, mut stream: TcpStream| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let noted = Arc::clone(&noted);
        async move {
            if number > 0 {
                // The connection of the first attempt is closed by now, or soon when the machine is busy.
                while noted.load(Ordering::SeqCst) == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                stream.write_all(&message("freed: 1")).await.ok()?;
                return Some(stream);
            }
            stream.write_all(b"HTTP/1.1 503 No\r\n\r\n").await.ok()?;
            while stream.write_all(&[b'x'; 16 << 10]).await.is_ok() {}
            noted.fetch_add(1, Ordering::SeqCst);
            None
        }
    })
    .await;
    let bench = TestGateway::with(provider.address, SCALE, |_| {}).await;
    let answer = bench
        .exchange(&bench.post("/v1/messages", WHOLE.as_bytes()))
        .await;
    let answers = responses(&answer);
    assert_eq!((answers.len(), answers[0].status), (1, 200));
    assert!(
        answers[0].text().contains("freed: 1"),
        "{}",
        answers[0].text()
    );
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_4xx_body_is_streamed_until_disconnect() {
    let (provider, taken) = endless("HTTP/1.1 400 No\r\n\r\n", "no ").await;
    let bench = TestGateway::before(provider.address).await;
    let mut stream = bench.connect().await;
    stream.write_all(&ask(&bench, "", WHOLE)).await.unwrap();
    let mut some = vec![0_u8; 1 << 20];
    within("some", stream.read_exact(&mut some)).await.unwrap();
    assert!(some.starts_with(b"HTTP/1.1 400 "));
    stops_after(&taken, stream).await;
}

/// The rest of a long error never comes: if the client leaves, the request ends all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_during_stalled_error_frees_provider() {
    let (freed, is_free) = tokio::sync::mpsc::unbounded_channel();
    let provider = Provider::playing(move |_, mut stream: TcpStream| {
        let freed = freed.clone();
        async move {
            stream
                .write_all(b"HTTP/1.1 400 No\r\ncontent-length: 200000\r\n\r\n")
                .await
                .ok()?;
            stream.write_all(&[b'x'; 100_000]).await.ok()?;
            stream.read_exact(&mut [0_u8; 1]).await.ok();
            freed.send(()).ok();
            None
        }
    })
    .await;
    let mut is_free = is_free;
    let bench = TestGateway::before(provider.address).await;
    let mut stream = bench.connect().await;
    stream.write_all(&ask(&bench, "", WHOLE)).await.unwrap();
    let mut some = vec![0_u8; 90_000];
    within("some", stream.read_exact(&mut some)).await.unwrap();
    drop(stream);
    within("the provider's freedom", is_free.recv())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_frame_is_relayed_without_buffering() {
    let cases = [
        ("data: ", "x"),
        ("data: {\"a\":\"", "x"),
        ("", "\n"),
        ("", ": well\n\n"),
    ];
    join_all(cases.map(async |(first, again)| {
        let first: &'static str = Box::leak(format!("{STREAMED}{first}").into_boxed_str());
        let (provider, taken) = endless(first, again).await;
        let bench = TestGateway::before(provider.address).await;
        let mut stream = bench.connect().await;
        stream.write_all(&ask(&bench, ONCE, STREAM)).await.unwrap();
        let mut some = vec![0_u8; 256 << 10];
        within("some", stream.read_exact(&mut some)).await.unwrap();
        assert!(some.starts_with(b"HTTP/1.1 200 "), "{first:?} {again:?}");
        // The client stops reading, and so does the gateway.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let taken = taken.load(Ordering::SeqCst);
        assert!(
            taken < MAX_TAKEN_BYTES,
            "{first:?} {again:?}: {taken} bytes were taken"
        );
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrequested_compressed_body_is_relayed_unchanged() {
    // Not even looked at: it could be a thousand times as long.
    let body = [
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".as_slice(),
        &[0x5a; 5000],
    ]
    .concat();
    let sent = body.clone();
    let provider = Provider::answering(move |_| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            sent.len()
        );
        [head.as_bytes(), &sent].concat()
    })
    .await;
    let bench = TestGateway::before(provider.address).await;
    for asked in [WHOLE, STREAM] {
        let answers = responses(
            &bench
                .exchange(&ask(&bench, "accept-encoding: gzip\r\n", asked))
                .await,
        );
        assert!(answers[0].body == body, "{asked}");
        assert!(
            answers[0].head.contains("content-encoding: gzip"),
            "{asked}"
        );
    }
    let head = provider.seen().pop().unwrap().head;
    assert!(head.contains("accept-encoding: identity"), "{head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_response_has_one_reading_or_502() {
    let hidden = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhidden";
    for (name, answer) in [
        (
            "both lengths",
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "both lengths, the other way round",
            format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 500\r\n\r\n5\r\nhello\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "two lengths",
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 9\r\n\r\nhello{hidden}"
            ),
        ),
        (
            "more than was said",
            format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello{hidden}"),
        ),
        (
            "a folded line",
            "HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 5\r\n\r\nhello".to_owned(),
        ),
        (
            "a switch of protocols",
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: evil\r\nconnection: upgrade\r\n\r\n{hidden}"
            ),
        ),
        (
            "no status",
            "HTTP/1.1 abc OK\r\ncontent-length: 5\r\n\r\nhello".to_owned(),
        ),
        ("no HTTP", "220 mail.example ESMTP\r\n".repeat(100)),
    ] {
        let first = answer.clone();
        let asked = Arc::<AtomicUsize>::default();
        let provider =
            Provider::answering(move |seen| match asked.fetch_add(1, Ordering::SeqCst) {
                0 => first.clone().into_bytes(),
                _ => [
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                        seen.body.len()
                    )
                    .as_bytes(),
                    &seen.body,
                ]
                .concat(),
            })
            .await;
        let bench = TestGateway::before(provider.address).await;
        let request = bench.post("/v1/echo", b"x");
        let answers = responses(&bench.exchange(&request).await);
        assert_eq!(answers.len(), 1, "{name}");
        match answers[0].status {
            502 => {}
            200 => assert_eq!(answers[0].text(), "hello", "{name}"),
            other => panic!("{name}: {other}"),
        }
        bench.serves().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_passed_on_and_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = elsewhere.local_addr().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let provider = Provider::answering(move |_| {
            format!("HTTP/1.1 {status} Elsewhere\r\nlocation: http://{place}/v1/messages\r\ncontent-length: 0\r\n\r\n").into_bytes()
        })
        .await;
        let bench = TestGateway::before(provider.address).await;
        for path in ["/v1/messages", "/v1/models"] {
            let request = String::from_utf8(bench.post(path, WHOLE.as_bytes())).unwrap();
            let request = request.replacen("\r\n", "\r\nx-api-key: planted-key\r\n", 1);
            let answers = responses(&bench.exchange(request.as_bytes()).await);
            assert_eq!(answers[0].status, status, "{path}");
            assert!(
                answers[0]
                    .head
                    .contains(&format!("location: http://{place}")),
                "{path}"
            );
        }
        assert_eq!(provider.seen().len(), 2, "{status}");
    }
    let came = tokio::time::timeout(Duration::from_millis(200), elsewhere.accept()).await;
    assert!(came.is_err(), "somebody came");
}

/// The last event has come: whatever the provider does then, the client has its response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_is_ended_after_its_last_event() {
    for again in ["", ": still here\n\n", "data: more\n\n"] {
        let provider = Provider::playing(move |_, mut stream: TcpStream| async move {
            stream
                .write_all(format!("{STREAMED}{CHUNK}").as_bytes())
                .await
                .ok()?;
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                stream.write_all(again.as_bytes()).await.ok()?;
            }
        })
        .await;
        let bench = TestGateway::with(provider.address, SCALE, |_| {}).await;
        let answers = responses(&bench.exchange(&ask(&bench, "", STREAM)).await);
        assert_eq!((answers.len(), answers[0].status), (1, 200), "{again:?}");
        assert!(
            answers[0].text().starts_with(CHUNK),
            "{}",
            answers[0].text()
        );
        assert!(
            !answers[0].text().contains("error"),
            "{}",
            answers[0].text()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_headers_pass_except_hop_by_hop() {
    let provider = Provider::answering(|_| {
        let lines = b"HTTP/1.1 200 OK\r\nset-cookie: a=1; Path=/\r\nset-cookie: b=2\r\nx-odd: caf\xe9\r\nx-hop: 1\r\nconnection: x-hop\r\nkeep-alive: timeout=5\r\nx-outlast-attempts: 99\r\nx-request-id: r1\r\ncontent-length: 2\r\n\r\n{}";
        lines.to_vec()
    })
    .await;
    let bench = TestGateway::before(provider.address).await;
    let answer = bench.exchange(&bench.post("/v1/echo", b"x")).await;
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    for wanted in [
        "set-cookie: a=1; Path=/",
        "set-cookie: b=2",
        "x-odd: caf\u{fffd}",
        "x-request-id: r1",
        "x-outlast-attempts: 1",
    ] {
        assert_eq!(
            head.lines().filter(|line| *line == wanted).count(),
            1,
            "{wanted} in {head}"
        );
    }
    for unwanted in ["x-hop", "keep-alive", "x-outlast-attempts: 99"] {
        assert!(
            !head.lines().any(|line| line.starts_with(unwanted)),
            "{unwanted} in {head}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_sent_before_full_upload_reaches_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.read_exact(&mut [0_u8; 100]).await.ok();
                let refusal =
                    "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno\n";
                stream.write_all(refusal.as_bytes()).await.ok();
                // It does not read any further, and ends the connection a moment later.
                tokio::time::sleep(Duration::from_millis(300)).await;
            });
        }
    });
    let bench = TestGateway::before(address).await;
    let body = format!(r#"{{"model":"m","messages":"{}"}}"#, "x".repeat(20 << 20));
    let answers = responses(&bench.exchange(&ask(&bench, "", &body)).await);
    assert_eq!(
        (answers[0].status, answers[0].text().as_str()),
        (413, "no\n")
    );
}
