//! The clients of held requests: each sends a unique request, and recognises its own response.
//!
//! Invariant: a response is complete, names its client, and follows nothing but keep-alive bytes.

use crate::answers::Dialect;
use crate::hold::Extent;
use crate::outage;
use crate::wire::{self, Connection, Head};
use anyhow::{Result, bail};
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

const BODY_BYTES: usize = 64 * 1024;
const SMALL_BODY_BYTES: usize = 512;
/// The prefix of a client's name, before its number.
const MARK: &str = "agent-";
const DIGITS: usize = 6;
/// The normal load, relative to the capacity.
const USUAL_LOAD: f64 = 0.9;
/// Connections of the normal load, for each dialect.
const USUAL_CONNECTIONS: u32 = 8;
const USER_AGENTS: [&str; 3] = [
    "OpenAI/Python 2.8.0",
    "claude-cli/2.1.325 (external, cli)",
    "something/1.0",
];

#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
}

impl Client {
    /// Sends a request once a permit is free, and waits for its response.
    pub(crate) async fn ask(self, room: Arc<Semaphore>, sent: Arc<AtomicUsize>) -> io::Result<()> {
        let permit = room.acquire_owned().await.map_err(wire::broken)?;
        let mut connection = Connection::new(TcpStream::connect(self.address).await?)?;
        connection.send(&self.request(BODY_BYTES)).await?;
        sent.fetch_add(1, Ordering::Relaxed);
        drop(permit);
        self.answered(&mut connection).await
    }

    async fn answered(&self, connection: &mut Connection) -> io::Result<()> {
        let mut body = Vec::new();
        let answer = connection.answer(&mut body).await;
        let name = name(self.number);
        let head = answer.map_err(|error| wire::broken(format!("{name}: {error}")))?;
        self.check(&head, &body)
    }

    /// Fails unless it is this client's own response, complete.
    pub(crate) fn check(&self, head: &Head, body: &[u8]) -> io::Result<()> {
        let name = name(self.number);
        let expected = outage::frames(self.dialect(), &name).concat();
        let beats = body.strip_suffix(expected.as_bytes());
        let is_right = beats.is_some_and(|beats| wire::position(beats, b"error").is_none());
        if head.word == "200" && is_right {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&body[..body.len().min(300)]);
        Err(wire::broken(format!("{name}: {} {shown}", head.word)))
    }

    const fn dialect(&self) -> Dialect {
        Dialect::ALL[self.number % Dialect::ALL.len()]
    }

    pub(crate) fn request(&self, body_bytes: usize) -> Vec<u8> {
        let body = body(self.dialect(), self.number, body_bytes);
        let key = match self.dialect() {
            Dialect::Chat => "authorization: Bearer sk-bench",
            Dialect::Messages => "x-api-key: sk-ant-bench",
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nuser-agent: {}\r\n{key}\r\n\
             content-length: {}\r\n\r\n",
            self.dialect().path(),
            USER_AGENTS[self.number % USER_AGENTS.len()],
            body.len()
        );
        [head.as_bytes(), &body].concat()
    }
}

/// Waits for all clients; returns those without a response.
pub(crate) async fn losses(clients: &mut JoinSet<io::Result<()>>) -> Vec<String> {
    let mut lost = Vec::new();
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended.map_err(wire::broken).flatten() {
            lost.push(error.to_string());
        }
    }
    lost
}

/// Runs the provider's normal load, in both dialects.
pub(crate) async fn usual_load(address: SocketAddr, extent: Extent) -> Result<()> {
    let pace = f64::from(extent.per_second) * USUAL_LOAD;
    let every = Duration::from_secs_f64(f64::from(USUAL_CONNECTIONS) / pace);
    let mut connections = JoinSet::new();
    for number in 0..USUAL_CONNECTIONS as usize * Dialect::ALL.len() {
        let client = Client { number, address };
        connections.spawn(async move {
            let mut connection = Connection::new(TcpStream::connect(address).await?)?;
            let request = client.request(SMALL_BODY_BYTES);
            let (end, mut ticks) = (Instant::now() + extent.usual, interval(every));
            while Instant::now() < end {
                ticks.tick().await;
                connection.send(&request).await?;
                client.answered(&mut connection).await?;
            }
            Ok(())
        });
    }
    match losses(&mut connections).await.first() {
        Some(problem) => bail!("{problem}"),
        None => Ok(()),
    }
}

// --- requests ---

fn name(number: usize) -> String {
    format!("{MARK}{number:0DIGITS$}")
}

/// Builds a unique request of about that many bytes.
fn body(dialect: Dialect, number: usize, length: usize) -> Vec<u8> {
    let mut text = format!(
        "{{\"model\":\"{}\",\"stream\":true,\"max_tokens\":1024,\"messages\":[{{\"role\":\"user\",\"content\":\"{} {length} ",
        dialect.model(),
        name(number)
    );
    let mut rng = fastrand::Rng::with_seed(number as u64);
    while text.len() < length {
        write!(text, "{:016x} ", rng.u64(..)).unwrap();
    }
    text.push_str("\"}]}");
    text.into_bytes()
}

/// Returns the client that sent a body; `None` if the body was changed.
pub(crate) fn sender(received: &[u8]) -> Option<String> {
    let start = std::str::from_utf8(received.get(..256)?).ok()?;
    let (before, rest) = start.split_once(MARK)?;
    let mut words = rest.split(' ');
    let number = words.next()?.parse().ok()?;
    let length = words.next()?.parse().ok()?;
    let is_of = |dialect: &Dialect| before.contains(dialect.model());
    let dialect = Dialect::ALL.into_iter().find(is_of)?;
    (body(dialect, number, length) == received).then(|| name(number))
}

/// Returns the number of the client with that name.
pub(crate) fn number(name: &str) -> Option<usize> {
    name.strip_prefix(MARK)?.parse().ok()
}
