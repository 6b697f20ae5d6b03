//! The errors of the store, as data: the caller decides how to continue.

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused.
    #[error("the store refused: {0}")]
    Database(rusqlite::Error),
    /// The file could not be accessed.
    #[error("cannot reach {path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The content of the file has changed since it was written.
    #[error("{path} is damaged: {what}; keep it, what is whole in it can still be read")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// A description of the damage.
        what: String,
    },
    /// There is no space for the change, and nothing of it was written.
    #[error("the disk is full: nothing was written to {0}; make room and try again")]
    Full(PathBuf),
    /// The content is too large to be stored.
    #[error("{what} has more than the {limit} bytes that are kept")]
    TooLarge {
        /// The content.
        what: String,
        /// The maximum size, in bytes.
        limit: u64,
    },
    /// The text is no hash of an artifact.
    #[error("`{0}` is not a SHA-256 in hexadecimal, by which an artifact is known")]
    InvalidHash(String),
    /// The file was made by a newer version.
    #[error("{path} was made by a newer version (format {found}, known is {known})")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that is known here.
        known: i64,
    },
    /// The value cannot be converted to its stored form.
    #[error("a {0} cannot be written")]
    NotSerializable(&'static str),
    /// The store's thread could not be started.
    #[error("the store's thread could not be started: {0}")]
    Thread(io::Error),
    /// Another file has taken its place.
    #[error("another file has taken the place of {0}")]
    FileReplaced(PathBuf),
    /// A living process owns the file, and shares it with no other.
    #[error("{0} is in use by another process")]
    FileInUse(PathBuf),
    /// The store's thread has ended.
    #[error("the store is closed")]
    Closed,
    /// A living process owns the session.
    #[error("session {0} is in use by another process or by this one; end that first")]
    InUse(String),
    /// The session was taken over, so its previous owner writes nothing more.
    #[error(
        "session {0} was taken over by another process; nothing was written, claim it again to go on"
    )]
    Fenced(String),
    /// There is no session of that name.
    #[error("there is no session {0}; list the sessions to see what there is")]
    NoSuchSession(String),
    /// A session of that name exists.
    #[error("there is a session {0} already; claim it, or begin one of another name")]
    SessionExists(String),
    /// Several sessions have names that begin like this.
    #[error("{count} sessions begin with `{prefix}`; give more of the name")]
    Ambiguous {
        /// The given prefix.
        prefix: String,
        /// The number of matching sessions.
        count: u64,
    },
    /// The part to be copied ends in the middle of a turn.
    #[error(
        "session {0} cannot be copied up to there: its turn is not finished there; choose the beginning of a turn"
    )]
    OpenTurn(String),
    /// A turn already has an entry of a kind that is allowed once.
    #[error("turn {turn} of session {session} has its `{kind}` entry already; nothing was written")]
    DuplicateEntry {
        /// The session.
        session: String,
        /// The turn.
        turn: u64,
        /// The kind of entry.
        kind: String,
    },
}

impl Error {
    /// Returns whether the file itself is damaged.
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Database(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            ),
            _ => false,
        }
    }

    /// Creates the error for a failed access to a file.
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(path),
            _ => Self::File { path, error },
        }
    }

    /// Adds the file's path to an error of the database about the file as a whole.
    pub(crate) fn with_path(self, path: &Path) -> Self {
        let (path, corrupt) = (path.to_owned(), self.is_corruption());
        match self {
            Self::Database(error) if corrupt => {
                let what = error.to_string();
                Self::Damaged { path, what }
            }
            Self::Database(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                Self::Full(path)
            }
            other => other,
        }
    }
}

// The message already contains the source: as a source it would appear twice.
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}
