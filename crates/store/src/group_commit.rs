//! Commits waiting changes together, as one transaction, so that all of them wait for the disk once.
//!
//! Invariants: each is made as a whole or not at all; one that is refused does not affect the others, unless the file
//! as a whole refuses, as on a full disk, which all callers are told. No caller learns that a change was made before it
//! is on the disk. Changes are made in the order of their arrival.

use crate::Error;
use rusqlite::{Connection, Transaction, TransactionBehavior, ffi};

/// The maximum number of changes in a group: other processes need the file, too.
const MAX_GROUP: usize = 64;

/// A change whose caller waits.
pub(crate) trait Change: Send {
    /// Makes the change.
    fn apply(&mut self, connection: &Connection) -> Result<(), DatabaseFailure>;

    /// Reports the outcome, when it is known whether the change is on the disk.
    fn finish(self: Box<Self>, kept: Result<(), DatabaseFailure>);
}

/// A failure of the database, cloned for every change that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseFailure(ffi::Error, Option<String>);

impl DatabaseFailure {
    pub(crate) fn from_error(error: &Error) -> Self {
        match error {
            Error::Database(rusqlite::Error::SqliteFailure(code, message)) => {
                Self(*code, message.clone())
            }
            other => Self(ffi::Error::new(ffi::SQLITE_ERROR), Some(other.to_string())),
        }
    }
}

impl From<rusqlite::Error> for DatabaseFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::from_error(&error.into())
    }
}

impl From<DatabaseFailure> for Error {
    fn from(DatabaseFailure(code, message): DatabaseFailure) -> Self {
        rusqlite::Error::SqliteFailure(code, message).into()
    }
}

/// Carries out a change, and with it those that come next, as long as there are any.
pub(crate) fn commit_group(
    connection: &mut Connection,
    first: Box<dyn Change>,
    mut next: impl FnMut() -> Option<Box<dyn Change>>,
) {
    let mut changes = vec![first];
    let kept = apply_group(connection, &mut changes, &mut next);
    for change in changes {
        change.finish(kept.clone());
    }
}

fn apply_group(
    connection: &mut Connection,
    changes: &mut Vec<Box<dyn Change>>,
    next: &mut dyn FnMut() -> Option<Box<dyn Change>>,
) -> Result<(), DatabaseFailure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for first in changes.iter_mut() {
        if first.apply(&transaction).is_err() {
            // Its own error is reported, and nothing is to be kept.
            return Ok(());
        }
    }
    while changes.len() < MAX_GROUP
        && let Some(mut change) = next()
    {
        let made = apply_in_savepoint(&transaction, &mut *change);
        changes.push(change);
        made?;
    }
    Ok(transaction.commit()?)
}

/// Makes a change so that it can be rolled back alone. An error concerns all changes so far.
fn apply_in_savepoint(
    transaction: &Transaction<'_>,
    change: &mut dyn Change,
) -> Result<(), DatabaseFailure> {
    let say = |statement| transaction.prepare_cached(statement)?.execute([]);
    say("SAVEPOINT change")?;
    if let Err(failure) = change.apply(transaction) {
        // An error of the file as a whole rolls everything back.
        if transaction.is_autocommit() {
            return Err(failure);
        }
        say("ROLLBACK TO change")?;
    }
    say("RELEASE change")?;
    Ok(())
}
