//! The `follow` command: which events a client wants.

use outlast_kernel::event::Body;
use outlast_session::event_log::StaleCursor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The events to send from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FollowRequest {
    /// Replays the events after this number, then sends new ones; without it, only new ones.
    #[serde(default)]
    pub after: Option<u64>,
    /// The kinds of events to send; without it, all kinds.
    #[serde(default)]
    pub only: Option<Vec<String>>,
}

/// The data of a reply to `follow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FollowReply {
    /// The number of the last event until now. Those up to it that were asked for follow this reply.
    pub events: u64,
}

/// The error of a `follow` command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The requested events are no longer kept.
    #[error(transparent)]
    Stale(#[from] StaleCursor),
    /// There is no such kind of event.
    #[error("there are no events of the kind `{kind}`")]
    UnknownKind {
        /// The unknown kind.
        kind: String,
    },
    /// A field has the wrong type.
    #[error("`follow` cannot be read: {error}")]
    Unreadable {
        /// The parse error.
        error: serde_json::Error,
    },
}

impl FollowError {
    /// Returns the error code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Stale(_) => "stale",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Unreadable { .. } => "invalid_command",
        }
    }

    /// Returns the oldest event number that is still kept, if the requested ones are not.
    pub const fn oldest(&self) -> Option<u64> {
        match self {
            Self::Stale(stale) => Some(stale.oldest),
            Self::UnknownKind { .. } | Self::Unreadable { .. } => None,
        }
    }
}

impl FollowRequest {
    /// Reads a `follow` command; unknown fields are ignored.
    pub fn parse(command: &Value) -> Result<Self, FollowError> {
        let follow =
            Self::deserialize(command).map_err(|error| FollowError::Unreadable { error })?;
        let kinds = follow.only.iter().flatten();
        match kinds
            .into_iter()
            .find(|kind| !Body::KINDS.contains(&kind.as_str()))
        {
            Some(kind) => Err(FollowError::UnknownKind { kind: kind.clone() }),
            None => Ok(follow),
        }
    }

    pub(super) fn matches(&self, body: &Body) -> bool {
        let kind = body.kind();
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|wanted| wanted == kind))
    }
}
