//! A provider that fails as it is told, and remembers every call.
//!
//! Invariant: whether a call fails by chance depends on the request and on how often it was sent before, so two systems
//! under measurement meet the same failures.

use super::scale::Scale;
use crate::answers::{self, Dialect};
use crate::clients;
use crate::outage;
use crate::wire::Connection;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Part of a provider's behaviour that is not success.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    None,
    /// Each call fails with this probability.
    Random {
        share: f64,
        /// The failure is a 429 that states this time, not a 500.
        refusal: Option<Duration>,
    },
    /// Each request fails that often before it succeeds.
    FailsEach(u32),
    /// Requests with a number below this one always fail.
    Poison(usize),
    /// A bucket with one second of its rate refuses what it has no room for.
    Bucket {
        per_second: f64,
        states_time: bool,
        /// Every tenth request takes five times the room.
        has_large: bool,
    },
    Down,
    /// The account has reached its limit, which is reset in five hours.
    UsageLimit,
}

/// One call that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The number of the request; none if another kind of client sent it.
    pub(super) number: Option<usize>,
    pub(super) at: Instant,
    pub(super) status: u16,
}

/// The simulated provider.
pub(super) struct Provider {
    scale: Scale,
    latency: Duration,
    state: Mutex<State>,
}

struct State {
    fault: Fault,
    arrivals: Vec<Arrival>,
    calls: HashMap<Option<usize>, u32>,
    room: f64,
    filled: Instant,
}

struct Reply {
    status: u16,
    message: &'static str,
    retry_after: Option<Duration>,
}

impl Reply {
    const SUCCESS: Self = Self::new(200, "");
    const FAILURE: Self = Self::new(500, "Internal server error");
    const OVERLOADED: Self = Self::new(529, "Overloaded");
    const REFUSAL: Self = Self::new(429, "This request would exceed the rate limit");

    const fn new(status: u16, message: &'static str) -> Self {
        Self {
            status,
            message,
            retry_after: None,
        }
    }
}

impl Provider {
    /// Starts a provider whose calls take that long.
    pub(super) async fn start(
        scale: Scale,
        latency: Duration,
    ) -> io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let provider = Arc::new(Self {
            scale,
            latency: scale.real(latency),
            state: Mutex::new(State {
                fault: Fault::None,
                arrivals: Vec::new(),
                calls: HashMap::new(),
                room: 0.0,
                filled: Instant::now(),
            }),
        });
        tokio::spawn(Arc::clone(&provider).accept(listener));
        Ok((provider, address))
    }

    /// Fails in another way from now on; calls so far are forgotten.
    pub(super) fn set(&self, fault: Fault) {
        let mut state = self.state.lock();
        *state = State {
            fault,
            arrivals: Vec::new(),
            calls: HashMap::new(),
            room: match fault {
                Fault::Bucket { per_second, .. } => per_second,
                _ => 0.0,
            },
            filled: Instant::now(),
        };
    }

    /// Returns the calls since the last change, in order.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.state.lock().arrivals.clone()
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
            let name = clients::sender(&body);
            let number = name.as_deref().and_then(clients::number);
            let reply = self.state.lock().arrive(number, self.scale);
            tokio::time::sleep(self.latency).await;
            let dialect = Dialect::of(&head.word);
            connection
                .send(&reply.bytes(dialect, name.as_deref()))
                .await?;
        }
        Ok(())
    }
}

impl State {
    fn arrive(&mut self, number: Option<usize>, scale: Scale) -> Reply {
        let before = self.calls.entry(number).or_default();
        let earlier = *before;
        *before += 1;
        let reply = self.judge(number, earlier, scale);
        self.arrivals.push(Arrival {
            number,
            at: Instant::now(),
            status: reply.status,
        });
        reply
    }

    fn judge(&mut self, number: Option<usize>, earlier: u32, scale: Scale) -> Reply {
        match self.fault {
            Fault::None => Reply::SUCCESS,
            Fault::Random { share, refusal } => {
                let mut chance = fastrand::Rng::with_seed(number.unwrap_or_default() as u64);
                let of_call = (0..=earlier).map(|_| chance.f64()).last();
                match of_call.is_some_and(|chance| chance < share) {
                    true if refusal.is_some() => Reply {
                        retry_after: refusal,
                        ..Reply::REFUSAL
                    },
                    true => Reply::FAILURE,
                    false => Reply::SUCCESS,
                }
            }
            Fault::FailsEach(times) if earlier < times => Reply::FAILURE,
            Fault::Poison(below) if number.is_some_and(|number| number < below) => Reply::FAILURE,
            Fault::FailsEach(_) | Fault::Poison(_) => Reply::SUCCESS,
            Fault::Bucket {
                per_second,
                states_time,
                has_large,
            } => {
                let is_large = has_large && number.is_some_and(|number| number.is_multiple_of(10));
                let needed = if is_large { 5.0 } else { 1.0 };
                let missing = needed - self.fill(per_second, scale);
                if missing <= 0.0 {
                    self.room -= needed;
                    return Reply::SUCCESS;
                }
                let wait = Duration::from_secs_f64((missing / per_second).ceil());
                Reply {
                    retry_after: states_time.then_some(wait),
                    ..Reply::REFUSAL
                }
            }
            Fault::Down => Reply::OVERLOADED,
            Fault::UsageLimit => {
                Reply::new(429, "You have hit your usage limit. Try again in 5 hours.")
            }
        }
    }

    fn fill(&mut self, per_second: f64, scale: Scale) -> f64 {
        let now = Instant::now();
        let passed = scale.stated(now - self.filled).as_secs_f64();
        self.room = (self.room + passed * per_second).min(per_second);
        self.filled = now;
        self.room
    }
}

impl Reply {
    fn bytes(&self, dialect: Dialect, name: Option<&str>) -> Vec<u8> {
        if self.status == 200 {
            return answers::streamed(&outage::frames(dialect, name.unwrap_or("Hello"))).concat();
        }
        let kind = match self.status {
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        let message = self.message;
        let body = format!(
            "{{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}"
        );
        let mut fields = format!("content-length: {}", body.len());
        if let Some(wait) = self.retry_after {
            fields = format!("{fields}\r\nretry-after: {}", wait.as_secs());
        }
        let status = format!("{} {kind}", self.status);
        let head = answers::head(&status, "application/json", &fields);
        [head, body].concat().into_bytes()
    }
}
