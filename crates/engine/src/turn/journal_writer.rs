//! A turn and its journal.
//!
//! Invariant: entries are written in the order in which they were noted; what could not be written stays noted and is
//! written first when it can be.

use super::Runner;
use crate::journal::{AppendError, Entry, Journal, Spent};
use outlast_kernel::event::Body;

pub(super) struct JournalWriter<'a> {
    journal: Option<&'a dyn Journal>,
    noted: Vec<Entry>,
    /// Whether the last attempt to write failed.
    is_behind: bool,
    /// Why the turn may not go on.
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

    /// Why the turn may not go on, if it may not.
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
    /// Writes down what was noted. `false` when it could not be; that is said once.
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
