//! What waits to be said to the model.
//!
//! Invariant: what was taken is said by whoever took it, and written down as said: it is neither lost nor said twice.
//! Not here: where it waits and who may take it out again (see the agent's `session`).

use outlast_dialect::Message;
use serde::{Deserialize, Serialize};

/// Where a message waits, and so when it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// With the next call of the turn that runs, or with a turn of its own.
    Steering,
    /// With a turn of its own, when the one that runs has ended well.
    FollowUp,
    /// With the next call, whoever makes it. Nobody is told, and no call is made for it.
    Note,
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its id.
    pub id: String,
    /// Where it waits.
    pub place: QueueKind,
    /// It.
    pub message: Message,
}

/// Where messages wait.
pub trait Inbox: Send + Sync {
    /// Takes out what is to be said with the call that is about to be made.
    fn take(&self) -> Vec<QueuedMessage>;
}
