//! The registry of holds in memory.
//!
//! Invariants: an abandoned hold is found by its identity and by its expiry, a live one by neither; the number of
//! abandoned holds is bounded. Costs no timer and no task: expired holds are removed at the next access.

use super::hold::{Command, Signal};
use super::identity::Identity;
use super::{HoldView, Progress, RESUME_WINDOW, RequestSummary};
use outlast_kernel::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of abandoned holds.
pub(super) const MAX_ABANDONED: usize = 20_000;

/// The key of a hold, unique across processes.
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

/// A request that is held, or that its client has abandoned.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) who: Identity,
    pub(super) about: RequestSummary,
    pub(super) progress: Progress,
    /// The time at which its client was told to come back.
    pub(super) told: Option<Timestamp>,
    pub(super) standing: HoldStatus,
}

#[derive(Debug)]
pub(super) enum HoldStatus {
    /// Its connection is open.
    Live(Arc<Signal>),
    /// Its client left at `at`, and the hold can be resumed until `until`.
    Left { at: Timestamp, until: Timestamp },
}

/// The longest wait that is assumed of a live hold: it is written when its wait begins, and not again, and the wait may
/// last for a night and more.
const MAX_WAIT: Duration = Duration::from_secs(48 * 3600);

impl HeldRequest {
    /// Returns the time until which the hold is of use if nothing is written after `now`.
    pub(super) fn expires_at(&self, now: Timestamp) -> Timestamp {
        match self.standing {
            HoldStatus::Live(_) => self
                .until(now)
                .max(self.resumable_after_wake())
                .max(now + MAX_WAIT),
            HoldStatus::Left { until, .. } => until,
        }
    }

    /// Returns the time until which the hold can be resumed if its client leaves at the given time.
    pub(super) fn until(&self, left: Timestamp) -> Timestamp {
        self.told.map_or(left, |told| told.max(left)) + RESUME_WINDOW
    }

    /// If the gateway dies during the wait, nobody writes when that was: it may have been at any time of the wait.
    fn resumable_after_wake(&self) -> Timestamp {
        self.progress.wake.unwrap_or_default() + RESUME_WINDOW
    }

    pub(super) fn left(&self) -> Option<Timestamp> {
        match self.standing {
            HoldStatus::Live(_) => None,
            HoldStatus::Left { at, .. } => Some(at),
        }
    }

    /// Sends a command to the waiting request; returns whether there is one to receive it.
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

/// All holds.
#[derive(Debug, Default)]
pub(super) struct Registry {
    holds: HashMap<Key, Box<HeldRequest>>,
    /// The abandoned holds, by the identity that may resume them.
    left: HashMap<Identity, Vec<Key>>,
    /// The abandoned holds, by their expiry.
    ends: BTreeSet<(Timestamp, Key)>,
}

impl Registry {
    pub(super) fn get(&self, key: Key) -> Option<&HeldRequest> {
        self.holds.get(&key).map(|held| &**held)
    }

    /// Returns a hold for changes to fields that are not indexed: not `who`, and not `standing`.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut HeldRequest> {
        self.holds.get_mut(&key).map(|held| &mut **held)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HeldRequest> {
        self.holds.values().map(|held| &**held)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Key, &HeldRequest)> {
        self.holds.iter().map(|(key, held)| (*key, &**held))
    }

    /// Returns the number of abandoned holds.
    pub(super) fn left(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of live holds.
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

    /// Marks a hold as abandoned, because its client has left.
    pub(super) fn leave(&mut self, key: Key, at: Timestamp) {
        if let Some(mut held) = self.remove(key) {
            let until = held.until(at);
            held.standing = HoldStatus::Left { at, until };
            self.insert(key, *held);
        }
    }

    /// Returns the oldest hold that this client abandoned.
    pub(super) fn find(&self, who: &Identity) -> Option<Key> {
        let age = |key: &&Key| (self.get(**key).map(|held| held.progress.since), **key);
        self.left.get(who)?.iter().min_by_key(age).copied()
    }

    /// Marks a hold as live, because its client is back.
    pub(super) fn revive(&mut self, key: Key, signal: Arc<Signal>) -> Option<&mut HeldRequest> {
        let mut held = self.remove(key)?;
        held.standing = HoldStatus::Live(signal);
        held.told = None;
        self.insert(key, *held);
        self.get_mut(key)
    }

    /// Returns a hold to be removed: it has expired, or there are too many and it is the first to expire.
    pub(super) fn expired(&self, now: Timestamp) -> Option<Key> {
        let (until, key) = *self.ends.first()?;
        (until < now || self.ends.len() > MAX_ABANDONED).then_some(key)
    }
}
