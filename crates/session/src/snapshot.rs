//! The view of a session for listeners: its events as they happen, and a snapshot at any moment.
//!
//! Invariants: the event hub numbers all events, from any source; a snapshot and the events after its number are complete;
//! listeners receive events in the order of their numbers, before the call that posted the event returns, unless another
//! caller is delivering at that moment.

use crate::conversation::RunOutcome;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, Usage};
use outlast_kernel::verdict::Cause;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The current status of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The number of the last event; the next event has the next number.
    pub last_seq: u64,
    /// The id of the running turn.
    pub turn_id: Option<String>,
    /// The number of its latest attempt.
    pub attempt: u32,
    /// The retry that is waited for or under way.
    pub retry: Option<RetryStatus>,
    /// The end of the wait at the gate, and its cause.
    pub gate_hold: Option<GateHold>,
    /// The current model.
    pub model: String,
    /// Whether the conversation is being compacted.
    pub is_compacting: bool,
    /// Whether failures are retried.
    pub auto_retry_enabled: bool,
    /// The usage of all turns, failed attempts included.
    pub usage: Usage,
}

/// A retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryStatus {
    /// Its number, from 1.
    pub attempt: u32,
    /// Maximum number of retries, if limited.
    pub max_attempts: Option<u32>,
    /// The cause of the failure.
    pub cause: Cause,
    /// The provider's message.
    pub message: String,
    /// The time of the retry, while it is waited for.
    pub wake_at: Option<Timestamp>,
}

/// A wait at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateHold {
    /// The time at which the gate opens, as far as is known now.
    pub until: Timestamp,
    /// The cause for which the gate is closed.
    pub cause: Option<Cause>,
}

/// A message to the listeners of a session.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// An event.
    Event(&'a Event),
    /// A run of the session's [`Conversation`](crate::Conversation) ended; all its events came before.
    RunEnded(&'a RunOutcome),
}

type Listener = Box<dyn FnMut(Update<'_>) + Send>;

/// A registration of a listener; dropping it unsubscribes the listener.
pub struct Subscription {
    id: u64,
    hub: Weak<EventHub>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(board) = self.hub.upgrade() {
            let mut listeners = board.listeners.lock();
            let place = listeners.iter().position(|(id, _)| *id == self.id);
            let gone = place.map(|place| listeners.remove(place));
            // A listener may own subscriptions, which are dropped with it: release the lock on the list first.
            drop(listeners);
            drop(gone);
        }
    }
}

/// Numbers events, updates the snapshot and delivers events to listeners.
#[derive(Default)]
pub(super) struct EventHub {
    snapshot: Mutex<Snapshot>,
    listeners: Mutex<Vec<(u64, Option<Listener>)>>,
    next_id: Mutex<u64>,
    pending: Mutex<PendingEvents>,
}

/// Events that were not delivered yet.
#[derive(Default)]
struct PendingEvents {
    updates: VecDeque<PendingUpdate>,
    /// The number of the last event that was enqueued.
    last_seq: u64,
    /// Whether a caller is delivering events.
    is_delivering: bool,
}

enum PendingUpdate {
    Event(Event),
    RunEnded(RunOutcome),
}

/// Marks a delivery in progress; dropping it, also in a panic, allows the next delivery.
struct DeliveryGuard<'a>(&'a EventHub);

impl Drop for DeliveryGuard<'_> {
    fn drop(&mut self) {
        self.0.pending.lock().is_delivering = false;
    }
}

impl EventHub {
    pub(super) fn snapshot(&self) -> Snapshot {
        self.snapshot.lock().clone()
    }

