//! Messages that are queued for the model.
//!
//! Invariant: the caller that takes a message sends it and journals it as sent: no message is lost or sent twice.
//! Not here: the queues, and withdrawing a message (see `queue` in the session crate).

use outlast_dialect::Message;
use serde::{Deserialize, Serialize};

/// The queue of a message, which decides when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// Sent with the next call of the running turn, or as a turn of its own.
    Steering,
    /// Sent as a turn of its own, after the running one ended well.
    FollowUp,
    /// Sent with the next call, whichever turn makes it. Not announced to listeners, and causes no call.
    Note,
}

/// A queued message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// The message's id.
    pub id: String,
    /// The queue in which it waits.
    pub place: QueueKind,
    /// The message.
    pub message: Message,
}

/// The source of queued messages.
pub trait Inbox: Send + Sync {
    /// Takes the messages that are to be sent with the next call.
    fn take(&self) -> Vec<QueuedMessage>;
}
