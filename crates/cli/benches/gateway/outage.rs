//! A provider that is down until it is switched, and then serves a fixed number of requests a second in each dialect.
//!
//! Invariant: every request is counted once it has arrived whole, whether it is served or refused. Each bucket holds
//! one second of the capacity. A changed request is answered with a client error, which is not retried.

use crate::answers::{self, Dialect};
use crate::clients;
use crate::wire::Connection;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

const A_SECOND: Duration = Duration::from_secs(1);

/// The simulated provider.
pub(crate) struct Provider {
    is_down: AtomicBool,
    chat: Mutex<Counter>,
    messages: Mutex<Counter>,
}

/// The bucket of one dialect, and its arrivals.
struct Counter {
    per_second: f64,
    level: f64,
    filled: Instant,
    arrivals: Vec<Instant>,
    served: Vec<Instant>,
}

/// The arrivals of one dialect since some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) calls: usize,
    pub(crate) served: usize,
    /// Maximum number of calls in any second.
    pub(crate) peak: usize,
    pub(crate) first_served: Option<Duration>,
}

impl Provider {
    /// Starts the provider, which is up.
    pub(crate) async fn start(per_second: u32) -> io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let provider = Arc::new(Self {
            is_down: AtomicBool::new(false),
            chat: Mutex::new(Counter::new(per_second)),
            messages: Mutex::new(Counter::new(per_second)),
        });
        tokio::spawn(Arc::clone(&provider).accept(listener));
        Ok((provider, address))
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.is_down.store(down, Ordering::Relaxed);
    }

    pub(crate) fn since(&self, start: Instant, dialect: Dialect) -> Arrivals {
        let counter = self.counter(dialect).lock();
        let after = |all: &[Instant]| -> Vec<Instant> {
            all.iter().copied().filter(|at| *at >= start).collect()
        };
        let (arrivals, served) = (after(&counter.arrivals), after(&counter.served));
        Arrivals {
            calls: arrivals.len(),
            served: served.len(),
            peak: peak(&arrivals),
            first_served: served.first().map(|at| *at - start),
        }
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let provider = Arc::clone(&self);
            tokio::spawn(async move { provider.serve(Connection::new(stream)?).await });
        }
    }

    async fn serve(&self, mut connection: Connection) -> io::Result<()> {
        let mut body = Vec::new();
        while let Some(head) = connection.head().await? {
            connection.body(&head, &mut body).await?;
            let answer = self.answer(Dialect::of(&head.word), &body);
            connection.send(&answer).await?;
        }
        Ok(())
    }

    fn answer(&self, dialect: Dialect, body: &[u8]) -> Vec<u8> {
        let has_room = self
            .counter(dialect)
            .lock()
            .arrive(Instant::now(), self.is_down.load(Ordering::Relaxed));
        let error = |kind: &str| {
            format!(
                "{{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"{kind}\"}}}}"
            )
        };
        match has_room {
            Admission::Down => answers::response("529 Overloaded", &error("overloaded_error")),
            Admission::None => {
                let body = error("rate_limit_error");
                let length = format!("content-length: {}\r\nretry-after: 1", body.len());
                let head = answers::head("429 Too Many Requests", "application/json", &length);
                [head, body].concat().into_bytes()
            }
            Admission::Yes => match clients::sender(body) {
                Some(name) => answers::streamed(&frames(dialect, &name)).concat(),
                None => answers::response("400 Bad Request", &error("invalid_request_error")),
            },
        }
    }

    const fn counter(&self, dialect: Dialect) -> &Mutex<Counter> {
        match dialect {
            Dialect::Chat => &self.chat,
            Dialect::Messages => &self.messages,
        }
    }
}

enum Admission {
    Down,
    None,
    Yes,
}

impl Counter {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            level: f64::from(per_second),
            filled: Instant::now(),
            arrivals: Vec::new(),
            served: Vec::new(),
        }
    }

    fn arrive(&mut self, now: Instant, is_down: bool) -> Admission {
        self.arrivals.push(now);
        let more = (now - self.filled).as_secs_f64() * self.per_second;
        self.level = (self.level + more).min(self.per_second);
        self.filled = now;
        if is_down {
            return Admission::Down;
        }
        if self.level < 1.0 {
            return Admission::None;
        }
        self.level -= 1.0;
        self.served.push(now);
        Admission::Yes
    }
}

/// Returns a short response that names its client.
pub(crate) fn frames(dialect: Dialect, name: &str) -> Vec<String> {
    let all = answers::stream(dialect);
    let (opening, ending) = match dialect {
        Dialect::Chat => (1, 2),
        Dialect::Messages => (3, 3),
    };
    let mut frames = all[..opening].to_vec();
    frames.push(answers::text_frame(dialect, name));
    frames.extend_from_slice(&all[all.len() - ending..]);
    frames
}

fn peak(arrivals: &[Instant]) -> usize {
    let (mut first, mut most) = (0, 0);
    for (last, at) in arrivals.iter().enumerate() {
        while *at - arrivals[first] >= A_SECOND {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}
