//! The gate: what all callers of one (provider, account, model) know about its failure.
//!
//! Closed, everyone passes. The first failure opens it: everyone waits. One caller at a time probes, under a lease; when
//! a probe succeeds, the waiters follow in the order in which they came, along a ramp that finds the provider's pace.
//!
//! Invariants: at most one probe holds a valid lease; nobody passes before a stated time; a lone waiter keeps its own
//! schedule; a report that carries an old token changes nothing but the stated time; the state is a few numbers,
//! however many wait.
//! Not here: who waits (see [`Queue`]), where the state is kept (see the store) and who polls it (see the engine).

pub mod admission;
mod pace;
mod queue;
mod report;

pub use queue::Queue;
pub use report::Report;

use crate::Timestamp;
use pace::{MIN_RATE, PaceEstimate, Ramp, Rate, Refusal};
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

const FIRST_PROBE_DELAY: Duration = Duration::from_secs(2);
const MAX_PROBE_GAP: Duration = Duration::from_secs(15);
/// Each waiter in line stands by this long for the one before it, which may have died.
const STANDBY_INTERVAL: Duration = Duration::from_secs(2);
/// Nobody stands by for more than these, however many are ahead: after a crash all may be dead.
const MAX_STANDBY_AHEAD: u32 = 5;

const REOPEN_AFTER_FAILURES: u32 = 3;

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

/// One caller in line. It keeps its `id` and `since` for as long as it waits.
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
    /// How many calls of its process it stands for, itself included; `None` means that it stands for itself and keeps
    /// its own schedule. A crowd of one has none: the gate probes for it.
    #[serde(default, rename = "crowd")]
    pub batch: Option<u32>,
}

impl Waiter {
    /// How many calls wait with it, itself included.
    pub fn count(&self) -> u32 {
        self.batch.unwrap_or(1).max(1)
    }

    /// Who is left in line when one call of its crowd was let through.
    #[must_use]
    pub fn remaining_batch(&self) -> Option<Self> {
        let left = self.batch?.checked_sub(1).filter(|left| *left > 0)?;
        Some(Self {
            batch: Some(left),
            ..self.clone()
        })
    }
}

/// Where a caller stands, as whoever keeps the line knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// How many are ahead of it.
    pub ahead: u32,
    /// How many are in line, itself included.
    pub waiting: u32,
}

/// The gate's answer to a caller that wants to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateReply {
    /// Make the call.
    Proceed(Pass),
    /// Make the call; everyone waits for its result.
    Probe(Pass),
    /// Wait, and ask again then or when the gate changes.
    Hold(Timestamp),
    /// The caller's deadline has passed.
    DeadlineExceeded,
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
    learnt: PaceEstimate,
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

// --- asking ---

impl Gate {
    /// A closed gate.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Asks to make a call, from a place in line. Whoever is let through has left the line (the rest of its crowd stays),
    /// and so have those ahead of it unless the gate was closed: they did not come when it was their turn, and are back
    /// when they ask again.
    pub fn request_pass(
        &mut self,
        waiter: &Waiter,
        place: QueuePosition,
        now: Timestamp,
    ) -> GateReply {
        let deadline = waiter.deadline.unwrap_or(Timestamp::LATEST);
        if waiter.deadline.is_some() && now >= deadline {
            return GateReply::DeadlineExceeded;
        }
        if place.waiting <= 1 {
            self.close_if_calm(now);
        }
        let turn = self.turn_time(waiter, place);
        if now >= turn || self.is_closed() {
            return self.admit(now);
        }
        if let Stage::Ramp(ramp) = &mut self.stage {
            ramp.record_wait(turn.since(now), now);
        }
        GateReply::Hold(turn.min(deadline))
    }

    /// When a caller in line should ask: its own time if it is alone, else the time that the gate gives it.
    pub fn wake_time(&self, waiter: &Waiter, place: QueuePosition) -> Timestamp {
        let deadline = waiter.deadline.unwrap_or(Timestamp::LATEST);
        self.turn_time(waiter, place).min(deadline)
    }

    /// The right to make a call, if everyone may pass.
    pub fn pass_if_closed(&self) -> Option<Pass> {
        self.is_closed().then(|| self.pass(0))
    }

    /// The latest time that the provider stated.
    pub const fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// Whether everyone may pass.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// When it is the turn of whoever has this place in line.
    fn turn_time(&self, waiter: &Waiter, place: QueuePosition) -> Timestamp {
        let own_wake = waiter.own_wake;
        let standby = STANDBY_INTERVAL * place.ahead.min(MAX_STANDBY_AHEAD);
        let alone = place.waiting == 1 && waiter.batch.is_none() && !self.config.probe_for_one;
        let allowed = |time: Timestamp| time.max(self.not_before);
        match &self.stage {
            Stage::Closed => own_wake,
            // An own time from before the gate opened was held back for others and says nothing now.
            Stage::Open(open) if alone && own_wake >= open.opened => allowed(own_wake),
            Stage::Open(open) => allowed(open.next_probe) + standby,
            Stage::HalfOpen { expires, .. } => allowed(*expires) + standby,
            // A failure within the ramp is its own, as long as nobody else waits.
            Stage::Ramp(ramp) if alone && waiter.since > ramp.began => {
                ramp.slot_time(place.ahead, self.not_before).max(own_wake)
            }
            Stage::Ramp(ramp) => ramp.slot_time(place.ahead, self.not_before),
        }
    }

