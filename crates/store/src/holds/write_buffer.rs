//! The buffer of changes that are not yet written, and the time of their write.
//!
//! Invariant: no lock is held while the disk works, so that adding a change never waits for it.

use super::HoldsEvent;
use crate::Error;
use outlast_kernel::Timestamp;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::oneshot;

/// The time that the first change of a group waits for others. It is real time, as the disk's is.
pub(super) const GROUP_DELAY: Duration = Duration::from_millis(20);
/// The time until a write that failed is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of pending changes; a disk that takes nothing must not exhaust the memory, too.
pub(super) const MAX_PENDING_CHANGES: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    pending: Mutex<PendingChanges>,
    /// Notifies the thread of changes.
    wakeup: Condvar,
}

/// The new content of a row.
#[derive(Debug)]
pub(super) struct RowContent {
    pub(super) value: String,
    pub(super) until: Timestamp,
}

/// The changes that are committed together.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// By key; a row without a content is removed.
    pub(super) changes: HashMap<Box<str>, Option<RowContent>>,
    pub(super) prune: Option<Timestamp>,
    /// The callers that wait until the group is on the disk.
    flush_waiters: Vec<oneshot::Sender<()>>,
}

#[derive(Debug, Default)]
struct PendingChanges {
    group: Group,
    is_closed: bool,
    is_failing: bool,
}

/// The outcome of writing a group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    SameFile,
    /// Written to a new file; the path is that of an old file that could not be read.
    NewFile(Option<PathBuf>),
}

impl WriteBuffer {
    pub(super) fn push(&self, key: &str, change: Option<RowContent>) {
        let mut waiting = self.pending.lock();
        let is_first = waiting.group.is_empty();
        // A change after the end would never be written.
        let has_room = waiting.group.changes.len() < MAX_PENDING_CHANGES && !waiting.is_closed;
        match waiting.group.changes.get_mut(key) {
            Some(before) => *before = change,
            None if has_room => {
                waiting.group.changes.insert(key.into(), change);
            }
            None => {}
        }
        if is_first {
            self.wakeup.notify_one();
        }
    }

    pub(super) fn prune(&self, before: Timestamp) {
        let mut waiting = self.pending.lock();
        waiting.group.prune = waiting.group.prune.max(Some(before));
        self.wakeup.notify_one();
    }

    /// Writes pending changes at once. The receiver resolves when they are on the disk, and fails if they could not be
    /// written.
    pub(super) fn flush(&self) -> oneshot::Receiver<()> {
        let (written, settled) = oneshot::channel();
        let mut waiting = self.pending.lock();
        // After the end no thread would reply.
        if !waiting.is_closed {
            waiting.group.flush_waiters.push(written);
            self.wakeup.notify_one();
        }
        settled
    }

    /// Writes pending changes at once, and lets the thread end after it.
    pub(super) fn close(&self) {
        self.pending.lock().is_closed = true;
        self.wakeup.notify_one();
    }

    /// Writes group after group, until the end.
    pub(super) fn run(
        &self,
        mut write: impl FnMut(&Group) -> Result<WriteOutcome, Error>,
        tell: &dyn Fn(HoldsEvent),
    ) {
        while let Some(group) = self.next_group() {
            match write(&group) {
                Ok(written) => self.on_written(group, written, tell),
                Err(error) => self.on_write_failed(group, error, tell),
            }
        }
    }

    /// Waits until there is a change, and a little for more.
    fn next_group(&self) -> Option<Group> {
        let idle = |waiting: &mut PendingChanges| waiting.group.is_empty() && !waiting.is_closed;
        let mut waiting = self.pending.lock();
        self.wakeup.wait_while(&mut waiting, idle);
        let pause = if waiting.is_failing {
            RETRY_DELAY
        } else {
            GROUP_DELAY
        };
        let calm = |waiting: &mut PendingChanges| !waiting.should_write_now();
        self.wakeup.wait_while_for(&mut waiting, calm, pause);
        let group = std::mem::take(&mut waiting.group);
        (!group.is_empty()).then_some(group)
    }

    fn on_written(&self, group: Group, written: WriteOutcome, tell: &dyn Fn(HoldsEvent)) {
        let was_failing = std::mem::take(&mut self.pending.lock().is_failing);
        if was_failing {
            tell(HoldsEvent::WriteRecovered);
        }
        if let WriteOutcome::NewFile(aside) = written {
            tell(HoldsEvent::Replaced(aside));
        }
        for settling in group.flush_waiters {
            // A caller that has left need not be told.
            settling.send(()).ok();
        }
    }

    fn on_write_failed(&self, group: Group, error: Error, tell: &dyn Fn(HoldsEvent)) {
        let mut waiting = self.pending.lock();
        // At the end there is no thread left to retry.
        if !waiting.is_closed {
            waiting.group.restore(group);
        }
        if !std::mem::replace(&mut waiting.is_failing, true) {
            drop(waiting);
            tell(HoldsEvent::WriteFailed(error));
        }
    }
}

impl PendingChanges {
    fn should_write_now(&self) -> bool {
        self.is_closed || !self.group.flush_waiters.is_empty()
    }
}

impl Group {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.prune.is_none() && self.flush_waiters.is_empty()
    }

    /// Takes back the changes of a failed group, except where there is a newer one.
    fn restore(&mut self, older: Self) {
        self.prune = self.prune.max(older.prune);
        for (key, change) in older.changes {
            if self.changes.len() >= MAX_PENDING_CHANGES {
                return;
            }
            if let Entry::Vacant(free) = self.changes.entry(key) {
                free.insert(change);
            }
        }
    }
}
