//! The cases, one provider fault each.

use super::load::{Load, Outcome, Retry, percentile};
use super::provider::{Arrival, Fault, Provider};
use super::scale::Scale;
use super::{Line, Rig, fleet};
use anyhow::Result;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const CLIENTS: usize = 32;
const REQUESTS: usize = 2000;
const LATENCY: Duration = Duration::from_millis(50);
/// A time that a refusal states.
const STATED: Duration = Duration::from_secs(5);
/// The plain way through the gateway may cost this much of a request.
const PLAIN_COST: f64 = 1.1;

/// A fault of the provider, and what the clients do meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) enum Case {
    /// This share of the calls fails.
    Partial(f64),
    /// Few calls are refused, with a time that binds only them.
    Refusals,
    FailsEach,
    /// So many requests always fail among busy ones.
    Poison(usize),
    /// One request always fails beside one call in thirty seconds.
    PoisonAlone,
    /// A bucket at twice its capacity.
    Bucket {
        states_time: bool,
        has_large: bool,
    },
    /// Many held requests, and then a provider of unknown pace.
    Held,
    UsageLimit,
    /// Sixty processes through one outage.
    Fleet,
}

impl Case {
    pub(super) fn all() -> Vec<Self> {
        let mut all = [0.01, 0.02, 0.1, 0.3].map(Self::Partial).to_vec();
        all.extend([Self::Refusals, Self::FailsEach]);
        all.extend([Self::Poison(1), Self::Poison(2), Self::PoisonAlone]);
        for (states_time, has_large) in [(false, false), (true, false), (true, true)] {
            all.push(Self::Bucket {
                states_time,
                has_large,
            });
        }
        all.extend([Self::Held, Self::UsageLimit, Self::Fleet]);
        all
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Partial(share) => format!("{:.0} % of calls fail", share * 100.0),
            Self::Refusals => "2 % are refused for 5 s".to_owned(),
            Self::FailsEach => "20 requests fail three times each".to_owned(),
            Self::Poison(count) => format!("{count} of 500 requests always fails"),
            Self::PoisonAlone => "one always fails, one call in 30 s".to_owned(),
            Self::Bucket {
                states_time,
                has_large,
            } => {
                let stated = if states_time { ", stated time" } else { "" };
                let large = if has_large { ", large requests" } else { "" };
                format!("bucket at twice its capacity{stated}{large}")
            }
            Self::Held => "3000 held, then 200 calls a second".to_owned(),
            Self::UsageLimit => "usage limit, reset in 5 h".to_owned(),
            Self::Fleet => "60 processes, outage of 60 s".to_owned(),
        }
    }

    pub(super) async fn run(self, rig: &Rig<'_>) -> Result<Vec<Line>> {
        match self {
            Self::Partial(share) => {
                let fault = Fault::Random {
                    share,
                    refusal: None,
                };
                self.beside_sdk(rig, fault, share).await
            }
            Self::Refusals => self.refusals(rig).await,
            Self::FailsEach => self.fails_each(rig).await,
            Self::Poison(count) => self.poison(rig, count).await,
            Self::PoisonAlone => self.poison_alone(rig).await,
            Self::Bucket {
                states_time,
                has_large,
            } => self.bucket(rig, states_time, has_large).await,
            Self::Held => self.held(rig).await,
            Self::UsageLimit => self.usage_limit(rig).await,
            Self::Fleet => fleet::run(rig, self.name()).await,
        }
    }

    fn line(self, system: &'static str, measured: String, limit: Option<(String, bool)>) -> Line {
        Line {
            case: self.name(),
            system,
            measured,
            limit,
        }
    }
}

/// A provider, a gateway before it, and clients.
struct Bench {
    provider: Arc<Provider>,
    direct: SocketAddr,
    gateway: super::Gateway,
    scale: Scale,
}

impl Bench {
    async fn start(rig: &Rig<'_>, scale: Scale, latency: Duration) -> Result<Self> {
        let (provider, direct) = rig.provider(scale, latency).await?;
        let gateway = rig.gateway(scale, direct).await?;
        Ok(Self {
            provider,
            direct,
            gateway,
            scale,
        })
    }

    fn load(&self, retry: Retry, clients: usize) -> Load {
        Load {
            address: match retry {
                Retry::None => self.gateway.address,
                Retry::Sdk { .. } => self.direct,
            },
            retry,
            scale: self.scale,
            clients,
            pause: Duration::ZERO,
        }
    }
}

fn summary(outcome: &Outcome, arrivals: &[Arrival]) -> String {
    format!(
        "{:.1} s, {:.3} calls per success, {} lost",
        outcome.took.as_secs_f64(),
        per_success(outcome, arrivals),
        outcome.lost.len()
    )
}

fn per_success(outcome: &Outcome, arrivals: &[Arrival]) -> f64 {
    arrivals.len() as f64 / outcome.served.len().max(1) as f64
}

fn is_refused(arrival: &Arrival) -> bool {
    arrival.status == 429
}

// --- Partial failure ---

