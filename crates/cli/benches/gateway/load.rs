//! The load: a number of connections, each of which repeats its request after every response.
//!
//! Invariant: every response is checked, to the last byte where it must pass unchanged. A wrong one fails the
//! measurement.

use crate::answers::{self, Dialect};
use crate::wire::{self, Connection};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Limit for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A request, and the check of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestKind {
    pub(crate) dialect: Dialect,
    pub(crate) is_streamed: bool,
}

/// The required match between a response and the provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fidelity {
    EveryByte,
    /// The system rewrites responses: the last words and the end of the stream must be there.
    Words,
}

/// A load on one system.
pub(crate) struct Load {
    pub(crate) target: SocketAddr,
    pub(crate) question: RequestKind,
    pub(crate) fidelity: Fidelity,
    pub(crate) connections: usize,
    pub(crate) length: Duration,
    pub(crate) path: String,
    pub(crate) model: &'static str,
    /// Further headers that this system wants, each with its end of line.
    pub(crate) headers: String,
}

/// The result of a load.
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) took: Duration,
    /// In ascending order.
    latencies: Vec<Duration>,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }

    /// Returns the latency that the given percentage of requests did not exceed.
    pub(crate) fn latency(&self, percent: usize) -> Duration {
        let at = self.latencies.len() * percent / 100;
        self.latencies[at.min(self.latencies.len() - 1)]
    }
}

impl Load {
    /// Sends requests until the time is over, and waits for the last responses.
    pub(crate) async fn run(self) -> io::Result<Outcome> {
        let asking = Arc::new(RequestLoop::of(&self));
        let begun = Instant::now();
        let end = begun + self.length;
        let mut connections = JoinSet::new();
        for _ in 0..self.connections {
            connections.spawn(Arc::clone(&asking).ask_until(end));
        }
        let mut latencies = Vec::new();
        while let Some(ended) = connections.join_next().await {
            latencies.extend(ended.map_err(wire::broken)??);
        }
        let took = begun.elapsed();
        latencies.sort_unstable();
        Ok(Outcome {
            requests: latencies.len(),
            took,
            latencies,
        })
    }
}

struct RequestLoop {
    target: SocketAddr,
    request: Vec<u8>,
    expected: Vec<u8>,
    question: RequestKind,
    fidelity: Fidelity,
}

impl RequestLoop {
    fn of(load: &Load) -> Self {
        let RequestKind {
            dialect,
            is_streamed,
        } = load.question;
        let expected = match is_streamed {
            true => answers::stream(dialect).concat(),
            false => answers::json(dialect),
        };
        Self {
            target: load.target,
            request: request(load),
            expected: expected.into_bytes(),
            question: load.question,
            fidelity: load.fidelity,
        }
    }

    async fn ask_until(self: Arc<Self>, end: Instant) -> io::Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        let mut body = Vec::new();
        let mut connection = self.connect().await?;
        loop {
            let begun = Instant::now();
            connection.send(&self.request).await?;
            let answer = timeout_at(begun + RESPONSE_TIMEOUT, connection.answer(&mut body));
            let head = answer.await.map_err(wire::broken)??;
            latencies.push(begun.elapsed());
            self.check(&head.word, &body)?;
            if Instant::now() >= end {
                return Ok(latencies);
            }
            if head.closes {
                connection = self.connect().await?;
            }
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        Connection::new(TcpStream::connect(self.target).await?)
    }

    fn check(&self, status: &str, body: &[u8]) -> io::Result<()> {
        let has = |words: &str| wire::position(body, words.as_bytes()).is_some();
        let is_right = match self.fidelity {
            Fidelity::EveryByte => body == self.expected,
            Fidelity::Words => {
                has(answers::LAST_WORDS) && (!self.question.is_streamed || has("[DONE]"))
            }
        };
        if status == "200" && is_right {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&body[..body.len().min(300)]);
        let problem = format!("wrong answer: {status}, {} bytes: {shown}", body.len());
        Err(wire::broken(problem))
    }
}

fn request(load: &Load) -> Vec<u8> {
    let RequestKind {
        dialect,
        is_streamed,
    } = load.question;
    let said = "Please go through the files and say what you find. ".repeat(16);
    let body = format!(
        "{{\"model\":\"{}\",\"max_tokens\":1024,\"stream\":{is_streamed},\"messages\":[{{\"role\":\"user\",\"content\":\"{said}\"}}]}}",
        load.model
    );
    let who = match dialect {
        Dialect::Chat => "user-agent: OpenAI/Python 2.8.0\r\nauthorization: Bearer sk-bench\r\n",
        Dialect::Messages => {
            "user-agent: Anthropic/Python 0.75.0\r\nx-api-key: sk-ant-bench\r\nanthropic-version: 2023-06-01\r\n"
        }
    };
    let text = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\ncontent-type: application/json\r\n{who}\
         x-stainless-lang: python\r\nx-stainless-retry-count: 0\r\n{}content-length: {}\r\n\r\n{body}",
        load.path,
        load.headers,
        body.len()
    );
    text.into_bytes()
}
