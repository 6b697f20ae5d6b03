//! The processes, and the store that they share.

use super::requests::index_of;
use super::world::{Event, World};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Action, Gate, ProcessView, Sync, SyncReply};
use std::collections::BTreeMap;
use std::ops::Range;

/// The interval in which processes look at a shared gate.
pub(super) const POLL_INTERVAL: u64 = 1000;
/// A process that was not heard of for so long has no requests.
const HEARTBEAT_TIMEOUT: u64 = 10_000;

pub(super) struct Heartbeat {
    seen: u64,
    waiting: u32,
    oldest: Option<Timestamp>,
}

pub(super) struct Process {
    pub(super) view: ProcessView,
    pub(super) wake: Option<u64>,
}

/// The shared store.
pub(super) struct Store {
    pub(super) gate: Gate,
    pub(super) latency: u64,
    pub(super) heartbeats: BTreeMap<usize, Heartbeat>,
    pub(super) gone: Range<u64>,
    /// The time at which a process used the store again that had lost it.
    pub(super) rejoined: Option<u64>,
}

impl Store {
    pub(super) fn new(latency: u64) -> Self {
        Self {
            gate: Gate::default(),
            latency,
            heartbeats: BTreeMap::new(),
            gone: 0..0,
            rejoined: None,
        }
    }
}

impl World {
    pub(super) fn poll(&mut self, process: usize) {
        let now = self.time();
        let actions = self.processes[process].view.poll(now);
        self.carry_out(process, actions);
        // A shared gate without latency replies at once, and may be followed by the next exchange.
        let of = &mut self.processes[process];
        let next = of.view.queue.next_wake().map(Timestamp::as_millis);
        if let Some(at) = next.filter(|at| of.wake.is_none_or(|wake| *at < wake)) {
            let at = at.max(self.now);
            of.wake = Some(at);
            self.at(at, Event::Wake(process));
        }
    }

    fn carry_out(&mut self, process: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(id, pass) => self.call(index_of(id), pass),
                Action::Sync(sync) => {
                    self.after(self.store.latency / 2, Event::Exchange(process, sync));
                }
            }
        }
    }

    pub(super) fn look(&mut self, process: usize) {
        self.after(POLL_INTERVAL, Event::Look(process));
        if self.store.gone.contains(&self.now) {
            return;
        }
        let now = self.time();
        let queue = &mut self.processes[process].view.queue;
        match queue.is_shared() {
            true => queue.observe(self.store.gate.clone(), now),
            false => queue.rejoin(now),
        }
        self.poll(process);
    }

    pub(super) fn exchange(&mut self, process: usize, mut sync: Box<Sync>) {
        let now = self.time();
        let back = self.store.latency - self.store.latency / 2;
        if self.store.gone.contains(&self.now) {
            return self.after(back, Event::Reply(process, sync, None));
        }
        if let Some(own) = self.processes[process].view.own_gate() {
            self.store.gate.rejoin(&own);
            self.store.rejoined = Some(self.now);
        }
        let heartbeat = Heartbeat {
            seen: self.now,
            waiting: sync.queue.waiting,
            oldest: sync.queue.oldest,
        };
        self.store.heartbeats.insert(process, heartbeat);
        let oldest_seen = self.now.saturating_sub(HEARTBEAT_TIMEOUT);
        let living = self.store.heartbeats.values();
        let living = living.filter(|heartbeat| heartbeat.seen >= oldest_seen);
        sync.queue.fleet_waiting = living.clone().map(|heartbeat| heartbeat.waiting).sum();
        let recent = self.now.saturating_sub(3 * POLL_INTERVAL);
        let recent = living.filter(|heartbeat| heartbeat.seen >= recent);
        sync.queue.fleet_oldest = recent.filter_map(|heartbeat| heartbeat.oldest).min();
        let reply = self.store.gate.exchange(&sync, now);
        let processes = u32::try_from(self.store.heartbeats.len()).unwrap_or(u32::MAX);
        let reply = Box::new((reply, processes));
        self.after(back, Event::Reply(process, sync, Some(reply)));
    }

    pub(super) fn reply(&mut self, process: usize, sync: &Sync, reply: Option<(SyncReply, u32)>) {
        let now = self.time();
        let actions = self.processes[process].view.exchanged(sync, reply, now);
        self.carry_out(process, actions);
        self.poll(process);
    }
}