impl Case {
    /// The gateway may take 1.1 times as long as an SDK's delays without end, with as few calls.
    async fn beside_sdk(self, rig: &Rig<'_>, fault: Fault, share: f64) -> Result<Vec<Line>> {
        let bench = Bench::start(rig, Scale::REAL, LATENCY).await?;
        let mut lines = Vec::new();
        let mut took = Vec::new();
        for (system, retry) in [
            ("no proxy", Retry::sdk(None)),
            ("ideal", Retry::endless(None)),
            ("gateway", Retry::None),
        ] {
            bench.provider.set(fault);
            let outcome = bench.load(retry, CLIENTS).run(0..REQUESTS).await;
            let arrivals = bench.provider.arrivals();
            took.push(outcome.took.as_secs_f64());
            let (calls, most) = (per_success(&outcome, &arrivals), 1.1 / (1.0 - share));
            let limit = (system == "gateway").then(|| {
                let ratio = took[2] / took[1];
                let holds = ratio <= PLAIN_COST && calls <= most && outcome.lost.is_empty();
                let text = format!("{ratio:.2} ≤ {PLAIN_COST} × ideal; calls ≤ {most:.3}");
                (text, holds)
            });
            lines.push(self.line(system, summary(&outcome, &arrivals), limit));
        }
        Ok(lines)
    }

    async fn refusals(self, rig: &Rig<'_>) -> Result<Vec<Line>> {
        let bench = Bench::start(rig, Scale::REAL, LATENCY).await?;
        let mut lines = Vec::new();
        let mut others = Vec::new();
        for (system, retry) in [
            ("ideal", Retry::endless(Some(STATED))),
            ("gateway", Retry::None),
        ] {
            bench.provider.set(Fault::Random {
                share: 0.02,
                refusal: Some(STATED),
            });
            let outcome = bench.load(retry, CLIENTS).run(0..REQUESTS).await;
            let arrivals = bench.provider.arrivals();
            let refused: HashSet<Option<usize>> = arrivals
                .iter()
                .filter(|arrival| is_refused(arrival))
                .map(|arrival| arrival.number)
                .collect();
            let spared = outcome.latencies(|served| !refused.contains(&Some(served.number)));
            let slowest = percentile(&spared, 99).as_secs_f64();
            others.push(slowest);
            let limit = (system == "gateway").then(|| {
                let holds = slowest <= others[0] + 0.1 && outcome.lost.is_empty();
                ("p99 of others ≤ ideal + 0.1 s".to_owned(), holds)
            });
            let measured = format!(
                "{}; p99 of others {slowest:.3} s",
                summary(&outcome, &arrivals)
            );
            lines.push(self.line(system, measured, limit));
        }
        Ok(lines)
    }

    async fn fails_each(self, rig: &Rig<'_>) -> Result<Vec<Line>> {
        let bench = Bench::start(rig, Scale::REAL, LATENCY).await?;
        let mut lines = Vec::new();
        for (system, retry) in [
            ("no proxy", Retry::sdk(None)),
            ("ideal", Retry::endless(None)),
            ("gateway", Retry::None),
        ] {
            bench.provider.set(Fault::FailsEach(3));
            let outcome = bench.load(retry, 20).run(0..20).await;
            let limit = (system == "gateway").then(|| {
                let holds = outcome.took <= Duration::from_secs(20) && outcome.lost.is_empty();
                ("all within 20 s".to_owned(), holds)
            });
            let measured = summary(&outcome, &bench.provider.arrivals());
            lines.push(self.line(system, measured, limit));
        }
        Ok(lines)
    }
}

// --- Requests that always fail ---

impl Case {
    async fn poison(self, rig: &Rig<'_>, count: usize) -> Result<Vec<Line>> {
        let bench = Bench::start(rig, Scale::REAL, LATENCY).await?;
        let mut slowest = Vec::new();
        for poisoned in [0, count] {
            bench.provider.set(Fault::Poison(poisoned));
            // These clients never get a response; they leave with the case.
            let bad = tokio::spawn(bench.load(Retry::None, count.max(1)).run(0..poisoned));
            let outcome = bench.load(Retry::None, CLIENTS).run(count..REQUESTS).await;
            bad.abort();
            let all = outcome.latencies(|_| true);
            slowest.push((percentile(&all, 99).as_secs_f64(), outcome.lost.len()));
        }
        let [(without, _), (with, lost)] = slowest[..] else {
            return Ok(Vec::new());
        };
        let measured = format!("p99 of others {with:.3} s, {without:.3} s without; {lost} lost");
        let holds = with <= without + 0.05 && lost == 0;
        let limit = Some(("others as without, + 0.05 s".to_owned(), holds));
        Ok(vec![self.line("gateway", measured, limit)])
    }

