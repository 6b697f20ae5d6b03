//! Virtual time: takes the next event and lets it happen.

use super::provider::{Fault, Provider};
use super::requests::{Clients, Request};
use super::store::{POLL_INTERVAL, Process, Store};
use super::strategy::{Breaker, Kind, Strategy};
use fastrand::Rng;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Gate, ProcessView, Sync, SyncReply};
use std::collections::BTreeMap;
use std::ops::Range;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// It was served.
    Served,
    /// It failed.
    Failed,
    /// It was refused.
    Refused,
}

/// A call, as the provider saw it.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCall {
    /// The time at which it began, in milliseconds.
    pub at: u64,
    /// Its result.
    pub result: CallResult,
    /// Its cost in units.
    pub size: f64,
}

/// A request that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// The time of the first byte, in milliseconds.
    pub at: u64,
    /// The time at which it arrived.
    pub arrived: u64,
    /// The time of its first call.
    pub first_call: u64,
    /// Its label.
    pub label: u32,
}

pub(super) enum Event {
    Next(usize),
    Submit(u32),
    Retry(usize),
    Restart(usize),
    FirstByte(usize),
    End(usize),
    Failed(usize, Fault),
    Wake(usize),
    Look(usize),
    Exchange(usize, Box<Sync>),
    Reply(usize, Box<Sync>, Option<Box<(SyncReply, u32)>>),
}

/// A run.
pub struct World {
    pub(super) now: u64,
    /// By their times; those of one time in the order in which they were scheduled.
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub(super) rng: Rng,
    /// The provider.
    pub provider: Provider,
    pub(super) clients: Clients,
    pub(super) strategy: Kind,
    pub(super) store: Store,
    pub(super) processes: Vec<Process>,
    pub(super) breakers: Vec<Breaker>,
    pub(super) requests: Vec<Request>,
    /// Probes whose holder dies.
    pub dying_probes: u32,
    /// All calls, in order.
    pub calls: Vec<LoggedCall>,
    /// All successes, in order.
    pub successes: Vec<Success>,
    /// Requests that a client has given up, and whose user starts them again.
    pub given_up: u32,
}

impl World {
    /// Creates a run whose clients begin at random times within `spread` milliseconds.
    pub fn new(
        seed: u64,
        strategy: &Strategy,
        provider: Provider,
        clients: Clients,
        spread: u64,
    ) -> Self {
        let (processes, breakers, latency) = match strategy.kind {
            Kind::Gate {
                processes,
                store_latency,
                ..
            } => (processes, 0, store_latency),
            Kind::Breaker { processes } => (0, processes, 0),
            Kind::Policy(_) | Kind::Sdk { .. } => (0, 0, 0),
        };
        let mut world = Self {
            now: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            rng: Rng::with_seed(seed),
            provider,
            clients,
            strategy: strategy.kind.clone(),
            store: Store::new(latency),
            processes: Vec::new(),
            breakers: vec![Breaker::default(); breakers],
            requests: Vec::new(),
            dying_probes: 0,
            calls: Vec::new(),
            successes: Vec::new(),
            given_up: 0,
        };
        for process in 0..processes {
            let is_shared = processes > 1 || latency > 0;
            world.processes.push(Process {
                view: ProcessView::new(Gate::default(), is_shared),
                wake: None,
            });
            if is_shared {
                let first = world.rng.u64(0..POLL_INTERVAL);
                world.at(first, Event::Look(process));
            }
        }
        for client in 0..world.clients.count {
            let at = world.rng.u64(0..=spread);
            world.at(at, Event::Next(client));
        }
        world
    }

    /// Submits a request with that label at that time.
    pub fn submit(&mut self, at: u64, label: u32) {
        self.at(at, Event::Submit(label));
    }

    /// Takes the store away for some time.
    pub fn lose_store(&mut self, period: Range<u64>) {
        self.store.gone = period;
    }

    /// Returns the gate that all processes share.
    pub fn gate(&self) -> &Gate {
        match self.processes.as_slice() {
            [alone] if self.store.latency == 0 => alone.view.queue.gate(),
            _ => &self.store.gate,
        }
    }

    /// Returns the time from the store's return until the last process used it again.
    pub fn rejoined_after(&self) -> Option<u64> {
        Some(self.store.rejoined?.saturating_sub(self.store.gone.end))
    }

    /// Runs until that time.
    pub fn run(&mut self, until: u64) {
        self.run_while(until, |_| true);
    }

    /// Runs until that time, while the condition holds.
    pub fn run_while(&mut self, until: u64, goes_on: impl Fn(&Self) -> bool) {
        while goes_on(self)
            && let Some(next) = self.events.first_entry()
            && next.key().0 <= until
        {
            let ((at, _), event) = next.remove_entry();
            self.now = at;
            self.handle(event);
        }
        if goes_on(self) {
            self.now = until;
        }
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        let at = at.max(self.now);
        self.events.insert((at, self.scheduled), event);
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(super) const fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Next(client) => self.next(client),
            Event::Submit(label) => self.arrive(None, label, 1.0),
            Event::Retry(id) => self.retry_alone(id),
            Event::Restart(id) => self.enter(id),
            Event::FirstByte(id) => self.first_byte(id),
            Event::End(id) => {
                if !self.clients.continues_at_first_byte {
                    self.rest(id);
                }
            }
            Event::Failed(id, fault) => self.fail(id, fault),
            Event::Wake(process) => {
                if self.processes[process].wake == Some(self.now) {
                    self.processes[process].wake = None;
                }
                self.poll(process);
            }
            Event::Look(process) => self.look(process),
            Event::Exchange(process, sync) => self.exchange(process, sync),
            Event::Reply(process, sync, reply) => {
                self.reply(process, &sync, reply.map(|reply| *reply));
            }
        }
    }
}
