//! Bare sockets on both sides of a gateway, so that every byte can be wrong.

use super::clock::TestClock;
use outlast_engine::provider::Timeouts;
use outlast_engine::shared_state::SharedState;
use outlast_engine::transport::{Forwarder, HttpSettings};
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::auth::AllowedNames;
use outlast_gateway::{Gateway, Limits, Setup, Upstream, Upstreams};
use outlast_kernel::policy::Policy;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ANY: &str = "127.0.0.1:0";

/// The timeout of a test that would hang.
pub(super) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits for a future that must complete.
pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(HANG_TIMEOUT, work).await;
    done.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// A gateway that runs until this is dropped.
pub(super) struct TestGateway {
    pub(super) gateway: SocketAddr,
    pub(super) clock: Arc<TestClock>,
    pub(super) stop: CancellationToken,
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl TestGateway {
    /// Starts a gateway before that provider.
    pub(super) async fn before(provider: SocketAddr) -> Self {
        Self::with(provider, 1, |_| {}).await
    }

    /// Starts a gateway whose clock runs that many times as fast, with changes to its setup.
    pub(super) async fn with(
        provider: SocketAddr,
        scale: u32,
        change: impl FnOnce(&mut Setup),
    ) -> Self {
        let clock = TestClock::start(scale);
        let mut setup = setup(provider, clock.clone());
        change(&mut setup);
        let gateway = Gateway::bind(setup).await.unwrap();
        let (address, stop) = (gateway.address(), CancellationToken::new());
        tokio::spawn(gateway.serve(stop.clone()));
        Self {
            gateway: address,
            clock,
            stop,
        }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.gateway).await.unwrap()
    }

    /// Sends these bytes as far as they are accepted, and reads all that comes back.
    pub(super) async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let stream = self.connect().await;
        let (mut reader, mut writer) = stream.into_split();
        let mut all = Vec::new();
        let exchange = async {
            let write = async {
                writer.write_all(bytes).await.ok();
                // It stays open: that the client could send more is no reason to end.
                writer
            };
            let read = async {
                let mut piece = vec![0_u8; 16 << 10];
                while let Ok(length @ 1..) = reader.read(&mut piece).await {
                    all.extend_from_slice(&piece[..length]);
                }
            };
            tokio::join!(write, read);
        };
        within("an exchange", exchange).await;
        all
    }

    /// Returns a request with a body; the connection ends afterwards.
    pub(super) fn post(&self, path: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.gateway,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// Asserts that the next client is served as if nothing had happened.
    pub(super) async fn serves(&self) {
        let request = self.post("/v1/echo", b"well?");
        let answer = self.exchange(&request).await;
        let answers = responses(&answer);
        let answers: Vec<(u16, String)> =
            answers.iter().map(|got| (got.status, got.text())).collect();
        assert_eq!(answers, [(200, "well?".to_owned())]);
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
        address: String::new(),
        forward: forward.clone(),
        accounts: None,
    };
    Setup {
        listen: ANY.parse().unwrap(),
        upstreams: Upstreams {
            anthropic: upstream("anthropic"),
            openai: upstream("openai"),
            policy: Policy::named("overnight").unwrap().into(),
            policies: Vec::new(),
            client: None,
            timeouts: Timeouts::default(),
            min_throughput: 0,
        },
        limits: Limits::default(),
        shared_state: SharedState::process_local(clock.clone()),
        clock,
        holds_file: None,
        body_dir: None,
        allowed_names: AllowedNames::new("gateway", [], []),
        token: None,
        client_keys: None,
        log: Arc::new(()),
        store_listener: Arc::new(|_| {}),
    }
}

// --- providers ---

/// A request that a provider received: the head, and the body.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

/// A provider that answers each request with given bytes, and records the requests.
pub(super) struct Provider {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Provider {
    /// Starts a provider that echoes the body.
    pub(super) async fn echo() -> Self {
        Self::answering(|seen| {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
                seen.body.len()
            );
            [head.as_bytes(), &seen.body].concat()
        })
        .await
    }

