//! The native dialect: events as they are, one line of JSON each.
//!
//! [`NativeEncoder`] encodes for the outbox. A listener passes each event to [`NativeLog::push`], which says whether the client
//! follows it; [`NativeLog::begin`] starts a session. A `follow` command is [`FollowRequest::parse`], then
//! [`NativeLog::follow`]; [`FollowError::code`] and [`FollowError::oldest`] become fields
//! of the refusal. `snapshot` replies with a [`SnapshotView`]. Invariants: nothing is queued between the reply to
//! `follow` and the events that it asks for, so each later event comes once, in order; a client ignores events up to
//! the number of its snapshot. Not here: the events (`kernel::event`) and their `schema`.

mod follow;
mod log;
mod snapshot;

pub use follow::{FollowError, FollowReply, FollowRequest};
pub use log::NativeLog;
pub use snapshot::{HeldView, RetryView, SnapshotView, WaitingView};

use crate::event_encoder::{EventEncoder, JsonLines};
use outlast_kernel::event::Event;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Number of waiting bytes above which deltas of one text are merged.
const MERGE_THRESHOLD_BYTES: usize = 256 << 10;

/// Encodes events as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeEncoder;

impl EventEncoder for NativeEncoder {
    fn encode(&mut self, event: Event, out: &mut JsonLines) {
        out.push(&event);
    }

    fn encode_run_end(&mut self, aborted: bool, out: &mut JsonLines) {
        out.push(&Notice::Settled { aborted });
    }

    fn merge_threshold(&self) -> usize {
        MERGE_THRESHOLD_BYTES
    }
}

/// A notification that is not an event of the session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Notice {
    /// The session is idle: no turn is running, and none follows by itself. The notification has no number, and is sent
    /// whatever kinds of events the client follows.
    Settled {
        /// Whether a person aborted the work.
        aborted: bool,
    },
    /// Output of a command that the client runs.
    BashExecutionUpdate {
        /// The id of the `bash` command, if it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Value>,
        /// The next piece of the output.
        delta: String,
    },
}
