//! Writes a turn's entries to its journal.
//!
//! Invariant: entries are written in the order in which they were noted; entries that could not be written stay noted,
//! and are written first when the journal works again.

use super::Runner;
use crate::journal::{AppendError, Entry, Journal, Spent};
use outlast_kernel::event::Body;

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
            Err(AppendError::OwnershipLost { why }) => {
                self.journal_writer.ownership_lost_reason = Some(why)
            }
            Err(AppendError::Failed { why }) if !was_behind => {
                self.emitter.emit(Body::Unrecorded { message: why });
            }
            Err(AppendError::Failed { .. }) => {}
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
