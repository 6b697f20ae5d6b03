//! The last events of a session.
//!
//! Invariants: they belong to one session and have no gap, neither between them nor before the next event; there are at
//! most `MAX_EVENTS`, and all but the longest have at most `MAX_BYTES` together: a very long event drives out neither
//! itself nor the events just before it.

use crate::event_encoder::encoded_len;
use outlast_kernel::event::Event;
use std::collections::VecDeque;

/// Maximum number of events.
pub(super) const MAX_EVENTS: usize = 4_096;

/// Maximum size of all events but the longest, in bytes as they are written.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Events after that number are not kept any more, or were never there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "events after number {after} are not kept (the oldest is number {oldest}, the last was number {newest}): take a \
     snapshot and follow from its number"
)]
pub struct StaleCursor {
    /// What was asked for.
    pub after: u64,
    /// The oldest number that is kept; the next one that comes when none is.
    pub oldest: u64,
    /// The last number that there was.
    pub newest: u64,
}

/// The last events.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    session_id: String,
    newest: u64,
    /// Each with how many bytes it has.
    events: VecDeque<(Event, usize)>,
    bytes: usize,
}

impl EventBuffer {
    /// The number of the last event that there was.
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Keeps none. From here on events are those of that session, after that number.
    pub(crate) fn reset(&mut self, session_id: &str, newest: u64) {
        session_id.clone_into(&mut self.session_id);
        self.newest = newest;
        self.events = VecDeque::new();
        self.bytes = 0;
    }

    pub(crate) fn push(&mut self, event: &Event) {
        if event.session_id != self.session_id || event.seq != self.newest + 1 {
            self.reset(&event.session_id, event.seq);
        }
        self.newest = event.seq;
        let bytes = encoded_len(event);
        self.bytes += bytes;
        self.events.push_back((event.clone(), bytes));
        while self.is_over_limit()
            && let Some((_, bytes)) = self.events.pop_front()
        {
            self.bytes -= bytes;
        }
    }

    fn is_over_limit(&self) -> bool {
        if self.events.len() > MAX_EVENTS || self.bytes <= MAX_BYTES {
            return self.events.len() > MAX_EVENTS;
        }
        let longest = self.events.iter().map(|(_, bytes)| *bytes).max();
        self.bytes - longest.unwrap_or(0) > MAX_BYTES
    }

    /// The events after that number.
    pub(crate) fn since(&self, after: u64) -> Result<impl Iterator<Item = &Event>, StaleCursor> {
        let oldest = match self.events.front() {
            Some((event, _)) => event.seq,
            None => self.newest.saturating_add(1),
        };
        if after.saturating_add(1) < oldest || after > self.newest {
            return Err(StaleCursor {
                after,
                oldest,
                newest: self.newest,
            });
        }
        // They have no gaps.
        let told = usize::try_from(after.saturating_add(1) - oldest).unwrap_or(usize::MAX);
        Ok(self.events.iter().skip(told).map(|(event, _)| event))
    }
}
