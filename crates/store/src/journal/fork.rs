//! Forks a session: begins a new one with the entries of another.
//!
//! Invariants: a copy is made as a whole or not at all; the source session stays unchanged, regardless of its owner; no
//! copy ends in the middle of a turn, because nobody could resume that turn.

use super::session_lock::{self, owner_of};
use super::{Journal, NewSession, SessionLock, to_i64};
use crate::Error;
use rusqlite::{Connection, params};

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
        true => Err(Error::OpenTurn {
            session: from.to_owned(),
        }),
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
