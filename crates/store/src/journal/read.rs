//! Reads the journal. Any process may read any session, regardless of its owner.

use super::owner::{Liveness, Owner};
use super::session_lock::{self, owner_of};
use super::{Journal, RawEntry, StoredEntry};
use crate::Error;
use crate::database::{timestamp, to_i64, to_u64};
use outlast_kernel::Timestamp;
use rusqlite::{Connection, Params, Row, params};
use std::sync::Arc;

pub(super) const SESSIONS: &str =
    "SELECT id, created, changed, directory, title, last_turn, entries, open_turn, owner
     FROM sessions WHERE";
/// Orders sessions by their last entry, newest first, independent of clocks: rowids number entries in the order of
/// their arrival. The query reads all sessions anyway, so sorting costs little.
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

/// A selection of a session's entries.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only entries after this number; 0 is before the first.
    pub after: u64,
    /// The maximum number of entries.
    pub limit: u32,
    /// Only these kinds; `None` means all.
    pub kinds: Option<&'static [&'static str]>,
}

/// A summary of a session, without its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The name of the session.
    pub id: String,
    /// The time at which the session began.
    pub created: Timestamp,
    /// The time of the last change.
    pub changed: Timestamp,
    /// The working directory.
    pub directory: String,
    /// The title; empty until it is set.
    pub title: String,
    /// The number of turns.
    pub turns: u64,
    /// The number of entries.
    pub entries: u64,
    /// The turn that is not settled, if there is one.
    pub open_turn: Option<u64>,
    /// Whether the session can be claimed.
    pub availability: Availability,
}

/// Whether a session can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Nobody owns it, or its owner died before beginning anything.
    Free,
    /// A living process owns it.
    InUse,
    /// Its owner died; it can be claimed.
    Abandoned,
}

impl Journal {
    /// Returns entries of a session, in order.
    pub async fn read(&self, id: &str, page: Page) -> Result<Vec<StoredEntry>, Error> {
        let session = id.to_owned();
        self.query(move |connection| {
            owner_of(connection, &session)?;
            let kinds = page.kinds.map(serde_json::to_string).transpose();
            let kinds = kinds.map_err(|_| Error::NotSerializable("kind"))?;
            let values = params![session, to_i64(page.after), kinds, page.limit];
            entries(connection, PAGE, values)
        })
        .await
    }

    /// Returns the last entry of that kind, if there is one.
    pub async fn last_of_kind(
        &self,
        id: &str,
        kind: &'static str,
    ) -> Result<Option<StoredEntry>, Error> {
        let session = id.to_owned();
        self.query(move |connection| {
            owner_of(connection, &session)?;
            Ok(entries(connection, LAST, params![session, kind])?.pop())
        })
        .await
    }

    /// Returns the entries that are needed to resume a session, in order: its conversation, and all of its last turn.
    /// Only those after entry number `after`, at most `limit`.
    pub async fn context(
        &self,
        id: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, Error> {
        let session = id.to_owned();
        self.query(move |connection| {
            owner_of(connection, &session)?;
            entries(connection, CONTEXT, params![session, to_i64(after), limit])
        })
        .await
    }

    /// Returns all sessions, the most recently changed first.
    pub async fn sessions(&self) -> Result<Vec<Summary>, Error> {
        self.summaries(ALL).await
    }

    /// Returns the sessions with an unsettled turn, the most recently changed first.
    pub async fn unfinished(&self) -> Result<Vec<Summary>, Error> {
        self.summaries(UNFINISHED).await
    }

    async fn summaries(&self, filter: &'static str) -> Result<Vec<Summary>, Error> {
        let owner = Arc::clone(&self.owner);
        self.query(move |connection| summaries(connection, &owner, filter, []))
            .await
    }

    /// Returns the session of that name, or the only one whose name begins with the prefix.
    pub async fn summary(&self, prefix: &str) -> Result<Summary, Error> {
        let (prefix, owner) = (prefix.to_owned(), Arc::clone(&self.owner));
        self.query(move |connection| {
            let mut found = summaries(connection, &owner, NAMED, [&prefix])?;
            // The exact name sorts before all names that begin with it.
            let is_name = found.first().is_some_and(|first| first.id == prefix);
            match found.len() {
                0 => Err(Error::NoSuchSession(prefix)),
                count if count > 1 && !is_name => {
                    let count = count as u64;
                    Err(Error::Ambiguous { prefix, count })
                }
                _ => Ok(found.swap_remove(0)),
            }
        })
        .await
    }

    /// Checks the whole file for damage.
    pub async fn check_integrity(&self) -> Result<(), Error> {
        let place = Arc::clone(&self.file);
        self.query(move |connection| {
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

/// Returns entries of the session that is the first of the values.
fn entries(
    connection: &Connection,
    filter: &str,
    values: impl Params,
) -> Result<Vec<StoredEntry>, Error> {
    let mut statement = connection.prepare_cached(&format!("{ENTRIES} {filter}"))?;
    let rows = statement.query_map(values, read_entry)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<StoredEntry> {
    let entry = RawEntry {
        turn: to_u64(row.get(1)?),
        kind: row.get(2)?,
        time: timestamp(row.get(3)?),
        body: row.get(4)?,
    };
    let seq = to_u64(row.get(0)?);
    Ok(StoredEntry { seq, entry })
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
            turns: to_u64(row.get(5)?),
            entries: to_u64(row.get(6)?),
            open_turn: open_turn.map(to_u64),
            availability: match &owned_by {
                None => Availability::Free,
                Some(by) => match owner.liveness(session_lock::owner_name(by))? {
                    Liveness::Alive => Availability::InUse,
                    Liveness::Dead if session_lock::is_clean_owner(by) => Availability::Free,
                    Liveness::Dead => Availability::Abandoned,
                },
            },
        });
    }
    Ok(found)
}
