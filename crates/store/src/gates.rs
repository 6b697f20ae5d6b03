//! Gates: read, changed and written back in one transaction.

use crate::{Error, Store};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Config, Gate};
use rusqlite::{Connection, OptionalExtension, params};

/// A gate that has been quiet for this long is forgotten; its fences are then of no use to anybody.
const FORGOTTEN_AFTER_MS: u64 = 7 * 86_400_000;

impl Store {
    /// Changes a gate; the answer comes with the gate as it then is.
    pub async fn with_gate<R: Send + 'static>(
        &self,
        key: &str,
        config: Config,
        now: Timestamp,
        change: impl FnOnce(&mut Gate) -> R + Send + 'static,
    ) -> Result<(R, Gate), Error> {
        let key = key.to_owned();
        self.change(move |connection| {
            let mut gate = find(connection, &key)?.unwrap_or_else(|| Gate::new(config));
            let result = change(&mut gate);
            save(connection, &key, &gate, now)?;
            Ok((result, gate))
        })
        .await
    }

    /// All gates that are known.
    pub async fn gates(&self) -> Result<Vec<(String, Gate)>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT key, state FROM gates")?;
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            rows.map(|row| {
                let (key, state) = row?;
                Ok((key, read(&state)?))
            })
            .collect()
        })
        .await
    }
}

fn find(connection: &Connection, key: &str) -> Result<Option<Gate>, Error> {
    let mut statement = connection.prepare_cached("SELECT state FROM gates WHERE key = ?1")?;
    let state: Option<String> = statement.query_row([key], |row| row.get(0)).optional()?;
    state.as_deref().map(read).transpose()
}

fn read(state: &str) -> Result<Gate, Error> {
    serde_json::from_str(state).map_err(|_| Error::Unreadable { what: "gate" })
}

fn save(connection: &Connection, key: &str, gate: &Gate, now: Timestamp) -> Result<(), Error> {
    let state = serde_json::to_string(gate).map_err(|_| Error::Unreadable { what: "gate" })?;
    let changed = millis(now);
    connection
        .prepare_cached(
            "INSERT INTO gates (key, state, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (key) DO UPDATE SET state = excluded.state, changed = excluded.changed",
        )?
        .execute(params![key, state, changed])?;
    let forgotten = millis(now).saturating_sub_unsigned(FORGOTTEN_AFTER_MS);
    connection
        .prepare_cached("DELETE FROM gates WHERE changed < ?1")?
        .execute([forgotten])?;
    Ok(())
}

/// A time as the file has it.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
