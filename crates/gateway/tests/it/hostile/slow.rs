//! Tests of slow clients: slow requests are bounded in time, and slowly read responses cost no memory.

use super::super::raw::{HANG_TIMEOUT, Provider, Reader, TestGateway, responses, within};
use outlast_gateway::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

const BEAT: Duration = Duration::from_millis(20);

/// Long enough for honest clients on a busy machine.
const SHORT: Duration = Duration::from_millis(1500);
/// A limit that no test reaches.
const HOUR: Duration = Duration::from_secs(3600);
const PATIENT: Limits = Limits {
    max_body_bytes: 64 << 20,
    max_connections: 1000,
    max_waiting: 1000,
    drain_timeout: HOUR,
    head_timeout: HOUR,
    body_idle_timeout: HOUR,
    body_timeout: HOUR,
    idle_timeout: HOUR,
};

async fn with_limits(provider: &Provider, limits: Limits) -> TestGateway {
    TestGateway::with(provider.address, 1, |setup| setup.limits = limits).await
}

/// Sends the beginning, and then one byte at a time until the gateway ends it; returns all that the gateway sent.
async fn drip(bench: &TestGateway, beginning: &str, byte: &[u8]) -> (Vec<u8>, Duration) {
    let begun = Instant::now();
    let stream = bench.connect().await;
    let (mut reader, mut writer) = stream.into_split();
    writer.write_all(beginning.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let dripping = async {
        while begun.elapsed() < HANG_TIMEOUT {
            writer.write_all(byte).await.ok();
            tokio::time::sleep(BEAT).await;
        }
    };
    tokio::select! {
        () = dripping => panic!("it goes on for ever"),
        _ = reader.read_to_end(&mut answer) => {}
    }
    (answer, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_head_times_out_while_others_are_served() {
    let provider = Provider::echo().await;
    let limits = Limits {
        head_timeout: SHORT,
        ..PATIENT
    };
    let bench = with_limits(&provider, limits).await;
    let slow = (0..50).map(|_| {
        drip(
            &bench,
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: ",
            b"y",
        )
    });
    let others = async {
        for _ in 0..10 {
            bench.serves().await;
            tokio::time::sleep(BEAT).await;
        }
    };
    let (slow, ()) = tokio::join!(futures_util::future::join_all(slow), others);
    for (answer, took) in slow {
        assert!(responses(&answer).iter().all(|got| got.status == 408));
        assert!(took >= SHORT, "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_or_absent_body_gets_408() {
    let provider = Provider::echo().await;
    // Only the limit in question can end it.
    let in_all = Limits {
        body_timeout: SHORT,
        ..PATIENT
    };
    let pause = Limits {
        body_idle_timeout: SHORT,
        ..PATIENT
    };
    let head = "POST /v1/echo HTTP/1.1\r\nhost: localhost\r\n";
    let cases = [
        ("content-length: 1000000\r\n\r\n", b"x".as_slice(), in_all),
        ("transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n", in_all),
        ("content-length: 1000000\r\n\r\n", b"", pause),
        ("transfer-encoding: chunked\r\n\r\n", b"", pause),
    ];
    let checks = cases.map(async |(beginning, byte, limits)| {
        let bench = with_limits(&provider, limits).await;
        let (answer, took) = drip(&bench, &format!("{head}{beginning}"), byte).await;
        let answers = responses(&answer);
        assert_eq!(answers.len(), 1, "{beginning}");
        let (kind, message) = answers[0].problem();
        assert_eq!(
            (answers[0].status, kind.as_str()),
            (408, "timeout_error"),
            "{beginning}"
        );
        assert!(message.contains("too long"), "{message}");
        assert!(took >= SHORT, "{beginning}: {took:?}");
        bench
    });
    let benches = futures_util::future::join_all(checks).await;
    assert!(provider.seen().is_empty());
    for bench in benches {
        bench.serves().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_is_closed() {
    let provider = Provider::echo().await;
    // Before its first request, either limit may be the one that counts.
    let before = async {
        let limits = Limits {
            head_timeout: SHORT,
            idle_timeout: SHORT,
            ..PATIENT
        };
        let bench = with_limits(&provider, limits).await;
        let mut silent = bench.connect().await;
        let mut nothing = Vec::new();
        within("an end", silent.read_to_end(&mut nothing))
            .await
            .unwrap();
        assert!(nothing.is_empty());
    };
    let after = async {
        let limits = Limits {
            idle_timeout: SHORT,
            ..PATIENT
        };
        let bench = with_limits(&provider, limits).await;
        let mut used = bench.connect().await;
        used.write_all(b"GET /v1/echo HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut reader = Reader::new();
        assert!(within("an answer", reader.next(&mut used)).await.is_some());
        assert!(within("an end", reader.next(&mut used)).await.is_none());
    };
    tokio::join!(before, after);
}

// --- slow readers ---

const FRAME: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"PADDING\"}}\n\n";
const BEGINNING: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
const END: &str = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// More than all the buffers of the system between provider and client.
const LONG: usize = 64 << 20;
const MAX_IN_FLIGHT_BYTES: usize = 32 << 20;

/// Starts a provider of a long stream; also returns the number of bytes that were read of it, and of streams that
/// ended.
async fn long_stream() -> (Provider, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (taken, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (counted, noted) = (Arc::clone(&taken), Arc::clone(&ended));
    let provider = Provider::playing(move |_, mut stream: TcpStream| {
        let (counted, noted) = (Arc::clone(&counted), Arc::clone(&noted));
        async move {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let frame = FRAME.replace("PADDING", &"x".repeat(16 << 10));
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(BEGINNING.as_bytes()).await.ok()?;
            while counted.load(Ordering::SeqCst) < LONG {
                if stream.write_all(frame.as_bytes()).await.is_err() {
                    noted.fetch_add(1, Ordering::SeqCst);
                    return None;
                }
                counted.fetch_add(frame.len(), Ordering::SeqCst);
            }
            stream.write_all(END.as_bytes()).await.ok()?;
            None
        }
    })
    .await;
    (provider, taken, ended)
}

async fn ask_for_stream(bench: &TestGateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut stream = socket.connect(bench.gateway).await.unwrap();
    let request = bench.post(
        "/v1/messages",
        br#"{"model":"m","stream":true,"messages":[]}"#,
    );
    stream.write_all(&request).await.unwrap();
    stream
}

/// Returns the number of bytes that were read from the provider when nothing moves any more.
async fn standstill(taken: &AtomicUsize) -> usize {
    let mut before = usize::MAX;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = taken.load(Ordering::SeqCst);
        if now == before && now > 0 {
            return now;
        }
        before = now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_response_is_not_buffered() {
    let (provider, taken, _) = long_stream().await;
    let bench = TestGateway::before(provider.address).await;
    let mut stream = ask_for_stream(&bench).await;
    let first = within("a standstill", standstill(&taken)).await;
    assert!(first < MAX_IN_FLIGHT_BYTES, "{first} bytes were taken");
    let mut some = vec![0_u8; 8 << 20];
    within("some", stream.read_exact(&mut some)).await.unwrap();
    let second = within("a standstill", standstill(&taken)).await;
    assert!(
        second < MAX_IN_FLIGHT_BYTES + some.len(),
        "{second} bytes were taken"
    );
    let mut all = some;
    within("the rest", stream.read_to_end(&mut all))
        .await
        .unwrap();
    let got = responses(&all).pop().unwrap();
    assert!(got.body.ends_with(END.as_bytes()) && got.body.starts_with(BEGINNING.as_bytes()));
    let sent = taken.load(Ordering::SeqCst) + BEGINNING.len() + END.len();
    assert_eq!(got.body.len(), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_of_stalled_reader_frees_provider() {
    let (provider, taken, ended) = long_stream().await;
    let bench = TestGateway::before(provider.address).await;
    let stream = ask_for_stream(&bench).await;
    within("a standstill", standstill(&taken)).await;
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    drop(stream);
    let freed = async {
        while ended.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the provider's freedom", freed).await;
}