    async fn poison_alone(self, rig: &Rig<'_>) -> Result<Vec<Line>> {
        let bench = Bench::start(rig, Scale(30), LATENCY).await?;
        bench.provider.set(Fault::Poison(1));
        let bad = tokio::spawn(bench.load(Retry::None, 1).run(0..1));
        let healthy = Load {
            pause: Duration::from_secs(30),
            ..bench.load(Retry::None, 1)
        };
        let outcome = healthy.run(1..21).await;
        bad.abort();
        let all = outcome.latencies(|_| true);
        let slowest = percentile(&all, 100).as_secs_f64();
        let measured = format!("slowest of 20 others {slowest:.1} s");
        // At this speed, the real cost of a request is a second or two.
        let holds = slowest <= 5.0 && outcome.lost.is_empty();
        let limit = Some(("nobody else waits (5 s)".to_owned(), holds));
        Ok(vec![self.line("gateway", measured, limit)])
    }
}

// --- Rate and usage limits ---

impl Case {
    async fn bucket(self, rig: &Rig<'_>, states_time: bool, has_large: bool) -> Result<Vec<Line>> {
        const PER_SECOND: f64 = 50.0;
        const WARM: Duration = Duration::from_secs(60);
        const LENGTH: Duration = Duration::from_secs(180);
        let bench = Bench::start(rig, Scale(6), LATENCY).await?;
        bench.provider.set(Fault::Bucket {
            per_second: PER_SECOND,
            states_time,
            has_large,
        });
        // Two hundred clients with a pause of two seconds want twice as much as the bucket has.
        let load = Load {
            pause: Duration::from_millis(1950),
            ..bench.load(Retry::None, 200)
        };
        let began = Instant::now();
        let (end, count) = (began + bench.scale.real(LENGTH), AtomicUsize::new(1));
        let next = move || (Instant::now() < end).then(|| count.fetch_add(1, Ordering::Relaxed));
        let outcome = load.run_while(Arc::new(next)).await;
        let first = began + bench.scale.real(WARM);
        let counted: Vec<Arrival> = bench
            .provider
            .arrivals()
            .into_iter()
            .filter(|arrival| (first..end).contains(&arrival.at))
            .collect();
        let refused = counted.iter().filter(|arrival| is_refused(arrival)).count();
        let room = |arrival: &Arrival| {
            let is_large = arrival
                .number
                .is_some_and(|number| number.is_multiple_of(10));
            if has_large && is_large { 5.0 } else { 1.0 }
        };
        let served = counted.iter().filter(|arrival| !is_refused(arrival));
        let served: f64 = served.map(room).sum();
        let goodput = served / (PER_SECOND * (LENGTH - WARM).as_secs_f64());
        let share = refused as f64 / counted.len().max(1) as f64;
        let measured = format!(
            "goodput {goodput:.3}, {:.1} % refused, {} lost",
            share * 100.0,
            outcome.lost.len()
        );
        let holds = goodput >= 0.95 && share <= 0.1 && outcome.lost.is_empty();
        let limit = Some(("goodput ≥ 0.95, ≤ 10 % refused".to_owned(), holds));
        Ok(vec![self.line("gateway", measured, limit)])
    }

    async fn usage_limit(self, rig: &Rig<'_>) -> Result<Vec<Line>> {
        let bench = Bench::start(rig, Scale(10), LATENCY).await?;
        bench.provider.set(Fault::None);
        let warm = bench.load(Retry::None, CLIENTS).run(0..200).await;
        bench.provider.set(Fault::UsageLimit);
        let load = bench.load(Retry::None, CLIENTS).run(200..REQUESTS);
        let minute = Duration::from_secs(60);
        let waited = timeout(bench.scale.real(minute), load).await.is_err();
        let calls = bench.provider.arrivals().len();
        let measured = format!(
            "{calls} calls of {CLIENTS} clients in a minute, {} lost",
            warm.lost.len()
        );
        let holds = calls <= CLIENTS && waited && warm.lost.is_empty();
        let limit = Some(("only those in flight; all wait".to_owned(), holds));
        Ok(vec![self.line("gateway", measured, limit)])
    }

    async fn held(self, rig: &Rig<'_>) -> Result<Vec<Line>> {
        const HELD: usize = 3000;
        let bench = Bench::start(rig, Scale::REAL, LATENCY).await?;
        bench.provider.set(Fault::Down);
        let load = tokio::spawn(bench.load(Retry::None, HELD).run(0..HELD));
        sleep(Duration::from_secs(30)).await;
        let in_outage = bench.provider.arrivals().len();
        bench.provider.set(Fault::Bucket {
            per_second: 200.0,
            states_time: false,
            has_large: false,
        });
        let up = Instant::now();
        let outcome = timeout(Duration::from_secs(120), load).await??;
        let took = up.elapsed().as_secs_f64();
        let arrivals = bench.provider.arrivals();
        let refused = arrivals
            .iter()
            .filter(|arrival| is_refused(arrival))
            .count();
        let share = refused as f64 / arrivals.len().max(1) as f64;
        let measured = format!(
            "{took:.1} s, {:.1} % refused, {in_outage} calls in the outage, {} lost",
            share * 100.0,
            outcome.lost.len()
        );
        let holds = took <= 42.0 && share <= 0.07 && outcome.lost.is_empty();
        let limit = Some(("42 s, ≤ 7 % refused".to_owned(), holds));
        Ok(vec![self.line("gateway", measured, limit)])
    }
}
