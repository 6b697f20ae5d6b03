//! Writes entries to the journal; deletes sessions, and forks them: begins a new one with the entries of another.
//!
//! Every change is one transaction. An append begins with a check that this process still owns the session, a deletion
//! with one that no living process does. A change that was requested is carried out, in order and once, even if its
//! caller stops waiting. A fork leaves its source unchanged, regardless of its owner, and does not end in the middle of a
//! turn, because nobody could resume that turn.

use super::owner::Liveness;
use super::session_lock::{self, FencingToken, SessionLock, owner_of};
use super::{Journal, NewSession, RawEntry};
use crate::Error;
use crate::database::{millis, to_i64};
use rusqlite::{Connection, ErrorCode, params};
use std::sync::Arc;

impl Journal {
    /// Appends entries to a session: all of them, or none.
    pub fn append(
        &self,
        hold: &SessionLock,
        lines: Vec<RawEntry>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let key = hold.token();
        self.change(move |connection| {
            key.check(connection)?;
            lines.iter().try_for_each(|line| {
                let seq = next_seq(connection, &key, line)?;
                insert(connection, &key, seq, line)
            })
        })
    }

    /// Removes a session and all its entries, unless a living process owns it. Nothing of it stays in the file.
    pub fn delete(&self, id: &str) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (session, owner) = (id.to_owned(), Arc::clone(&self.owner));
        self.change(move |connection| {
            if let Some(by) = owner_of(connection, &session)?
                && owner.liveness(session_lock::owner_name(&by))? == Liveness::Alive
            {
                return Err(Error::InUse(session));
            }
            connection.execute("DELETE FROM entries WHERE session = ?1", [&session])?;
            connection.execute("DELETE FROM sessions WHERE id = ?1", [&session])?;
            Ok(())
        })
    }
}

impl Journal {
    /// Purges deleted data from the file and its write-ahead log, except for pages that another process is reading.
    pub async fn purge_deleted(&self) -> Result<(), Error> {
        let work = self.worker.run(|connection, _| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(())
        });
        work.await
    }
}

/// Counts a new entry in its session's row and returns the number of the entry.
fn next_seq(connection: &Connection, key: &FencingToken, line: &RawEntry) -> Result<i64, Error> {
    let mut statement = connection.prepare_cached(
        "UPDATE sessions SET
             entries = entries + 1,
             changed = max(changed, ?2),
             last_turn = CASE ?4 WHEN 'prompt' THEN max(last_turn, ?3) ELSE last_turn END,
             open_turn = CASE
                 WHEN ?4 = 'prompt' THEN ?3
                 WHEN ?4 = 'settled' AND open_turn = ?3 THEN NULL
                 ELSE open_turn END,
             owner = CASE ?4 WHEN 'prompt' THEN rtrim(owner, '~') ELSE owner END
         WHERE id = ?1 RETURNING entries",
    )?;
    let (time, turn) = (millis(line.time), to_i64(line.turn));
    let values = params![key.session, time, turn, line.kind];
    Ok(statement.query_row(values, |row| row.get(0))?)
}

fn insert(
    connection: &Connection,
    key: &FencingToken,
    seq: i64,
    line: &RawEntry,
) -> Result<(), Error> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO entries (session, seq, turn, kind, time, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            key.session,
            seq,
            to_i64(line.turn),
            line.kind,
            millis(line.time),
            line.body,
        ]);
    match inserted {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(Error::DuplicateEntry {
                session: key.session.clone(),
                turn: line.turn,
                kind: line.kind.clone(),
            })
        }
        inserted => Ok(inserted.map(drop)?),
    }
}

// --- Forks ---

impl Journal {
    /// Begins a session with the entries of another one: those before entry number `before`, or all. This process owns
    /// the new session.
    pub async fn fork(
        &self,
        from: &str,
        before: Option<u64>,
        session: NewSession,
    ) -> Result<SessionLock, Error> {
        let (from, id) = (from.to_owned(), session.id.clone());
        let before = before.map_or(i64::MAX, to_i64);
        self.acquire(id, move |connection, owner| {
            owner_of(connection, &from)?;
            refuse_open_turn(connection, &from, before)?;
            let owned = session_lock::insert(connection, &session, &owner.name()?)?;
            copy(connection, &from, &session.id, before)?;
            Ok(owned)
        })
        .await
    }
}

fn refuse_open_turn(connection: &Connection, from: &str, before: i64) -> Result<(), Error> {
    let is_open = connection
        .prepare_cached(
            "SELECT 1 FROM entries AS begun
             WHERE session = ?1 AND seq < ?2 AND kind = 'prompt' AND NOT EXISTS
                 (SELECT 1 FROM entries WHERE session = ?1 AND turn = begun.turn AND kind = 'settled' AND seq < ?2)",
        )?
        .exists(params![from, before])?;
    match is_open {
        true => Err(Error::OpenTurn(from.to_owned())),
        false => Ok(()),
    }
}

fn copy(connection: &Connection, from: &str, to: &str, before: i64) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO entries (session, seq, turn, kind, time, body)
             SELECT ?3, seq, turn, kind, time, body FROM entries
             WHERE session = ?1 AND seq < ?2 ORDER BY seq",
        )?
        .execute(params![from, before, to])?;
    connection
        .prepare_cached(
            "UPDATE sessions SET
                 entries = (SELECT count(*) FROM entries WHERE session = ?1),
                 last_turn = (SELECT coalesce(max(turn), 0) FROM entries WHERE session = ?1 AND kind = 'prompt')
             WHERE id = ?1",
        )?
        .execute([to])?;
    Ok(())
}
