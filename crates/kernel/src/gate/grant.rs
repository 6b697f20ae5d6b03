//! The permission that a process gets for its queue.

use super::pace::Slots;
use super::{Down, Gate, State, rules};
use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The queues of one process and of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSummary {
    /// Ready requests of the process.
    pub waiting: u32,
    /// Those of them for which it wants permissions.
    pub wanted: u32,
    /// The time at which the oldest ready request of the process arrived.
    pub oldest: Option<Timestamp>,
    /// If the process has exactly one request, which is ready: the time at which its own schedule retries.
    pub lone_wake: Option<Timestamp>,
    /// Ready requests of all processes, this one included.
    pub fleet_waiting: u32,
    /// The time at which the oldest ready request of all processes arrived.
    pub fleet_oldest: Option<Timestamp>,
}

/// The request that probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Candidate {
    /// The one that arrived first.
    Oldest,
    /// The one with the fewest failed probes.
    LeastProbed,
    /// The only one that waits, at the time of its own schedule.
    Lone,
}

/// The gate's reply to a process with ready requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Grant {
    /// Start everything.
    Open,
    /// Start one request per slot, in order of arrival.
    Slots(Slots),
    /// Start one request, under a lease with this number.
    Probe(u64, Candidate),
    /// Start nothing, and ask again at this time.
    Hold(Timestamp),
}

impl Gate {
    pub(super) fn grant(&mut self, queue: &QueueSummary, now: Timestamp) -> Grant {
        let retry_at = now + Duration::from_secs_f64(rules::SLOT_HORIZON);
        match self.state {
            State::Flowing { .. } if self.not_before > now => Grant::Hold(self.not_before),
            State::Flowing { .. } => Grant::Open,
            State::Down(down) => self.grant_probe(down, queue, now),
            State::Paced(ref mut pace) => {
                let own = queue.oldest.unwrap_or(now);
                let behind = own.since(queue.fleet_oldest.unwrap_or(own));
                if behind > rules::MAX_OVERTAKING {
                    return Grant::Hold(retry_at);
                }
                let slots = pace.reserve(queue.wanted, behind.is_zero(), now);
                slots.map_or(Grant::Hold(retry_at), Grant::Slots)
            }
        }
    }

    fn grant_probe(&mut self, mut down: Down, queue: &QueueSummary, now: Timestamp) -> Grant {
        let lone_wake = queue.lone_wake.filter(|_| queue.fleet_waiting <= 1);
        let at = match (down.leased_until, lone_wake) {
            (Some(expires), _) => expires.max(down.probe_at),
            (None, Some(own)) => own.max(self.not_before),
            (None, None) => down.probe_at,
        };
        if now < at {
            return Grant::Hold(at);
        }
        down.leased_until = Some(now + rules::PROBE_LEASE);
        let number = down.failed_probes;
        self.enter(State::Down(down));
        let is_oldest = number < rules::PROBES_OF_OLDEST || number % 2 == 1;
        let candidate = match (lone_wake, is_oldest) {
            (Some(_), _) => Candidate::Lone,
            (None, true) => Candidate::Oldest,
            (None, false) => Candidate::LeastProbed,
        };
        Grant::Probe(self.version, candidate)
    }
}
