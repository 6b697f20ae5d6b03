//! The last events of the session that is served, and the filter for those that the client follows.
//!
//! Not here: the limits on stored events (see `event_buffer`).

use super::event_buffer::{EventBuffer, StaleCursor};
use super::follow::{FollowReply, FollowRequest};
use outlast_kernel::event::Event;
use parking_lot::Mutex;
use std::sync::Arc;

/// The last events, and who hears them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct NativeLog {
    state: Arc<Mutex<LogState>>,
}

#[derive(Debug, Default)]
struct LogState {
    buffer: EventBuffer,
    follow: FollowRequest,
}

impl NativeLog {
    /// From here on that session is served, whose last event had that number. What kinds are heard stays as it is.
    pub fn begin(&self, session_id: &str, events: u64) {
        self.state.lock().buffer.reset(session_id, events);
    }

    /// Keeps an event, and hands it to `say` when the client hears it: before any other event, and not in the middle of
    /// what a `follow` says. `say` must not come back here.
    pub fn push(&self, event: &Event, say: impl FnOnce(&Event)) {
        let mut heard = self.state.lock();
        heard.buffer.push(event);
        if heard.follow.matches(&event.body) {
            say(event);
        }
    }

    /// The events after that number.
    #[cfg(test)]
    fn since(&self, after: u64) -> Result<Vec<Event>, StaleCursor> {
        Ok(self.state.lock().buffer.since(after)?.cloned().collect())
    }

    /// Changes what the client hears. `say` is handed the reply's data and the events that were asked for, and puts both
    /// into the outbox before anything else gets there. `say` must not come back here.
    pub fn follow(
        &self,
        follow: FollowRequest,
        say: impl FnOnce(FollowReply, Vec<Event>),
    ) -> Result<(), StaleCursor> {
        let mut heard = self.state.lock();
        let events = match follow.after {
            Some(after) => {
                let all = heard.buffer.since(after)?;
                all.filter(|event| follow.matches(&event.body))
                    .cloned()
                    .collect()
            }
            None => Vec::new(),
        };
        heard.follow = follow;
        let followed = FollowReply {
            events: heard.buffer.newest(),
        };
        say(followed, events);
        Ok(())
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
