//! The gate: what all callers of one (provider, account, model) know about its failure.
//!
//! Closed, everyone passes. The first failure opens it: everyone waits. One caller at a time probes, under a lease; when
//! a probe succeeds, the waiters follow in the order in which they came, along a ramp that finds the provider's pace.
//!
//! Invariants: at most one probe holds a valid lease; nobody passes before a stated time; a lone waiter keeps its own
//! schedule; a report that carries an old token changes nothing.
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
        Self { probe_for_one: false, lease: Duration::from_secs(60) }
    }
}

const FIRST_PROBE_AFTER: Duration = Duration::from_secs(2);
const LONGEST_PROBE_GAP: Duration = Duration::from_secs(15);
/// Each waiter in line stands by this long for the one before it, which may have died.
const STANDBY: Duration = Duration::from_secs(2);

/// Calls in a thousand seconds: the unit of the ramp.
type Rate = u32;
const FIRST_RATE: Rate = 5_000;
const FASTEST_RATE: Rate = 100_000;
const SLOWEST_RATE: Rate = 500;
/// How much the rate grows in a second of successes, before and after the first refusal on the ramp.
const GROWTH: Rate = 5_000;
const CAREFUL_GROWTH: Rate = 1_000;
const FAILURES_THAT_REOPEN: u32 = 3;

/// Who waits. Chosen by the caller, unique among those who share the gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaiterId(pub String);

/// The right to make one call; handed back with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    token: u64,
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
    not_before: Timestamp,
    next_probe: Timestamp,
    probes: u32,
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
        Self { config, ..Self::default() }
    }

    /// Asks to make a call. Whoever is held stays in line.
    pub fn ask(&mut self, waiter: Waiter, now: Timestamp) -> Answer {
        if waiter.deadline.is_some_and(|deadline| now >= deadline) {
            self.leave(&waiter.id);
            return Answer::TooLate;
        }
        if self.stage == Stage::Closed {
            self.leave(&waiter.id);
            return Answer::Go(Pass { token: self.token });
        }
        let id = waiter.id.clone();
        let deadline = waiter.deadline.unwrap_or(Timestamp::LATEST);
        self.wait(waiter);
        match self.turn_of(&id) {
            Some(turn) if now >= turn => {
                self.leave(&id);
                self.admit(now)
            }
            Some(turn) => Answer::Hold(turn.min(deadline)),
            None => Answer::Hold(deadline),
        }
    }

    /// Puts a caller in line, at the place that the beginning of its trouble gives it.
    pub fn wait(&mut self, waiter: Waiter) {
        self.leave(&waiter.id);
        let place = self.waiters.partition_point(|other| (other.since, &other.id) <= (waiter.since, &waiter.id));
        self.waiters.insert(place, waiter);
    }

    /// Takes a caller out of line.
    pub fn leave(&mut self, id: &WaiterId) {
        self.waiters.retain(|waiter| waiter.id != *id);
    }

    /// When a caller in line should ask: its own time if it is alone, else the time that the gate gives it.
    pub fn wake_time(&self, id: &WaiterId) -> Option<Timestamp> {
        let waiter = self.waiters.iter().find(|waiter| waiter.id == *id)?;
        let wake = match self.stage {
            Stage::Closed => waiter.own_wake,
            _ => self.turn_of(id)?,
        };
        Some(waiter.deadline.map_or(wake, |deadline| wake.min(deadline)))
    }

    /// Whether everyone may pass.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// How many are in line.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// When it is the turn of someone in line.
    fn turn_of(&self, id: &WaiterId) -> Option<Timestamp> {
        let place = self.waiters.iter().position(|waiter| waiter.id == *id)?;
        let ahead = u32::try_from(place).unwrap_or(u32::MAX);
        let alone = self.waiters.len() == 1 && !self.config.probe_for_one;
        Some(match &self.stage {
            Stage::Closed => Timestamp::default(),
            Stage::Open(open) if alone => self.waiters[place].own_wake.max(open.not_before),
            Stage::Open(open) => open.next_probe + STANDBY.saturating_mul(ahead),
            Stage::HalfOpen { expires, .. } => *expires + STANDBY.saturating_mul(ahead),
            Stage::Ramp(ramp) => ramp.next_slot + interval(ramp.rate).saturating_mul(ahead),
        })
    }

    fn admit(&mut self, now: Timestamp) -> Answer {
        match &mut self.stage {
            Stage::Closed => Answer::Go(Pass { token: self.token }),
            Stage::Ramp(ramp) => {
                ramp.next_slot = ramp.next_slot.max(now) + interval(ramp.rate);
                Answer::Go(Pass { token: self.token })
            }
            Stage::Open(open) | Stage::HalfOpen { open, .. } => {
                let open = *open;
                self.enter(Stage::HalfOpen { open, expires: now + self.config.lease });
                Answer::Probe(Pass { token: self.token })
            }
        }
    }
}

// --- reporting ---

impl Gate {
    /// A call that the gate let pass met the trouble that the gate is about.
    pub fn failed(&mut self, pass: Pass, stated: Option<Timestamp>, now: Timestamp) {
        if pass.token != self.token {
            self.note_stated(stated);
            return;
        }
        match self.stage {
            Stage::Closed => self.open(0, stated, now),
            Stage::HalfOpen { open, .. } => {
                let stated = stated.max(Some(open.not_before));
                self.open(open.probes.saturating_add(1), stated, now);
            }
            Stage::Ramp(ramp) if ramp.failures_in_a_row + 1 >= FAILURES_THAT_REOPEN => self.open(0, stated, now),
            Stage::Ramp(ramp) => {
                let rate = (ramp.rate / 4 * 3).max(SLOWEST_RATE);
                self.stage = Stage::Ramp(Ramp {
                    next_slot: ramp.next_slot.max(now + interval(rate)).max(stated.unwrap_or_default()),
                    rate,
                    refused: true,
                    failures_in_a_row: ramp.failures_in_a_row + 1,
                });
            }
            Stage::Open(_) => self.note_stated(stated),
        }
    }

    /// A call that the gate let pass was accepted by the provider.
    pub fn succeeded(&mut self, pass: Pass, now: Timestamp) {
        if pass.token != self.token {
            return;
        }
        match &mut self.stage {
            Stage::Closed | Stage::Open(_) => return,
            Stage::HalfOpen { .. } => {
                self.enter(Stage::Ramp(Ramp {
                    next_slot: now,
                    rate: FIRST_RATE,
                    refused: false,
                    failures_in_a_row: 0,
                }));
            }
            Stage::Ramp(ramp) => {
                let growth = if ramp.refused { CAREFUL_GROWTH } else { GROWTH };
                // Spread over the successes of one second, so that the rate grows by the same amount in each.
                ramp.rate = (ramp.rate + growth * 1000 / ramp.rate.max(1000)).min(FASTEST_RATE);
                ramp.failures_in_a_row = 0;
            }
        }
        if self.waiters.is_empty() {
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

    fn open(&mut self, probes: u32, stated: Option<Timestamp>, now: Timestamp) {
        let not_before = stated.unwrap_or_default();
        let next_probe = (now + probe_gap(probes)).max(not_before);
        self.enter(Stage::Open(Open { not_before, next_probe, probes }));
    }

    /// A stated time holds even when it comes late: nobody probes before it.
    fn note_stated(&mut self, stated: Option<Timestamp>) {
        if let (Stage::Open(open), Some(stated)) = (&mut self.stage, stated) {
            open.not_before = open.not_before.max(stated);
            open.next_probe = open.next_probe.max(stated);
        }
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

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
