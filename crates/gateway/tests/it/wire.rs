//! The client's side of the wire: requests as bytes, and every byte that comes back.

use outlast_dialect::Dialect;
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The key that clients send.
pub(super) const CLIENT_KEY: &str = "planted-client-key-0123456789";

/// A request as a client sends it.
#[derive(Clone, Debug)]
pub(super) struct TestRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl TestRequest {
    /// Creates a request for a few words, in that dialect, by a client that tolerates any silence.
    pub(super) fn new(dialect: Dialect, streamed: bool) -> Self {
        Self::with_body(dialect.path(), words(dialect, streamed).to_string())
    }

    /// Creates a request with any body, by the same client.
    pub(super) fn with_body(target: &str, body: impl Into<Vec<u8>>) -> Self {
        let ask = Self {
            method: "POST".to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: body.into(),
        };
        ask.with("content-type", "application/json")
            .with("x-api-key", CLIENT_KEY)
            .with("x-outlast-client", "codex")
    }

    /// Creates a request without a body.
    pub(super) fn plain(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Sets a header to one value.
    pub(super) fn with_only(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.with(name, value)
    }

    /// Changes the client to one that is recognised by its user agent.
    pub(super) fn with_user_agent(mut self, agent: &str) -> Self {
        self.headers
            .retain(|(known, _)| known != "x-outlast-client");
        self.with("user-agent", agent)
    }

    /// Sets one member of the body.
    pub(super) fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        let mut body: Value = serde_json::from_slice(&self.body).unwrap();
        body[name] = value.into();
        self.body = body.to_string().into_bytes();
        self
    }

    pub(super) fn model(self, model: &str) -> Self {
        self.member("model", model)
    }

    /// Returns the bytes that go over the wire.
    pub(super) fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let mut bytes = format!(
            "{} {} HTTP/1.1\r\nhost: {host}\r\n",
            self.method, self.target
        )
        .into_bytes();
        let length = self.body.len().to_string();
        let own = [
            ("content-length", length.as_bytes()),
            ("connection", b"close"),
        ];
        let is_stated = |name: &str| {
            self.headers
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let own = own.into_iter().filter(|(name, _)| {
            !is_stated(name) && (*name != "content-length" || !self.body.is_empty())
        });
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()));
        for (name, value) in headers.chain(own) {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends the request to that address and reads all that comes back.
    pub(super) async fn send(&self, address: SocketAddr) -> TestResponse {
        Client::asking(address, self).await.answer().await
    }
}

fn words(dialect: Dialect, streamed: bool) -> Value {
    let said = json!([{ "role": "user", "content": "Say hello" }]);
    match dialect {
        Dialect::Anthropic => {
            json!({ "model": "m-000", "max_tokens": 100, "stream": streamed, "messages": said })
        }
        Dialect::OpenaiChat => json!({ "model": "m-000", "stream": streamed, "messages": said }),
        Dialect::OpenaiResponses => {
            json!({ "model": "m-000", "stream": streamed, "input": "Say hello" })
        }
    }
}

/// A connection over which a request was sent.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    /// The bytes that have come back so far.
    pub(super) got: Vec<u8>,
}

impl Client {
    pub(super) async fn asking(address: SocketAddr, ask: &TestRequest) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&ask.bytes(address)).await.unwrap();
        let got = Vec::new();
        Self { stream, got }
    }

    /// Reads until these bytes have come.
    pub(super) async fn until(&mut self, wanted: &[u8]) {
        while memchr::memmem::find(&self.got, wanted).is_none() {
            let read = self.stream.read_buf(&mut self.got).await;
            let wanted = String::from_utf8_lossy(wanted);
            assert!(
                read.is_ok_and(|length| length > 0),
                "it ended without {wanted}: {}",
                String::from_utf8_lossy(&self.got)
            );
        }
    }

    /// Reads to the end.
    pub(super) async fn answer(mut self) -> TestResponse {
        let ended = self.stream.read_to_end(&mut self.got).await.is_ok();
        TestResponse::read(&self.got, ended)
    }
}

/// The bytes that came back, and their parts.
pub(super) struct TestResponse {
    /// Every byte of it.
    pub(super) raw: Vec<u8>,
    pub(super) interims: usize,
    /// The status; zero when there was none.
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    /// Whether the response's framing marks it as whole.
    pub(super) is_whole: bool,
}

impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.raw[..self.raw.len().min(8 << 10)]);
        write!(f, "whole: {}, on the wire:\n{shown}", self.is_whole)
    }
}

impl TestResponse {
    fn read(raw: &[u8], ended: bool) -> Self {
        let mut answer = Self {
            raw: raw.to_vec(),
            interims: 0,
            status: 0,
            headers: Vec::new(),
            body: Vec::new(),
            is_whole: false,
        };
        let mut bytes = raw;
        while let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") {
            let (status, headers) = head(&bytes[..end]);
            bytes = &bytes[end + 4..];
            if status < 200 {
                answer.interims += 1;
                continue;
            }
            (answer.status, answer.headers) = (status, headers);
            let (body, is_whole) = answer.framed(bytes);
            (answer.body, answer.is_whole) = (body, is_whole && ended);
            return answer;
        }
        answer.body = bytes.to_vec();
        answer
    }

    fn framed(&self, bytes: &[u8]) -> (Vec<u8>, bool) {
        if self.header("transfer-encoding").is_some() {
            return dechunked(bytes);
        }
        let length = self.header("content-length");
        let length = length.map(|length| length.parse::<usize>().unwrap());
        let is_whole = length.is_none_or(|length| length == bytes.len());
        (bytes.to_vec(), is_whole)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(known, _)| known == name);
        header.map(|(_, value)| std::str::from_utf8(value).unwrap())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Returns the status of a response and its headers, names in lower case.
fn head(bytes: &[u8]) -> (u16, Vec<(String, Vec<u8>)>) {
    let (line, rest) = match memchr::memmem::find(bytes, b"\r\n") {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &b""[..]),
    };
    let status = std::str::from_utf8(&line[9..12]).unwrap().parse().unwrap();
    (status, headers(rest))
}

/// Returns the headers as they came, names in lower case.
pub(super) fn headers(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut headers = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = String::from_utf8_lossy(&line[..colon]).to_lowercase();
        let value = line[colon + 1..].trim_ascii().to_vec();
        headers.push((name, value));
    }
    headers
}

/// Decodes a chunked body; returns it, and whether its end was received.
pub(super) fn dechunked(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = memchr::memmem::find(bytes, b"\r\n") {
        let length = std::str::from_utf8(&bytes[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (body, &bytes[end..] == b"\r\n\r\n");
        }
        let Some(chunk) = bytes.get(end + 2..end + 2 + length) else {
            body.extend_from_slice(&bytes[end + 2..]);
            return (body, false);
        };
        body.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + length..).unwrap_or_default();
    }
    (body, false)
}
