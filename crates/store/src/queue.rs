//! The line before a gate, as rows: any number may wait, and none of them is read to let one through.

use crate::Error;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Queue, QueuePosition, Waiter, WaiterId};
use rusqlite::{Connection, Row, params};
use std::time::Duration;

/// Who has not been heard of for this long has died.
pub(crate) const WAITER_TTL: Duration = Duration::from_secs(30);

/// Puts a caller in line.
pub(crate) fn join(
    connection: &Connection,
    gate: &str,
    waiter: &Waiter,
    now: Timestamp,
) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO waiters (gate, since, id, own_wake, deadline, expires, crowd)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (gate, since, id) DO UPDATE SET
                 own_wake = excluded.own_wake, deadline = excluded.deadline, expires = excluded.expires,
                 crowd = excluded.crowd",
        )?
        .execute(params![
            gate,
            millis(waiter.since),
            waiter.id.0,
            millis(waiter.own_wake),
            waiter.deadline.map(millis),
            millis(now + WAITER_TTL),
            waiter.batch,
        ])?;
    Ok(())
}

/// Renews the place of a caller in line.
pub(crate) fn renew(
    connection: &Connection,
    gate: &str,
    waiter: &Waiter,
    now: Timestamp,
) -> Result<(), Error> {
    let expires = millis(now + WAITER_TTL);
    connection
        .prepare_cached(
            "UPDATE waiters SET expires = ?4 WHERE gate = ?1 AND since = ?2 AND id = ?3",
        )?
        .execute(params![gate, millis(waiter.since), waiter.id.0, expires])?;
    Ok(())
}

/// Takes a caller out of line.
pub(crate) fn leave(connection: &Connection, gate: &str, waiter: &Waiter) -> Result<(), Error> {
    connection
        .prepare_cached("DELETE FROM waiters WHERE gate = ?1 AND since = ?2 AND id = ?3")?
        .execute(params![gate, millis(waiter.since), waiter.id.0])?;
    Ok(())
}

/// Takes whoever has that name out of line, wherever it stands.
pub(crate) fn remove_by_id(
    connection: &Connection,
    gate: &str,
    id: &WaiterId,
) -> Result<(), Error> {
    connection
        .prepare_cached("DELETE FROM waiters WHERE gate = ?1 AND id = ?2")?
        .execute(params![gate, id.0])?;
    Ok(())
}

/// Takes a caller out of line, and those ahead of it, who did not come.
pub(crate) fn leave_with_all_ahead(
    connection: &Connection,
    gate: &str,
    waiter: &Waiter,
) -> Result<(), Error> {
    connection
        .prepare_cached("DELETE FROM waiters WHERE gate = ?1 AND (since, id) <= (?2, ?3)")?
        .execute(params![gate, millis(waiter.since), waiter.id.0])?;
    Ok(())
}

/// Takes those out of line who have died.
pub(crate) fn remove_expired(connection: &Connection, now: Timestamp) -> Result<(), Error> {
    connection
        .prepare_cached("DELETE FROM waiters WHERE expires <= ?1")?
        .execute([millis(now)])?;
    Ok(())
}

/// How many wait.
pub(crate) fn waiting_count(connection: &Connection, gate: &str) -> Result<u32, Error> {
    let mut statement = connection
        .prepare_cached("SELECT ifnull(sum(ifnull(crowd, 1)), 0) FROM waiters WHERE gate = ?1")?;
    Ok(statement.query_row([gate], |row| row.get(0))?)
}

/// Where a caller stands.
pub(crate) fn position(
    connection: &Connection,
    gate: &str,
    waiter: &Waiter,
) -> Result<QueuePosition, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT ifnull(sum(ifnull(crowd, 1)), 0) FROM waiters WHERE gate = ?1 AND (since, id) < (?2, ?3)",
    )?;
    let key = params![gate, millis(waiter.since), waiter.id.0];
    Ok(QueuePosition {
        ahead: statement.query_row(key, |row| row.get(0))?,
        waiting: waiting_count(connection, gate)?,
    })
}

/// Everyone who waits and lives.
pub(crate) fn load(connection: &Connection, gate: &str, now: Timestamp) -> Result<Queue, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT since, id, own_wake, deadline, crowd FROM waiters WHERE gate = ?1 AND expires > ?2
         ORDER BY since, id",
    )?;
    let mut line = Queue::default();
    for waiter in statement.query_map(params![gate, millis(now)], read)? {
        line.join(waiter?);
    }
    Ok(line)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Waiter> {
    let deadline: Option<i64> = row.get(3)?;
    Ok(Waiter {
        since: timestamp(row.get(0)?),
        id: WaiterId(row.get(1)?),
        own_wake: timestamp(row.get(2)?),
        deadline: deadline.map(timestamp),
        batch: row.get(4)?,
    })
}

/// A time as the file has it.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A time from the file.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
}
