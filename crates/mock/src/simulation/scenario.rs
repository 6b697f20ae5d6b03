//! A scenario: the clients, the faults of the provider, and the store.

use super::metrics::{self, Metrics};
use super::provider::{Fault, FaultContext, Provider, Treatment, in_millis, seconds};
use super::requests::Clients;
use super::strategy::Strategy;
use super::world::World;
use fastrand::Rng;
use outlast_kernel::policy::{self, Policy};
use outlast_kernel::time::{Span, millis};
use std::ops::Range;
use std::time::Duration;

/// Faults with a beginning begin here: the provider works until then.
const BEGIN: Duration = Duration::from_secs(120);
/// The run goes on for this long after the last fault.
const AFTER: Duration = Duration::from_secs(480);
/// The agents of `dead_probes` die from this time of the outage on.
const DEATHS_AFTER: u64 = 60_000;
/// Shorter calls answer whole, longer ones stream.
const MIN_STREAMED: Duration = Duration::from_secs(1);
/// No agent makes more than a hundred calls per second.
const MIN_CYCLE: f64 = 0.01;
/// A month.
const MAX_LENGTH: Duration = Duration::from_secs(30 * 24 * 3600);
/// In a brown-out this share of calls fails, and the others are answered so many milliseconds late.
const BROWNOUT_SHARE: f64 = 0.5;
const BROWNOUT_LATE: u64 = 10_000;

/// A provider that answers and fails in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flap {
    /// The time for which it answers.
    pub up: Duration,
    /// The time for which it fails.
    pub down: Duration,
}

/// One run of the simulation. Times are counted from its beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The number of agents; each makes one call after another.
    pub agents: u32,
    /// The number of processes over which they are spread.
    pub processes: u32,
    /// The capacity of the provider in calls per second, with a burst of one second.
    pub capacity: u32,
    /// The load of the agents, in percent of the capacity.
    pub load: u32,
    /// The mean duration of a call.
    pub call_time: Duration,
    /// The share of calls that take eight times the capacity of the others.
    pub large_share: f64,
    /// Whether refusals state a time.
    pub states_retry: bool,
    /// The share of calls that fail.
    pub fail_share: f64,
    /// The number of failed calls of each request before it succeeds.
    pub fails_each: u32,
    /// The number of requests that always fail.
    pub poison: u32,
    /// The duration of an outage.
    pub outage: Option<Duration>,
    /// The capacity after the outage, in percent.
    pub recovered_capacity_percent: u32,
    /// The time from the usage limit to its reset.
    pub usage_limit: Option<Duration>,
    /// The duration of a brown-out.
    pub brownout: Option<Duration>,
    /// The phases of a provider that answers and fails in turns.
    pub flap: Option<Flap>,
    /// The latency of the store.
    pub store_latency: Duration,
    /// The period in which the store is unavailable.
    pub store_outage: Option<Range<Duration>>,
    /// The number of agents that die while they probe.
    pub dead_probes: u32,
    /// The duration; if there is none, until eight minutes after the last fault.
    pub length: Option<Duration>,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            agents: 500,
            processes: 10,
            capacity: 25,
            load: 80,
            call_time: Duration::from_secs(9),
            large_share: 0.0,
            states_retry: false,
            fail_share: 0.0,
            fails_each: 0,
            poison: 0,
            outage: None,
            recovered_capacity_percent: 100,
            usage_limit: None,
            brownout: None,
            flap: None,
            store_latency: Duration::from_millis(5),
            store_outage: None,
            dead_probes: 0,
            length: None,
            seed: 1,
        }
    }
}

/// A scenario that cannot be simulated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number is too small or too large.
    #[error("{what} must be between {least} and {most}, not {found}")]
    OutOfRange {
        /// The number.
        what: &'static str,
        /// The smallest valid value.
        least: u64,
        /// The largest valid value.
        most: u64,
        /// The value.
        found: u64,
    },
    /// A fault begins or ends outside of the run.
    #[error("{what} must end after it begins and before the run of {} is over", Span(*.length))]
    OutsideRun {
        /// The fault.
        what: &'static str,
        /// The duration of the run.
        length: Duration,
    },
    /// The agents would have to call without a pause.
    #[error(
        "{agents} agents cannot make {calls} calls a second; take more agents, or less load or capacity"
    )]
    TooManyCalls {
        /// The number of agents.
        agents: u32,
        /// The calls per second.
        calls: u64,
    },
}

