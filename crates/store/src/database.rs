//! Opens, creates and replaces the database files. A `Format` describes the content of each.

use crate::{Error, Store, private};
use outlast_kernel::Timestamp;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::ffi::OsString;
use std::fs::{self, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The schema of a file, and the durability of its writes.
#[derive(Debug)]
pub(crate) struct Format {
    /// The migrations from each format to the next; all are kept, so that any older file can be upgraded.
    migrations: &'static [&'static str],
    /// The pragmas that decide when a write counts as done.
    pragmas: &'static str,
    /// The time to wait for another process before the file counts as locked.
    busy_timeout: Duration,
}

/// Shared provider state. It can be learned again, so no write waits for the disk.
pub(crate) const SHARED_STATE: Format = Format {
    migrations: &[
        include_str!("schema/1.sql"),
        include_str!("schema/2.sql"),
        include_str!("schema/3.sql"),
    ],
    pragmas: "PRAGMA synchronous = normal",
    busy_timeout: Duration::from_secs(2),
};

/// The session journal. It cannot be recovered, so every write is on the disk before it counts.
pub(crate) const JOURNAL: Format = Format {
    migrations: &[
        include_str!("schema/journal-1.sql"),
        include_str!("schema/journal-2.sql"),
        include_str!("schema/journal-3.sql"),
    ],
    // `fullfsync` is for machines whose ordinary flush stops at the drive's own cache, `secure_delete` for deleted
    // data.
    pragmas: "PRAGMA synchronous = full; PRAGMA fullfsync = on; PRAGMA secure_delete = on",
    busy_timeout: Duration::from_secs(5),
};

/// The waits of a gateway's requests. A lost wait begins anew, so changes wait for the disk in groups.
pub(crate) const HOLDS: Format = Format {
    migrations: &[include_str!("schema/holds-1.sql")],
    pragmas: "PRAGMA synchronous = full; PRAGMA fullfsync = on",
    busy_timeout: Duration::from_secs(2),
};

/// The result of opening or creating a store.
#[derive(Debug)]
pub struct OpenedStore {
    /// The opened store.
    pub store: Store,
    /// The path to which an unreadable file was moved, if there was one.
    pub replaced: Option<PathBuf>,
}

/// Opens the file; moves a damaged one aside and creates a new one.
pub(crate) fn open(path: &Path, format: &Format) -> Result<(Connection, Option<PathBuf>), Error> {
    match open_or_make(path, format, None) {
        Err(error) if error.is_corruption() => replace(path, format),
        opened => Ok((opened?, None)),
    }
}

/// Opens the file if it exists; a damaged one is left in place.
pub(crate) fn open_existing(path: &Path, format: &Format) -> Result<Option<Connection>, Error> {
    match path.try_exists() {
        Ok(true) => try_open(path, format, None).map(Some),
        Ok(false) => Ok(None),
        Err(source) => Err(Error::file(path, source)),
    }
}

/// Replaces a damaged file with a new one, unless another process has done so meanwhile. One process at a time.
pub(crate) fn replace(
    path: &Path,
    format: &Format,
) -> Result<(Connection, Option<PathBuf>), Error> {
    let lock = Some(lock(path)?);
    if let Ok(connection) = open_or_make(path, format, lock.as_ref())
        && is_intact(&connection)
    {
        return Ok((connection, None));
    }
    let aside = move_aside(path)?;
    Ok((open_or_make(path, format, lock.as_ref())?, Some(aside)))
}

/// Runs a change as one transaction: all of it happens, or nothing.
pub(crate) fn transact<R>(
    connection: &mut Connection,
    change: impl FnOnce(&Connection) -> Result<R, Error>,
) -> Result<R, Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = change(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// Returns the path with a suffix appended.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Takes the lock that is held until it is dropped, or its process dies.
fn lock(path: &Path) -> Result<fs::File, Error> {
    let path = with_suffix(path, ".lock");
    let file = open_private(&path)?;
    file.lock().map_err(|source| Error::file(&path, source))?;
    Ok(file)
}

/// Makes this process the only user of the file, until the returned lock is dropped or the process dies.
pub(crate) fn lock_exclusively(path: &Path) -> Result<fs::File, Error> {
    let beside = with_suffix(path, ".owner");
    let file = open_private(&beside)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::FileInUse(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(Error::file(&beside, source)),
    }
}

fn is_intact(connection: &Connection) -> bool {
    let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    check.is_ok_and(|said| said == "ok")
}

/// The path of an open file, and its identity.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl OpenFile {
    /// Remembers the file that is at that path now.
    pub(crate) fn new(path: &Path) -> Self {
        let (path, identity) = (path.to_owned(), file_identity(path));
        Self { path, identity }
    }

    /// Fails when another file is at the path: what is written to a file that was moved aside would be acknowledged and never
    /// found again.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if file_identity(&self.path) == self.identity {
            return Ok(());
        }
        Err(Error::FileReplaced(self.path.clone()))
    }
}

