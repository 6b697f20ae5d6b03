//! The registry of holds in memory, and the encoding of a hold in the file.
//!
//! Invariants: an abandoned hold is found by its identity and by its expiry, a live one by neither; the number of
//! abandoned holds is bounded. Costs no timer and no task: expired holds are removed at the next access.

use super::identity::Identity;
use super::{Command, Progress, RESUME_WINDOW, RequestSummary, Signal};
use crate::control::WaitingRequest;
use outlast_kernel::Timestamp;
use outlast_store::holds::Row;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of abandoned holds.
pub(super) const MAX_ABANDONED: usize = 20_000;

/// The key of a hold, unique across processes.
pub(super) type Key = Uuid;

/// Returns the key as the file has it.
pub(super) fn row_key(key: Key) -> String {
    key.simple().to_string()
}

/// A request that is held, or that its client has abandoned.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) identity: Identity,
    pub(super) summary: RequestSummary,
    pub(super) progress: Progress,
    /// The time at which its client was told to come back.
    pub(super) return_at: Option<Timestamp>,
    pub(super) status: HoldStatus,
}

#[derive(Debug)]
pub(super) enum HoldStatus {
    /// Its connection is open.
    Waiting(Arc<Signal>),
    /// Its client left at `at`, and the hold can be resumed until `resumable_until`.
    Abandoned { at: Timestamp, until: Timestamp },
}

/// The longest wait that is assumed of a live hold: it is written when its wait begins, and not again, and the wait may
/// last for a night and more.
const MAX_WAIT: Duration = Duration::from_secs(48 * 3600);

impl HeldRequest {
    /// Returns the time until which the hold is of use if nothing is written after `now`.
    pub(super) fn expires_at(&self, now: Timestamp) -> Timestamp {
        match self.status {
            HoldStatus::Waiting(_) => self
                .resumable_until(now)
                .max(self.resumable_after_wake())
                .max(now + MAX_WAIT),
            HoldStatus::Abandoned { until, .. } => until,
        }
    }

    /// Returns the time until which the hold can be resumed if its client leaves at the given time.
    pub(super) fn resumable_until(&self, left: Timestamp) -> Timestamp {
        self.return_at.map_or(left, |told| told.max(left)) + RESUME_WINDOW
    }

    /// If the gateway dies during the wait, nobody writes when that was: it may have been at any time of the wait.
    fn resumable_after_wake(&self) -> Timestamp {
        self.progress.wake.unwrap_or_default() + RESUME_WINDOW
    }

    pub(super) fn abandoned_at(&self) -> Option<Timestamp> {
        match self.status {
            HoldStatus::Waiting(_) => None,
            HoldStatus::Abandoned { at, .. } => Some(at),
        }
    }

    /// Sends a command to the waiting request; returns whether there is one to receive it.
    pub(super) fn send_command(&self, command: Command) -> bool {
        match &self.status {
            HoldStatus::Waiting(signal) => {
                signal.send(command);
                true
            }
            HoldStatus::Abandoned { .. } => false,
        }
    }

    pub(super) fn to_view(&self) -> WaitingRequest {
        let about = &self.summary;
        let dialect = about.dialect.as_deref().unwrap_or_default();
        WaitingRequest {
            id: about.id.to_string(),
            client: about.client.to_string(),
            dialect: dialect.to_owned(),
            model: about.model.as_deref().map(str::to_owned),
            account: about.account.as_deref().map(str::to_owned),
            path: about.path.to_string(),
            since: self.progress.since,
            cause: self.progress.cause,
            attempts: self.progress.attempts,
            resent: self.progress.resent,
            wake: self.return_at.or(self.progress.wake),
            left: self.abandoned_at(),
        }
    }
}

/// A hold as the file has it.
#[derive(Serialize, Deserialize)]
struct EncodedHold<'a> {
    who: Identity,
    about: Cow<'a, RequestSummary>,
    progress: Cow<'a, Progress>,
    told: Option<Timestamp>,
    left: Option<Timestamp>,
}

