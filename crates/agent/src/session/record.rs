//! Where a session's entries go: into the store's journal, if it has one, and into where the session stands.
//!
//! Invariants: every entry is folded once, in order, whether it could be written down at once or not; what a turn could
//! not write down until its end is written before what the next one writes.

use super::Error;
use super::fold::Standing;
use outlast_engine::journal::{Entry, Journal, Unrecorded};
use outlast_engine::{BoxFuture, Clock};
use outlast_store::journal::{Hold, Line, Stored};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many entries are read at a time: of a long session, what was folded is not needed any more.
const PAGE: u32 = 1000;

pub(super) struct Record {
    kept: Option<(outlast_store::Journal, Hold)>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    standing: Standing,
    /// The turn that entries belong to.
    turn: u64,
    /// How many of the entries that come next were folded already, when they could not be written down.
    ahead: usize,
    /// What the turn could not write down when it last tried, and what earlier ones never could.
    unwritten: Vec<Line>,
    owed: Vec<Line>,
}

impl Record {
    pub(super) fn in_memory(clock: Arc<dyn Clock>) -> Self {
        Self::new(None, Standing::default(), clock)
    }

    pub(super) fn kept(
        kept: (outlast_store::Journal, Hold),
        standing: Standing,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::new(Some(kept), standing, clock)
    }

    fn new(
        kept: Option<(outlast_store::Journal, Hold)>,
        standing: Standing,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let state = Mutex::new(State {
            standing,
            turn: 0,
            ahead: 0,
            unwritten: Vec::new(),
            owed: Vec::new(),
        });
        Self { kept, clock, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is true of where the session stands.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Standing) -> R) -> R {
        look(&self.lock().standing)
    }

    /// From here on entries belong to that turn. What the one before has not written down it will not try again.
    pub(super) fn begin_turn(&self, number: u64) {
        let mut state = self.lock();
        let unwritten = std::mem::take(&mut state.unwritten);
        state.owed.extend(unwritten);
        (state.turn, state.ahead) = (number, 0);
    }

    pub(super) const fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Writes down what could not be written before, and lets go of the session.
    pub(super) async fn release(self) -> Result<(), Error> {
        // The next turn would do the same.
        self.begin_turn(0);
        let state = self.state.into_inner();
        let owed = state.unwrap_or_else(PoisonError::into_inner).owed;
        let Some((journal, hold)) = self.kept else {
            return Ok(());
        };
        if !owed.is_empty() {
            journal.append(&hold, owed).await?;
        }
        Ok(journal.release(hold).await?)
    }

    fn fold(&self, entries: &[Entry]) {
        let mut state = self.lock();
        let new = entries.iter().skip(state.ahead).cloned();
        new.for_each(|entry| state.standing.take_in(entry));
        state.ahead = entries.len();
    }

    async fn write(&self, entries: &[Entry]) -> Result<(), Unrecorded> {
        let Some((journal, hold)) = &self.kept else {
            return Ok(());
        };
        let failed = |why: String| Unrecorded::Failed { why };
        let turn = self.lock().turn;
        let lines: Result<Vec<Line>, _> =
            entries.iter().map(|entry| self.line(turn, entry)).collect();
        let lines = lines.map_err(|error| failed(error.to_string()))?;
        // Should nobody stay to hear what came of it, it is written all the same, and owed no more.
        let owed = std::mem::take(&mut self.lock().owed);
        let all = owed.iter().chain(&lines).cloned().collect();
        let Err(error) = journal.append(hold, all).await else {
            return Ok(());
        };
        let mut state = self.lock();
        (state.owed, state.unwritten) = (owed, lines);
        Err(match error {
            outlast_store::Error::Fenced { .. } => Unrecorded::Lost {
                why: error.to_string(),
            },
            error => failed(error.to_string()),
        })
    }

    fn line(&self, turn: u64, entry: &Entry) -> Result<Line, serde_json::Error> {
        Ok(Line {
            turn,
            kind: entry.kind().to_owned(),
            time: self.clock.now(),
            body: serde_json::to_string(entry)?,
        })
    }
}

impl Journal for Record {
    fn append<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Result<(), Unrecorded>> {
        Box::pin(async move {
            self.fold(entries);
            self.write(entries).await?;
            let mut state = self.lock();
            (state.ahead, state.unwritten) = (0, Vec::new());
            Ok(())
        })
    }
}

/// Where a session stands that the journal keeps.
pub(super) async fn standing(
    journal: &outlast_store::Journal,
    session: &str,
) -> Result<Standing, Error> {
    let (mut standing, mut after) = (Standing::default(), 0);
    loop {
        let entries = journal.context(session, (after, PAGE)).await?;
        let Some(last) = entries.last() else {
            return Ok(standing);
        };
        after = last.seq;
        for stored in &entries {
            standing.take_in(read(session, stored)?);
        }
    }
}

/// The entry that a line holds.
pub fn read(session: &str, stored: &Stored) -> Result<Entry, Error> {
    serde_json::from_str(&stored.line.body).map_err(|error| Error::Unreadable {
        session: session.to_owned(),
        seq: stored.seq,
        error,
    })
}
