//! Writes a turn's entries to its journal.
//!
//! Invariant: entries are written in the order in which they were noted; entries that could not be written stay noted,
//! and are written first when the journal works again.

use super::Runner;
use crate::journal::{AppendError, Entry, Journal, Spent};
use outlast_kernel::event::Body;

pub(super) struct JournalWriter<'a> {
    journal: Option<&'a dyn Journal>,
    noted: Vec<Entry>,
    /// Whether the last write failed.
    is_behind: bool,
    /// The reason why the turn must not continue, if it must not.
    lost: Option<String>,
}

impl<'a> JournalWriter<'a> {
    pub(super) fn new(journal: Option<&'a dyn Journal>, noted: Vec<Entry>) -> Self {
        Self {
            journal,
            noted,
            is_behind: false,
            lost: None,
        }
    }

    pub(super) fn note(&mut self, entry: Entry) {
        if self.journal.is_some() {
            self.noted.push(entry);
        }
    }

    pub(super) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns the reason why the turn must not continue, if it must not.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    async fn commit(&mut self) -> Result<(), AppendError> {
        let Some(journal) = self.journal.filter(|_| !self.noted.is_empty()) else {
            return Ok(());
        };
        journal.append(&self.noted).await?;
        self.noted.clear();
        Ok(())
    }
}

impl Runner<'_> {
    /// Writes the noted entries. Returns `false` when that failed; the first failure in a row is reported.
    pub(super) async fn commit(&mut self) -> bool {
        let written = self.scribe.commit().await;
        let was_behind = std::mem::replace(&mut self.scribe.is_behind, written.is_err());
        match written {
            Ok(()) => return true,
            Err(AppendError::Lost { why }) => self.scribe.lost = Some(why),
            Err(AppendError::Failed { why }) if !was_behind => {
                self.emitter.emit(Body::Unrecorded { message: why });
            }
            Err(AppendError::Failed { .. }) => {}
        }
        false
    }

    pub(super) fn spent(&self) -> Spent {
        Spent {
            chain: *self.state.chain(),
            prompt: self.state.prompt().clone(),
        }
    }
}
