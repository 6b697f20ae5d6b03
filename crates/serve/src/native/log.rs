//! The events that a client of the native dialect follows.
//!
//! Not here: the stored events (see `event_log` in the session crate).

use super::follow::{FollowReply, FollowRequest};
use outlast_kernel::event::Event;
use outlast_session::event_log::{EventLog, StaleCursor};
use parking_lot::Mutex;
use std::sync::Arc;

/// The filter of a client, over the log of the session in use. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct NativeLog {
    state: Arc<Mutex<FollowState>>,
}

#[derive(Debug, Default)]
struct FollowState {
    log: Arc<EventLog>,
    /// The number of the last event that was handed on or filtered out.
    newest: u64,
    follow: FollowRequest,
}

impl NativeLog {
    /// Continues with the log of another session. The filter stays.
    pub fn begin(&self, log: Arc<EventLog>) {
        let mut state = self.state.lock();
        state.newest = log.newest();
        state.log = log;
    }

    /// Hands an event of the log to `write` if the client follows it: in order, and not in the middle of a replay. `write` must
    /// not call this log.
    pub fn push(&self, event: &Event, write: impl FnOnce(&Event)) {
        let mut state = self.state.lock();
        state.newest = event.seq;
        if state.follow.matches(&event.body) {
            write(event);
        }
    }

    /// Changes what the client follows. `write` gets the reply and the requested events, and queues both before anything else
    /// is queued. `write` must not call this log.
    pub fn follow(
        &self,
        follow: FollowRequest,
        write: impl FnOnce(FollowReply, Vec<Event>),
    ) -> Result<(), StaleCursor> {
        let mut state = self.state.lock();
        let mut events = match follow.after {
            Some(after) => state.log.since(after, usize::MAX)?,
            None => Vec::new(),
        };
        // The log may have an event that is about to be pushed here.
        events.retain(|event| event.seq <= state.newest && follow.matches(&event.body));
        state.follow = follow;
        let events_so_far = state.newest;
        write(
            FollowReply {
                events: events_so_far,
            },
            events,
        );
        Ok(())
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
