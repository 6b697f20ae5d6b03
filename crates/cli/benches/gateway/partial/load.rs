//! Clients with a retry strategy: some connections that share a list of requests.

use super::scale::Scale;
use crate::clients::Client;
use crate::wire::Connection;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const BODY_BYTES: usize = 512;
const FIRST_DELAY: f64 = 0.5;
const MAX_DELAY: f64 = 8.0;

/// The retries of a client of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Retry {
    /// The system between retries.
    None,
    /// An SDK's delays, up to so many retries.
    Sdk { max: u32, stated: Option<Duration> },
}

impl Retry {
    /// An SDK as it is: two retries.
    pub(super) const fn sdk(stated: Option<Duration>) -> Self {
        Self::Sdk { max: 2, stated }
    }

    /// The delays of an SDK, without end.
    pub(super) const fn endless(stated: Option<Duration>) -> Self {
        Self::Sdk {
            max: u32::MAX,
            stated,
        }
    }

    /// Returns the delay before the next attempt, if there is one.
    fn delay(self, failures: u32) -> Option<Duration> {
        let Self::Sdk { max, stated } = self else {
            return None;
        };
        if failures > max {
            return None;
        }
        let doubled = FIRST_DELAY * f64::from(2_u32.saturating_pow(failures - 1));
        let jittered = doubled.min(MAX_DELAY) * (1.0 - 0.25 * fastrand::f64());
        Some(stated.unwrap_or(Duration::from_secs_f64(jittered)))
    }
}

/// The requests of one measurement.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) address: SocketAddr,
    pub(super) retry: Retry,
    pub(super) scale: Scale,
    /// The number of connections.
    pub(super) clients: usize,
    /// The time between a response and the next request of a connection, half of it by chance.
    pub(super) pause: Duration,
}

/// The result of a request.
pub(super) struct Served {
    pub(super) number: usize,
    pub(super) took: Duration,
}

/// The result of a load.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) took: Duration,
    pub(super) served: Vec<Served>,
    pub(super) lost: Vec<String>,
}

impl Load {
    /// Sends all requests, and waits for the last response.
    pub(super) async fn run(self, numbers: impl IntoIterator<Item = usize>) -> Outcome {
        let numbers: Arc<Mutex<VecDeque<usize>>> =
            Arc::new(Mutex::new(numbers.into_iter().collect()));
        let next = move || numbers.lock().pop_front();
        self.run_while(Arc::new(next)).await
    }

    /// Sends requests as long as there is a next one.
    pub(super) async fn run_while(
        self,
        next: Arc<dyn Fn() -> Option<usize> + Send + Sync>,
    ) -> Outcome {
        let began = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..self.clients {
            clients.spawn(self.client(Arc::clone(&next)));
        }
        let mut outcome = Outcome::default();
        while let Some(ended) = clients.join_next().await {
            match ended {
                Ok((served, lost)) => {
                    outcome.served.extend(served);
                    outcome.lost.extend(lost);
                }
                Err(error) => outcome.lost.push(error.to_string()),
            }
        }
        outcome.took = self.scale.stated(began.elapsed());
        outcome
    }

    async fn client(
        self,
        next: Arc<dyn Fn() -> Option<usize> + Send + Sync>,
    ) -> (Vec<Served>, Vec<String>) {
        let (mut served, mut lost) = (Vec::new(), Vec::new());
        let mut connection = None;
        if !self.pause.is_zero() {
            sleep(self.scale.real(self.pause.mul_f64(fastrand::f64()))).await;
        }
        while let Some(number) = next() {
            let sent = Instant::now();
            match self.ask(number, &mut connection).await {
                Ok(()) => served.push(Served {
                    number,
                    took: self.scale.stated(sent.elapsed()),
                }),
                Err(problem) => lost.push(problem),
            }
            if !self.pause.is_zero() {
                let pause = self.pause.mul_f64(0.5 + fastrand::f64());
                sleep(self.scale.real(pause)).await;
            }
        }
        (served, lost)
    }

    async fn ask(self, number: usize, connection: &mut Option<Connection>) -> Result<(), String> {
        for failures in 1.. {
            let problem = match self.attempt(number, connection).await {
                Ok(None) => return Ok(()),
                Ok(Some(problem)) => problem,
                Err(error) => {
                    *connection = None;
                    error.to_string()
                }
            };
            match self.retry.delay(failures) {
                Some(delay) => sleep(self.scale.real(delay)).await,
                None => return Err(format!("request {number}: {problem}")),
            }
        }
        Ok(())
    }

    /// Returns the problem, if the response is an error.
    async fn attempt(
        self,
        number: usize,
        connection: &mut Option<Connection>,
    ) -> std::io::Result<Option<String>> {
        let client = Client {
            number,
            address: self.address,
        };
        let mut open = match connection.take() {
            Some(open) => open,
            None => Connection::new(TcpStream::connect(self.address).await?)?,
        };
        open.send(&client.request(BODY_BYTES)).await?;
        let mut body = Vec::new();
        let head = open.answer(&mut body).await?;
        if !head.closes {
            *connection = Some(open);
        }
        match head.word.as_str() {
            "200" => client.check(&head, &body).map(|()| None),
            status => Ok(Some(format!(
                "{status} {}",
                String::from_utf8_lossy(&body[..body.len().min(200)])
            ))),
        }
    }
}

impl Outcome {
    /// Returns the latencies in ascending order, of the requests that are meant.
    pub(super) fn latencies(&self, is_meant: impl Fn(&Served) -> bool) -> Vec<Duration> {
        let meant = self.served.iter().filter(|served| is_meant(served));
        let mut all: Vec<Duration> = meant.map(|served| served.took).collect();
        all.sort_unstable();
        all
    }
}

/// Returns the latency that so many per cent did not exceed.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = sorted.len() * percent / 100;
    let at = at.min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}
