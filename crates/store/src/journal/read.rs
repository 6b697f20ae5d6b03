//! Reading what was written: by anybody, whoever owns the session.

use super::owner::{Liveness, Owner};
use super::session_lock::{self, owner_of};
use super::{Journal, RawEntry, StoredEntry, integer, natural};
use crate::Error;
use crate::queue::timestamp;
use outlast_kernel::Timestamp;
use rusqlite::{Connection, Params, Row, params};
use std::sync::Arc;

pub(super) const SESSIONS: &str =
    "SELECT id, created, changed, directory, title, last_turn, entries, open_turn, owner
     FROM sessions WHERE";
/// In which something happened last first, whatever the clock said: entries are numbered in the order in which they come.
/// All are read, so they may as well be sorted.
pub(super) const ALL: &str = "TRUE ORDER BY
     (SELECT rowid FROM entries WHERE session = sessions.id ORDER BY seq DESC LIMIT 1) DESC, id DESC";
pub(super) const UNFINISHED: &str = "open_turn IS NOT NULL ORDER BY changed DESC, id DESC";
pub(super) const NAMED: &str = "id >= ?1 AND id < ?1 || char(1114111) ORDER BY id";

pub(super) const ENTRIES: &str =
    "SELECT seq, turn, kind, time, body FROM entries WHERE session = ?1 AND";
pub(super) const PAGE: &str =
    "seq > ?2 AND (?3 IS NULL OR kind IN (SELECT value FROM json_each(?3))) ORDER BY seq LIMIT ?4";
pub(super) const CONTEXT: &str =
    "seq > ?2 AND (kind IN ('prompt', 'message', 'tool_finished', 'noticed', 'compacted', 'switched', 'settled',
      'queued', 'said', 'unqueued')
      OR turn = (SELECT last_turn FROM sessions WHERE id = ?1)) ORDER BY seq LIMIT ?3";
pub(super) const LAST: &str = "kind = ?2 ORDER BY seq DESC LIMIT 1";

/// Which entries of a session to read.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Those that come after this one; 0 is before the first.
    pub after: u64,
    /// At most so many.
    pub limit: u32,
    /// Only these kinds; `None` means all.
    pub kinds: Option<&'static [&'static str]>,
}

/// What is known of a session without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub id: String,
    /// When it began.
    pub created: Timestamp,
    /// When something happened in it last.
    pub changed: Timestamp,
    /// Where it works.
    pub directory: String,
    /// What it is about; empty until somebody says so.
    pub title: String,
    /// How many turns it has.
    pub turns: u64,
    /// How many entries it has.
    pub entries: u64,
    /// The turn that is not settled, if there is one.
    pub open_turn: Option<u64>,
    /// Whether it can be claimed.
    pub state: Availability,
}

/// Whether a session can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Nobody owns it, or its owner died before it had begun anything.
    Free,
    /// A living process owns it.
    InUse,
    /// Its owner died; it can be claimed.
    Abandoned,
}

impl Journal {
    /// Entries of a session, in order.
    pub async fn read(&self, id: &str, page: Page) -> Result<Vec<StoredEntry>, Error> {
        let session = id.to_owned();
        self.look(move |connection| {
            owner_of(connection, &session)?;
            let kinds = page.kinds.map(serde_json::to_string).transpose();
            let kinds = kinds.map_err(|_| Error::Unwritable { what: "kind" })?;
            let values = params![session, integer(page.after), kinds, page.limit];
            entries(connection, PAGE, values)
        })
        .await
    }

    /// The last entry of that kind, if there is one.
    pub async fn last(&self, id: &str, kind: &'static str) -> Result<Option<StoredEntry>, Error> {
        let session = id.to_owned();
        self.look(move |connection| {
            owner_of(connection, &session)?;
            Ok(entries(connection, LAST, params![session, kind])?.pop())
        })
        .await
    }

    /// What is needed to go on with a session: what was said and done in it, and all of its last turn, in order. Of
    /// that, so many entries at most that come after the one of this number.
    pub async fn context(
        &self,
        id: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, Error> {
        let session = id.to_owned();
        self.look(move |connection| {
            owner_of(connection, &session)?;
            entries(connection, CONTEXT, params![session, integer(after), limit])
        })
        .await
    }

    /// All sessions, those in which something happened last first.
    pub async fn sessions(&self) -> Result<Vec<Summary>, Error> {
        self.summaries(ALL).await
    }

    /// The sessions that have a turn which is not settled, those in which something happened last first.
    pub async fn unfinished(&self) -> Result<Vec<Summary>, Error> {
        self.summaries(UNFINISHED).await
    }

    async fn summaries(&self, filter: &'static str) -> Result<Vec<Summary>, Error> {
        let owner = Arc::clone(&self.owner);
        self.look(move |connection| summaries(connection, &owner, filter, []))
            .await
    }

    /// The session of that name, or the only one whose name begins so.
    pub async fn summary(&self, prefix: &str) -> Result<Summary, Error> {
        let (prefix, owner) = (prefix.to_owned(), Arc::clone(&self.owner));
        self.look(move |connection| {
            let mut found = summaries(connection, &owner, NAMED, [&prefix])?;
            // The name itself comes before all that begin with it.
            let is_name = found.first().is_some_and(|first| first.id == prefix);
            match found.len() {
                0 => Err(Error::NoSuchSession { session: prefix }),
                count if count > 1 && !is_name => {
                    let count = count as u64;
                    Err(Error::Ambiguous { prefix, count })
                }
                _ => Ok(found.swap_remove(0)),
            }
        })
        .await
    }

    /// Looks through the whole file for damage.
    pub async fn check(&self) -> Result<(), Error> {
        let place = Arc::clone(&self.place);
        self.look(move |connection| {
            let said: String =
                connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            if said == "ok" {
                return Ok(());
            }
            let path = place.path.clone();
            Err(Error::Damaged { path, what: said })
        })
        .await
    }
}

/// Entries of the session that is the first of the values.
fn entries(
    connection: &Connection,
    filter: &str,
    values: impl Params,
) -> Result<Vec<StoredEntry>, Error> {
    let mut statement = connection.prepare_cached(&format!("{ENTRIES} {filter}"))?;
    let rows = statement.query_map(values, stored)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredEntry> {
    let line = RawEntry {
        turn: natural(row.get(1)?),
        kind: row.get(2)?,
        time: timestamp(row.get(3)?),
        body: row.get(4)?,
    };
    let seq = natural(row.get(0)?);
    Ok(StoredEntry { seq, line })
}

fn summaries(
    connection: &Connection,
    owner: &Owner,
    filter: &str,
    values: impl Params,
) -> Result<Vec<Summary>, Error> {
    let mut statement = connection.prepare_cached(&format!("{SESSIONS} {filter}"))?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let open_turn: Option<i64> = row.get(7)?;
        let owned_by: Option<String> = row.get(8)?;
        found.push(Summary {
            id: row.get(0)?,
            created: timestamp(row.get(1)?),
            changed: timestamp(row.get(2)?),
            directory: row.get(3)?,
            title: row.get(4)?,
            turns: natural(row.get(5)?),
            entries: natural(row.get(6)?),
            open_turn: open_turn.map(natural),
            state: match &owned_by {
                None => Availability::Free,
                Some(by) => match owner.life(session_lock::name(by))? {
                    Liveness::Alive => Availability::InUse,
                    Liveness::Dead if session_lock::is_clean_owner(by) => Availability::Free,
                    Liveness::Dead => Availability::Abandoned,
                },
            },
        });
    }
    Ok(found)
}
