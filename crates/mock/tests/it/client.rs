//! A server for each test, and a client that sees every byte.

use outlast_dialect::{Delivery, Dialect, Message, Request};
use outlast_engine::clock::TimerClock;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::Timestamp;
use outlast_mock::{Options, Server};
use serde_json::Value;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A running server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::new("ok".parse().unwrap())).await
    }

    pub(crate) async fn start_with(mut options: Options) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(START));
        options.hosts.push("rehearsal".to_owned());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(address, clock, options).await.unwrap();
        let stop = CancellationToken::new();
        Self {
            address: server.address(),
            serving: tokio::spawn(server.serve(stop.clone())),
            stop,
        }
    }

    /// Sends the text and reads until the connection ends.
    pub(crate) async fn send(&self, request: &str) -> Received {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let error = socket.read_to_end(&mut bytes).await.err();
        Received {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
            error: error.map(|error| error.kind()),
        }
    }

    /// Sends a request in that dialect for that model.
    pub(crate) async fn ask(&self, dialect: Dialect, model: &str) -> Received {
        self.send(&streamed_completion_request(dialect, model, &[]))
            .await
    }

    /// Sends a request to the control endpoints, which must succeed.
    pub(crate) async fn control(&self, method: &str, path: &str, body: &str) -> Value {
        let path = format!("/_outlast/{path}");
        let received = self.send(&request(method, &path, &[], body)).await;
        assert_eq!(received.status(), 200, "{}", received.text);
        serde_json::from_str(&received.body()).unwrap()
    }

    /// Returns the log's entries.
    pub(crate) async fn requests(&self) -> Vec<Value> {
        let log = self.control("GET", "requests", "").await;
        log["requests"].as_array().unwrap().clone()
    }

    /// Returns the log's last entry, once it is no longer open.
    pub(crate) async fn last_request(&self) -> Value {
        loop {
            let last = self.requests().await.pop().unwrap();
            if last["ended"] != "open" {
                return last;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The bytes that were received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) text: String,
    pub(crate) error: Option<ErrorKind>,
}

impl Received {
    pub(crate) fn status(&self) -> u16 {
        let status = self.text.split(' ').nth(1);
        status
            .unwrap_or_else(|| panic!("{self:?}"))
            .parse()
            .unwrap()
    }

    pub(crate) fn head(&self) -> &str {
        self.text.split_once("\r\n\r\n").unwrap().0
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head().lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns the bytes of the body, without chunk framing.
    pub(crate) fn body_bytes(&self) -> Vec<u8> {
        let at = self
            .bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap()
            + 4;
        let mut rest = &self.bytes[at..];
        if self.header("transfer-encoding").is_none() {
            return rest.to_vec();
        }
        let mut body = Vec::new();
        while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(&rest[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let Some(chunk) = rest.get(end + 2..end + 2 + size) else {
                break;
            };
            body.extend_from_slice(chunk);
            rest = rest.get(end + 4 + size..).unwrap_or_default();
        }
        body
    }

    pub(crate) fn body(&self) -> String {
        String::from_utf8_lossy(&self.body_bytes()).into_owned()
    }

    /// Returns whether the response ended as HTTP requires.
    pub(crate) fn is_complete(&self) -> bool {
        match self.header("content-length") {
            Some(length) => self.body_bytes().len() == length.parse::<usize>().unwrap(),
            None => self.bytes.ends_with(b"0\r\n\r\n"),
        }
    }
}

/// Returns an HTTP/1.1 request that asks to close the connection after it.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str("host: 127.0.0.1\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// Returns a request in that dialect for a streamed response.
pub(crate) fn streamed_completion_request(
    dialect: Dialect,
    model: &str,
    headers: &[(&str, &str)],
) -> String {
    completion_request(dialect, model, Delivery::Streamed, headers)
}

pub(crate) fn completion_request(
    dialect: Dialect,
    model: &str,
    delivery: Delivery,
    headers: &[(&str, &str)],
) -> String {
    let body = dialect.encode_request(&Request {
        model: model.to_owned(),
        messages: vec![Message::user("Say hello")],
        delivery,
        ..Request::default()
    });
    let body = String::from_utf8(body).unwrap();
    request("POST", dialect.path(), headers, &body)
}
