//! What can go wrong for a client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a request came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server does not do that.
    #[error("{command}: {error}")]
    Refused {
        /// What was asked for.
        command: String,
        /// Why not.
        error: String,
    },
    /// The server is gone, or was left, before it answered.
    #[error("the server is gone")]
    Closed,
    /// No answer came in the time that the caller has set.
    #[error("{command}: no answer within {limit:?}")]
    TimedOut {
        /// What was asked for.
        command: String,
        /// The time.
        limit: Duration,
    },
    /// The server said more in one line than is kept, so that it is not known who waits for it.
    #[error("the server sent a line of {bytes} bytes")]
    TooLong {
        /// How long it was.
        bytes: u64,
    },
    /// The server cannot be read or written to.
    #[error("the server cannot be talked to: {0}")]
    Io(#[source] Arc<io::Error>),
    /// A command is an object with a text as its `type`, and this is none.
    #[error("a command needs a `type`")]
    NoCommand,
    /// The answer is not what this command is answered with.
    #[error("{command}: the server answered something else: {answer}")]
    Unexpected {
        /// What was asked for.
        command: String,
        /// What it answered.
        answer: String,
    },
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Events came faster than they were listened to, and the oldest were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events were missed")]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}
