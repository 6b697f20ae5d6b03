//! What is known of requests, in memory.
//!
//! Invariants: what was left is found by its identity and by its end, what waits by neither; what was left is bounded in
//! number. Costs no timer and no task: what has expired goes when somebody looks.

use super::hold::{Command, Signal};
use super::identity::Identity;
use super::{HoldView, Progress, RESUME_WINDOW, RequestSummary};
use outlast_kernel::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The most that wait to be taken up.
pub(super) const MAX_ABANDONED: usize = 20_000;

/// What a hold is known by, in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(Uuid);

impl Key {
    pub(super) fn new() -> Self {
        Self(Uuid::now_v7())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_simple(), f)
    }
}

/// A request that is held, or that its client has left.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) who: Identity,
    pub(super) about: RequestSummary,
    pub(super) progress: Progress,
    /// When its client was told to come back.
    pub(super) told: Option<Timestamp>,
    pub(super) standing: HoldStatus,
}

#[derive(Debug)]
pub(super) enum HoldStatus {
    /// Its connection is open.
    Live(Arc<Signal>),
    /// It is not, since then, and can be taken up until then.
    Left { at: Timestamp, until: Timestamp },
}

/// Whoever waits is written down when its wait begins, and not again: it may last for a night and more.
const MAX_WAIT: Duration = Duration::from_secs(48 * 3600);

impl HeldRequest {
    /// Until when it is of use should nothing more be heard of it from now on.
    pub(super) fn expires_at(&self, now: Timestamp) -> Timestamp {
        match self.standing {
            HoldStatus::Live(_) => self
                .until(now)
                .max(self.resumable_after_wake())
                .max(now + MAX_WAIT),
            HoldStatus::Left { until, .. } => until,
        }
    }

    /// Until when it can be taken up should its client leave then.
    pub(super) fn until(&self, left: Timestamp) -> Timestamp {
        self.told.map_or(left, |told| told.max(left)) + RESUME_WINDOW
    }

    /// If we die while it waits, nobody writes down when that was: it may have been at any time of the wait.
    fn resumable_after_wake(&self) -> Timestamp {
        self.progress.wake.unwrap_or_default() + RESUME_WINDOW
    }

    pub(super) fn left(&self) -> Option<Timestamp> {
        match self.standing {
            HoldStatus::Live(_) => None,
            HoldStatus::Left { at, .. } => Some(at),
        }
    }

    /// Passes a command on; whether there is anybody to hear it.
    pub(super) fn tell(&self, command: Command) -> bool {
        match &self.standing {
            HoldStatus::Live(signal) => {
                signal.send(command);
                true
            }
            HoldStatus::Left { .. } => false,
        }
    }

    pub(super) fn show(&self) -> HoldView {
        HoldView {
            about: self.about.clone(),
            since: self.progress.since,
            attempts: self.progress.attempts,
            resent: self.progress.resent,
            cause: self.progress.cause,
            wake: self.progress.wake,
            left: self.left(),
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Registry {
    holds: HashMap<Key, Box<HeldRequest>>,
    /// Those that were left, by who may take them up.
    left: HashMap<Identity, Vec<Key>>,
    /// Those that were left, by their ends.
    ends: BTreeSet<(Timestamp, Key)>,
}

impl Registry {
    pub(super) fn get(&self, key: Key) -> Option<&HeldRequest> {
        self.holds.get(&key).map(|held| &**held)
    }

    /// For what is not to be found by it: not `who`, and not `standing`.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut HeldRequest> {
        self.holds.get_mut(&key).map(|held| &mut **held)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HeldRequest> {
        self.holds.values().map(|held| &**held)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Key, &HeldRequest)> {
        self.holds.iter().map(|(key, held)| (*key, &**held))
    }

    /// How many were left.
    pub(super) fn left(&self) -> usize {
        self.ends.len()
    }

    /// How many wait.
    pub(super) fn live(&self) -> usize {
        self.holds.len() - self.ends.len()
    }

    pub(super) fn insert(&mut self, key: Key, held: HeldRequest) {
        if let HoldStatus::Left { until, .. } = held.standing {
            self.left.entry(held.who).or_default().push(key);
            self.ends.insert((until, key));
        }
        self.holds.insert(key, Box::new(held));
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<HeldRequest>> {
        let held = self.holds.remove(&key)?;
        if let HoldStatus::Left { until, .. } = held.standing {
            self.ends.remove(&(until, key));
            if let Some(keys) = self.left.get_mut(&held.who) {
                keys.retain(|other| *other != key);
                if keys.is_empty() {
                    self.left.remove(&held.who);
                }
            }
        }
        Some(held)
    }

    /// Its client has left.
    pub(super) fn leave(&mut self, key: Key, at: Timestamp) {
        if let Some(mut held) = self.remove(key) {
            let until = held.until(at);
            held.standing = HoldStatus::Left { at, until };
            self.insert(key, *held);
        }
    }

    /// The oldest that was left by that client.
    pub(super) fn find(&self, who: &Identity) -> Option<Key> {
        let age = |key: &&Key| (self.get(**key).map(|held| held.progress.since), **key);
        self.left.get(who)?.iter().min_by_key(age).copied()
    }

    /// Its client is back.
    pub(super) fn revive(&mut self, key: Key, signal: Arc<Signal>) -> Option<&mut HeldRequest> {
        let mut held = self.remove(key)?;
        held.standing = HoldStatus::Live(signal);
        held.told = None;
        self.insert(key, *held);
        self.get_mut(key)
    }

    /// One that is not to be kept any longer: its time is over, or there are too many and its time is over first.
    pub(super) fn expired(&self, now: Timestamp) -> Option<Key> {
        let (until, key) = *self.ends.first()?;
        (until < now || self.ends.len() > MAX_ABANDONED).then_some(key)
    }
}
