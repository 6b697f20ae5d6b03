//! What happened in sessions, in a file of its own: written down before it counts, and never lost.
//!
//! Invariants: a session has one owner at a time, whatever stops or crashes, and only its owner writes; what was
//! acknowledged is on the disk; the entries of a session are numbered from one on, without gaps.
//! Not here: what an entry's body means (it is text), and when a session is to be resumed (see the engine).

mod fork;
mod owner;
mod read;
mod session_lock;
mod write;

pub use read::{Availability, Page, Summary};
pub use session_lock::{NewSession, SessionLock};

use crate::Error;
use crate::database::{self, JOURNAL};
use crate::worker::{OnCallerGone, Worker};
use outlast_kernel::Timestamp;
use owner::Owner;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The journal, as this process has it open. Clones share one thread, and own sessions together.
#[derive(Clone, Debug)]
pub struct Journal {
    place: Arc<JournalFile>,
    worker: Worker,
    owner: Arc<Owner>,
}

/// A journal that was opened, or made.
#[derive(Debug)]
pub struct OpenedJournal {
    /// It.
    pub journal: Journal,
    /// Where a file that could not be read was put, if one was there.
    pub replaced: Option<PathBuf>,
}

/// Something that happened, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEntry {
    /// The turn that it belongs to.
    pub turn: u64,
    /// What it is; `prompt` begins a turn and `settled` ends it, each once.
    pub kind: String,
    /// When it happened.
    pub time: Timestamp,
    /// All else, as JSON.
    pub body: String,
}

/// Something that was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its number in the session.
    pub seq: u64,
    /// What it is.
    pub line: RawEntry,
}

impl Journal {
    /// Opens the journal at that path, or makes it. Blocks for as long as the disk takes.
    pub fn open(path: &Path) -> Result<OpenedJournal, Error> {
        let (connection, replaced) = database::open(path, &JOURNAL)?;
        let journal = Self::with(path, connection)?;
        Ok(OpenedJournal { journal, replaced })
    }

    /// Opens the journal at that path if there is one. A damaged one is an error and stays where it is.
    pub fn open_existing(path: &Path) -> Result<Option<Self>, Error> {
        let found = database::open_existing(path, &JOURNAL)?;
        found
            .map(|connection| Self::with(path, connection))
            .transpose()
    }

    /// Whether its file is still the one at that path; what is asked of it fails when it is not.
    pub fn is_in_place(&self) -> bool {
        self.place.check().is_ok()
    }

    fn with(path: &Path, connection: Connection) -> Result<Self, Error> {
        let (path, identity) = (path.to_owned(), database::identity(path));
        Ok(Self {
            worker: Worker::start(&path, connection)?,
            owner: Arc::new(Owner::new(&path)),
            place: Arc::new(JournalFile { path, identity }),
        })
    }

    /// Makes a change, as a whole or not at all. Once this has returned it is carried out, whoever still waits for it.
    fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> impl Future<Output = Result<R, Error>> + Send + 'static {
        let place = Arc::clone(&self.place);
        let change = move |connection: &Connection| {
            place.check()?;
            change(connection)
        };
        self.worker.change(OnCallerGone::Do, change, |made| made)
    }

    /// Reads without changing anything.
    async fn look<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let place = Arc::clone(&self.place);
        let look = self.worker.run(move |connection, _| {
            place.check()?;
            // One view of the file, however many statements.
            let view = connection.transaction()?;
            read(&view)
        });
        look.await
    }
}

/// Where the file is, and which one it is.
#[derive(Debug)]
struct JournalFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl JournalFile {
    /// What is written to a file that was put aside would be acknowledged and never found again.
    fn check(&self) -> Result<(), Error> {
        if database::identity(&self.path) == self.identity {
            return Ok(());
        }
        let path = self.path.clone();
        Err(Error::Moved { path })
    }
}

/// A number as the file has it.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from the file.
fn natural(integer: i64) -> u64 {
    u64::try_from(integer).unwrap_or_default()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
