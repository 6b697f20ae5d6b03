//! The journal: the durable record of sessions, in a file of its own.
//!
//! Invariants: a session has one owner at a time, even when processes stop or crash, and only the owner writes;
//! acknowledged entries are on the disk; the entries of a session are numbered from 1 without gaps.
//! Not here: the meaning of an entry's body (it is text), and the decision when to resume a session (see the engine).

mod owner;
mod read;
mod session_lock;
mod write;

pub use read::{Availability, Page, Summary};
pub use session_lock::{NewSession, SessionLock};

use crate::Error;
use crate::database::{self, JOURNAL, OpenFile};
use crate::worker::{OnCallerGone, Worker};
use outlast_kernel::Timestamp;
use owner::Owner;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The journal as this process has it open. Clones share one thread and own sessions together.
#[derive(Clone, Debug)]
pub struct Journal {
    file: Arc<OpenFile>,
    worker: Worker,
    owner: Arc<Owner>,
}

/// The result of opening or creating a journal.
#[derive(Debug)]
pub struct OpenedJournal {
    /// The opened journal.
    pub journal: Journal,
    /// The path to which an unreadable file was moved, if there was one.
    pub replaced: Option<PathBuf>,
}

/// A journal entry without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEntry {
    /// The turn that the entry belongs to.
    pub turn: u64,
    /// The kind of entry; `prompt` begins a turn and `settled` ends it, each once per turn.
    pub kind: String,
    /// The time of the event.
    pub time: Timestamp,
    /// The remaining fields, as JSON.
    pub body: String,
}

/// An entry as the journal stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The number of the entry in its session, from 1.
    pub seq: u64,
    /// The entry itself.
    pub entry: RawEntry,
}

impl Journal {
    /// Opens the journal at that path, or creates it. Blocks while the disk works.
    pub fn open(path: &Path) -> Result<OpenedJournal, Error> {
        let (connection, replaced) = database::open(path, &JOURNAL)?;
        let journal = Self::with(path, connection)?;
        Ok(OpenedJournal { journal, replaced })
    }

    /// Opens the journal at that path if it exists. A damaged file is an error and is left in place.
    pub fn open_existing(path: &Path) -> Result<Option<Self>, Error> {
        let found = database::open_existing(path, &JOURNAL)?;
        found
            .map(|connection| Self::with(path, connection))
            .transpose()
    }

    /// Returns whether the opened file is still the one at its path; every call fails when it is not.
    pub fn is_in_place(&self) -> bool {
        self.file.check().is_ok()
    }

    fn with(path: &Path, connection: Connection) -> Result<Self, Error> {
        Ok(Self {
            worker: Worker::start(path, connection)?,
            owner: Arc::new(Owner::new(path)),
            file: Arc::new(OpenFile::new(path)),
        })
    }

    /// Runs a change, as a whole or not at all. The change is carried out once this has returned, even if the caller
    /// stops waiting.
    fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> impl Future<Output = Result<R, Error>> + Send + 'static {
        let file = Arc::clone(&self.file);
        let change = move |connection: &Connection| {
            file.check()?;
            change(connection)
        };
        self.worker.change(OnCallerGone::Run, change, |made| made)
    }

    /// Runs a read-only query.
    async fn query<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let file = Arc::clone(&self.file);
        let look = self.worker.run(move |connection, _| {
            file.check()?;
            // One view of the file for all statements of the query.
            let view = connection.transaction()?;
            read(&view)
        });
        look.await
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
