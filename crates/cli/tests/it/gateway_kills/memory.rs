//! The memory cost of clients and providers that send or hold too much: next to nothing.

use super::scene::{
    Gateway, LAST_WORDS, PendingRequest, STREAMED, ask, command, free_port, post, provider, word,
};
use crate::mock_server::wait_for;
use crate::support::{HANG_TIMEOUT, Outlast};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
/// KiB.
const MAX_GROWTH: u64 = 20 << 10;
/// Several times as many bytes as may be kept.
const ENOUGH: usize = 80 << 20;
/// How long nothing must arrive or be taken before the transfer counts as stalled.
const QUIET_PERIOD: Duration = Duration::from_millis(500);

/// Starts a provider of an endless stream of these pieces; the counter is the number of bytes taken
/// from it.
fn endless(first: String, piece: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let taken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&taken);
    let address = provider(move |_, mut stream: TcpStream| {
        stream.write_all(first.as_bytes()).ok();
        let piece = piece.repeat(1 + (16 << 10) / piece.len());
        while stream.write_all(piece.as_bytes()).is_ok() {
            counted.fetch_add(piece.len(), Ordering::SeqCst);
        }
    });
    (address, taken)
}

fn gateway(outlast: &Outlast, upstream: SocketAddr) -> Gateway {
    let gateway = Gateway::start(outlast, &format!("http://{upstream}"));
    // The first request makes the one-time allocations of a gateway.
    ask(
        &gateway.address,
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    gateway
}

fn real_time() -> Outlast {
    Outlast {
        scale: "1",
        ..Outlast::new()
    }
}

#[test]
fn slow_clients_stay_within_memory_limit() {
    let outlast = real_time();
    let (upstream, taken) = endless(STREAMED.to_owned(), word(&"x".repeat(4000)));
    let gateway = gateway(&outlast, upstream);
    let before = gateway.resident().0;
    let request = post(CHAT, "", STREAM);
    let mut asking: Vec<PendingRequest> = (0..4)
        .map(|_| PendingRequest::send(&gateway.address, request.as_bytes()))
        .collect();
    let mut piece = [0_u8; 1024];
    let mut last = usize::MAX;
    // The socket buffers of a client grow for a while; then the kernel takes no more bytes.
    while last != taken.load(Ordering::SeqCst) {
        last = taken.load(Ordering::SeqCst);
        assert!(last < 100 << 20, "{last} bytes were taken");
        // One of them reads a little, the others nothing.
        asking[0].socket.read_exact(&mut piece).unwrap();
        std::thread::sleep(Duration::from_millis(250));
    }
    let more = gateway.resident().1.saturating_sub(before);
    assert!(more < MAX_GROWTH, "{more} KiB more");
}

#[test]
fn endless_responses_stay_within_memory_limit() {
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let error = "HTTP/1.1 400 No\r\nconnection: close\r\n\r\n";
    for (name, first, piece, body) in [
        (
            "a frame without end",
            format!("{STREAMED}data: "),
            "x".to_owned(),
            STREAM,
        ),
        (
            "a frame without end after content",
            format!("{STREAMED}{}data: ", word("one")),
            "x".to_owned(),
            STREAM,
        ),
        (
            "blanks without end",
            STREAMED.to_owned(),
            "\n".to_owned(),
            STREAM,
        ),
        (
            "comments without end",
            STREAMED.to_owned(),
            ": here\n\n".to_owned(),
            STREAM,
        ),
        (
            "frames that say nothing",
            STREAMED.to_owned(),
            "data: {\"choices\":[]}\n\n".to_owned(),
            STREAM,
        ),
        (
            "words after the end",
            format!("{STREAMED}{}{LAST_WORDS}", word("one")),
            word("more"),
            STREAM,
        ),
        (
            "an error without end",
            error.to_owned(),
            "no ".to_owned(),
            STREAM,
        ),
        (
            "a document without end",
            format!("{json}{{\"a\":\""),
            "x".to_owned(),
            r#"{"model":"m"}"#,
        ),
        (
            "a document of blanks",
            json.to_owned(),
            " ".to_owned(),
            r#"{"model":"m"}"#,
        ),
    ] {
        let outlast = real_time();
        let (upstream, taken) = endless(first, piece);
        let gateway = gateway(&outlast, upstream);
        let before = gateway.resident().0;
        let request = post(CHAT, "x-outlast-policy: none\r\n", body);
        let mut asking = PendingRequest::send(&gateway.address, request.as_bytes());
        let mut piece = vec![0_u8; 64 << 10];
        let (mut came, mut last) = (0, usize::MAX);
        asking.socket.set_read_timeout(Some(QUIET_PERIOD)).unwrap();
        // Waits until enough was taken, the response has ended, or nothing moves any more.
        loop {
            let so_far = taken.load(Ordering::SeqCst);
            match asking.socket.read(&mut piece) {
                Ok(length @ 1..) if so_far < ENOUGH => came += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock && so_far != last => {}
                _ => break,
            }
            last = so_far;
        }
        assert!(came > 0, "{name}: nothing came");
        let more = gateway.resident().1.saturating_sub(before);
        // A document is kept up to 16 MiB, and copied as it grows.
        let most_more = MAX_GROWTH
            + if name.contains("document") {
                48 << 10
            } else {
                0
            };
        assert!(more < most_more, "{name}: {more} KiB more");
        drop(asking);
    }
}

#[test]
fn oversized_requests_stay_within_memory_limit() {
    let outlast = real_time();
    outlast.write("home/outlast.toml", "[gateway]\nmax_body = \"8MiB\"\n");
    let upstream = provider(|_, mut stream: TcpStream| {
        stream
            .write_all(b"HTTP/1.1 400 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
            .ok();
    });
    let upstream = format!("http://{upstream}");
    let mut command = command(&outlast, free_port(), &["--upstream", &upstream]);
    let gateway = Gateway::by(&mut command);
    let fields: String = (0..400_000)
        .map(|number| format!("\"f{number}\":1,"))
        .collect();
    let deep = "[".repeat(4 << 20);
    let requests = [
        format!(
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
            "x".repeat(4 << 20)
        ),
        format!(
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            "x: y\r\n".repeat(100_000)
        ),
        format!(
            "GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
            "x".repeat(4 << 20)
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5;{}",
            "x".repeat(4 << 20)
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{}",
            "x: y\r\n".repeat(700_000)
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n{}",
            "x".repeat(16 << 20)
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n7ffffff\r\n{}",
            "x".repeat(16 << 20)
        ),
        post("/v1/responses", "", &format!(r#"{{{fields}"model":"m"}}"#)),
        post("/v1/responses", "", &deep),
        post(
            "/v1/messages",
            "",
            &format!(r#"{{"model":"{}"}}"#, "m".repeat(4 << 20)),
        ),
    ];
    let send_all = || {
        for (number, request) in requests.iter().enumerate() {
            let mut socket = TcpStream::connect(&gateway.address).unwrap();
            socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
            // The gateway may refuse it before it is sent in full.
            socket.write_all(request.as_bytes()).ok();
            let mut answer = [0_u8; 12];
            socket.read_exact(&mut answer).unwrap();
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.starts_with("HTTP/1.1 4"), "{number}: {answer}");
        }
    };
    // Each thread of the gateway keeps some freed memory for its next allocations.
    for _ in 0..5 {
        send_all();
    }
    let before = gateway.resident().0;
    for _ in 0..5 {
        send_all();
    }
    // The gateway may still be freeing the last request when its response is there.
    wait_for("free memory", || gateway.resident().0 < before + MAX_GROWTH);
    let most = gateway.resident().1;
    // No allocation is larger than the largest body and its copies.
    assert!(most < 200 << 10, "{most}");
}
