//! The journal of a session: writes entries to the store, if the session has one, and applies them to the state.
//!
//! Invariants: every entry is applied once, in order, whether it could be written at once or not; entries that a turn could
//! not write until its end are written before those of the next turn; an entry that does not belong to the turn is written
//! separately, and does not touch the turn's unwritten entries.

use super::Error;
use super::state::State;
use outlast_engine::inbox::QueuedMessage;
use outlast_engine::journal::{AppendError, Entry, Journal};
use outlast_engine::{BoxFuture, Clock};
use outlast_store::journal::{Page, RawEntry, SessionLock, StoredEntry};
use parking_lot::Mutex;
use std::sync::Arc;

/// Number of entries per read: entries that were applied need not stay in memory.
const PAGE: u32 = 1000;

pub(super) struct SessionJournal {
    storage: Mutex<Storage>,
    is_persistent: bool,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

/// The place where entries are stored.
pub(super) enum Storage {
    /// In memory, as long as the session lives.
    Memory(Vec<StoredEntry>),
    /// In the store's journal.
    Journal(outlast_store::Journal, SessionLock),
    /// Nowhere: the session was released.
    Closed,
}

struct Inner {
    state: State,
    /// The turn that new entries belong to.
    turn: u64,
    /// How many of the next entries were already applied, when they could not be written.
    folded_ahead: usize,
    /// The entries of this turn that the last write failed to store, and in `owed` those of earlier turns that were never
    /// stored.
    unwritten: Vec<RawEntry>,
    backlog: Vec<RawEntry>,
}

impl SessionJournal {
    pub(super) fn new(home: Storage, standing: State, clock: Arc<dyn Clock>) -> Self {
        let is_persistent = matches!(home, Storage::Journal(..));
        let inner = Mutex::new(Inner {
            state: standing,
            turn: 0,
            folded_ahead: 0,
            unwritten: Vec::new(),
            backlog: Vec::new(),
        });
        let storage = Mutex::new(home);
        Self {
            storage,
            is_persistent,
            clock,
            inner,
        }
    }

