//! The line before a gate, for whoever keeps it in memory.
//!
//! A store keeps its own, as rows: all that the gate wants to know of it is a [`QueuePosition`]. Invariant: in order of
//! `(since, id)`, each once. New callers come at the end and leave from the front, so that no operation moves many.

use super::{Gate, GateReply, QueuePosition, Waiter, WaiterId};
use crate::Timestamp;
use std::collections::VecDeque;

/// Who waits before one gate, in the order in which their trouble began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    waiters: VecDeque<Waiter>,
    /// How many calls wait beyond one for each waiter: those of crowds.
    extra_calls: u32,
}

impl Queue {
    /// Asks the gate for a caller. Whoever is held stays in line; whoever did not come when it was its turn has lost
    /// its place to the next that came, until it asks again.
    pub fn request_pass(&mut self, gate: &mut Gate, waiter: Waiter, now: Timestamp) -> GateReply {
        let everyone_passes = gate.is_closed();
        let index = self.insert(waiter);
        let answer = gate.request_pass(&self.waiters[index], self.position(index), now);
        match answer {
            GateReply::Hold(_) => {}
            GateReply::DeadlineExceeded => self.remove(index),
            GateReply::Proceed(_) | GateReply::Probe(_) => {
                let rest = self.waiters[index].remaining_batch();
                let first = if everyone_passes { index } else { 0 };
                let gone = self.waiters.drain(first..=index);
                let crowds = gone.fold(0, |all, waiter| all + extra_calls(&waiter));
                self.extra_calls -= crowds;
                if let Some(rest) = rest {
                    self.insert(rest);
                }
            }
        }
        answer
    }

    /// Puts a caller in line, at the place that the beginning of its trouble gives it.
    pub fn join(&mut self, waiter: Waiter) {
        self.insert(waiter);
    }

    /// Takes a caller out of line.
    pub fn leave(&mut self, waiter: &Waiter) {
        if let Ok(index) = self.find(waiter) {
            self.remove(index);
        }
    }

    /// Takes whoever has that name out of line, wherever it stands.
    pub fn remove_by_id(&mut self, id: &WaiterId) {
        while let Some(index) = self.waiters.iter().position(|waiter| waiter.id == *id) {
            self.remove(index);
        }
    }

    /// When a caller in line should ask. `None` when it is not in line, or lost its place: then it may ask at once.
    pub fn wake_time(&self, gate: &Gate, waiter: &Waiter) -> Option<Timestamp> {
        let index = self.find(waiter).ok()?;
        Some(gate.wake_time(&self.waiters[index], self.position(index)))
    }

    /// Takes a caller that was let through out of line; the rest of its crowd stays.
    pub fn admit(&mut self, waiter: &Waiter) {
        self.leave(waiter);
        if let Some(rest) = waiter.remaining_batch() {
            self.insert(rest);
        }
    }

    /// How many are in line.
    pub fn len(&self) -> u32 {
        count(self.waiters.len()).saturating_add(self.extra_calls)
    }

    /// Whether nobody is in line.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Those in line, the first first.
    pub fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter()
    }

    fn position(&self, index: usize) -> QueuePosition {
        let crowds = match self.extra_calls {
            0 => 0,
            _ => self.waiters.iter().take(index).map(extra_calls).sum(),
        };
        QueuePosition {
            ahead: count(index).saturating_add(crowds),
            waiting: self.len(),
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some(gone) = self.waiters.remove(index) {
            self.extra_calls -= extra_calls(&gone);
        }
    }

    fn insert(&mut self, waiter: Waiter) -> usize {
        self.extra_calls += extra_calls(&waiter);
        match self.find(&waiter) {
            Ok(index) => {
                let before = std::mem::replace(&mut self.waiters[index], waiter);
                self.extra_calls -= extra_calls(&before);
                index
            }
            Err(index) => {
                self.waiters.insert(index, waiter);
                index
            }
        }
    }

    fn find(&self, waiter: &Waiter) -> Result<usize, usize> {
        let key = (waiter.since, &waiter.id);
        self.waiters
            .binary_search_by(|other| (other.since, &other.id).cmp(&key))
    }
}

fn count(waiters: usize) -> u32 {
    u32::try_from(waiters).unwrap_or(u32::MAX)
}

/// How many calls a waiter stands for beside itself.
fn extra_calls(waiter: &Waiter) -> u32 {
    waiter.count() - 1
}
