//! A real gateway, providers that a test controls, and clients that see every byte.

use crate::mock_server::wait_for;
use crate::support::{HANG_TIMEOUT, Outlast};
use outlast_store::holds::{Holds, Row};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running gateway; dropping it ends the process.
pub(super) struct Gateway {
    pub(super) address: String,
    child: Child,
    said: Arc<Mutex<String>>,
    listening: Option<JoinHandle<()>>,
    /// Keeps the pipe open, so that writes of the gateway to stdout do not fail.
    _stdout: BufReader<ChildStdout>,
}

/// The exit code and output of a gateway that has ended.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) said: String,
}

/// Returns a free port that the system assigns neither to a listener on any port nor to an outgoing
/// connection.
pub(super) fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(10_000..32_768);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Gateway {
    /// Starts a gateway on any port, in the home of that command, in front of that provider.
    pub(super) fn start(outlast: &Outlast, upstream: &str) -> Self {
        Self::on(outlast, 0, upstream)
    }

    /// Starts a gateway on the given port.
    pub(super) fn on(outlast: &Outlast, port: u16, upstream: &str) -> Self {
        Self::by(&mut command(outlast, port, &["--upstream", upstream]))
    }

    /// Starts the given gateway command.
    pub(super) fn by(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (mut stderr, heard) = (child.stderr.take().unwrap(), Arc::clone(&said));
        let listening = std::thread::spawn(move || {
            let mut piece = [0_u8; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut piece) {
                let text = String::from_utf8_lossy(&piece[..length]);
                heard.lock().unwrap().push_str(&text);
            }
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let Some(address) = address.map(str::to_owned) else {
            listening.join().unwrap();
            panic!("{line:?} {}", said.lock().unwrap());
        };
        Self {
            address,
            child,
            said,
            listening: Some(listening),
            _stdout: stdout,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Returns the stderr output so far.
    pub(super) fn stderr_so_far(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(super) fn wait_for_stderr(&self, words: &str) {
        wait_for(words, || self.stderr_so_far().contains(words));
    }

    /// Waits until the file of holds has a request with at least that many attempts.
    pub(super) fn wait_until_written(&self, outlast: &Outlast, attempts: u64) {
        let is_written = |row: &Row| {
            let hold: Value = serde_json::from_str(&row.value).unwrap();
            hold["progress"]["attempts"].as_u64() >= Some(attempts)
        };
        wait_for("a wait that is written down", || {
            self.written(outlast).iter().any(is_written)
        });
    }

    /// Reads the held requests from their file. The file has one owner, so a copy is read.
    fn written(&self, outlast: &Outlast) -> Vec<Row> {
        let (name, copy) = (
            format!("gateway-{}.db", self.port()),
            TempDir::new().unwrap(),
        );
        for name in [name.clone(), format!("{name}-wal")] {
            std::fs::copy(outlast.home().join(&name), copy.path().join(&name)).ok();
        }
        // A copy that was made in the middle of a change may be unreadable.
        let opened = Holds::open(&copy.path().join(name), Box::new(drop));
        opened.map_or(Vec::new(), |opened| opened.rows)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory in KiB: now, and at its peak.
    pub(super) fn resident(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let value = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (value("VmRSS:"), value("VmHWM:"))
    }

    pub(super) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Kills the gateway.
    pub(super) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.ended().said
    }

    /// Waits until the gateway has ended, which must happen.
    pub(super) fn ended(&mut self) -> Ended {
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(
                begun.elapsed() < HANG_TIMEOUT,
                "it does not end: {}",
                self.stderr_so_far()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(listening) = self.listening.take() {
            listening.join().unwrap();
        }
        Ended {
            code: self.child.wait().unwrap().code(),
            said: self.stderr_so_far(),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Creates the command of a gateway on that port with a JSON log.
pub(super) fn command(outlast: &Outlast, port: u16, arguments: &[&str]) -> Command {
    let listen = format!("127.0.0.1:{port}");
    let all = ["gateway", "--listen", &listen, "--log", "json"];
    let mut command = outlast.command(&[&all, arguments].concat());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

// --- clients ---

/// Builds a request.
pub(super) fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A request whose response is not read yet.
pub(super) struct PendingRequest {
    pub(super) socket: TcpStream,
}

impl PendingRequest {
    pub(super) fn send(address: &str, request: &[u8]) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(HANG_TIMEOUT)).unwrap();
        socket.write_all(request).unwrap();
        Self { socket }
    }

    /// Reads the whole response.
    pub(super) fn answer(self) -> HttpResponse {
        self.answer_after(b"")
    }

    /// Reads the rest of a response of which `read` has arrived already.
    pub(super) fn answer_after(mut self, read: &[u8]) -> HttpResponse {
        let mut bytes = read.to_vec();
        let mut piece = [0_u8; 16 << 10];
        loop {
            match self.socket.read(&mut piece) {
                Ok(0) => return HttpResponse::read(&bytes),
                Ok(length) => bytes.extend_from_slice(&piece[..length]),
                Err(error) => {
                    let late = std::io::ErrorKind::WouldBlock;
                    assert_ne!(error.kind(), late, "no answer: {}", lossy(&bytes));
                    let mut answer = HttpResponse::read(&bytes);
                    answer.is_whole = false;
                    return answer;
                }
            }
        }
    }
}

pub(super) fn ask(address: &str, request: &[u8]) -> HttpResponse {
    PendingRequest::send(address, request).answer()
}

/// A response; interim responses are left out.
#[derive(Debug)]
pub(super) struct HttpResponse {
    /// 0 if there is none.
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// Whether the response is complete by its own framing.
    pub(super) is_whole: bool,
}

impl HttpResponse {
    fn read(mut bytes: &[u8]) -> Self {
        loop {
            let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else {
                return Self {
                    status: 0,
                    head: String::new(),
                    body: bytes.to_vec(),
                    is_whole: false,
                };
            };
            let head = lossy(&bytes[..end + 2]);
            bytes = &bytes[end + 4..];
            let status: u16 = head[9..12].parse().unwrap();
            if status < 200 {
                continue;
            }
            let (body, is_whole) = body(&head, bytes);
            return Self {
                status,
                head,
                body,
                is_whole,
            };
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    pub(super) fn text(&self) -> String {
        lossy(&self.body)
    }
}

fn body(head: &str, mut bytes: &[u8]) -> (Vec<u8>, bool) {
    if !head.contains("transfer-encoding: chunked") {
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map(|length| length.parse::<usize>().unwrap());
        return (bytes.to_vec(), length == Some(bytes.len()));
    }
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(&lossy(&bytes[..end]), 16).unwrap();
        let Some(chunk) = bytes.get(end + 2..end + 2 + length) else {
            body.extend_from_slice(&bytes[end + 2..]);
            return (body, false);
        };
        body.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + length..).unwrap_or_default();
        if length == 0 {
            return (body, true);
        }
    }
    (body, false)
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// --- providers ---

/// Starts a provider that handles each request, read in full, with the given function.
pub(super) fn provider(
    play: impl Fn(Vec<u8>, TcpStream) + Send + Sync + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let play = play.clone();
            std::thread::spawn(move || {
                if let Some(request) = read_request(&mut stream) {
                    play(request, stream);
                }
            });
        }
    });
    address
}

fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = vec![0_u8; 64 << 10];
    let mut length = None;
    loop {
        if length.is_none()
            && let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = lossy(&bytes[..end]).to_lowercase();
            let said = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let body: usize = said.map_or(0, |length| length.parse().unwrap());
            length = Some(end + 4 + body);
        }
        if length.is_some_and(|length| bytes.len() >= length) {
            return Some(bytes);
        }
        match stream.read(&mut piece) {
            Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    }
}

/// The head of a streamed response that ends with its connection.
pub(super) const STREAMED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Builds one text chunk of a streamed Chat Completions response.
pub(super) fn word(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The last chunks of such a response.
pub(super) const LAST_WORDS: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