    fn admit(&mut self, now: Timestamp) -> GateReply {
        match &mut self.stage {
            Stage::Closed => GateReply::Proceed(self.pass(0)),
            Stage::Ramp(ramp) => {
                let rate = ramp.rate;
                ramp.take_slot(now);
                GateReply::Proceed(self.pass(rate))
            }
            Stage::Open(open) | Stage::HalfOpen { open, .. } => {
                let (open, expires) = (*open, now + self.config.lease);
                self.enter(Stage::HalfOpen { open, expires });
                GateReply::Probe(self.pass(open.rate))
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
    pub fn record_failure(&mut self, pass: Pass, stated: Option<Timestamp>, now: Timestamp) {
        let current = pass.token == self.token;
        // A stated time holds even when it comes late, unless all is well again.
        if current || self.stage != Stage::Closed {
            self.not_before = self.not_before.max(stated.unwrap_or_default());
        }
        if !current {
            return;
        }
        match &mut self.stage {
            Stage::Closed => self.open(0, self.learnt.rate_after_brief_failure(), now),
            Stage::Open(_) => {}
            Stage::HalfOpen { open, .. } => {
                let probes = open.probes.saturating_add(1);
                let rate = open.rate.min(self.learnt.rate_after_outage());
                self.open(probes, rate, now);
            }
            Stage::Ramp(ramp) => {
                let refusal = Refusal {
                    rate: pass.rate,
                    has_stated_time: stated.is_some(),
                };
                ramp.record_refusal(refusal, &mut self.learnt, now);
                if ramp.failures_in_a_row >= REOPEN_AFTER_FAILURES {
                    let rate = (ramp.rate / 2).max(MIN_RATE);
                    self.open(0, rate, now);
                }
            }
        }
    }

    /// So many calls that nobody asked for were accepted since this was last told: whoever finds the gate closed need
    /// not ask, but a gate that is told every ten seconds or so knows where its next ramp may begin.
    pub fn record_accepted(&mut self, calls: u32, now: Timestamp) {
        if self.is_closed() {
            self.learnt.count_accepted(calls, now);
        }
    }

    /// Someone waits because of a failure that the gate could not be told of when it happened.
    pub fn record_missed_failure(&mut self, now: Timestamp) {
        if self.is_closed() {
            self.open(0, self.learnt.rate_after_outage(), now);
        }
    }

    /// A call that the gate let pass was accepted by the provider, while so many are in line.
    pub fn record_success(&mut self, pass: Pass, waiting: u32, now: Timestamp) {
        if pass.token != self.token {
            return;
        }
        match &mut self.stage {
            Stage::Closed => self.learnt.count_accepted(1, now),
            Stage::Open(_) => {}
            Stage::HalfOpen { open, .. } => {
                let ramp = Ramp::begin(open.rate, now);
                self.enter(Stage::Ramp(ramp));
                if waiting == 0 {
                    self.close(now);
                }
            }
            Stage::Ramp(ramp) => {
                ramp.record_success(waiting, &mut self.learnt, now);
                if waiting == 0 {
                    self.close_if_calm(now);
                }
            }
        }
    }

    /// Closes a gate whose ramp nobody needs any more.
    fn close_if_calm(&mut self, now: Timestamp) {
        if matches!(&self.stage, Stage::Ramp(ramp) if ramp.is_calm(now)) {
            self.close(now);
        }
    }

    fn close(&mut self, now: Timestamp) {
        if now >= self.not_before {
            self.not_before = Timestamp::default();
            self.learnt.restart_count(now);
            self.enter(Stage::Closed);
        }
    }

    /// The holder of a probe is alive; `false` when its lease is not the valid one any more.
    pub fn renew_lease(&mut self, pass: Pass, now: Timestamp) -> bool {
        match &mut self.stage {
            Stage::HalfOpen { expires, .. } if pass.token == self.token => {
                *expires = now + self.config.lease;
                true
            }
            _ => false,
        }
    }

    /// The provider answered somebody who had not asked the gate: whatever it stated is over.
    pub fn record_recovery(&mut self, waiting: u32, now: Timestamp) {
        self.not_before = Timestamp::default();
        if let Stage::Open(open) | Stage::HalfOpen { open, .. } = &self.stage {
            let ramp = Ramp::begin(open.rate, now);
            self.enter(Stage::Ramp(ramp));
        }
        if waiting == 0 && !self.is_closed() {
            self.close(now);
        }
    }

    /// The gate as it can be at that time: a clock that was wrong may have left times that never come.
    #[must_use]
    pub fn with_times_clamped(mut self, now: Timestamp) -> Self {
        let lease = self.config.lease;
        let sane = |open: &mut Open| {
            open.opened = open.opened.min(now);
            open.next_probe = open.next_probe.min(now + MAX_PROBE_GAP);
        };
        match &mut self.stage {
            Stage::Closed | Stage::Ramp(_) => {}
            Stage::Open(open) => sane(open),
            Stage::HalfOpen { open, expires } => {
                sane(open);
                *expires = (*expires).min(now + lease);
            }
        }
        self
    }

    /// A probe was given up before it could show anything: the next may probe at once.
    pub fn abandon_probe(&mut self, pass: Pass, now: Timestamp) {
        if let Stage::HalfOpen { open, .. } = &self.stage
            && pass.token == self.token
        {
            let next_probe = now;
            let open = Open {
                next_probe,
                ..*open
            };
            self.enter(Stage::Open(open));
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
    let mut gap = FIRST_PROBE_DELAY;
    for _ in 0..probes.min(8) {
        gap = gap * 8 / 5;
    }
    gap.min(MAX_PROBE_GAP)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