    pub(super) fn update_snapshot(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.snapshot.lock());
    }

    pub(super) fn subscribe(self: &Arc<Self>, listener: Listener) -> Subscription {
        let mut next_id = self.next_id.lock();
        *next_id += 1;
        self.listeners.lock().push((*next_id, Some(listener)));
        Subscription {
            id: *next_id,
            hub: Arc::downgrade(self),
        }
    }

    /// Enqueues an event and delivers all pending ones.
    pub(super) fn publish(&self, event: Event) {
        self.enqueue(event);
        self.deliver_pending();
    }

    /// Assigns the next number to an event and enqueues it.
    pub(super) fn enqueue(&self, mut event: Event) {
        let mut untold = self.pending.lock();
        untold.last_seq += 1;
        event.seq = untold.last_seq;
        untold.updates.push_back(PendingUpdate::Event(event));
    }

    /// Tells the listeners of the end of a run, after all events so far.
    pub(super) fn publish_run_end(&self, outcome: RunOutcome) {
        let ended = PendingUpdate::RunEnded(outcome);
        self.pending.lock().updates.push_back(ended);
        self.deliver_pending();
    }

    /// Delivers all pending events. If another caller is delivering, a listener among them, that caller delivers them.
    pub(super) fn deliver_pending(&self) {
        while let Some(_telling) = self.begin_delivery() {
            while let Some(update) = self.next_pending() {
                match &update {
                    PendingUpdate::Event(event) => {
                        self.snapshot.lock().apply(event);
                        self.deliver(Update::Event(event));
                    }
                    PendingUpdate::RunEnded(outcome) => self.deliver(Update::RunEnded(outcome)),
                }
            }
        }
    }

    fn begin_delivery(&self) -> Option<DeliveryGuard<'_>> {
        let mut untold = self.pending.lock();
        let may_tell = !untold.is_delivering && !untold.updates.is_empty();
        untold.is_delivering |= may_tell;
        may_tell.then(|| DeliveryGuard(self))
    }

    fn next_pending(&self) -> Option<PendingUpdate> {
        self.pending.lock().updates.pop_front()
    }

    /// A listener is out of the list while it is called, so that it may subscribe others or unsubscribe.
    fn deliver(&self, update: Update<'_>) {
        let ids: Vec<u64> = self.listeners.lock().iter().map(|(id, _)| *id).collect();
        for id in ids {
            let find = |listeners: &mut Vec<(u64, Option<Listener>)>| {
                let found = listeners.iter_mut().find(|(other, _)| *other == id);
                found.and_then(|(_, listener)| listener.take())
            };
            let Some(mut listener) = find(&mut self.listeners.lock()) else {
                continue;
            };
            listener(update);
            let mut listeners = self.listeners.lock();
            if let Some((_, place)) = listeners.iter_mut().find(|(other, _)| *other == id) {
                *place = Some(listener);
            }
        }
    }
}

impl Snapshot {
    fn apply(&mut self, event: &Event) {
        self.last_seq = event.seq;
        match &event.body {
            Body::Start { model, .. } => {
                self.turn_id = Some(event.turn_id.clone());
                self.model.clone_from(model);
            }
            Body::ModelSwitched { to, .. } => self.model.clone_from(to),
            Body::AutoCompactionStarted { .. } => self.is_compacting = true,
            Body::AutoCompactionEnded { .. } => self.is_compacting = false,
            Body::AttemptStarted { attempt } => {
                self.attempt = *attempt;
                self.gate_hold = None;
                if let Some(retry) = &mut self.retry {
                    retry.wake_at = None;
                }
            }
            Body::RetryScheduled {
                attempt,
                max_attempts,
                retry_at,
                cause,
                message,
                ..
            } => {
                self.retry = Some(RetryStatus {
                    attempt: *attempt,
                    max_attempts: *max_attempts,
                    cause: *cause,
                    message: message.clone(),
                    wake_at: Some(*retry_at),
                });
            }
            Body::Held { until, cause } => {
                self.gate_hold = Some(GateHold {
                    until: *until,
                    cause: *cause,
                });
            }
            Body::RetryEnded { .. } => self.retry = None,
            Body::Sealed { .. } => (self.turn_id, self.retry, self.gate_hold) = (None, None, None),
            _ => {}
        }
    }
}
