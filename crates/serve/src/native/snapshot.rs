//! The `snapshot` reply: the state of a session, as clients see it.

use outlast_dialect::Message;
use outlast_kernel::Timestamp;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use outlast_session::{GateHold, Queued, RetryStatus, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

/// The state of a session. With the events after its number, it is complete.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Snapshot")]
pub struct SnapshotView {
    /// The id of the session.
    pub session_id: String,
    /// The number of the last event that the snapshot includes. Ignore events up to that number that arrive later.
    pub events: u64,
    /// The id of the running turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The number of the last attempt in the turn.
    pub attempt: u32,
    /// The retry that is scheduled or under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// The wait of the call at the gate, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
    /// The current model.
    pub model: String,
    /// Whether the conversation is being compacted.
    pub is_compacting: bool,
    /// Whether failures are retried.
    pub auto_retry_enabled: bool,
    /// The tokens that all turns used, failed attempts included.
    pub usage: Usage,
    /// The queued messages for the model.
    pub waiting: WaitingView,
}

/// A retry that is scheduled or under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Retry")]
pub struct RetryView {
    /// The number of the retry, from 1.
    pub attempt: u32,
    /// The maximum number of retries, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The cause of the failure.
    pub cause: Cause,
    /// The provider's message.
    pub message: String,
    /// The time of the retry, while it is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
}

/// A wait at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "GateHold")]
pub struct HeldView {
    /// The expected end of the wait.
    pub until: Timestamp,
    /// The cause of the wait, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// The queued messages for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "QueuedMessages")]
pub struct WaitingView {
    /// Messages that are sent with the next call to the model.
    pub steering: Vec<String>,
    /// Messages that are sent after the turn's answer.
    pub follow_up: Vec<String>,
}

impl SnapshotView {
    /// Creates the view of a session from its snapshot and its queued messages.
    pub fn new(session_id: &str, snapshot: Snapshot, waiting: WaitingView) -> Self {
        Self {
            session_id: session_id.to_owned(),
            events: snapshot.last_seq,
            turn_id: snapshot.turn_id,
            attempt: snapshot.attempt,
            retry: snapshot.retry.map(RetryView::from),
            held: snapshot.gate_hold.map(HeldView::from),
            model: snapshot.model,
            is_compacting: snapshot.is_compacting,
            auto_retry_enabled: snapshot.auto_retry_enabled,
            usage: snapshot.usage,
            waiting,
        }
    }
}

impl From<&Queued> for WaitingView {
    fn from(queued: &Queued) -> Self {
        let texts = |messages: &[Message]| messages.iter().map(Message::text).collect();
        Self {
            steering: texts(&queued.steering),
            follow_up: texts(&queued.follow_up),
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
