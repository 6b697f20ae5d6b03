//! The last events of the session that is served, and which of them the client hears.
//!
//! Invariants: the kept events are of one session and have no gap between them or before what comes next; they have at
//! most `MOST_EVENTS` and `MOST_BYTES`.

use super::follow::{Follow, Followed};
use crate::voice::written;
use outlast_kernel::event::Event;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many events are kept.
const MOST_EVENTS: usize = 4_096;

/// How many bytes they have, as they are written.
const MOST_BYTES: usize = 4 << 20;

/// Events after that number are not kept any more, or were never there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "events after number {after} are not kept (the oldest is number {oldest}, the last was number {newest}): take a \
     snapshot and follow from its number"
)]
pub struct Stale {
    /// What was asked for.
    pub after: u64,
    /// The oldest number that is kept; the next one that comes when none is.
    pub oldest: u64,
    /// The last number that there was.
    pub newest: u64,
}

/// The last events, and who hears them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct NativeLog {
    kept: Arc<Mutex<Kept>>,
}

impl NativeLog {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on that session is served, whose last event had that number. What kinds are heard stays as it is.
    pub fn begin(&self, session_id: &str, events: u64) {
        self.lock().forget(session_id, events);
    }

    /// Keeps an event, and hands it to `say` when the client hears it: before any other event, and not in the middle of
    /// what a `follow` says. `say` must not come back here.
    pub fn push(&self, event: &Event, say: impl FnOnce(&Event)) {
        let mut kept = self.lock();
        kept.push(event);
        if kept.follow.wants(&event.body) {
            say(event);
        }
    }

    /// The events after that number.
    #[cfg(test)]
    fn since(&self, after: u64) -> Result<Vec<Event>, Stale> {
        Ok(self.lock().since(after)?.cloned().collect())
    }

    /// Changes what the client hears. `say` is handed the reply's data and the events that were asked for, and puts both
    /// into the outbox before anything else gets there. `say` must not come back here.
    pub fn follow(
        &self,
        follow: Follow,
        say: impl FnOnce(Followed, Vec<Event>),
    ) -> Result<(), Stale> {
        let mut kept = self.lock();
        let events = match follow.after {
            Some(after) => {
                let all = kept.since(after)?;
                all.filter(|event| follow.wants(&event.body))
                    .cloned()
                    .collect()
            }
            None => Vec::new(),
        };
        kept.follow = follow;
        let followed = Followed {
            events: kept.newest,
        };
        say(followed, events);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Kept {
    session_id: String,
    newest: u64,
    /// Each with how many bytes it has.
    events: VecDeque<(Event, usize)>,
    bytes: usize,
    follow: Follow,
}

impl Kept {
    fn forget(&mut self, session_id: &str, newest: u64) {
        session_id.clone_into(&mut self.session_id);
        self.newest = newest;
        self.events.clear();
        self.bytes = 0;
    }

    fn push(&mut self, event: &Event) {
        if event.session_id != self.session_id || event.seq != self.newest + 1 {
            self.forget(&event.session_id, event.seq);
        }
        self.newest = event.seq;
        let bytes = written(event);
        self.bytes += bytes;
        self.events.push_back((event.clone(), bytes));
        while self.events.len() > MOST_EVENTS || self.bytes > MOST_BYTES {
            let Some((_, bytes)) = self.events.pop_front() else {
                break;
            };
            self.bytes -= bytes;
        }
    }

    fn since(&self, after: u64) -> Result<impl Iterator<Item = &Event>, Stale> {
        let oldest = match self.events.front() {
            Some((event, _)) => event.seq,
            None => self.newest.saturating_add(1),
        };
        if after.saturating_add(1) < oldest || after > self.newest {
            return Err(Stale {
                after,
                oldest,
                newest: self.newest,
            });
        }
        let events = self.events.iter().map(|(event, _)| event);
        Ok(events.filter(move |event| event.seq > after))
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
