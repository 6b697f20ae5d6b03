//! Tests of bodies that are too long, broken or strange.

use super::super::raw::{Provider, TestGateway, message, responses, within};
use outlast_gateway::Limits;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAX_BODY_BYTES: usize = 2 << 20;

async fn small_bodies(provider: &Provider) -> TestGateway {
    let limits = Limits {
        max_body_bytes: MAX_BODY_BYTES,
        ..Limits::default()
    };
    TestGateway::with(provider.address, 1, |setup| setup.limits = limits).await
}

fn chunked(chunks: &[u8]) -> Vec<u8> {
    let head = "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    [head.as_bytes(), chunks].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_body_gets_413_with_reason() {
    let provider = Provider::echo().await;
    let bench = small_bodies(&provider).await;
    let endless: Vec<u8> = b"10000\r\n"
        .iter()
        .copied()
        .chain(std::iter::repeat_n(b'x', 0x10000))
        .chain(*b"\r\n")
        .collect();
    for (name, request) in [
        ("announced", bench.post("/v1/echo", &vec![b'x'; 16 << 20])),
        ("in chunks", chunked(&endless.repeat(256))),
        (
            "in one chunk",
            chunked(&[b"7fffffff\r\n".as_slice(), &vec![b'x'; 16 << 20]].concat()),
        ),
    ] {
        let answers = responses(&bench.exchange(&request).await);
        assert_eq!(answers.len(), 1, "{name}");
        let (kind, message) = answers[0].problem();
        assert_eq!(
            (answers[0].status, kind.as_str()),
            (413, "request_too_large"),
            "{name}"
        );
        assert!(message.contains("gateway.max_body"), "{name}: {message}");
        assert!(answers[0].head.contains("connection: close"), "{name}");
    }
    assert!(provider.seen().is_empty());
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expect_continue_is_decided_before_body() {
    let provider = Provider::echo().await;
    let bench = small_bodies(&provider).await;
    let ask = async |lines: &str| {
        let mut stream = bench.connect().await;
        let head = format!("POST /v1/echo HTTP/1.1\r\n{lines}\r\nexpect: 100-continue\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0_u8; 4096];
        let length = within("an answer", stream.read(&mut answer)).await.unwrap();
        String::from_utf8(answer[..length].to_vec()).unwrap()
    };
    let fine = ask("host: localhost\r\ncontent-length: 5").await;
    assert!(fine.starts_with("HTTP/1.1 100 Continue\r\n\r\n"), "{fine}");
    let long = ask("host: localhost\r\ncontent-length: 99999999").await;
    assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
    // No body is read from a client that is not served anyway.
    let foreign = ask("host: evil.example\r\ncontent-length: 5").await;
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_chunks_are_refused() {
    let provider = Provider::echo().await;
    let bench = small_bodies(&provider).await;
    for (name, chunks) in [
        ("no number", b"hello\r\n".to_vec()),
        ("a negative number", b"-5\r\nhello\r\n0\r\n\r\n".to_vec()),
        ("a signed number", b"+5\r\nhello\r\n0\r\n\r\n".to_vec()),
        ("a prefixed number", b"0x5\r\nhello\r\n0\r\n\r\n".to_vec()),
        (
            "a blank before the number",
            b" 5\r\nhello\r\n0\r\n\r\n".to_vec(),
        ),
        (
            "a number beyond all numbers",
            b"ffffffffffffffffff\r\nhello".to_vec(),
        ),
        ("more than was said", b"3\r\nhello\r\n0\r\n\r\n".to_vec()),
        (
            "less than was said",
            b"7\r\nhello\r\n0\r\n\r\n0\r\n\r\n".to_vec(),
        ),
        ("a NUL", b"5\0\r\nhello\r\n0\r\n\r\n".to_vec()),
        (
            "an extension of 4 MiB",
            [
                b"5;".as_slice(),
                &vec![b'x'; 4 << 20],
                b"\r\nhello\r\n0\r\n\r\n",
            ]
            .concat(),
        ),
        (
            "a line feed in an extension",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n".to_vec(),
        ),
        (
            "trailers of 4 MiB",
            [
                b"5\r\nhello\r\n0\r\nx: ".as_slice(),
                &vec![b'x'; 4 << 20],
                b"\r\n\r\n",
            ]
            .concat(),
        ),
        (
            "a million trailers",
            [
                b"5\r\nhello\r\n0\r\n".as_slice(),
                &b"x: y\r\n".repeat(1_000_000),
                b"\r\n",
            ]
            .concat(),
        ),
    ] {
        let answers = responses(&bench.exchange(&chunked(&chunks)).await);
        assert_eq!(answers.len(), 1, "{name}");
        let (kind, message) = answers[0].problem();
        assert_eq!(
            (answers[0].status, kind.as_str()),
            (400, "invalid_request_error"),
            "{name}"
        );
        assert!(message.contains("could not be read"), "{name}: {message}");
        assert!(provider.seen().is_empty(), "{name}: {:?}", provider.seen());
    }
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_body_is_not_forwarded() {
    let provider = Provider::echo().await;
    let bench = small_bodies(&provider).await;
    for request in [
        "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhello",
        "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let mut stream = bench.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        within("an end", stream.read_to_end(&mut answer))
            .await
            .unwrap();
        assert!(responses(&answer).iter().all(|got| got.status == 400));
    }
    bench.serves().await;
    assert_eq!(provider.seen().len(), 1);
}

/// With a folder for large bodies, without one, and with one on a disk that is full or gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_body_arrives_complete_from_disk_or_memory() {
    let provider = Provider::echo().await;
    let folder = tempfile::TempDir::new().unwrap();
    let mut body = Vec::new();
    while body.len() < (5 << 20) {
        write!(body, "{} ", body.len()).unwrap();
    }
    for spool in [
        None,
        Some(folder.path().to_owned()),
        Some("/dev/null/spool".into()),
    ] {
        let bench =
            TestGateway::with(provider.address, 1, |setup| setup.body_dir = spool.clone()).await;
        let request = bench.post("/v1/echo", &body);
        let answers = responses(&bench.exchange(&request).await);
        assert!(
            answers[0].body == body,
            "{spool:?}: {} bytes",
            answers[0].body.len()
        );
        let seen = provider.seen().pop().unwrap();
        assert!(seen.body == body, "{spool:?}: {} bytes", seen.body.len());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The provider judges the content of requests: strange JSON is forwarded as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_json_is_forwarded_unchanged() {
    let provider = Provider::answering(|_| message("fine")).await;
    let bench = TestGateway::before(provider.address).await;
    let fields: String = (0..1_000_000)
        .map(|number| format!("\"f{number}\":{number},"))
        .collect();
    let deep = 100_000;
    let nested = format!("{}1{}", "[".repeat(deep), "]".repeat(deep));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(deep), "}".repeat(deep));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "a million fields",
            format!(r#"{{{fields}"model":"m","stream":false}}"#).into(),
        ),
        (
            "lists in lists",
            format!(r#"{{"messages":{nested},"model":"m"}}"#).into(),
        ),
        (
            "objects in objects",
            format!(r#"{{"model":"m","x":{objects}}}"#).into(),
        ),
        ("only lists", nested.clone().into()),
        ("lists that never end", "[".repeat(deep).into()),
        (
            "a model that is a million letters",
            format!(r#"{{"model":"{}"}}"#, "m".repeat(1_000_000)).into(),
        ),
        (
            "a model that is a list",
            format!(r#"{{"model":{nested}}}"#).into(),
        ),
        (
            "the same field twice",
            r#"{"model":"m","model":{},"stream":false,"stream":[]}"#.into(),
        ),
        (
            "half a surrogate",
            r#"{"model":"\ud800","stream":false}"#.into(),
        ),
        (
            "a number that is too large",
            r#"{"model":1e99999,"stream":false}"#.into(),
        ),
        ("no UTF-8", b"{\"model\":\"\xff\xfe\"}".to_vec()),
        ("nothing", Vec::new()),
        ("NULs", vec![0; 1000]),
    ];
    for (name, body) in cases {
        for path in ["/v1/messages", "/v1/echo"] {
            let answers = responses(&bench.exchange(&bench.post(path, &body)).await);
            assert_eq!((answers.len(), answers[0].status), (1, 200), "{name}");
            let seen = provider.seen().pop().unwrap();
            assert!(
                seen.body == body,
                "{name}: {} of {} bytes",
                seen.body.len(),
                body.len()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_json_is_resent_unchanged_on_retry() {
    let fields: String = (0..300_000)
        .map(|number| format!("\"f{number}\":{number},"))
        .collect();
    let deep = 100_000;
    let nested = format!("{}1{}", "[".repeat(deep), "]".repeat(deep));
    let bodies = [
        format!(r#"{{{fields}"model":"m"}}"#),
        format!(r#"{{"model":"m","input":{nested}}}"#),
        nested,
    ];
    for body in bodies {
        let asked = Arc::<AtomicUsize>::default();
        let provider = Provider::answering(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_vec(),
            _ => b"HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\nno".to_vec(),
        })
        .await;
        let bench = TestGateway::with(provider.address, 20, |_| {}).await;
        // A client that can wait without a keep-alive, so that the status stays open.
        let request = String::from_utf8(bench.post("/v1/responses", body.as_bytes())).unwrap();
        let request = request.replacen("\r\n", "\r\nx-outlast-client: codex\r\n", 1);
        let answers = responses(&bench.exchange(request.as_bytes()).await);
        assert_eq!((answers[0].status, answers[0].text().as_str()), (400, "no"));
        let seen = provider.seen();
        assert_eq!(seen.len(), 2);
        assert!(seen.iter().all(|seen| seen.body == body.as_bytes()));
    }
}

/// However long a request is, its `stream` member is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_stream_request_gets_streamed_response() {
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel::<()>();
    let sender = Arc::new(sender);
    let provider = Provider::playing(move |_, mut stream: TcpStream| {
        let sender = Arc::clone(&sender);
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            let word = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}]}\n\n";
            stream.write_all(format!("{head}{word}").as_bytes()).await.ok()?;
            // The rest comes when the client has read this, which it never has.
            sender.send(()).ok();
            stream.read_exact(&mut [0_u8; 1]).await.ok();
            None
        }
    })
    .await;
    let folder = tempfile::TempDir::new().unwrap();
    for spool in [None, Some(folder.path().to_owned())] {
        let bench = TestGateway::with(provider.address, 1, |setup| setup.body_dir = spool).await;
        let said = "x".repeat(3 << 20);
        let body = format!(r#"{{"model":"m","messages":"{said}","stream":true}}"#);
        let mut stream = bench.connect().await;
        let request = bench.post("/v1/chat/completions", body.as_bytes());
        stream.write_all(&request).await.unwrap();
        within("an answer", told.recv()).await.unwrap();
        let mut some = [0_u8; 12];
        within("its beginning", stream.read_exact(&mut some))
            .await
            .unwrap();
        assert_eq!(&some, b"HTTP/1.1 200");
    }
}

/// A client that reads its response when it has sent everything, as most do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_writes_first_still_reads_refusal() {
    let provider = Provider::echo().await;
    let bench = small_bodies(&provider).await;
    let long = vec![b'x'; 24 << 20];
    let head = format!("GET /v1/echo HTTP/1.1\r\nx: {}", "x".repeat(1 << 20));
    let foreign =
        "POST /v1/echo HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 25165824\r\n\r\n";
    for (request, status) in [
        (bench.post("/v1/echo", &long), 413),
        ([foreign.as_bytes(), &long].concat(), 403),
        ([head.as_bytes(), &long].concat(), 431),
    ] {
        let mut stream = bench.connect().await;
        let sent = within("its end", stream.write_all(&request)).await;
        assert!(sent.is_ok(), "{status}: {sent:?}");
        let mut answer = Vec::new();
        within("an answer", stream.read_to_end(&mut answer))
            .await
            .unwrap();
        assert_eq!(responses(&answer)[0].status, status);
    }
}
