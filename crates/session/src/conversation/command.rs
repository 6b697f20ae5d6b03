//! The commands to a conversation, and the replies to them.

use crate::{Compacted, Error, Queued};
use outlast_dialect::Message;
use outlast_engine::BoxFuture;
use outlast_engine::inbox::QueueKind;

/// Receives the reply to a command, on the thread that delivers the session's events: it must not block. It is dropped without
/// a call when the conversation is closed first.
pub type Reply<T> = Box<dyn FnOnce(Result<T, Rejected>) + Send>;

/// Continues after a compaction; the next run begins when it has ended.
pub type AfterCompaction =
    Box<dyn FnOnce(Result<Compacted, Error>) -> BoxFuture<'static, ()> + Send>;

/// A command, as [`Conversation::submit`](crate::Conversation::submit) takes it; each has a method of its own as well.
pub enum Command {
    /// Sends a prompt.
    Prompt(Message, Delivery, Reply<Accepted>),
    /// Queues a message. Starts no run: in an idle session it waits for the next prompt.
    Enqueue(QueueKind, Message, Reply<Accepted>),
    /// Continues the unfinished turn, sends what is queued, or retries the failed turn: the first that applies.
    Resume(Reply<Accepted>),
    /// Retries the failed turn.
    Retry(Reply<Accepted>),
    /// Compacts the conversation, with the topic that the summary should concentrate on.
    Compact(Option<String>, AfterCompaction),
    /// Removes the queued messages.
    ClearQueue(Reply<Queued>),
    /// Replies when everything that was submitted before has ended; settles an unfinished turn.
    Abort(Reply<()>),
}

/// The delivery of a prompt while a turn runs; in an idle session every prompt starts a run. A prompt never starts a run during
/// a compaction or before an unfinished turn: it is queued, and sent after it as a turn of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Rejected as [`Rejected::Busy`] while the turn works; queued while it waits.
    IfIdle,
    /// Queued for the next call of the turn.
    Steer,
    /// Queued for after the turn, if that ends well.
    FollowUp,
    /// Queued for after the turn; if it waits now, however it ends.
    NextTurn,
}

/// The reply to a prompt that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The message is in the journal and begins a run.
    Started(Started),
    /// The message is queued.
    Queued,
}

/// The start of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The id of the first turn.
    pub turn_id: String,
    /// The number in the event log after which the events of the turn follow.
    pub after: u64,
}

/// The reason for which a command is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// A turn is running.
    #[error("a turn is running")]
    Busy,
    /// An abort came before the start.
    #[error("it was aborted before it began")]
    Aborted,
    /// The conversation was closed.
    #[error("the session is closed; open it again to go on")]
    Closed,
    /// The session refused.
    #[error(transparent)]
    Session(#[from] Error),
}
