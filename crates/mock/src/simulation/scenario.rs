//! What happens: how many agents, what the provider can carry, what breaks and when.

use outlast_kernel::time::{Span, millis};
use std::ops::Range;
use std::time::Duration;

/// One run of the simulation. Times are counted from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// How many agents make one call after another.
    pub agents: u32,
    /// Over how many processes they are spread.
    pub processes: u32,
    /// What the provider carries, in calls a second, with a burst of one second.
    pub capacity: u32,
    /// Count that capacity in tokens: this many a second, each call taking its share, some more and some less.
    pub tokens_per_second: Option<u32>,
    /// What the agents want, in percent of the capacity; more than 100 is sustained overload.
    pub load: u32,
    /// When the provider refuses everything.
    pub outage: Option<Range<Duration>>,
    /// What the provider carries after the outage, in percent of what it carried before.
    pub recovered_capacity_percent: u32,
    /// Whether the provider says when to come back when it is asked too much.
    pub retry_after: bool,
    /// How long each operation of the store takes.
    pub store_latency: Duration,
    /// How often each process looks for changes of the gate.
    pub poll_interval: Duration,
    /// When the store cannot be reached.
    pub store_outage: Option<Range<Duration>>,
    /// How many agents die while they hold the probe.
    pub dead_probes: u32,
    /// How long it lasts.
    pub length: Duration,
    /// Where all chance comes from.
    pub seed: u64,
}

/// How long all goes well before an outage begins.
pub(super) const BEFORE_OUTAGE: Duration = Duration::from_secs(600);
/// How long the run goes on after it.
const AFTER_OUTAGE: Duration = Duration::from_secs(3000);
/// Rates are measured from here on, or from this long after a recovery.
pub(super) const SETTLING_TIME: Duration = Duration::from_secs(120);
/// No agent makes more than five calls a second.
const MIN_CYCLE_MILLIS: u64 = 200;
/// A month: longer than anybody waits for a simulation.
const MAX_LENGTH: Duration = Duration::from_secs(30 * 24 * 3600);

impl Default for Scenario {
    fn default() -> Self {
        Self {
            agents: 500,
            processes: 10,
            capacity: 25,
            tokens_per_second: None,
            load: 80,
            outage: None,
            recovered_capacity_percent: 100,
            retry_after: false,
            store_latency: Duration::from_millis(5),
            poll_interval: Duration::from_millis(250),
            store_outage: None,
            dead_probes: 0,
            length: BEFORE_OUTAGE + AFTER_OUTAGE,
            seed: 1,
        }
    }
}

/// A scenario that cannot be played.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number that is too small or too large.
    #[error("{what} must be between {least} and {most}, not {found}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The least it may be.
        least: u64,
        /// The most it may be.
        most: u64,
        /// What it is.
        found: u64,
    },
    /// Something that would begin or end outside of the run.
    #[error("{what} must end after it begins and before the run of {} is over", Span(*.length))]
    OutsideRun {
        /// What.
        what: &'static str,
        /// How long the run is.
        length: Duration,
    },
    /// Agents that would have to call without a pause.
    #[error(
        "{agents} agents cannot make {calls} calls a second; take more agents, or less load or capacity"
    )]
    TooManyCalls {
        /// How many there are.
        agents: u32,
        /// What they would have to make.
        calls: u64,
    },
}

impl Scenario {
    /// The same with an outage of that length, ten minutes after the beginning, and fifty minutes after it.
    #[must_use]
    pub fn with_outage(self, outage: Duration) -> Self {
        let end = BEFORE_OUTAGE.saturating_add(outage);
        Self {
            outage: Some(BEFORE_OUTAGE..end),
            length: end.saturating_add(AFTER_OUTAGE),
            ..self
        }
    }

    /// Says what is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), Error> {
        self.check_numbers()?;
        self.check_tokens()?;
        let ranges = [
            ("the outage", &self.outage),
            ("the store's loss", &self.store_outage),
        ];
        for (what, range) in ranges {
            if range
                .as_ref()
                .is_some_and(|range| range.is_empty() || range.end > self.length)
            {
                return Err(Error::OutsideRun {
                    what,
                    length: self.length,
                });
            }
        }
        if self.cycle_millis() < MIN_CYCLE_MILLIS {
            let calls = u64::from(self.capacity) * u64::from(self.load) / 100;
            return Err(Error::TooManyCalls {
                agents: self.agents,
                calls,
            });
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Error> {
        let numbers = [
            ("the number of agents", u64::from(self.agents), 1, 100_000),
            (
                "the number of processes",
                u64::from(self.processes),
                1,
                1000,
            ),
            ("the capacity", u64::from(self.capacity), 1, 1000),
            ("the load in percent", u64::from(self.load), 1, 10_000),
            (
                "what the provider comes back at in percent",
                u64::from(self.recovered_capacity_percent),
                1,
                1000,
            ),
            (
                "the store's latency in ms",
                millis(self.store_latency),
                0,
                10_000,
            ),
            (
                "the time between two looks in ms",
                millis(self.poll_interval),
                1,
                60_000,
            ),
            (
                "the length in seconds",
                self.length.as_secs(),
                1,
                MAX_LENGTH.as_secs(),
            ),
        ];
        for (what, found, least, most) in numbers {
            if !(least..=most).contains(&found) {
                return Err(Error::OutOfRange {
                    what,
                    least,
                    most,
                    found,
                });
            }
        }
        Ok(())
    }

    /// A call must have some tokens, so that there are smaller and larger ones.
    fn check_tokens(&self) -> Result<(), Error> {
        let least = u64::from(self.capacity) * 10;
        match self.tokens_per_second.map(u64::from) {
            Some(found) if found < least => Err(Error::OutOfRange {
                what: "the tokens a second",
                least,
                most: u64::from(u32::MAX),
                found,
            }),
            _ => Ok(()),
        }
    }

    /// The time from one call of an agent to its next, in milliseconds, when nothing is in its way.
    pub(super) fn cycle_millis(&self) -> u64 {
        u64::from(self.agents) * 100_000 / (u64::from(self.load) * u64::from(self.capacity)).max(1)
    }

    /// The tokens of a call, on average.
    pub(super) fn tokens_per_call(&self) -> u64 {
        const DEFAULT_TOKENS_PER_CALL: u64 = 10_000;
        self.tokens_per_second
            .map_or(DEFAULT_TOKENS_PER_CALL, |tokens| {
                u64::from(tokens / self.capacity)
            })
    }

    /// What can be carried once rates are measured, in calls a second.
    pub(super) fn measured_capacity(&self) -> f64 {
        let share = self
            .outage
            .as_ref()
            .map_or(100, |_| self.recovered_capacity_percent);
        f64::from(self.capacity) * f64::from(share) / 100.0
    }

    /// The outage in milliseconds; empty when there is none.
    pub(super) fn outage_millis(&self) -> Range<u64> {
        self.outage.as_ref().map_or(0..0, in_millis)
    }
}

pub(super) fn in_millis(range: &Range<Duration>) -> Range<u64> {
    millis(range.start)..millis(range.end)
}
