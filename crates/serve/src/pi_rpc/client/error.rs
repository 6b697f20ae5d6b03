//! The errors of the client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The error of a request.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused the request.
    #[error("{command}: {error}")]
    Refused {
        /// The command.
        command: String,
        /// The server's error message.
        error: String,
    },
    /// The server is gone, or the connection was closed, before a reply came.
    #[error("the server is gone")]
    Closed,
    /// No reply came within the caller's time limit.
    #[error("{command}: no answer within {limit:?}")]
    TimedOut {
        /// The command.
        command: String,
        /// The time limit.
        limit: Duration,
    },
    /// The server sent a line beyond the length limit, so it is unknown which request it belonged to.
    #[error("the server sent a line of {bytes} bytes")]
    TooLong {
        /// The length of the line, in bytes.
        bytes: u64,
    },
    /// Reading from the server or writing to it failed.
    #[error("the server cannot be talked to: {0}")]
    Io(#[source] Arc<io::Error>),
    /// The command is not an object with a string as its `type`.
    #[error("a command needs a `type`")]
    MissingType,
    /// The reply has another shape than this command's replies have.
    #[error("{command}: the server answered something else: {answer}")]
    UnexpectedReply {
        /// The command.
        command: String,
        /// The reply.
        answer: String,
    },
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// The error of a listener that was too slow: the oldest events were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events were missed")]
pub struct Lagged {
    /// Number of dropped events.
    pub missed: u64,
}