/// Simulates a scenario with that strategy.
pub fn run(scenario: &Scenario, strategy: &Strategy) -> Result<Metrics, Error> {
    scenario.check()?;
    let mut world = scenario.world(strategy);
    let blackout = scenario.blackout_millis();
    if let Some(blackout) = &blackout {
        if scenario.dead_probes > 0 {
            world.run(blackout.start + DEATHS_AFTER);
            world.dying_probes = scenario.dead_probes;
        }
        world.run(blackout.end);
        let share = f64::from(scenario.recovered_capacity_percent) / 100.0;
        if share != 1.0 {
            world.provider.capacity = world.provider.capacity.map(|capacity| capacity * share);
        }
    }
    world.run(millis(scenario.duration()));
    Ok(metrics::measure(scenario, &world))
}

impl Scenario {
    /// Returns the same scenario with an outage.
    #[must_use]
    pub fn with_outage(self, outage: Duration) -> Self {
        let outage = Some(outage);
        Self { outage, ..self }
    }

    /// Returns the duration of the run.
    pub fn duration(&self) -> Duration {
        self.length.unwrap_or_else(|| {
            let faults = [self.outage, self.usage_limit, self.brownout];
            let longest = faults.into_iter().flatten().max().unwrap_or_default();
            BEGIN.saturating_add(longest).saturating_add(AFTER)
        })
    }

    /// Returns the period in which nothing works, if there is one: the outage, or the usage limit.
    pub fn blackout(&self) -> Option<Range<Duration>> {
        let longest = self.outage.max(self.usage_limit)?;
        Some(BEGIN..BEGIN + longest)
    }

    /// Returns whether the provider fails or refuses at any time.
    pub fn has_fault(&self) -> bool {
        self.fail_share > 0.0
            || self.fails_each > 0
            || self.poison > 0
            || self.load > 100
            || self.large_share > 0.0
            || !self.fault_periods().is_empty()
    }

    /// Returns the periods of the run in which faults hold that begin and end, in order.
    pub fn fault_periods(&self) -> Vec<Range<Duration>> {
        let faults = [self.outage.max(self.usage_limit), self.brownout];
        let single = faults.into_iter().flatten();
        let mut periods: Vec<_> = single.map(|length| BEGIN..BEGIN + length).collect();
        let flap = self.flap.filter(|flap| !flap.down.is_zero());
        if let Some(flap) = flap {
            let mut begins = BEGIN + flap.up;
            while begins < self.duration() {
                periods.push(begins..(begins + flap.down).min(self.duration()));
                begins += flap.up + flap.down;
            }
        }
        periods
    }

    /// Returns what Outlast does, and the strategies that it is compared with.
    pub fn strategies(&self) -> Result<Vec<Strategy>, policy::Error> {
        let (processes, latency) = self.hosts();
        Strategy::standard_set(processes, latency)
    }

    /// Returns this policy behind the gate.
    pub fn gated(&self, policy: &Policy) -> Strategy {
        let (processes, latency) = self.hosts();
        Strategy::gate(processes, latency, std::slice::from_ref(policy))
    }

    fn hosts(&self) -> (usize, u64) {
        let processes = usize::try_from(self.processes).unwrap_or(usize::MAX);
        (processes, millis(self.store_latency))
    }

    pub(super) fn blackout_millis(&self) -> Option<Range<u64>> {
        let blackout = self.blackout()?;
        Some(millis(blackout.start)..millis(blackout.end))
    }

    /// Returns the capacity after all faults, in calls of mean size per second.
    pub(super) fn capacity_at_end(&self) -> f64 {
        let share = match self.blackout() {
            Some(_) => self.recovered_capacity_percent,
            None => 100,
        };
        f64::from(self.capacity) * f64::from(share) / 100.0
    }

    /// Returns the time from one call of an agent to its next, in seconds, if nothing fails.
    fn cycle(&self) -> f64 {
        let wanted = f64::from(self.load) / 100.0 * f64::from(self.capacity);
        f64::from(self.agents) / wanted
    }

