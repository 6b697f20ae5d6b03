//! Reads a session's entries, and forks a session.
//!
//! Invariants: the source session is not changed; a copy never ends in the middle of a turn, and its queue is empty.

use super::session_journal::{SessionJournal, Storage, parse_entry};
use super::setup::Setup;
use super::state::State;
use super::{Error, Session};
use outlast_engine::journal::Entry;
use outlast_store::Journal;
use outlast_store::journal::{NewSession, RawEntry, SessionLock, StoredEntry};

impl Session {
    /// Returns all entries of the session in order, including those that could not be written yet.
    pub async fn entries(&self) -> Result<Vec<StoredEntry>, Error> {
        self.journal.entries(&self.id).await
    }

    /// Creates a new session with the entries of this one: those before entry number `before`, or all. The new session is
    /// stored in the journal; without one it exists only in memory.
    pub async fn fork(
        &self,
        journal: Option<&Journal>,
        before: Option<u64>,
        setup: Setup,
    ) -> Result<Self, Error> {
        let mut copied = self.entries().await?;
        let before = before.map(|seq| self.turn_start(&copied, seq));
        copied.retain(|stored| before.is_none_or(|before| stored.seq < before));
        let mut standing = State::default();
        for stored in &copied {
            standing.apply(parse_entry(&self.id, stored)?);
        }
        if standing.unfinished.is_some() {
            let session = self.id.clone();
            return Err(outlast_store::Error::OpenTurn(session).into());
        }
        let about = self.metadata();
        let new = NewSession {
            id: uuid::Uuid::now_v7().to_string(),
            directory: about.directory.clone(),
            title: about.title.clone(),
            now: setup.clock.now(),
        };
        let id = new.id.clone();
        let home = match journal {
            None => Storage::Memory(copied),
            Some(journal) => {
                Storage::Journal(journal.clone(), self.copy(journal, copied, new).await?)
            }
        };
        let record = SessionJournal::new(home, standing, setup.clock.clone());
        let session = Self::from_parts(id, about, setup, record);
        session.discard_queue().await?;
        Ok(session)
    }

    async fn copy(
        &self,
        journal: &Journal,
        copied: Vec<StoredEntry>,
        new: NewSession,
    ) -> Result<SessionLock, Error> {
        // The store cannot copy entries that are not in it yet; if writing them fails, they are copied one by one below.
        if self.is_persistent() && self.journal.flush_backlog().await.is_ok() {
            let next = copied.last().map_or(0, |last| last.seq) + 1;
            return Ok(journal.fork(&self.id, Some(next), new).await?);
        }
        let hold = journal.create(new).await?;
        let lines: Vec<RawEntry> = copied.into_iter().map(|stored| stored.entry).collect();
        journal.append(&hold, lines).await?;
        Ok(hold)
    }

    /// Returns the first entry of the turn that the given entry opens. A turn that began with queued messages has a prompt
    /// entry without a message before it.
    fn turn_start(&self, entries: &[StoredEntry], seq: u64) -> u64 {
        let entry = |seq: u64| {
            let stored = entries.iter().find(|stored| stored.seq == seq)?;
            parse_entry(&self.id, stored).ok()
        };
        let before = seq.saturating_sub(1);
        let said = matches!(entry(seq), Some(Entry::Delivered { .. }));
        let begun = matches!(entry(before), Some(Entry::Prompt { message: None, .. }));
        if said && begun { before } else { seq }
    }

    /// Empties the copied queue: its messages were meant for the source session.
    async fn discard_queue(&self) -> Result<(), Error> {
        let waiting = self.journal.with_state(|standing| standing.queued.clone());
        if waiting.is_empty() {
            return Ok(());
        }
        let ids = waiting.into_iter().map(|letter| letter.id).collect();
        self.journal.append_entry(Entry::Unqueued { ids }).await?;
        self.mark_queue_announced();
        Ok(())
    }
}