    /// Starts a provider that answers with the bytes that `make` returns for each request.
    pub(super) async fn answering(
        make: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::playing(move |seen, mut stream: TcpStream| {
            let answer = make(&seen);
            async move {
                stream.write_all(&answer).await.ok()?;
                Some(stream)
            }
        })
        .await
    }

    /// Starts a provider that handles each request and its connection by `play`, which may return the connection for
    /// the next request.
    pub(super) async fn playing<Played>(
        play: impl Fn(ReceivedRequest, TcpStream) -> Played + Send + Sync + Clone + 'static,
    ) -> Self
    where
        Played: Future<Output = Option<TcpStream>> + Send,
    {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (play, all) = (play.clone(), Arc::clone(&all));
                tokio::spawn(async move {
                    while let Some(asked) = read_request(&mut stream).await {
                        all.lock().unwrap().push(asked.clone());
                        match play(asked, stream).await {
                            Some(again) => stream = again,
                            None => return,
                        }
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(super) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

/// Reads one request of a well-behaved client.
async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut piece = vec![0_u8; 64 << 10];
    loop {
        if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().unwrap())
            });
            let length = length.unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                return Some(ReceivedRequest { head, body });
            }
        }
        match stream.read(&mut piece).await {
            Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    }
}

/// Returns a response in the Messages dialect with these words.
pub(super) fn message(words: &str) -> Vec<u8> {
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{ "type": "text", "text": words }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

// --- clients ---

/// A response, read from a connection that stays open.
#[derive(Debug)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl RawResponse {
    /// Returns the gateway's own error that the body holds.
    pub(super) fn problem(&self) -> (String, String) {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        let text = |name: &str| body["error"][name].as_str().unwrap().to_owned();
        (text("type"), text("message"))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads whole responses from a connection.
pub(super) struct Reader {
    ahead: Vec<u8>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { ahead: Vec::new() }
    }

    /// Returns the next whole response; `None` when the connection ends before one.
    pub(super) async fn next(&mut self, stream: &mut TcpStream) -> Option<RawResponse> {
        let mut piece = vec![0_u8; 16 << 10];
        loop {
            if let Some((got, length)) = whole(&self.ahead) {
                self.ahead.drain(..length);
                if got.status >= 200 {
                    return Some(got);
                }
                continue;
            }
            match stream.read(&mut piece).await {
                Ok(length @ 1..) => self.ahead.extend_from_slice(&piece[..length]),
                _ => return None,
            }
        }
    }
}

/// Parses these bytes as responses.
pub(super) fn responses(mut bytes: &[u8]) -> Vec<RawResponse> {
    let mut all = Vec::new();
    while let Some((got, length)) = whole(bytes) {
        bytes = &bytes[length..];
        all.push(got);
    }
    let rest = String::from_utf8_lossy(bytes);
    assert!(bytes.is_empty(), "this is left over: {rest}");
    all
}

/// Returns the response at the start of these bytes, and its length in bytes.
fn whole(bytes: &[u8]) -> Option<(RawResponse, usize)> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    let value = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.to_owned())
    };
    let (body, length) = match (value("content-length"), value("transfer-encoding")) {
        (Some(length), None) => {
            let length: usize = length.parse().unwrap();
            (bytes.get(end..end + length)?.to_vec(), length)
        }
        (None, Some(_)) => dechunked(&bytes[end..])?,
        (None, None) => (Vec::new(), 0),
        (Some(_), Some(_)) => panic!("two lengths: {head}"),
    };
    Some((RawResponse { status, head, body }, end + length))
}

fn dechunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let end = at + memchr::memmem::find(&bytes[at..], b"\r\n")?;
        let length = std::str::from_utf8(&bytes[at..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        body.extend_from_slice(bytes.get(end + 2..end + 2 + length)?);
        at = end + 4 + length;
        if at > bytes.len() {
            return None;
        }
        if length == 0 {
            return Some((body, at));
        }
    }
}