    fn world(&self, strategy: &Strategy) -> World {
        let clients = Clients {
            pause: (self.cycle() - self.call_time.as_secs_f64()).max(0.0),
            large_share: self.large_share,
            ..Clients::busy(usize::try_from(self.agents).unwrap_or(usize::MAX))
        };
        let capacity = f64::from(self.capacity) * clients.mean_size();
        let provider = Provider {
            states_retry: self.states_retry,
            ..self.provider().with_capacity(capacity)
        };
        let spread = in_millis(self.cycle());
        let mut world = World::new(self.seed, strategy, provider, clients, spread);
        if let Some(gone) = &self.store_outage {
            world.lose_store(millis(gone.start)..millis(gone.end));
        }
        (0..self.poison).for_each(|_| world.submit(millis(BEGIN), 1));
        world
    }

    fn provider(&self) -> Provider {
        let mean = self.call_time.as_secs_f64() * 1000.0;
        let provider = Provider::streaming(self.script());
        match self.call_time >= MIN_STREAMED {
            true => Provider {
                duration: Some(mean * 0.5..mean * 1.5),
                ..provider
            },
            false => Provider {
                first_byte: mean * 0.9..mean * 1.1,
                duration: None,
                failure: mean * 0.9..mean * 1.1,
                ..provider
            },
        }
    }

    /// Returns the faults of the provider, the gravest first.
    fn script(&self) -> impl FnMut(FaultContext, &mut Rng) -> Treatment + 'static {
        let begin = millis(BEGIN);
        let until = |length: Option<Duration>| begin..begin + millis(length.unwrap_or_default());
        let (outage, usage) = (until(self.outage), until(self.usage_limit));
        let brownout = until(self.brownout);
        let flap = self.flap.map(|flap| (millis(flap.up), millis(flap.down)));
        let (fails_each, fail_share) = (self.fails_each, self.fail_share);
        move |call, rng| {
            let is_down = |(up, down): (u64, u64)| {
                call.now >= begin && (call.now - begin).checked_rem(up + down) >= Some(up)
            };
            let fails = outage.contains(&call.now)
                || flap.is_some_and(is_down)
                || call.label > 0
                || call.earlier_calls < fails_each
                || (fail_share > 0.0 && rng.f64() < fail_share);
            if usage.contains(&call.now) {
                return Treatment::Fail(Fault::usage_limit(usage.end));
            }
            let is_brownout = !fails && brownout.contains(&call.now);
            match is_brownout && rng.f64() >= BROWNOUT_SHARE {
                true => Treatment::Late(BROWNOUT_LATE),
                false if fails || is_brownout => Treatment::Fail(Fault::failure()),
                false => Treatment::Serve,
            }
        }
    }
}

// --- Validity ---

impl Scenario {
    /// Returns the first problem, if there is one.
    pub fn check(&self) -> Result<(), Error> {
        self.check_numbers()?;
        let length = self.duration();
        let longest = [
            ("the outage", self.outage),
            ("the usage limit", self.usage_limit),
            ("the brown-out", self.brownout),
        ];
        let faults = longest.map(|(what, long)| (what, long.map(|long| BEGIN..BEGIN + long)));
        let store = ("the store's loss", self.store_outage.clone());
        for (what, period) in faults.into_iter().chain([store]) {
            if period.is_some_and(|period| period.is_empty() || period.end > length) {
                return Err(Error::OutsideRun { what, length });
            }
        }
        if self.cycle() < MIN_CYCLE {
            let calls = u64::from(self.capacity) * u64::from(self.load) / 100;
            let agents = self.agents;
            return Err(Error::TooManyCalls { agents, calls });
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Error> {
        let check = |what, found: u64, least, most| match (least..=most).contains(&found) {
            true => Ok(()),
            false => Err(Error::OutOfRange {
                what,
                least,
                most,
                found,
            }),
        };
        let millis_of = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let recovered = self.recovered_capacity_percent.into();
        let (call, latency) = (millis_of(self.call_time), millis_of(self.store_latency));
        let length = self.duration().as_secs();
        check("the number of agents", self.agents.into(), 1, 100_000)?;
        check("the number of processes", self.processes.into(), 1, 1000)?;
        check("the capacity", self.capacity.into(), 1, 5000)?;
        check("the load in percent", self.load.into(), 1, 10_000)?;
        check("the capacity afterwards in percent", recovered, 1, 1000)?;
        check("the duration of a call in ms", call, 1, 600_000)?;
        check("the store's latency in ms", latency, 0, 10_000)?;
        check("the length in seconds", length, 1, MAX_LENGTH.as_secs())
    }
}

/// Returns the duration between two times in seconds.
pub(super) fn span(period: &Range<u64>) -> f64 {
    seconds(period.end.saturating_sub(period.start))
}
