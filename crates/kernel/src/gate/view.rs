//! A gate as one process sees it: its queue, and its own gate while the shared one cannot be asked.
//!
//! Invariant: what a process has learned alone is kept until an exchange has brought it to the shared gate.

use super::{Action, Gate, ProcessQueue, Sync, SyncReply};
use crate::Timestamp;

/// Maximum number of exchanges with a gate of the process's own at one moment.
const MAX_ROUNDS: u32 = 64;

/// A gate as one process sees it.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// The queue of the process.
    pub queue: ProcessQueue,
    /// Whether the shared gate does not know what this process has learned without it.
    is_detached: bool,
    /// The number of processes that share the gate.
    processes: u32,
}

impl ProcessView {
    /// Creates the view of a process that sees this gate.
    pub fn new(gate: Gate, is_shared: bool) -> Self {
        Self {
            queue: ProcessQueue::new(gate, is_shared),
            is_detached: !is_shared,
            processes: 1,
        }
    }

    /// Returns everything that is due. Exchanges with a gate of the process's own are done.
    pub fn poll(&mut self, now: Timestamp) -> Vec<Action> {
        let mut due = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let actions = self.queue.poll(now);
            if actions.is_empty() {
                break;
            }
            self.exchange_alone(actions, &mut due, now);
        }
        due
    }

    fn exchange_alone(&mut self, actions: Vec<Action>, due: &mut Vec<Action>, now: Timestamp) {
        for action in actions {
            match action {
                Action::Sync(sync) if !self.queue.is_shared() => {
                    let reply = self.queue.gate().clone().exchange(&sync, now);
                    let actions = self.queue.synced(reply, now);
                    self.exchange_alone(actions, due, now);
                }
                action => due.push(action),
            }
        }
    }

    /// Returns the gate of the process's own, if the shared one is to take over what it has learned.
    pub fn own_gate(&self) -> Option<Gate> {
        self.is_detached.then(|| self.queue.gate().clone())
    }

    /// Ends an exchange with the shared gate, with the reply and the number of processes that share it. Without a reply, the
    /// process goes on with a gate of its own, which takes the news. Returns what is due then.
    pub fn exchanged(
        &mut self,
        sync: &Sync,
        reply: Option<(SyncReply, u32)>,
        now: Timestamp,
    ) -> Vec<Action> {
        self.is_detached = reply.is_none();
        let reply = match reply {
            Some((reply, processes)) => {
                self.processes = processes;
                reply
            }
            None => {
                let mut gate = self.queue.gate().clone();
                // The others' part is given up once, however often the shared gate fails to come back.
                gate.detach(std::mem::replace(&mut self.processes, 1));
                self.queue.set_shared(false);
                gate.exchange(sync, now)
            }
        };
        let actions = self.queue.synced(reply, now);
        let mut due = Vec::new();
        self.exchange_alone(actions, &mut due, now);
        due
    }
}
