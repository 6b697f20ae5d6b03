//! The file itself: opening, making, replacing.

use crate::Store;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long another process may hold the file before we call it locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// The format of the file. Every step from one to the next is kept, so that an older file is brought up to date.
const STEPS: [&str; 1] = [include_str!("schema/1.sql")];

/// Something that the store could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused.
    #[error("the store refused: {0}")]
    Database(#[from] rusqlite::Error),
    /// The file could not be reached.
    #[error("cannot reach {path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file was made by a newer version.
    #[error("{path} was made by a newer version (format {found}, known is {known})")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that is known here.
        known: i64,
    },
    /// What is to be stored has no form for it.
    #[error("a {what} cannot be written")]
    Unwritable {
        /// What it was to be.
        what: &'static str,
    },
    /// The store's thread could not be started.
    #[error("the store's thread could not be started: {0}")]
    Thread(std::io::Error),
    /// Another file has taken its place.
    #[error("another file has taken the place of {path}")]
    Moved {
        /// The place.
        path: PathBuf,
    },
    /// The store's thread has ended.
    #[error("the store is closed")]
    Gone,
}

impl Error {
    /// Whether the file itself is damaged.
    pub fn is_corruption(&self) -> bool {
        let code = match self {
            Self::Database(error) => error.sqlite_error_code(),
            _ => None,
        };
        matches!(
            code,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        )
    }
}

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub store: Store,
    /// Where a file that could not be read was put, if one was there.
    pub replaced: Option<PathBuf>,
}

/// Opens the file; a damaged one is put aside and a new one made.
pub(crate) fn open(path: &Path) -> Result<(Connection, Option<PathBuf>), Error> {
    match try_open(path) {
        Err(error) if error.is_corruption() => replace(path),
        opened => Ok((opened?, None)),
    }
}

/// Makes a new file in the place of a damaged one, unless somebody else has done so meanwhile. One process at a time.
pub(crate) fn replace(path: &Path) -> Result<(Connection, Option<PathBuf>), Error> {
    let _lock = lock(path)?;
    if let Ok(connection) = try_open(path)
        && is_whole(&connection)
    {
        return Ok((connection, None));
    }
    let aside = put_aside(path)?;
    Ok((try_open(path)?, Some(aside)))
}

/// Held until it is dropped, or its process dies.
fn lock(path: &Path) -> Result<fs::File, Error> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let path = PathBuf::from(name);
    make_private(&path)?;
    let failed = |source| Error::File {
        path: path.clone(),
        source,
    };
    let file = fs::File::open(&path).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

fn is_whole(connection: &Connection) -> bool {
    let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    check.is_ok_and(|said| said == "ok")
}

/// What tells one file at a path from another that took its place.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((found.dev(), found.ino()))
    }
    #[cfg(not(unix))]
    {
        // There an open file cannot be taken away.
        found.is_file().then_some((0, 0))
    }
}

fn try_open(path: &Path) -> Result<Connection, Error> {
    make_private(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    // Before the first statement: another process may be in the middle of its own first one.
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    bring_up_to_date(&mut connection, path)?;
    Ok(connection)
}

/// The file is made by us, so that nobody else can read it from its first byte on.
fn make_private(path: &Path) -> Result<(), Error> {
    let mut options = fs::OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

fn bring_up_to_date(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let format = |connection: &Connection| -> Result<i64, Error> {
        Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
    };
    let found = format(connection)?;
    if found > known {
        let path = path.to_owned();
        return Err(Error::Newer { path, found, known });
    }
    if found == known {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Somebody else may have been faster.
    let found = format(&transaction)?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

/// Gives the damaged file, and what belongs to it, another name. Nothing is deleted.
fn put_aside(path: &Path) -> Result<PathBuf, Error> {
    let named = |suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    let free = |number: &u32| !named(&format!(".damaged-{number}")).exists();
    let number = (1..).find(free).unwrap_or(u32::MAX);
    let aside = named(&format!(".damaged-{number}"));
    fs::rename(path, &aside).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })?;
    for part in ["-wal", "-shm"] {
        // What is not there need not be moved.
        fs::rename(named(part), named(&format!(".damaged-{number}{part}"))).ok();
    }
    Ok(aside)
}
