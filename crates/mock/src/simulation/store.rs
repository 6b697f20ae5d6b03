//! The processes, and the store that they share.

use super::requests::index_of;
use super::world::{Event, World};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Action, Gate, Grant, ProcessQueue, Sync, SyncReply};
use std::collections::BTreeMap;
use std::ops::Range;

/// The interval in which processes look at a shared gate.
pub(super) const POLL_INTERVAL: u64 = 1000;
/// A process that was not heard of for so long has no requests.
const HEARTBEAT_TIMEOUT: u64 = 10_000;

#[derive(Clone, Copy)]
pub(super) struct Heartbeat {
    seen: u64,
    waiting: u32,
    oldest: Option<Timestamp>,
}

pub(super) struct Process {
    pub(super) queue: ProcessQueue,
    /// The gate of a process that has lost the store.
    pub(super) own_gate: Option<Gate>,
    pub(super) wake: Option<u64>,
}

impl Process {
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            queue: ProcessQueue::new(Gate::default(), is_shared),
            own_gate: None,
            wake: None,
        }
    }
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
        let actions = {
            let now = self.time();
            self.processes[process].queue.poll(now)
        };
        self.carry_out(process, actions);
        // Without a store, an exchange is done at once, and may be followed by the next one.
        let next = self.processes[process].queue.next_wake();
        if let Some(at) = next.map(Timestamp::as_millis) {
            let of = &mut self.processes[process];
            if of.wake.is_none_or(|wake| at < wake) {
                let at = at.max(self.now);
                of.wake = Some(at);
                self.at(at, Event::Wake(process));
            }
        }
    }

    fn carry_out(&mut self, process: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(id, pass) => self.call(index_of(id), pass),
                Action::Sync(sync) => {
                    let is_local = self.processes[process].own_gate.is_some();
                    if self.store.latency == 0 || is_local {
                        self.exchange(process, *sync);
                    } else {
                        self.after(self.store.latency / 2, Event::Exchange(process, sync));
                    }
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
        let of = &mut self.processes[process];
        if let Some(own) = of.own_gate.take() {
            self.store.gate.rejoin(&own);
            self.store.rejoined = Some(self.now);
            of.queue.rejoin(now);
        }
        of.queue.observe(self.store.gate.clone(), now);
        self.poll(process);
    }

    pub(super) fn exchange(&mut self, process: usize, mut sync: Sync) {
        let now = self.time();
        let latency = self.store.latency;
        let of = &mut self.processes[process];
        if let Some(gate) = &mut of.own_gate {
            let grant = gate.sync(&sync.report, &sync.queue, now);
            let reply = reply(gate, grant, None);
            return self.reply(process, Some(Box::new(reply)));
        }
        if self.store.gone.contains(&self.now) {
            return self.after(latency - latency / 2, Event::Reply(process, None));
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
        let grant = self.store.gate.sync(&sync.report, &sync.queue, now);
        let reply = reply(&self.store.gate, grant, sync.queue.fleet_oldest);
        match latency {
            0 => self.reply(process, Some(Box::new(reply))),
            _ => self.after(
                latency - latency / 2,
                Event::Reply(process, Some(Box::new(reply))),
            ),
        }
    }

    pub(super) fn reply(&mut self, process: usize, reply: Option<Box<SyncReply>>) {
        let now = self.time();
        let known = self.store.heartbeats.len();
        let of = &mut self.processes[process];
        let reply = reply.map_or_else(
            || {
                let mut gate = of.queue.gate().clone();
                gate.detach(u32::try_from(known).unwrap_or(u32::MAX));
                of.own_gate = Some(gate.clone());
                of.queue.set_shared(false);
                self::reply(&gate, Some(Grant::Hold(now)), None)
            },
            |reply| *reply,
        );
        let actions = of.queue.synced(reply, now);
        self.carry_out(process, actions);
        self.poll(process);
    }
}

fn reply(gate: &Gate, grant: Option<Grant>, fleet_oldest: Option<Timestamp>) -> SyncReply {
    SyncReply {
        gate: gate.clone(),
        grant,
        fleet_oldest,
    }
}
