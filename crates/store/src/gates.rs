//! Gates and the lines before them: read, changed and written back in one transaction.

use crate::queue::{self, millis};
use crate::{Error, Store};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Gate, GateReply, Queue, Report, Waiter, WaiterId};
use outlast_kernel::verdict::Cause;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

/// A gate that has been quiet for this long is forgotten; its fences are then of no use to anybody.
const GATE_RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// A gate and the line before it, as they were just now.
#[derive(Clone, Debug, Default)]
pub struct GateSnapshot {
    /// The gate.
    pub gate: Gate,
    /// Who waits.
    pub queue: Queue,
    /// What went wrong last.
    pub cause: Option<Cause>,
}

impl Store {
    /// Asks a gate for a caller; the answer comes with the gate as it then is.
    pub async fn request_pass(
        &self,
        key: &str,
        waiter: Waiter,
        now: Timestamp,
    ) -> Result<(GateReply, Gate), Error> {
        self.with_gate(key, now, move |connection, key, gate| {
            let everyone_passes = gate.is_closed();
            queue::join(connection, key, &waiter, now)?;
            let place = queue::position(connection, key, &waiter)?;
            let answer = gate.request_pass(&waiter, place, now);
            match answer {
                GateReply::Hold(_) => {}
                GateReply::DeadlineExceeded => queue::leave(connection, key, &waiter)?,
                GateReply::Proceed(_) | GateReply::Probe(_) => {
                    if everyone_passes {
                        queue::leave(connection, key, &waiter)?;
                    } else {
                        queue::leave_with_all_ahead(connection, key, &waiter)?;
                    }
                    if let Some(rest) = waiter.remaining_batch() {
                        queue::join(connection, key, &rest, now)?;
                    }
                }
            }
            Ok(answer)
        })
        .await
    }

    /// Tells a gate what came of a call.
    pub async fn report(&self, key: &str, report: Report, now: Timestamp) -> Result<Gate, Error> {
        let changed = self.with_gate(key, now, move |connection, key, gate| {
            gate.apply_report(&report, queue::waiting_count(connection, key)?, now);
            if let Report::Failed { cause, .. } = &report {
                save(connection, key, gate, now)?;
                save_cause(connection, key, *cause)?;
            }
            if let Some(waiter) = report.queued_waiter() {
                queue::join(connection, key, waiter, now)?;
            }
            Ok(())
        });
        Ok(changed.await?.1)
    }

    /// Shows that a caller in line is alive. One that is not in line any more is not put there: it may just have been
    /// let through.
    pub async fn renew_waiter(
        &self,
        key: &str,
        waiter: Waiter,
        now: Timestamp,
    ) -> Result<(), Error> {
        let key = key.to_owned();
        self.change(move |connection| queue::renew(connection, &key, &waiter, now))
            .await
    }

    /// Takes whoever has that name out of line, wherever it stands.
    pub async fn remove_waiter(&self, key: &str, id: WaiterId) -> Result<(), Error> {
        let key = key.to_owned();
        self.change(move |connection| queue::remove_by_id(connection, &key, &id))
            .await
    }

    /// Takes a caller out of line.
    pub async fn leave_queue(&self, key: &str, waiter: Waiter) -> Result<(), Error> {
        let key = key.to_owned();
        self.change(move |connection| queue::leave(connection, &key, &waiter))
            .await
    }

    /// All gates that are known, with their lines.
    pub async fn gate_snapshots(
        &self,
        now: Timestamp,
    ) -> Result<Vec<(String, GateSnapshot)>, Error> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached("SELECT key, state, cause FROM gates")?;
            let rows = statement.query_map([], |row| {
                let cause: Option<String> = row.get(2)?;
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, cause))
            })?;
            let mut scenes = Vec::new();
            for row in rows {
                let (key, state, cause) = row?;
                // A row that cannot be read says nothing; the next change replaces it.
                let Some(gate) = parse(&state) else { continue };
                let (gate, line) = (
                    gate.with_times_clamped(now),
                    queue::load(connection, &key, now)?,
                );
                let cause = cause.and_then(|word| Cause::named(&word));
                scenes.push((
                    key,
                    GateSnapshot {
                        gate,
                        queue: line,
                        cause,
                    },
                ));
            }
            Ok(scenes)
        })
        .await
    }

    async fn with_gate<R: Send + 'static>(
        &self,
        key: &str,
        now: Timestamp,
        change: impl FnOnce(&Connection, &str, &mut Gate) -> Result<R, Error> + Send + 'static,
    ) -> Result<(R, Gate), Error> {
        let (key, config) = (key.to_owned(), self.config);
        self.change(move |connection| {
            queue::remove_expired(connection, now)?;
            let before = load(connection, &key)?;
            let mut gate = match &before {
                Some(before) => before.clone().with_times_clamped(now),
                None => Gate::new(config),
            };
            let result = change(connection, &key, &mut gate)?;
            if before.as_ref() != Some(&gate) {
                save(connection, &key, &gate, now)?;
            }
            Ok((result, gate))
        })
        .await
    }
}

fn save_cause(connection: &Connection, key: &str, cause: Cause) -> Result<(), Error> {
    connection
        .prepare_cached("UPDATE gates SET cause = ?2 WHERE key = ?1")?
        .execute(params![key, cause.as_str()])?;
    Ok(())
}

fn load(connection: &Connection, key: &str) -> Result<Option<Gate>, Error> {
    let mut statement = connection.prepare_cached("SELECT state FROM gates WHERE key = ?1")?;
    let state: Option<String> = statement.query_row([key], |row| row.get(0)).optional()?;
    Ok(state.as_deref().and_then(parse))
}

fn parse(state: &str) -> Option<Gate> {
    serde_json::from_str(state).ok()
}

fn save(connection: &Connection, key: &str, gate: &Gate, now: Timestamp) -> Result<(), Error> {
    let state = serde_json::to_string(gate).map_err(|_| Error::NotSerializable { what: "gate" })?;
    connection
        .prepare_cached(
            "INSERT INTO gates (key, state, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (key) DO UPDATE SET state = excluded.state, changed = excluded.changed",
        )?
        .execute(params![key, state, millis(now)])?;
    let forgotten = Timestamp::from_millis(
        now.as_millis()
            .saturating_sub(outlast_kernel::time::millis(GATE_RETENTION)),
    );
    connection
        .prepare_cached("DELETE FROM gates WHERE changed < ?1")?
        .execute([millis(forgotten)])?;
    Ok(())
}
