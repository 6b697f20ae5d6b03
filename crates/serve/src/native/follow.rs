//! What a client asks to hear.

use super::event_buffer::StaleCursor;
use outlast_kernel::event::Body;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is said from here on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FollowRequest {
    /// Events after that number are said again, then those that come; without it, those that come.
    #[serde(default)]
    pub after: Option<u64>,
    /// Only events of these kinds are said; without it, all of them.
    #[serde(default)]
    pub only: Option<Vec<String>>,
}

/// The data of a reply to `follow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Followed")]
pub struct FollowReply {
    /// The number of the last event until now. Those up to it that were asked for follow this reply.
    pub events: u64,
}

/// Why a client cannot hear what it asks for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// What it asks for is not kept.
    #[error(transparent)]
    Stale(#[from] StaleCursor),
    /// No event is of that kind.
    #[error("there are no events of the kind `{kind}`")]
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// A field is not what it should be.
    #[error("`follow` cannot be read: {error}")]
    Unreadable {
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

impl FollowError {
    /// Its name for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Stale(_) => "stale",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Unreadable { .. } => "invalid_command",
        }
    }

    /// The oldest number that is kept, when what is asked for is not.
    pub const fn oldest(&self) -> Option<u64> {
        match self {
            Self::Stale(stale) => Some(stale.oldest),
            Self::UnknownKind { .. } | Self::Unreadable { .. } => None,
        }
    }
}

impl FollowRequest {
    /// Reads a `follow` command; fields that it does not know are left alone.
    pub fn read(command: &Value) -> Result<Self, FollowError> {
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

    pub(super) fn wants(&self, body: &Body) -> bool {
        let kind = body.kind();
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|wanted| wanted == kind))
    }
}
