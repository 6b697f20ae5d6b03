//! The `snapshot` reply: the state of a session, as clients see it.

use outlast_kernel::Timestamp;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use outlast_session::{GateHold, RetryStatus, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

/// Where a session stands. It and the events after its number say everything.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Snapshot")]
pub struct SnapshotView {
    /// The session.
    pub session_id: String,
    /// The number of the last event that is part of this; earlier ones that still come say nothing new.
    pub events: u64,
    /// The turn that is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The number of the call that was made last in it.
    pub attempt: u32,
    /// The retry that is waited for or under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// Until when the gate holds the call, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
    /// The model that is asked.
    pub model: String,
    /// Whether the conversation is being made smaller.
    pub is_compacting: bool,
    /// Whether failures are retried.
    pub auto_retry_enabled: bool,
    /// What all turns used, failed attempts included.
    pub usage: Usage,
    /// What waits to be said to the model.
    pub waiting: WaitingView,
}

/// A retry that is waited for or under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Retry")]
pub struct RetryView {
    /// Its number, from 1.
    pub attempt: u32,
    /// How many there can be, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// What went wrong.
    pub cause: Cause,
    /// The provider's message.
    pub message: String,
    /// When it will happen, while it is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
}

/// A wait at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Held")]
pub struct HeldView {
    /// Until then, as things are.
    pub until: Timestamp,
    /// What is wrong there, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// What waits to be said to the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Waiting")]
pub struct WaitingView {
    /// What is said as soon as the model can be told something.
    pub steering: Vec<String>,
    /// What is said when it has answered.
    pub follow_up: Vec<String>,
}

impl SnapshotView {
    /// Creates the view of a session from its snapshot and its queued messages.
    pub fn new(session_id: &str, snapshot: Snapshot, waiting: WaitingView) -> Self {
        Self {
            session_id: session_id.to_owned(),
            events: snapshot.events,
            turn_id: snapshot.turn_id,
            attempt: snapshot.attempt,
            retry: snapshot.retry.map(RetryView::from),
            held: snapshot.held.map(HeldView::from),
            model: snapshot.model,
            is_compacting: snapshot.is_compacting,
            auto_retry_enabled: snapshot.auto_retry_enabled,
            usage: snapshot.usage,
            waiting,
        }
    }
}

impl From<RetryStatus> for RetryView {
    fn from(retry: RetryStatus) -> Self {
        Self {
            attempt: retry.attempt,
            max_attempts: retry.max_attempts,
            cause: retry.cause,
            message: retry.message,
            wake_at: retry.wake_at,
        }
    }
}

impl From<GateHold> for HeldView {
    fn from(held: GateHold) -> Self {
        Self {
            until: held.until,
            cause: held.cause,
        }
    }
}
