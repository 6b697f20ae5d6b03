//! Session owners: processes, each proven alive by a lock that the system releases when the process dies.
//!
//! Every owner keeps a file of its own locked. No clock is involved: a process that is stopped for a week still has its
//! lock, a killed one has none. An observer takes a shared lock, so that two observers do not take each other for the
//! owner.
//!
//! Invariants: a name is locked before another process can read it, and never used again. So a file that is gone, or
//! that can be locked, belongs to a dead owner for all time, and removing it changes nothing.

use crate::{Error, database, private};
use parking_lot::Mutex;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The number of names to try: a cleanup by another process may remove a new file before it is locked.
const MAX_NAME_ATTEMPTS: usize = 10;

/// Whether an owner's process is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    Dead,
}

/// This process as an owner. The owner file is created when the first session is claimed, and removed on drop.
#[derive(Debug)]
pub(super) struct Owner {
    folder: PathBuf,
    lock: Mutex<Option<Lock>>,
}

#[derive(Debug)]
struct Lock {
    name: String,
    path: PathBuf,
    /// The lock is held as long as this file is open.
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The next owner removes a file that stays behind: nobody holds its lock any more.
        fs::remove_file(&self.path).ok();
    }
}

impl Owner {
    pub(super) fn new(database: &Path) -> Self {
        let folder = database::with_suffix(database, ".owners");
        let lock = Mutex::default();
        Self { folder, lock }
    }

    /// Returns the name of this owner; other processes can see that it is alive.
    pub(super) fn name(&self) -> Result<String, Error> {
        let mut lock = self.lock.lock();
        if let Some(lock) = lock.as_ref()
            // Other processes would take an owner whose file was removed for dead.
            && lock.path.exists()
        {
            return Ok(lock.name.clone());
        }
        let made = self.acquire_name()?;
        let name = made.name.clone();
        *lock = Some(made);
        Ok(name)
    }

    fn acquire_name(&self) -> Result<Lock, Error> {
        private::create_folder(&self.folder).map_err(|source| Error::file(&self.folder, source))?;
        self.remove_dead_owners()?;
        for _ in 0..MAX_NAME_ATTEMPTS {
            if let Some(lock) = self.try_acquire_name()? {
                return Ok(lock);
            }
        }
        let busy = io::Error::from(io::ErrorKind::ResourceBusy);
        Err(Error::file(&self.folder, busy))
    }

    /// Creates and locks a file with a new name. Returns `None` when another process takes the file for a dead owner's
    /// before it is locked.
    fn try_acquire_name(&self) -> Result<Option<Lock>, Error> {
        let name = Uuid::now_v7().to_string();
        let path = self.folder.join(&name);
        let file = private::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| Error::file(&path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(Error::file(&path, source)),
        }
        let is_ours = path.exists();
        Ok(is_ours.then_some(Lock {
            name,
            path,
            _file: file,
        }))
    }

    /// Returns whether an owner is alive.
    pub(super) fn liveness(&self, name: &str) -> Result<Liveness, Error> {
        Ok(match self.inspect(name)? {
            OwnerFile::Locked => Liveness::Alive,
            OwnerFile::Missing | OwnerFile::Stale { .. } => Liveness::Dead,
        })
    }

    /// Returns whether an owner is alive, and removes the file of a dead one.
    pub(super) fn remove_if_dead(&self, name: &str) -> Result<Liveness, Error> {
        Ok(match self.inspect(name)? {
            OwnerFile::Locked => Liveness::Alive,
            OwnerFile::Missing => Liveness::Dead,
            OwnerFile::Stale { path, _lock } => {
                // The next look finds a file that stays, and its owner dead again.
                fs::remove_file(path).ok();
                Liveness::Dead
            }
        })
    }

    fn remove_dead_owners(&self) -> Result<(), Error> {
        let failed = |source| Error::file(&self.folder, source);
        for found in fs::read_dir(&self.folder).map_err(failed)? {
            if let Some(name) = found.map_err(failed)?.file_name().to_str() {
                self.remove_if_dead(name)?;
            }
        }
        Ok(())
    }

    fn inspect(&self, name: &str) -> Result<OwnerFile, Error> {
        // Names are UUIDs; any other name must not become a path.
        if Uuid::try_parse(name).is_err() {
            return Ok(OwnerFile::Missing);
        }
        let path = self.folder.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OwnerFile::Missing),
            Err(source) => return Err(Error::file(&path, source)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(OwnerFile::Stale { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Ok(OwnerFile::Locked),
            Err(TryLockError::Error(source)) => Err(Error::file(&path, source)),
        }
    }
}

/// The state of an owner's file.
enum OwnerFile {
    /// The file exists and its process holds the lock.
    Locked,
    /// The file exists and nobody holds it; the shared lock keeps others from taking it for a living owner's.
    Stale { path: PathBuf, _lock: File },
    /// There is no file.
    Missing,
}
