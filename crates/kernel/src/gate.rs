//! The gate: what all callers of one (provider, account, model) know about its failure.
//!
//! Closed, everyone passes. The first failure opens it: everyone waits. One caller at a time probes, under a lease; when
//! a probe succeeds, the waiters follow in the order in which they came, along a ramp that finds the provider's pace.
//!
//! Invariants: at most one probe holds a valid lease; nobody passes before a stated time; a lone waiter keeps its own
//! schedule; a report that carries an old token changes nothing but the stated time.
//! Not here: where the state is kept (see the store) and who polls it (see the engine).

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How the gate probes and ramps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Probe for a lone waiter too, instead of leaving it to its own schedule.
    pub probe_for_one: bool,
    /// How long a probe may go without a sign of life.
    pub lease: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            probe_for_one: false,
            lease: Duration::from_secs(60),
        }
    }
}

const FIRST_PROBE_AFTER: Duration = Duration::from_secs(2);
const LONGEST_PROBE_GAP: Duration = Duration::from_secs(15);
/// Each waiter in line stands by this long for the one before it, which may have died.
const STANDBY: Duration = Duration::from_secs(2);
/// Nobody stands by for more than these, however many are ahead: after a crash all may be dead.
const MOST_STOOD_BY_FOR: u32 = 5;

/// Calls in a thousand seconds: the unit of the ramp.
type Rate = u32;
const FIRST_RATE: Rate = 5_000;
const FASTEST_RATE: Rate = 100_000;
const SLOWEST_RATE: Rate = 500;
/// What one success adds to a rate of one call a second; it falls with the square of the rate. A
/// provider accepts a burst above its pace before it refuses anything, so the ramp comes near any
/// pace slowly: from 5/s it reaches 10/s after 23 successes, 25/s after 413.
const GROWTH: u64 = 12_500;
/// No success makes the ramp faster by more than this part of its rate.
const MOST_GROWTH: Rate = 8;
/// How many times slower the ramp grows after its first refusal.
const CARE: Rate = 8;
const FAILURES_THAT_REOPEN: u32 = 3;

/// Who waits. Chosen by the caller, unique among those who share the gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaiterId(pub String);

/// The right to make one call; handed back with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    token: u64,
    /// The rate of the ramp when the call was let through.
    rate: Rate,
}

/// One caller in line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Who it is.
    pub id: WaiterId,
    /// When its trouble began; who came first goes first.
    pub since: Timestamp,
    /// When its own schedule would have it try again.
    pub own_wake: Timestamp,
    /// When its prompt must be over.
    pub deadline: Option<Timestamp>,
}

/// The gate's answer to a caller that wants to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Make the call.
    Go(Pass),
    /// Make the call; everyone waits for its result.
    Probe(Pass),
    /// Wait, and ask again then or when the gate changes.
    Hold(Timestamp),
    /// The caller's deadline has passed.
    TooLate,
}

/// The shared state of one gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    config: Config,
    stage: Stage,
    /// Rises with every change of stage, so that a report can be told from an old one.
    token: u64,
    /// The latest time that the provider stated.
    not_before: Timestamp,
    waiters: Vec<Waiter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    #[default]
    Closed,
    Open(Open),
    HalfOpen {
        open: Open,
        expires: Timestamp,
    },
    Ramp(Ramp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    opened: Timestamp,
    next_probe: Timestamp,
    probes: u32,
    /// Where the next ramp begins.
    rate: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ramp {
    next_slot: Timestamp,
    rate: Rate,
    refused: bool,
    failures_in_a_row: u32,
}

// --- asking ---

impl Gate {
    /// A closed gate.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Asks to make a call. Whoever is held stays in line; whoever did not come when it was its
    /// turn has lost its place to the next that came, until it asks again.
    pub fn ask(&mut self, waiter: Waiter, now: Timestamp) -> Answer {
        let deadline = waiter.deadline.unwrap_or(Timestamp::LATEST);
        if waiter.deadline.is_some() && now >= deadline {
            self.leave(&waiter.id);
            return Answer::TooLate;
        }
        if self.stage == Stage::Closed {
            self.leave(&waiter.id);
            return self.admit(now);
        }
        let place = self.insert(waiter);
        let turn = self.turn_at(place);
        if now < turn {
            return Answer::Hold(turn.min(deadline));
        }
        self.waiters.drain(..=place);
        self.admit(now)
    }

    /// Puts a caller in line, at the place that the beginning of its trouble gives it.
    pub fn wait(&mut self, waiter: Waiter) {
        self.insert(waiter);
    }

    /// Takes a caller out of line.
    pub fn leave(&mut self, id: &WaiterId) {
        self.waiters.retain(|waiter| waiter.id != *id);
    }

    /// When a caller in line should ask: its own time if it is alone, else the time that the gate
    /// gives it. `None` when it is not in line, or lost its place: then it may ask at once.
    pub fn wake_time(&self, id: &WaiterId) -> Option<Timestamp> {
        let place = self.waiters.iter().position(|waiter| waiter.id == *id)?;
        let deadline = self.waiters[place].deadline.unwrap_or(Timestamp::LATEST);
        Some(self.turn_at(place).min(deadline))
    }

    /// Whether everyone may pass.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// How many are in line.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    fn insert(&mut self, waiter: Waiter) -> usize {
        self.leave(&waiter.id);
        let earlier = |other: &Waiter| (other.since, &other.id) < (waiter.since, &waiter.id);
        let place = self.waiters.partition_point(earlier);
        self.waiters.insert(place, waiter);
        place
    }

    /// When it is the turn of whoever has this place in line.
    fn turn_at(&self, place: usize) -> Timestamp {
        let own_wake = self.waiters[place].own_wake;
        let ahead = u32::try_from(place).unwrap_or(u32::MAX);
        let standby = STANDBY * ahead.min(MOST_STOOD_BY_FOR);
        let alone = self.waiters.len() == 1 && !self.config.probe_for_one;
        let allowed = |time: Timestamp| time.max(self.not_before);
        match &self.stage {
            Stage::Closed => own_wake,
            // An own time from before the gate opened was held back for others and says nothing now.
            Stage::Open(open) if alone && own_wake >= open.opened => allowed(own_wake),
            Stage::Open(open) => allowed(open.next_probe) + standby,
            Stage::HalfOpen { expires, .. } => allowed(*expires) + standby,
            Stage::Ramp(ramp) => allowed(ramp.next_slot) + interval(ramp.rate) * ahead,
        }
    }

    fn admit(&mut self, now: Timestamp) -> Answer {
        match &mut self.stage {
            Stage::Closed => Answer::Go(self.pass(FIRST_RATE)),
            Stage::Ramp(ramp) => {
                let (rate, slot) = (ramp.rate, interval(ramp.rate));
                // Who comes less than a slot late does not push back those behind it.
                let late = now.since(ramp.next_slot);
                ramp.next_slot = if late < slot { ramp.next_slot } else { now } + slot;
                Answer::Go(self.pass(rate))
            }
            Stage::Open(open) | Stage::HalfOpen { open, .. } => {
                let (open, expires) = (*open, now + self.config.lease);
                self.enter(Stage::HalfOpen { open, expires });
                Answer::Probe(self.pass(open.rate))
            }
        }
    }

    fn pass(&self, rate: Rate) -> Pass {
        Pass {
            token: self.token,
            rate,
        }
    }
}

