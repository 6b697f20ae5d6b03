//! A provider, a gateway in front of it, and a client that sees every byte.

use outlast_dialect::Dialect;
use outlast_engine::clock::WallClock;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::provider::Timeouts;
use outlast_engine::transport::{Forwarder, HttpSettings};
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::policy::Policy;
use outlast_mock::{Options, Server};
use outlast_server::gateway::guard::Names;
use outlast_server::gateway::{Gateway, Limits, Setup, Upstream, Upstreams};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANY: &str = "127.0.0.1:0";

/// How many times as fast as the clock on the wall everything runs.
pub(super) const SCALE: u32 = 600;

/// A provider and a gateway that run until they are dropped.
pub(super) struct Rig {
    pub(super) provider: SocketAddr,
    pub(super) gateway: SocketAddr,
    pub(super) stop: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Rig {
    /// A gateway before a provider that plays that script.
    pub(super) async fn new(script: &str) -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(WallClock::scaled(NonZeroU32::new(SCALE).unwrap()).unwrap());
        let stop = CancellationToken::new();
        let options = Options::new(script.parse().unwrap());
        let server = Server::bind(ANY.parse().unwrap(), clock.clone(), options);
        let server = server.await.unwrap();
        let provider = server.address();
        tokio::spawn(server.serve(stop.clone()));
        let setup = setup(provider, clock);
        let gateway = Gateway::bind(setup).await.unwrap();
        let address = gateway.address();
        tokio::spawn(gateway.serve(stop.clone()));
        Self {
            provider,
            gateway: address,
            stop,
        }
    }

    /// Asks for an answer in that dialect.
    pub(super) async fn ask(&self, dialect: Dialect, streamed: bool) -> Answer {
        self.post(dialect.path(), &[], &request(dialect, streamed))
            .await
    }

    pub(super) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let body = body.to_string();
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nx-api-key: planted\r\nconnection: close\r\n",
            self.gateway,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(format!("{head}\r\n{body}").as_bytes()).await
    }

    /// Sends these bytes and reads all that comes back.
    pub(super) async fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.gateway).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all).await.is_ok();
        Answer::read(&all, ended)
    }

    /// What the provider was asked.
    pub(super) async fn asked(&self) -> Vec<Value> {
        let mut stream = TcpStream::connect(self.provider).await.unwrap();
        let request = format!(
            "GET /_outlast/requests HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            self.provider
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        let answer = Answer::read(&all, true);
        let log: Value = serde_json::from_slice(&answer.body).unwrap();
        let list = log.as_array().or_else(|| log["requests"].as_array());
        list.unwrap_or_else(|| panic!("{log}")).clone()
    }
}

fn setup(provider: SocketAddr, clock: Arc<dyn Clock>) -> Setup {
    let forward = Forwarder::new(&HttpSettings {
        base_url: format!("http://{provider}"),
        ..HttpSettings::default()
    });
    let forward = forward.unwrap();
    let upstream = |name: &str| Upstream {
        name: name.to_owned(),
        place: String::new(),
        forward: forward.clone(),
        accounts: None,
    };
    Setup {
        listen: ANY.parse().unwrap(),
        upstreams: Upstreams {
            anthropic: upstream("anthropic"),
            openai: upstream("openai"),
            policy: Policy::named("overnight").unwrap(),
            policies: Vec::new(),
            client: None,
            timeouts: Timeouts::default(),
            least_throughput: 0,
        },
        limits: Limits::default(),
        knowledge: Knowledge::alone(clock.clone()),
        clock,
        holds_file: None,
        spool: None,
        names: Names::default(),
        token: None,
        client_keys: None,
        log: Arc::new(()),
        notices: Arc::new(|_| {}),
    }
}

/// A request for a few words.
pub(super) fn request(dialect: Dialect, streamed: bool) -> Value {
    let said = json!([{ "role": "user", "content": "Say hello" }]);
    match dialect {
        Dialect::Anthropic => {
            json!({ "model": "m", "max_tokens": 100, "stream": streamed, "messages": said })
        }
        Dialect::OpenaiChat => json!({ "model": "m", "stream": streamed, "messages": said }),
        Dialect::OpenaiResponses => {
            json!({ "model": "m", "stream": streamed, "input": "Say hello" })
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) interims: usize,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether the response says itself that it is whole.
    pub(super) is_whole: bool,
}

impl Answer {
    fn read(mut bytes: &[u8], ended: bool) -> Self {
        let mut interims = 0;
        loop {
            let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
                return Self {
                    interims,
                    status: 0,
                    headers: Vec::new(),
                    body: bytes.to_vec(),
                    is_whole: false,
                };
            };
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            bytes = &bytes[end + 4..];
            let mut lines = head.split("\r\n");
            let status: u16 = lines.next().unwrap()[9..12].parse().unwrap();
            if status < 200 {
                interims += 1;
                continue;
            }
            let headers: Vec<(String, String)> = lines
                .map(|line| line.split_once(": ").unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let (body, is_whole) = body(&headers, bytes);
            return Self {
                interims,
                status,
                headers,
                body,
                is_whole: is_whole && ended,
            };
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(known, _)| known == name);
        header.map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn body(headers: &[(String, String)], bytes: &[u8]) -> (Vec<u8>, bool) {
    let value = |name: &str| headers.iter().find(|(known, _)| known == name);
    if value("transfer-encoding").is_some() {
        return dechunked(bytes);
    }
    let length = value("content-length").map(|(_, length)| length.parse::<usize>().unwrap());
    (
        bytes.to_vec(),
        length.is_none_or(|length| length == bytes.len()),
    )
}

fn dechunked(mut bytes: &[u8]) -> (Vec<u8>, bool) {
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
