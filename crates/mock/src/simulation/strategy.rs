//! The ways in which failed requests are retried.

use super::provider::in_millis;
use fastrand::Rng;
use outlast_kernel::decision::RetryRules;
use outlast_kernel::policy::{self, Backoff, Jitter, Policy, Switches};
use std::time::Duration;

/// The time after which the user of a client starts a request again that the client has given up, in milliseconds.
pub(super) const RESTART: u64 = 30_000;

/// The way in which failed requests are retried.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    /// Its name.
    pub name: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Processes that share a gate; each exchange with its store takes so many milliseconds. Process `i` retries by
    /// policy `i`, and again from the first one.
    Gate {
        processes: usize,
        store_latency: u64,
        schedules: Vec<Schedule>,
    },
    /// Each client alone, by a policy.
    Policy(Schedule),
    /// Each client alone, as SDKs do it: 0.5 s, doubled up to 8 s, less up to a quarter at random; so many retries, or
    /// without end.
    Sdk { retries: Option<u32> },
    /// The defaults of SDKs behind one circuit breaker per process.
    Breaker { processes: usize },
}

/// A policy and its rules.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Schedule {
    pub(super) policy: Policy,
    pub(super) rules: RetryRules,
}

impl From<Policy> for Schedule {
    fn from(policy: Policy) -> Self {
        let rules = RetryRules::from(&policy);
        Self { policy, rules }
    }
}

impl Strategy {
    /// Processes that retry by these policies behind one gate, with a store that takes so many milliseconds.
    pub fn gate(processes: usize, store_latency: u64, policies: &[Policy]) -> Self {
        let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
        let schedules = policies.iter().cloned().map(Schedule::from).collect();
        Self {
            name: format!("{} + gate", names.join(", ")),
            kind: Kind::Gate {
                processes: processes.max(1),
                store_latency,
                schedules,
            },
        }
    }

    /// The strategy of Outlast: the gate, and the policy of its gateway.
    pub fn outlast(processes: usize, store_latency: u64) -> Result<Self, policy::Error> {
        let gateway = Policy::named("gateway")?;
        let name = "outlast".to_owned();
        Ok(Self {
            name,
            ..Self::gate(processes, store_latency, &[gateway])
        })
    }

    /// Each client alone, by this policy.
    pub fn alone(policy: Policy) -> Self {
        Self {
            name: format!("{} alone", policy.name),
            kind: Kind::Policy(policy.into()),
        }
    }

    /// The defaults of SDKs: two retries; then the client gives up.
    pub fn sdk() -> Self {
        let (name, retries) = ("SDK defaults".to_owned(), Some(2));
        let kind = Kind::Sdk { retries };
        Self { name, kind }
    }

    /// The delays of SDKs with retries without end: what a client alone can reach at most, whatever it costs.
    pub fn ideal() -> Self {
        let (name, retries) = ("ideal".to_owned(), None);
        let kind = Kind::Sdk { retries };
        Self { name, kind }
    }

    /// Each client alone: 1 s, doubled up to 60 s, spread from zero to the delay, without end.
    pub fn full_jitter() -> Self {
        let policy = Policy {
            name: String::new(),
            backoff: Backoff::Exponential {
                base: Duration::from_secs(1),
                factor: 2,
            },
            max_delay: Some(Duration::from_secs(60)),
            jitter: Jitter::Full,
            max_attempts: None,
            sleep_budget: None,
            max_stated_wait: Some(policy::MAX_DELAY),
            wait_for_reset: true,
            may_switch: Switches::NONE,
            quick_retries: false,
        };
        Self {
            name: "full jitter".to_owned(),
            ..Self::alone(policy)
        }
    }

    /// The defaults of SDKs behind a circuit breaker: it opens after six failures in a row, refuses every call for a
    /// minute, and closes when the next call succeeds.
    pub fn circuit_breaker(processes: usize) -> Self {
        let (name, processes) = ("circuit breaker".to_owned(), processes.max(1));
        let kind = Kind::Breaker { processes };
        Self { name, kind }
    }

    /// Outlast, and the strategies that it is compared with. The ideal comes last.
    pub fn standard_set(processes: usize, store_latency: u64) -> Result<Vec<Self>, policy::Error> {
        Ok(vec![
            Self::outlast(processes, store_latency)?,
            Self::sdk(),
            Self::full_jitter(),
            Self::circuit_breaker(processes),
            Self::ideal(),
        ])
    }

    /// Returns the delay of an SDK before its next retry, in milliseconds.
    pub(super) fn sdk_delay(retries: u32, rng: &mut Rng) -> u64 {
        let doubled = (0.5 * f64::from(1_u32 << retries.min(10))).min(8.0);
        in_millis(doubled * (1.0 - 0.25 * rng.f64()))
    }
}

/// A plain circuit breaker, with the defaults that are usual.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    open_until: Option<u64>,
    is_trying: bool,
}

impl Breaker {
    const MAX_FAILURES: u32 = 5;
    const OPEN: u64 = 60_000;

    /// Returns whether a call may be made.
    pub(super) fn admits(&mut self, now: u64) -> bool {
        match self.open_until {
            None => true,
            Some(until) if now < until || self.is_trying => false,
            Some(_) => {
                self.is_trying = true;
                true
            }
        }
    }

    /// Returns whether results count: calls that began before it opened say nothing.
    const fn counts(&self) -> bool {
        self.open_until.is_none() || self.is_trying
    }

    pub(super) fn succeeded(&mut self) {
        if self.counts() {
            *self = Self::default();
        }
    }

    pub(super) fn failed(&mut self, now: u64) {
        if !self.counts() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures > Self::MAX_FAILURES {
            self.open_until = Some(now + Self::OPEN);
            self.is_trying = false;
        }
    }
}
