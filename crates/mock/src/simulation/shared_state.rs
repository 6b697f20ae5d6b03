//! What the processes share: a store with the gate and its line, at which each of them looks from time to time.

use super::event_queue::Index;
use super::scenario::{Scenario, in_millis};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Gate, GateReply, Pass, Queue, QueuePosition, Waiter};
use outlast_kernel::time::millis;
use std::collections::BTreeSet;
use std::ops::Range;

/// A process that lost the store tries to find it every so many looks.
const MAX_POLLS_PER_RECONNECT: u64 = 16;

pub(super) struct SharedState {
    pub(super) gate: Gate,
    pub(super) queue: Queue,
    pub(super) processes: Vec<Process>,
    pub(super) latency: u64,
    poll_interval: u64,
    pub(super) store_outage: Range<u64>,
}

/// What one process knows of its agents.
#[derive(Default)]
pub(super) struct Process {
    /// The gate as it was when the process last saw it. Where that is closed, nobody asks.
    pub(super) view: Gate,
    /// Calls that were accepted without asking, since the gate was last told.
    pub(super) unreported_successes: u32,
    /// Those in line, in order.
    pub(super) queued: BTreeSet<(Timestamp, Index)>,
    /// When it looks next.
    pub(super) next_poll_at: Option<u64>,
    /// Those whom the store still has in line although they went on without it.
    pub(super) stale_waiters: Vec<Waiter>,
    /// Whether it has lost the store and not found it again.
    pub(super) is_disconnected: bool,
}

impl SharedState {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            gate: Gate::default(),
            queue: Queue::default(),
            processes: (0..scenario.processes)
                .map(|_| Process::default())
                .collect(),
            latency: millis(scenario.store_latency),
            poll_interval: millis(scenario.poll_interval),
            store_outage: scenario.store_outage.as_ref().map_or(0..0, in_millis),
        }
    }

    pub(super) fn is_store_down(&self, now: u64) -> bool {
        self.store_outage.contains(&now)
    }

    /// Whether an agent's process reaches the store; one that does not will know.
    pub(super) fn can_reach_store(&mut self, agent: Index, now: u64) -> bool {
        let down = self.is_store_down(now);
        let process = self.process(agent);
        process.is_disconnected |= down;
        !process.is_disconnected
    }

    pub(super) fn process_of(&self, agent: Index) -> Index {
        agent % self.processes.len()
    }

    pub(super) fn process(&mut self, agent: Index) -> &mut Process {
        let index = self.process_of(agent);
        &mut self.processes[index]
    }

    /// The first time after `now` at which a process looks; each has times of its own.
    pub(super) fn next_poll(&self, process: Index, now: u64) -> u64 {
        let (all, every) = (self.processes.len() as u64, self.poll_interval);
        let phase = process as u64 * every / all;
        let since = (now + every - phase) % every;
        now + every - since
    }

    /// When a process tries to find the store again: it tries less often than it looks.
    pub(super) fn next_reconnect(
        &self,
        process: Index,
        now: u64,
        chance: &mut fastrand::Rng,
    ) -> u64 {
        self.next_poll(process, now) + chance.u64(0..MAX_POLLS_PER_RECONNECT) * self.poll_interval
    }

    /// The last of these times that is not after `wake`, or the next one.
    pub(super) fn last_poll_before(&self, process: Index, now: u64, wake: u64) -> u64 {
        let next = self.next_poll(process, now);
        next + wake.saturating_sub(next) / self.poll_interval * self.poll_interval
    }

    /// Whether a process that reaches the store has not seen the gate as it is, or has someone in line before it.
    pub(super) fn should_poll(&self, process: Index) -> bool {
        let process = &self.processes[process];
        !process.is_disconnected && (!process.queued.is_empty() || process.view != self.gate)
    }

    /// The right to make a call where nothing is known to be wrong: it costs no operation of the store.
    pub(super) fn local_pass(&mut self, agent: Index, waiter: &Waiter, now: u64) -> Option<Pass> {
        let view = &mut self.process(agent).view;
        if !view.is_closed() {
            return None;
        }
        let place = QueuePosition {
            ahead: 0,
            waiting: 1,
        };
        match view.request_pass(waiter, place, Timestamp::from_millis(now)) {
            GateReply::Proceed(pass) | GateReply::Probe(pass) => Some(pass),
            GateReply::Hold(_) | GateReply::DeadlineExceeded => None,
        }
    }

    /// A process sees the gate as it is.
    pub(super) fn refresh_view(&mut self, process: Index) {
        self.processes[process].view = self.gate.clone();
    }

    /// A process tells the gate how many of its calls were accepted without asking.
    pub(super) fn report_successes(&mut self, process: Index, now: u64) {
        let carried = std::mem::take(&mut self.processes[process].unreported_successes);
        if carried > 0 {
            self.gate
                .record_accepted(carried, Timestamp::from_millis(now));
        }
    }

    // --- the store's operations ---

    pub(super) fn request_admission(&mut self, waiter: &Waiter, now: u64) -> GateReply {
        self.queue
            .request_pass(&mut self.gate, waiter.clone(), Timestamp::from_millis(now))
    }

    pub(super) fn record_success(&mut self, pass: Pass, now: u64) {
        let waiting = self.queue.len();
        self.gate
            .record_success(pass, waiting, Timestamp::from_millis(now));
    }

    pub(super) fn record_failure(
        &mut self,
        pass: Option<Pass>,
        stated: Option<Timestamp>,
        now: u64,
    ) {
        let now = Timestamp::from_millis(now);
        match pass {
            Some(pass) => self.gate.record_failure(pass, stated, now),
            None => self.gate.record_missed_failure(now),
        }
    }

    /// When an agent should ask, in milliseconds; at once when it is not in line any more.
    pub(super) fn wake_time(&self, waiter: &Waiter) -> u64 {
        let wake = self.queue.wake_time(&self.gate, waiter);
        wake.map_or(0, Timestamp::as_millis)
    }
}
