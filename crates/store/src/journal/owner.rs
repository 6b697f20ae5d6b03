//! Who owns sessions: a process, proven by a lock that the system gives back when the process dies.
//!
//! Every owner has a file of its own that it keeps locked. There is no clock in it: a process that is stopped for a week
//! still has its lock, one that was killed has none. Who looks takes a shared lock, so that two who look at once do not
//! take each other for the owner.
//!
//! Invariants: a name is locked before anybody can read it, and never used again; so a file that is gone, or that can be
//! locked, is that of a dead owner for all time, and removing it changes nothing.

use crate::Error;
use crate::database;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// How often a name may be lost to somebody who cleans up between its making and its locking.
const MAX_NAME_ATTEMPTS: usize = 10;

/// Whether an owner's process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    Dead,
}

/// This process as an owner. Its file is made when the first session is claimed, and removed when this is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    folder: PathBuf,
    lock: Mutex<Option<Lock>>,
}

#[derive(Debug)]
struct Lock {
    name: String,
    path: PathBuf,
    /// Held as long as this is open.
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // What stays behind is removed by the next owner: nobody holds it any more.
        fs::remove_file(&self.path).ok();
    }
}

impl Owner {
    pub(super) fn new(database: &Path) -> Self {
        let folder = database::beside(database, ".owners");
        let lock = Mutex::default();
        Self { folder, lock }
    }

    /// The name of this owner, which others can see to be alive.
    pub(super) fn name(&self) -> Result<String, Error> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = lock.as_ref()
            // Under a name whose file was taken away everybody would believe us dead.
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
        make_private_folder(&self.folder)?;
        self.remove_dead_owners()?;
        for _ in 0..MAX_NAME_ATTEMPTS {
            if let Some(lock) = self.try_acquire_name()? {
                return Ok(lock);
            }
        }
        let busy = io::Error::from(io::ErrorKind::ResourceBusy);
        Err(Error::file(&self.folder, busy))
    }

    /// Makes and locks a file of a new name, unless somebody takes it for a dead one before it is locked.
    fn try_acquire_name(&self) -> Result<Option<Lock>, Error> {
        let name = Uuid::now_v7().to_string();
        let path = self.folder.join(&name);
        let mut options = fs::OpenOptions::new();
        options.read(true).append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options
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

    /// Whether an owner lives.
    pub(super) fn life(&self, name: &str) -> Result<Liveness, Error> {
        Ok(match self.find(name)? {
            OwnerFile::Locked => Liveness::Alive,
            OwnerFile::Nothing | OwnerFile::Remains { .. } => Liveness::Dead,
        })
    }

    /// Whether an owner lives; the file of a dead one is removed.
    pub(super) fn bury(&self, name: &str) -> Result<Liveness, Error> {
        Ok(match self.find(name)? {
            OwnerFile::Locked => Liveness::Alive,
            OwnerFile::Nothing => Liveness::Dead,
            OwnerFile::Remains { path, _lock } => {
                // One that stays is looked at again, and found dead again.
                fs::remove_file(path).ok();
                Liveness::Dead
            }
        })
    }

    fn remove_dead_owners(&self) -> Result<(), Error> {
        let failed = |source| Error::file(&self.folder, source);
        for found in fs::read_dir(&self.folder).map_err(failed)? {
            if let Some(name) = found.map_err(failed)?.file_name().to_str() {
                self.bury(name)?;
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<OwnerFile, Error> {
        // A name that we cannot have given is no path to follow.
        if Uuid::try_parse(name).is_err() {
            return Ok(OwnerFile::Nothing);
        }
        let path = self.folder.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OwnerFile::Nothing),
            Err(source) => return Err(Error::file(&path, source)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(OwnerFile::Remains { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Ok(OwnerFile::Locked),
            Err(TryLockError::Error(source)) => Err(Error::file(&path, source)),
        }
    }
}

/// What there is of an owner.
enum OwnerFile {
    /// Its file, which its process holds.
    Locked,
    /// Its file, which nobody holds; a shared lock keeps it from being taken for a living one's.
    Remains { path: PathBuf, _lock: File },
    /// No file.
    Nothing,
}

fn make_private_folder(path: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(path)
        .map_err(|source| Error::file(path, source))
}