impl HeldRequest {
    /// Encodes the hold for the file.
    pub(super) fn encode(&self) -> Option<String> {
        let written = EncodedHold {
            who: self.identity,
            about: Cow::Borrowed(&self.summary),
            progress: Cow::Borrowed(&self.progress),
            told: self.return_at,
            left: self.abandoned_at(),
        };
        serde_json::to_string(&written).ok()
    }

    /// Decodes a hold of an earlier process: its client has been without a connection since then, at the latest now.
    /// Returns `None` if the row is invalid, or has expired.
    pub(super) fn decode(row: &Row, now: Timestamp) -> Option<(Key, Self)> {
        let key = Uuid::try_parse(&row.key).ok()?;
        let read: EncodedHold<'_> = serde_json::from_str(&row.value).ok()?;
        let mut held = Self {
            identity: read.who,
            summary: read.about.into_owned(),
            progress: read.progress.into_owned(),
            return_at: read.told,
            status: HoldStatus::Abandoned {
                at: read.left.unwrap_or(now),
                until: row.until,
            },
        };
        if read.left.is_none() {
            let until = held.resumable_until(now);
            held.status = HoldStatus::Abandoned { at: now, until };
        }
        (row.until >= now).then_some((key, held))
    }
}

/// All holds.
#[derive(Debug, Default)]
pub(super) struct Registry {
    holds: HashMap<Key, Box<HeldRequest>>,
    /// The abandoned holds, by the identity that may resume them.
    abandoned: HashMap<Identity, Vec<Key>>,
    /// The abandoned holds, by their expiry.
    expiries: BTreeSet<(Timestamp, Key)>,
}

impl Registry {
    pub(super) fn get(&self, key: Key) -> Option<&HeldRequest> {
        self.holds.get(&key).map(|held| &**held)
    }

    /// Returns a hold for changes to fields that are not indexed: not `identity`, and not `status`.
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
    pub(super) fn abandoned_count(&self) -> usize {
        self.expiries.len()
    }

    /// Returns the number of live holds.
    pub(super) fn waiting_count(&self) -> usize {
        self.holds.len() - self.expiries.len()
    }

    pub(super) fn insert(&mut self, key: Key, held: HeldRequest) {
        if let HoldStatus::Abandoned { until, .. } = held.status {
            self.abandoned.entry(held.identity).or_default().push(key);
            self.expiries.insert((until, key));
        }
        self.holds.insert(key, Box::new(held));
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<HeldRequest>> {
        let held = self.holds.remove(&key)?;
        if let HoldStatus::Abandoned { until, .. } = held.status {
            self.expiries.remove(&(until, key));
            if let Some(keys) = self.abandoned.get_mut(&held.identity) {
                keys.retain(|other| *other != key);
                if keys.is_empty() {
                    self.abandoned.remove(&held.identity);
                }
            }
        }
        Some(held)
    }

    /// Marks a hold as abandoned, because its client has left.
    pub(super) fn abandon(&mut self, key: Key, at: Timestamp) {
        if let Some(mut held) = self.remove(key) {
            let until = held.resumable_until(at);
            held.status = HoldStatus::Abandoned { at, until };
            self.insert(key, *held);
        }
    }

    /// Returns the oldest hold that this client abandoned.
    pub(super) fn find(&self, who: &Identity) -> Option<Key> {
        let age = |key: &&Key| (self.get(**key).map(|held| held.progress.since), **key);
        self.abandoned.get(who)?.iter().min_by_key(age).copied()
    }

    /// Marks a hold as live, because its client is back.
    pub(super) fn revive(&mut self, key: Key, signal: Arc<Signal>) -> Option<&mut HeldRequest> {
        let mut held = self.remove(key)?;
        held.status = HoldStatus::Waiting(signal);
        held.return_at = None;
        self.insert(key, *held);
        self.get_mut(key)
    }

    /// Returns a hold to be removed: it has expired, or there are too many and it is the first to expire.
    pub(super) fn next_expired(&self, now: Timestamp) -> Option<Key> {
        let (until, key) = *self.expiries.first()?;
        (until < now || self.expiries.len() > MAX_ABANDONED).then_some(key)
    }
}
