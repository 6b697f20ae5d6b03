//! Stores the state of this machine: shared provider state (`Store`) and the session journal (`Journal`) in two SQLite
//! files, artifacts in a folder (`Artifacts`), and the waits of a gateway's requests in a file of their own (`holds`).
//!
//! Shared state can be learned again; the journal cannot, so its writes wait for the disk. Every change is one short
//! transaction on the one thread that a process has per file: a process that dies leaves no partial write, and a slow
//! disk delays only the callers that wait for it.
//!
//! Invariants: an unreadable file is kept under another name before a new one is made. An error is a value; the caller
//! decides how to continue without the store (see the engine).
#![warn(missing_docs)]

mod accounts;
pub mod artifacts;
mod database;
mod error;
mod gates;
mod group_commit;
pub mod holds;
pub mod journal;
pub mod private;
mod reconnect;
mod worker;

pub use accounts::{PermitReply, PermitRequest};
pub use artifacts::Artifacts;
pub use database::OpenedStore;
pub use error::Error;
pub use gates::{GateExchange, GateSnapshot};
pub use journal::Journal;
pub use reconnect::{Listener, Reconnecting, StoreEvent};

use database::{OpenFile, SHARED_STATE};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use worker::Worker;

/// The shared state file as this process has it open. Clones share one thread.
#[derive(Clone, Debug)]
pub struct Store {
    file: Arc<OpenFile>,
    worker: Worker,
}

impl Store {
    /// Opens the file at that path, or creates it. Blocks while the disk works.
    pub fn open(path: &Path) -> Result<OpenedStore, Error> {
        let (connection, replaced) = database::open(path, &SHARED_STATE)?;
        Self::from_connection(path, connection, replaced)
    }

    /// Replaces a file that is known to be damaged with a new one, unless another process has done so already.
    pub fn replace(path: &Path) -> Result<OpenedStore, Error> {
        let (connection, replaced) = database::replace(path, &SHARED_STATE)?;
        Self::from_connection(path, connection, replaced)
    }

    fn from_connection(
        path: &Path,
        connection: Connection,
        replaced: Option<PathBuf>,
    ) -> Result<OpenedStore, Error> {
        let store = Self {
            file: Arc::new(OpenFile::new(path)),
            worker: Worker::start(path, connection)?,
        };
        Ok(OpenedStore { store, replaced })
    }

    /// Returns whether another process has changed the file since the last call.
    pub async fn has_external_changes(&self) -> Result<bool, Error> {
        self.file.check()?;
        self.worker
            .run(|connection, seen| {
                let version: i64 =
                    connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
                Ok(std::mem::replace(seen, version) != version)
            })
            .await
    }

    /// Runs a change as one transaction.
    async fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker
            .run(move |connection, _| database::transact(connection, change))
            .await
    }

    /// Runs a read-only query.
    async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run(move |connection, _| read(connection)).await
    }
}