// --- reporting ---

impl Gate {
    /// A call that the gate let pass met the trouble that the gate is about.
    pub fn failed(&mut self, pass: Pass, stated: Option<Timestamp>, now: Timestamp) {
        let current = pass.token == self.token;
        // A stated time holds even when it comes late, unless all is well again.
        if current || self.stage != Stage::Closed {
            self.not_before = self.not_before.max(stated.unwrap_or_default());
        }
        if !current {
            return;
        }
        match &mut self.stage {
            Stage::Closed => self.open(0, FIRST_RATE, now),
            Stage::Open(_) => {}
            Stage::HalfOpen { open, .. } => {
                let (probes, rate) = (open.probes.saturating_add(1), open.rate);
                self.open(probes, rate, now);
            }
            Stage::Ramp(ramp) => {
                // Many refusals of calls that went out at one rate say no more than one of them.
                ramp.rate = ramp.rate.min(pass.rate / 4 * 3).max(SLOWEST_RATE);
                ramp.next_slot = ramp.next_slot.max(now + interval(ramp.rate));
                ramp.refused = true;
                ramp.failures_in_a_row += 1;
                if ramp.failures_in_a_row >= FAILURES_THAT_REOPEN {
                    let rate = (ramp.rate / 2).max(SLOWEST_RATE);
                    self.open(0, rate, now);
                }
            }
        }
    }

    /// A call that the gate let pass was accepted by the provider.
    pub fn succeeded(&mut self, pass: Pass, now: Timestamp) {
        if pass.token != self.token {
            return;
        }
        match &mut self.stage {
            Stage::Closed | Stage::Open(_) => return,
            Stage::HalfOpen { open, .. } => {
                let ramp = Ramp {
                    next_slot: now,
                    rate: open.rate,
                    refused: open.rate < FIRST_RATE,
                    failures_in_a_row: 0,
                };
                self.enter(Stage::Ramp(ramp));
            }
            Stage::Ramp(ramp) => {
                ramp.rate = (ramp.rate + growth(ramp)).min(FASTEST_RATE);
                ramp.failures_in_a_row = 0;
            }
        }
        if self.waiters.is_empty() && now >= self.not_before {
            self.not_before = Timestamp::default();
            self.enter(Stage::Closed);
        }
    }

    /// The holder of a probe is alive; `false` when its lease is not the valid one any more.
    pub fn renew(&mut self, pass: Pass, now: Timestamp) -> bool {
        match &mut self.stage {
            Stage::HalfOpen { expires, .. } if pass.token == self.token => {
                *expires = now + self.config.lease;
                true
            }
            _ => false,
        }
    }

    fn open(&mut self, probes: u32, rate: Rate, now: Timestamp) {
        self.enter(Stage::Open(Open {
            opened: now,
            next_probe: now + probe_gap(probes),
            probes,
            rate,
        }));
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.token += 1;
    }
}

/// The pause before a probe: 2 s, each 1.6 times the one before, at most 15 s.
fn probe_gap(probes: u32) -> Duration {
    let mut gap = FIRST_PROBE_AFTER;
    for _ in 0..probes.min(8) {
        gap = gap * 8 / 5;
    }
    gap.min(LONGEST_PROBE_GAP)
}

fn interval(rate: Rate) -> Duration {
    Duration::from_micros(1_000_000_000 / u64::from(rate.max(1)))
}

/// What a success adds to the rate of a ramp.
fn growth(ramp: &Ramp) -> Rate {
    let rate = u64::from(ramp.rate.max(1));
    let growth = GROWTH * 1_000_000 / (rate * rate);
    let growth = Rate::try_from(growth)
        .unwrap_or(Rate::MAX)
        .min(ramp.rate / MOST_GROWTH);
    if ramp.refused { growth / CARE } else { growth }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
