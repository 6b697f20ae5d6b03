//! What comes when: a heap of events in virtual time, of equal times the first pushed first.

use super::agent::Report;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The number of an agent, and of a process.
pub(super) type Index = usize;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// An agent wants to make its next call.
    CallWanted(Index),
    /// Its question reaches the gate's store.
    AdmissionRequested(Index),
    /// Its report does.
    Report(Index, Report),
    /// The provider's answer to its call.
    Replied(Index),
    /// Its timer, if it is still that one.
    Timer(Index, u32),
    /// A process looks for changes of the gate, if it still wants to.
    Poll(Index),
    /// A process tells the gate how many of its calls were accepted.
    SuccessesReported(Index),
    /// The store is lost, or back.
    StoreChanged,
    /// The provider is back.
    Recovery,
}

#[derive(Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<ScheduledEvent>,
    pushed: u64,
}

struct ScheduledEvent {
    at: u64,
    number: u64,
    event: Event,
}

impl EventQueue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        let number = self.pushed;
        self.pushed += 1;
        self.heap.push(ScheduledEvent { at, number, event });
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|coming| (coming.at, coming.event))
    }
}

impl Ord for ScheduledEvent {
    /// The earliest is the greatest, as a heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ScheduledEvent {}
