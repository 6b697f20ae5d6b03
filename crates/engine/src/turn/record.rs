//! The record of a turn: entries in its journal, and events for its listeners.
//!
//! Invariant: entries are written in the order in which they were noted; entries that could not be written stay noted,
//! and are written first when the journal works again.

use super::Runner;
use crate::Clock;
use crate::journal::{AppendError, Entry, Journal, Spent};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, VERSION};

/// The receiver of events.
pub type Sink<'a> = &'a mut (dyn FnMut(Event) + Send);

/// The session and the turn that events belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The session's id.
    pub session: String,
    /// The turn's id.
    pub turn: String,
}

impl Ids {
    /// Returns new ids, ordered by time.
    pub fn fresh() -> Self {
        Self {
            session: uuid::Uuid::now_v7().to_string(),
            turn: uuid::Uuid::now_v7().to_string(),
        }
    }
}

pub(super) struct Emitter<'a> {
    ids: Ids,
    seq: u64,
    /// The number of the last attempt.
    pub(super) attempt: u32,
    clock: &'a dyn Clock,
    sink: Sink<'a>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(ids: Ids, clock: &'a dyn Clock, sink: Sink<'a>) -> Self {
        Self {
            seq: 0,
            ids,
            attempt: 0,
            clock,
            sink,
        }
    }

    pub(super) fn start_attempt(&mut self) {
        self.attempt += 1;
        self.emit(Body::AttemptStarted {
            attempt: self.attempt,
        });
    }

    pub(super) fn emit(&mut self, body: Body) {
        self.emit_at(self.clock.now(), body);
    }

    pub(super) fn emit_at(&mut self, time: Timestamp, body: Body) {
        self.seq += 1;
        (self.sink)(Event {
            v: VERSION,
            seq: self.seq,
            time,
            session_id: self.ids.session.clone(),
            turn_id: self.ids.turn.clone(),
            attempt_id: (self.attempt > 0).then(|| format!("{}.{}", self.ids.turn, self.attempt)),
            body,
        });
    }
}

// --- Journal ---

pub(super) struct JournalWriter<'a> {
    journal: Option<&'a dyn Journal>,
    pending: Vec<Entry>,
    /// Whether the last write failed.
    has_unwritten: bool,
    /// The reason why the turn must not continue, if it must not.
    ownership_lost_reason: Option<String>,
}

impl<'a> JournalWriter<'a> {
    pub(super) fn new(journal: Option<&'a dyn Journal>, pending: Vec<Entry>) -> Self {
        Self {
            journal,
            pending,
            has_unwritten: false,
            ownership_lost_reason: None,
        }
    }

    pub(super) fn record(&mut self, entry: Entry) {
        if self.journal.is_some() {
            self.pending.push(entry);
        }
    }

    pub(super) const fn has_unwritten(&self) -> bool {
        self.has_unwritten
    }

    /// Returns the reason why the turn must not continue, if it must not.
    pub(super) fn ownership_lost_reason(&self) -> Option<&str> {
        self.ownership_lost_reason.as_deref()
    }

    async fn commit(&mut self) -> Result<(), AppendError> {
        let Some(journal) = self.journal.filter(|_| !self.pending.is_empty()) else {
            return Ok(());
        };
        journal.append(&self.pending).await?;
        self.pending.clear();
        Ok(())
    }
}

impl Runner<'_> {
    /// Writes the noted entries. Returns `false` when that failed; the first failure in a row is reported.
    pub(super) async fn commit(&mut self) -> bool {
        let written = self.journal_writer.commit().await;
        let was_behind =
            std::mem::replace(&mut self.journal_writer.has_unwritten, written.is_err());
        match written {
            Ok(()) => return true,
            Err(AppendError::OwnershipLost(why)) => {
                self.journal_writer.ownership_lost_reason = Some(why)
            }
            Err(AppendError::Failed(why)) if !was_behind => {
                self.emitter.emit(Body::Unrecorded { message: why });
            }
            Err(AppendError::Failed(_)) => {}
        }
        false
    }

    pub(super) fn spent(&self) -> Spent {
        Spent {
            chain: *self.driver.state().chain(),
            prompt: self.driver.state().prompt().clone(),
        }
    }
}