    /// Reads the state.
    pub(super) fn with_state<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.inner.lock().state)
    }

    /// Changes the queue. A caller that removes messages must write them to the journal as sent, or put them back.
    pub(super) fn update_queue<R>(&self, change: impl FnOnce(&mut Vec<QueuedMessage>) -> R) -> R {
        change(&mut self.inner.lock().state.queued)
    }

    /// Assigns new entries to that turn. The previous turn will not retry its unwritten entries, so they become owed.
    pub(super) fn begin_turn(&self, number: u64) {
        let mut state = self.inner.lock();
        let unwritten = std::mem::take(&mut state.unwritten);
        state.backlog.extend(unwritten);
        (state.turn, state.folded_ahead) = (number, 0);
    }

    pub(super) const fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.storage.lock(), Storage::Closed)
    }

    /// Writes the entries that could not be written before. On failure nothing changes. No turn may be running.
    pub(super) async fn flush_backlog(&self) -> Result<(), Error> {
        // The next turn would do the same.
        let turn = self.inner.lock().turn;
        self.begin_turn(turn);
        let owed = std::mem::take(&mut self.inner.lock().backlog);
        if !owed.is_empty()
            && let Err(error) = self.append_lines(owed.clone()).await
        {
            self.inner.lock().backlog = owed;
            return Err(error);
        }
        Ok(())
    }

    /// Waits until the store has written everything that it was given so far.
    pub(super) async fn flush(&self) -> Result<(), Error> {
        // The store writes in the order of calls.
        self.append_lines(Vec::new()).await
    }

    /// Writes the entries that could not be written before, and releases the session. If writing fails, nothing changes.
    pub(super) async fn release(&self) -> Result<(), Error> {
        self.flush_backlog().await?;
        let home = std::mem::replace(&mut *self.storage.lock(), Storage::Closed);
        if let Storage::Journal(journal, hold) = home {
            journal.release_or_remove(hold).await?;
        }
        Ok(())
    }

    pub(super) async fn rename(&self, title: &str) -> Result<(), Error> {
        let renamed = match &*self.storage.lock() {
            Storage::Memory(_) => return Ok(()),
            Storage::Closed => return Err(Error::Closed),
            Storage::Journal(journal, hold) => journal.rename(hold, title),
        };
        Ok(renamed.await?)
    }

    /// Returns all entries: those in the journal, followed by those that are still to be written.
    pub(super) async fn entries(&self, session: &str) -> Result<Vec<StoredEntry>, Error> {
        let journal = match &*self.storage.lock() {
            Storage::Memory(lines) => return Ok(lines.clone()),
            Storage::Closed => return Err(Error::Closed),
            Storage::Journal(journal, _) => journal.clone(),
        };
        let mut entries: Vec<StoredEntry> = Vec::new();
        loop {
            let page = Page {
                after: entries.last().map_or(0, |last| last.seq),
                limit: PAGE,
                kinds: None,
            };
            let more = journal.read(session, page).await?;
            if more.is_empty() {
                break;
            }
            entries.extend(more);
        }
        let state = self.inner.lock();
        for line in state.backlog.iter().chain(&state.unwritten) {
            let seq = entries.last().map_or(0, |last| last.seq) + 1;
            let entry = line.clone();
            entries.push(StoredEntry { seq, entry });
        }
        Ok(entries)
    }

    /// Writes an entry outside of a turn. The state includes it at once, so later entries are written after it.
    pub(super) async fn append_entry(&self, entry: Entry) -> Result<(), Error> {
        let written = {
            let mut state = self.inner.lock();
            let line = self.line(state.state.turns, &entry);
            let what = "message";
            let line = line.map_err(|_| outlast_store::Error::NotSerializable(what))?;
            state.state.apply(entry);
            self.append_lines(vec![line])
        };
        written.await
    }

    fn fold(&self, entries: &[Entry]) {
        let mut state = self.inner.lock();
        let new = entries.iter().skip(state.folded_ahead).cloned();
        new.for_each(|entry| state.state.apply(entry));
        state.folded_ahead = entries.len();
    }

    async fn write(&self, entries: &[Entry]) -> Result<(), AppendError> {
        let turn = self.inner.lock().turn;
        let lines: Result<Vec<RawEntry>, _> =
            entries.iter().map(|entry| self.line(turn, entry)).collect();
        let lines = lines.map_err(|error| AppendError::Failed(error.to_string()))?;
        // If the caller is dropped before the result arrives, the entries are written all the same, and no longer owed.
        let owed = std::mem::take(&mut self.inner.lock().backlog);
        let all = owed.iter().chain(&lines).cloned().collect();
        let Err(error) = self.append_lines(all).await else {
            return Ok(());
        };
        let mut state = self.inner.lock();
        (state.backlog, state.unwritten) = (owed, lines);
        let why = error.to_string();
        Err(match error {
            Error::Store(outlast_store::Error::Fenced { .. }) | Error::Closed => {
                AppendError::OwnershipLost(why)
            }
            _ => AppendError::Failed(why),
        })
    }

    /// Hands lines to the store, which writes them in the order of these calls, even if no caller waits for the result.
    fn append_lines(&self, lines: Vec<RawEntry>) -> BoxFuture<'static, Result<(), Error>> {
        match &mut *self.storage.lock() {
            Storage::Memory(stored) => {
                for (entry, seq) in lines.into_iter().zip(stored.len() as u64 + 1..) {
                    stored.push(StoredEntry { seq, entry });
                }
                Box::pin(async { Ok(()) })
            }
            Storage::Journal(journal, hold) => {
                let written = journal.append(hold, lines);
                Box::pin(async { Ok(written.await?) })
            }
            Storage::Closed => Box::pin(async { Err(Error::Closed) }),
        }
    }

    fn line(&self, turn: u64, entry: &Entry) -> Result<RawEntry, serde_json::Error> {
        Ok(RawEntry {
            turn,
            kind: entry.kind().to_owned(),
            time: self.clock.now(),
            body: serde_json::to_string(entry)?,
        })
    }
}

impl Journal for SessionJournal {
    fn append<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Result<(), AppendError>> {
        Box::pin(async move {
            self.fold(entries);
            self.write(entries).await?;
            let mut state = self.inner.lock();
            (state.folded_ahead, state.unwritten) = (0, Vec::new());
            Ok(())
        })
    }
}

/// Returns the state of a session that the journal holds.
pub(super) async fn load_state(
    journal: &outlast_store::Journal,
    session: &str,
) -> Result<State, Error> {
    let (mut standing, mut after) = (State::default(), 0);
    loop {
        let entries = journal.context(session, after, PAGE).await?;
        let Some(last) = entries.last() else {
            return Ok(standing);
        };
        after = last.seq;
        for stored in &entries {
            standing.apply(parse_entry(session, stored)?);
        }
    }
}

/// Decodes a stored entry.
pub fn parse_entry(session: &str, stored: &StoredEntry) -> Result<Entry, Error> {
    serde_json::from_str(&stored.entry.body).map_err(|error| Error::Unreadable {
        session: session.to_owned(),
        seq: stored.seq,
        error,
    })
}
