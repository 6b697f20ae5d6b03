//! What a session tells those who watch it: events as they happen, and where it stands at any moment.
//!
//! Invariants: events are numbered here, whoever they come from; a snapshot and the events after its number say everything;
//! listeners are told in the order of the numbers, before anything else happens to whoever put the event up, unless
//! somebody else is telling them just then.

use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, Usage};
use outlast_kernel::verdict::Cause;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Where a session stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The number of the last event; the next one that a listener hears has the next number.
    pub events: u64,
    /// The turn that is running.
    pub turn_id: Option<String>,
    /// The number of the call that was made last in it.
    pub attempt: u32,
    /// The retry that is waited for or under way.
    pub retry: Option<RetryStatus>,
    /// Until when the gate holds the call, and why.
    pub held: Option<GateHold>,
    /// The model that is asked.
    pub model: String,
    /// Whether the conversation is being made smaller.
    pub is_compacting: bool,
    /// Whether failures are retried.
    pub auto_retry_enabled: bool,
    /// What all turns used, failed attempts included.
    pub usage: Usage,
}

/// A retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryStatus {
    /// Its number, from 1.
    pub attempt: u32,
    /// How many there can be.
    pub max_attempts: Option<u32>,
    /// What went wrong.
    pub cause: Cause,
    /// The provider's message.
    pub message: String,
    /// When it will happen, while it is waited for.
    pub wake_at: Option<Timestamp>,
}

/// A wait at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateHold {
    /// Until then, as things are.
    pub until: Timestamp,
    /// What is wrong there.
    pub cause: Option<Cause>,
}

type Listener = Box<dyn FnMut(&Event) + Send>;

/// Ends when it is dropped.
pub struct Subscription {
    id: u64,
    board: Weak<EventHub>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(board) = self.board.upgrade() {
            let mut listeners = lock(&board.listeners);
            let place = listeners.iter().position(|(id, _)| *id == self.id);
            let gone = place.map(|place| listeners.remove(place));
            // A listener may hold subscriptions of its own, which end with it: the list must be free by then.
            drop(listeners);
            drop(gone);
        }
    }
}

/// Where events are put up.
#[derive(Default)]
pub(super) struct EventHub {
    snapshot: Mutex<Snapshot>,
    listeners: Mutex<Vec<(u64, Option<Listener>)>>,
    next_id: Mutex<u64>,
    untold: Mutex<PendingEvents>,
}

/// What listeners have not been told yet.
#[derive(Default)]
struct PendingEvents {
    events: VecDeque<Event>,
    /// The number of the last event that was put up.
    last: u64,
    /// Whether somebody is telling them.
    is_telling: bool,
}

/// Somebody is telling listeners; when it ends, however it does, another may.
struct DeliveryGuard<'a>(&'a EventHub);

impl Drop for DeliveryGuard<'_> {
    fn drop(&mut self) {
        lock(&self.0.untold).is_telling = false;
    }
}

impl EventHub {
    pub(super) fn snapshot(&self) -> Snapshot {
        lock(&self.snapshot).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut lock(&self.snapshot));
    }

    pub(super) fn subscribe(self: &Arc<Self>, listener: Listener) -> Subscription {
        let mut next_id = lock(&self.next_id);
        *next_id += 1;
        lock(&self.listeners).push((*next_id, Some(listener)));
        Subscription {
            id: *next_id,
            board: Arc::downgrade(self),
        }
    }

    /// Takes note of an event, then tells everyone.
    pub(super) fn post(&self, event: Event) {
        self.enqueue(event);
        self.tell();
    }

    /// Gives an event its number, and so its place among the others.
    pub(super) fn enqueue(&self, mut event: Event) {
        let mut untold = lock(&self.untold);
        untold.last += 1;
        event.seq = untold.last;
        untold.events.push_back(event);
    }

    /// Tells everyone what is put up. Should somebody be at it already, a listener among them, they do it.
    pub(super) fn tell(&self) {
        while let Some(_telling) = self.begin_delivery() {
            while let Some(event) = self.next_pending() {
                lock(&self.snapshot).take_in(&event);
                self.tell_of(&event);
            }
        }
    }

    fn begin_delivery(&self) -> Option<DeliveryGuard<'_>> {
        let mut untold = lock(&self.untold);
        let may_tell = !untold.is_telling && !untold.events.is_empty();
        untold.is_telling |= may_tell;
        may_tell.then(|| DeliveryGuard(self))
    }

    fn next_pending(&self) -> Option<Event> {
        lock(&self.untold).events.pop_front()
    }

    /// A listener is out of the list while it is told, so that it may subscribe others or unsubscribe.
    fn tell_of(&self, event: &Event) {
        let ids: Vec<u64> = lock(&self.listeners).iter().map(|(id, _)| *id).collect();
        for id in ids {
            let find = |listeners: &mut Vec<(u64, Option<Listener>)>| {
                let found = listeners.iter_mut().find(|(other, _)| *other == id);
                found.and_then(|(_, listener)| listener.take())
            };
            let Some(mut listener) = find(&mut lock(&self.listeners)) else {
                continue;
            };
            listener(event);
            let mut listeners = lock(&self.listeners);
            if let Some((_, place)) = listeners.iter_mut().find(|(other, _)| *other == id) {
                *place = Some(listener);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Snapshot {
    fn take_in(&mut self, event: &Event) {
        self.events = event.seq;
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
                self.held = None;
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
                self.held = Some(GateHold {
                    until: *until,
                    cause: *cause,
                });
            }
            Body::RetryEnded { .. } => self.retry = None,
            Body::Sealed { .. } => (self.turn_id, self.retry, self.held) = (None, None, None),
            _ => {}
        }
    }
}
