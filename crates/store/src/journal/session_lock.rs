//! Session locks: beginning, claiming and releasing a session.
//!
//! Invariant: every change of owner raises the fence, in the transaction that finds the previous owner dead. A writer
//! presents fence and owner (`FencingToken`), so a process that was taken for dead and wakes up writes nothing more.

use super::Journal;
use super::owner::{Liveness, Owner};
use crate::Error;
use crate::database::millis;
use crate::worker::OnCallerGone;
use outlast_kernel::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

/// A suffix of the owner's name: the owner found everything settled and reported, and has begun no turn since. If it
/// dies, nothing is left to report.
const CLEAN_OWNER_MARK: char = '~';

/// A session to begin.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The name of the session; it must be unique.
    pub id: String,
    /// The working directory.
    pub directory: String,
    /// The title.
    pub title: String,
    /// The time at which the session begins.
    pub now: Timestamp,
}

/// The right of this process to write a session. Dropping it releases the session, unless the process ends first.
#[derive(Debug)]
#[must_use = "a session is let go of when its hold is dropped"]
pub struct SessionLock {
    token: FencingToken,
    /// The journal that releases the session; `None` once the release is under way.
    journal: Option<Journal>,
}

impl SessionLock {
    /// Returns the name of the session.
    pub fn session(&self) -> &str {
        &self.token.session
    }

    pub(super) fn token(&self) -> FencingToken {
        self.token.clone()
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // The release is under way when this returns; nobody is left to receive its result.
            drop(journal.release_token(self.token()));
        }
    }
}

/// The proof of ownership that a writer presents.
#[derive(Clone, Debug)]
pub(super) struct FencingToken {
    pub(super) session: String,
    fence: i64,
    owner: String,
}

impl FencingToken {
    /// Checks that the token is still valid; must run in the transaction that writes.
    pub(super) fn check(&self, connection: &Connection) -> Result<(), Error> {
        let is_ours = connection
            .prepare_cached(
                "SELECT 1 FROM sessions WHERE id = ?1 AND fence = ?2 AND rtrim(owner, '~') = ?3",
            )?
            .exists(params![self.session, self.fence, self.owner])?;
        if is_ours {
            return Ok(());
        }
        Err(Error::Fenced(self.session.clone()))
    }
}

impl Journal {
    /// Begins a session, which this process then owns.
    pub async fn create(&self, session: NewSession) -> Result<SessionLock, Error> {
        let id = session.id.clone();
        self.acquire(id, move |connection, owner| {
            insert(connection, &session, &owner.name()?)
        })
        .await
    }

    /// Claims a session that nobody owns, or whose owner has died.
    pub async fn claim(&self, id: &str) -> Result<SessionLock, Error> {
        let session = id.to_owned();
        self.acquire(id.to_owned(), move |connection, owner| {
            take_over(connection, &session, owner)
        })
        .await
    }

    /// Releases a session, so that it can be claimed. It is done even if nobody waits for it.
    pub fn release(
        &self,
        mut hold: SessionLock,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        hold.journal = None;
        self.release_token(hold.token())
    }

    /// Releases a session, or removes it if it has no entries. It is done even if nobody waits for it.
    pub fn release_or_remove(
        &self,
        mut hold: SessionLock,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        hold.journal = None;
        let key = hold.token();
        self.change(move |connection| {
            key.check(connection)?;
            let removed = connection
                .prepare_cached("DELETE FROM sessions WHERE id = ?1 AND entries = 0")?
                .execute([&key.session])?;
            match removed {
                0 => clear_owner(connection, &key),
                _ => Ok(()),
            }
        })
    }

    /// Gives a session another title.
    pub fn rename(
        &self,
        hold: &SessionLock,
        title: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (key, title) = (hold.token(), title.to_owned());
        self.change(move |connection| {
            key.check(connection)?;
            connection
                .prepare_cached("UPDATE sessions SET title = ?2 WHERE id = ?1")?
                .execute([&key.session, &title])?;
            Ok(())
        })
    }

    fn release_token(
        &self,
        key: FencingToken,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        self.change(move |connection| {
            key.check(connection)?;
            clear_owner(connection, &key)
        })
    }

    /// Makes this process the owner of a session; `own` returns the new fence and owner.
    pub(super) async fn acquire(
        &self,
        session: String,
        own: impl FnOnce(&Connection, &Owner) -> Result<(i64, String), Error> + Send + 'static,
    ) -> Result<SessionLock, Error> {
        let (journal, place) = (self.clone(), Arc::clone(&self.file));
        let owner = Arc::clone(&self.owner);
        let change = move |connection: &Connection| {
            place.check()?;
            own(connection, &owner)
        };
        // Made once the change is on the disk: if the caller has left, dropping the lock releases the session.
        let hold = move |(fence, owner)| SessionLock {
            token: FencingToken {
                session,
                fence,
                owner,
            },
            journal: Some(journal),
        };
        self.worker.change(OnCallerGone::Skip, change, hold).await
    }
}

fn clear_owner(connection: &Connection, key: &FencingToken) -> Result<(), Error> {
    connection
        .prepare_cached("UPDATE sessions SET owner = NULL WHERE id = ?1")?
        .execute([&key.session])?;
    Ok(())
}

pub(super) fn insert(
    connection: &Connection,
    session: &NewSession,
    owner: &str,
) -> Result<(i64, String), Error> {
    const FIRST_FENCE: i64 = 1;
    let now = millis(session.now);
    let inserted = connection
        .prepare_cached(
            "INSERT INTO sessions (id, created, changed, directory, title, fence, owner, last_turn, entries)
             VALUES (?1, ?2, ?2, ?3, ?6, ?4, ?5, 0, 0) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            session.id,
            now,
            session.directory,
            FIRST_FENCE,
            owner,
            session.title
        ])?;
    if inserted == 0 {
        return Err(Error::SessionExists(session.id.clone()));
    }
    Ok((FIRST_FENCE, owner.to_owned()))
}

fn take_over(
    connection: &Connection,
    session: &str,
    owner: &Owner,
) -> Result<(i64, String), Error> {
    let before = owner_of(connection, session)?;
    if let Some(before) = &before
        && owner.remove_if_dead(owner_name(before))? == Liveness::Alive
    {
        return Err(Error::InUse(session.to_owned()));
    }
    let own = owner.name()?;
    let mark = match before.as_deref().is_none_or(is_clean_owner) {
        true => CLEAN_OWNER_MARK.to_string(),
        false => String::new(),
    };
    let fence = connection
        .prepare_cached(
            "UPDATE sessions SET fence = fence + 1,
             owner = CASE WHEN open_turn IS NULL THEN ?2 || ?3 ELSE ?2 END
             WHERE id = ?1 RETURNING fence",
        )?
        .query_row(params![session, own, mark], |row| row.get(0))?;
    Ok((fence, own))
}

/// Returns the name of an owner without its mark.
pub(super) fn owner_name(owner: &str) -> &str {
    owner.trim_end_matches(CLEAN_OWNER_MARK)
}

/// Returns whether everything was settled and reported when that owner claimed the session, and it has begun nothing
/// since.
pub(super) fn is_clean_owner(owner: &str) -> bool {
    owner.ends_with(CLEAN_OWNER_MARK)
}

/// Returns the owner of a session, alive or dead.
pub(super) fn owner_of(connection: &Connection, session: &str) -> Result<Option<String>, Error> {
    let owner = connection
        .prepare_cached("SELECT owner FROM sessions WHERE id = ?1")?
        .query_row([session], |row| row.get(0))
        .optional()?;
    owner.ok_or_else(|| Error::NoSuchSession(session.to_owned()))
}