/// Returns the device and inode, which tell the file at a path from a later one that replaced it.
fn file_identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((found.dev(), found.ino()))
    }
    #[cfg(not(unix))]
    {
        // On other systems an open file cannot be removed.
        found.is_file().then_some((0, 0))
    }
}

/// A lock that the caller already holds.
type HeldLock<'a> = Option<&'a fs::File>;

fn open_or_make(path: &Path, format: &Format, held: HeldLock<'_>) -> Result<Connection, Error> {
    open_private(path)?;
    try_open(path, format, held)
}

fn try_open(path: &Path, format: &Format, held: HeldLock<'_>) -> Result<Connection, Error> {
    prepare(path, format, held).map_err(|error| error.with_path(path))
}

fn prepare(path: &Path, format: &Format, held: HeldLock<'_>) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    // Set before the first statement: another process may be in the middle of its own first one.
    connection.busy_timeout(format.busy_timeout)?;
    enable_wal(&connection, path, held)?;
    connection.execute_batch(format.pragmas)?;
    migrate(&mut connection, path, format.migrations)?;
    Ok(connection)
}

/// Switches the file to write-ahead logging. Two processes that switch a new file at the same time refuse each other at
/// once, regardless of the busy timeout, so this takes a lock.
fn enable_wal(connection: &Connection, path: &Path, held: HeldLock<'_>) -> Result<(), Error> {
    let mode =
        connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))?;
    if mode != "wal" {
        let _lock = match held {
            Some(_) => None,
            None => Some(lock(path)?),
        };
        connection.pragma_update(None, "journal_mode", "wal")?;
    }
    Ok(())
}

/// Creates the file before SQLite does, so that it is private to the user from its first byte.
fn open_private(path: &Path) -> Result<fs::File, Error> {
    let mut options = private::options();
    let made = options.read(true).append(true).create(true).open(path);
    made.map_err(|source| Error::file(path, source))
}

fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), Error> {
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let format = |connection: &Connection| -> Result<i64, Error> {
        Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
    };
    let found = format(connection)?;
    if found > known {
        let path = path.to_owned();
        return Err(Error::NewerFormat { path, found, known });
    }
    if found == known {
        return Ok(());
    }
    transact(connection, |connection| {
        // Another process may have migrated the file meanwhile.
        let found = format(connection)?;
        for step in steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
            connection.execute_batch(step)?;
        }
        Ok(connection.pragma_update(None, "user_version", known)?)
    })
}

/// Renames the damaged file and its companions. Nothing is deleted.
fn move_aside(path: &Path) -> Result<PathBuf, Error> {
    let named = |number: u32| with_suffix(path, &format!(".damaged-{number}"));
    let number = (1..).find(|number| !named(*number).exists());
    let aside = named(number.unwrap_or(u32::MAX));
    fs::rename(path, &aside).map_err(|source| Error::file(path, source))?;
    for part in ["-wal", "-shm"] {
        // A missing companion need not be moved.
        fs::rename(with_suffix(path, part), with_suffix(&aside, part)).ok();
    }
    Ok(aside)
}

// --- Numbers of the files ---

/// Returns a time in the form of the files: milliseconds since the epoch.
pub(crate) fn millis(time: Timestamp) -> i64 {
    to_i64(time.as_millis())
}

/// Returns a time of a file.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(to_u64(millis))
}

/// Converts a number to the files' integer type.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts an integer of a file to a number.
pub(crate) fn to_u64(integer: i64) -> u64 {
    u64::try_from(integer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    const FORMAT: Format = Format {
        migrations: &["CREATE TABLE t (x)"],
        pragmas: "PRAGMA synchronous = normal",
        busy_timeout: Duration::from_secs(5),
    };

    #[test]
    fn concurrent_opens_of_new_file_all_succeed() {
        let folder = tempfile::TempDir::new().unwrap();
        for round in 0..40 {
            let path = folder.path().join(round.to_string());
            let together = Barrier::new(10);
            std::thread::scope(|scope| {
                let open_one = || {
                    together.wait();
                    open(&path, &FORMAT).map(drop)
                };
                let all: Vec<_> = (0..10).map(|_| scope.spawn(open_one)).collect();
                for one in all {
                    one.join().unwrap().unwrap();
                }
            });
        }
    }
}
