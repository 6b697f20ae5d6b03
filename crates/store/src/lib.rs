//! Remembers, in two SQLite files: what all processes on a machine know of their providers (`Store`), and what happened
//! in their sessions (`Journal`). The first can be learned again, the second cannot: its writes wait for the disk. And,
//! in a folder, what was made there (`Artifacts`). A gateway has a third file, of what its requests wait for (`holds`).
//!
//! Every change is one short transaction, made by one thread per process, so that a process that dies leaves nothing
//! half written and a slow disk holds up nobody but who asked.
//!
//! Invariants: a file that cannot be read is kept under another name before a new one is made; an error here is a value,
//! and what to do without the store is the caller's business (see the engine).
#![warn(missing_docs)]

pub mod artifacts;
mod blocks;
mod database;
mod error;
mod gates;
mod group_commit;
pub mod holds;
pub mod journal;
mod permits;
mod queue;
mod worker;

pub use artifacts::Artifacts;
pub use database::OpenedStore;
pub use error::Error;
pub use gates::GateSnapshot;
pub use journal::Journal;
pub use permits::{PermitReply, PermitRequest};

use database::SHARED_STATE;
use outlast_kernel::gate::Config;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use worker::Worker;

/// The file, as this process has it open. Clones share the one thread.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    worker: Worker,
    config: Config,
}

impl Store {
    /// Opens the file at that path, or makes it. Blocks for as long as the disk takes.
    pub fn open(path: &Path) -> Result<OpenedStore, Error> {
        let (connection, replaced) = database::open(path, &SHARED_STATE)?;
        Self::with(path, connection, replaced)
    }

    /// Makes a new file in the place of one that is known to be damaged, unless that was done already.
    pub fn replace(path: &Path) -> Result<OpenedStore, Error> {
        let (connection, replaced) = database::replace(path, &SHARED_STATE)?;
        Self::with(path, connection, replaced)
    }

    fn with(
        path: &Path,
        connection: Connection,
        replaced: Option<PathBuf>,
    ) -> Result<OpenedStore, Error> {
        let store = Self {
            path: path.to_owned(),
            identity: database::identity(path),
            worker: Worker::start(path, connection)?,
            config: Config::default(),
        };
        Ok(OpenedStore { store, replaced })
    }

    /// Whether another process has changed anything since this was asked last.
    pub async fn has_external_changes(&self) -> Result<bool, Error> {
        if database::identity(&self.path) != self.identity {
            let path = self.path.clone();
            return Err(Error::Moved { path });
        }
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

    /// Reads without changing anything.
    async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run(move |connection, _| read(connection)).await
    }
}
