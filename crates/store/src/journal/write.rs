//! Writes entries to the journal and deletes sessions.
//!
//! Every change is one transaction. An append begins with a check that this process still owns the session, a deletion
//! with one that no living process does. A change that was requested is carried out, in order and once, even if its
//! caller stops waiting.

use super::owner::Liveness;
use super::session_lock::{self, FencingToken, SessionLock};
use super::{Journal, RawEntry, to_i64};
use crate::Error;
use crate::time::millis;
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
            if let Some(by) = session_lock::owner_of(connection, &session)?
                && owner.liveness(session_lock::owner_name(&by))? == Liveness::Alive
            {
                return Err(Error::InUse { session });
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
