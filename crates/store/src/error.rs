//! What the store could not do, as data: the caller decides what to do without it.

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// Something that the store could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused.
    #[error("the store refused: {0}")]
    Database(rusqlite::Error),
    /// The file could not be reached.
    #[error("cannot reach {path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not what it was when it was written.
    #[error("{path} is damaged: {what}; keep it, what is whole in it can still be read")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// There is no room for what was to be written, and nothing of it was.
    #[error("the disk is full: nothing was written to {path}; make room and try again")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// It is too large to be kept.
    #[error("{what} has more than the {limit} bytes that are kept")]
    TooLarge {
        /// What.
        what: String,
        /// The most that is kept, in bytes.
        limit: u64,
    },
    /// Nothing is known by that.
    #[error("`{text}` is not a SHA-256 in hexadecimal, by which an artifact is known")]
    NoHash {
        /// What was given.
        text: String,
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
    Thread(io::Error),
    /// Another file has taken its place.
    #[error("another file has taken the place of {path}")]
    Moved {
        /// The place.
        path: PathBuf,
    },
    /// A living process has the file, and shares it with nobody.
    #[error("{path} is in use by another process")]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// The store's thread has ended.
    #[error("the store is closed")]
    Gone,
    /// A living process owns the session.
    #[error("session {session} is in use by another process or by this one; end that first")]
    InUse {
        /// The session.
        session: String,
    },
    /// The session was taken over, so that nothing more is written by who had it before.
    #[error(
        "session {session} was taken over by another process; nothing was written, claim it again to go on"
    )]
    Fenced {
        /// The session.
        session: String,
    },
    /// There is no session of that name.
    #[error("there is no session {session}; list the sessions to see what there is")]
    NoSuchSession {
        /// The name.
        session: String,
    },
    /// There is a session of that name already.
    #[error("there is a session {session} already; claim it, or begin one of another name")]
    SessionExists {
        /// The name.
        session: String,
    },
    /// More than one session's name begins like this.
    #[error("{count} sessions begin with `{prefix}`; give more of the name")]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// How many it fits.
        count: u64,
    },
    /// What was to be copied ends in the middle of a turn.
    #[error(
        "session {session} cannot be copied up to there: its turn is not finished there; choose the beginning of a turn"
    )]
    OpenTurn {
        /// The session.
        session: String,
    },
    /// A turn has an entry already of a kind that it has once.
    #[error("turn {turn} of session {session} has its `{kind}` entry already; nothing was written")]
    Repeated {
        /// The session.
        session: String,
        /// The turn.
        turn: u64,
        /// The kind of entry.
        kind: String,
    },
}

impl Error {
    /// Whether the file itself is damaged.
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

    /// What kept us from a file.
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::File { path, error },
        }
    }

    /// The same error, with the file's name where the database speaks of the file as a whole.
    pub(crate) fn of(self, path: &Path) -> Self {
        let (path, corrupt) = (path.to_owned(), self.is_corruption());
        match self {
            Self::Database(error) if corrupt => {
                let what = error.to_string();
                Self::Damaged { path, what }
            }
            Self::Database(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                Self::Full { path }
            }
            other => other,
        }
    }
}

// Said by us already: as a source it would be said twice.
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}
