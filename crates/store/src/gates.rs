//! Gates and the queues of the processes before them: read, changed and written back in one transaction.

use crate::database::{millis, timestamp};
use crate::{Error, Store};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Gate, QueueSummary, Sync, SyncReply};
use outlast_kernel::verdict::Cause;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

/// More gates than this are forgotten, the one that changed longest ago first: a client chooses the names of its models.
const MAX_GATES: i64 = 1000;
/// A gate that did not change for this long is forgotten.
const GATE_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// A process that was silent for this long waits no more.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// Only processes that were heard of within this time keep younger requests of others waiting.
const ORDER_TIMEOUT: Duration = Duration::from_secs(3);

/// A gate as all processes know it.
#[derive(Clone, Debug)]
pub struct GateSnapshot {
    /// The gate.
    pub gate: Gate,
    /// The number of requests that wait before it, over all processes.
    pub waiting: u32,
    /// The cause of its last failure.
    pub cause: Option<Cause>,
}

/// One exchange of a process with a gate.
#[derive(Clone, Debug)]
pub struct GateExchange {
    /// The gate.
    pub key: String,
    /// The process.
    pub process: String,
    /// Its news, and its queue.
    pub sync: Sync,
    /// The cause of its last failure, if there was one since the last exchange.
    pub cause: Option<Cause>,
    /// The process's own gate, if it had to do without the store until now.
    pub own_gate: Option<Gate>,
}

impl Store {
    /// Merges the news of a process into a gate; returns the reply, and the number of processes that share the gate.
    pub async fn sync_gate(
        &self,
        exchange: GateExchange,
        now: Timestamp,
    ) -> Result<(SyncReply, u32), Error> {
        self.change(move |connection| {
            let GateExchange {
                key,
                process,
                mut sync,
                cause,
                own_gate,
            } = exchange;
            let before = load(connection, &key)?;
            let mut gate = before.clone().unwrap_or_default().with_times_clamped(now);
            if let Some(own) = own_gate {
                gate.rejoin(&own);
            }
            beat(connection, &key, &process, &sync.queue, now)?;
            let fleet = fleet(connection, &key, now)?;
            (sync.queue.fleet_waiting, sync.queue.fleet_oldest) = (fleet.waiting, fleet.oldest);
            let reply = gate.exchange(&sync, now);
            if before.as_ref() != Some(&gate) {
                save(connection, &key, &gate, now)?;
            }
            if before.is_none() {
                prune(connection, now)?;
            }
            if let Some(cause) = cause {
                save_cause(connection, &key, cause)?;
            }
            Ok((reply, fleet.processes))
        })
        .await
    }

    /// Forgets everything that is known of these gates. Their rows stay, so that processes which have read them learn of it.
    pub async fn forget_gates(&self, keys: Vec<String>, now: Timestamp) -> Result<(), Error> {
        self.change(move |connection| {
            for key in keys {
                if let Some(gate) = load(connection, &key)? {
                    save(connection, &key, &gate.forgotten(), now)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Returns all gates that are known.
    pub async fn gate_snapshots(
        &self,
        now: Timestamp,
    ) -> Result<Vec<(String, GateSnapshot)>, Error> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT key, state, cause,
                     (SELECT ifnull(sum(waiting), 0) FROM heartbeats
                      WHERE gate = key AND seen BETWEEN ?1 AND ?2)
                 FROM gates",
            )?;
            let rows = statement.query_map(heartbeat_period(now), |row| {
                let (key, state): (String, String) = (row.get(0)?, row.get(1)?);
                let (cause, waiting): (Option<String>, i64) = (row.get(2)?, row.get(3)?);
                Ok((key, state, cause, clamped(waiting)))
            })?;
            let mut snapshots = Vec::new();
            for row in rows {
                let (key, state, cause, waiting) = row?;
                // An unreadable row says nothing; the next exchange replaces it.
                let Some(gate) = parse(&state) else { continue };
                let gate = gate.with_times_clamped(now);
                let cause = cause.and_then(|word| Cause::named(&word));
                snapshots.push((
                    key,
                    GateSnapshot {
                        gate,
                        waiting,
                        cause,
                    },
                ));
            }
            Ok(snapshots)
        })
        .await
    }
}

/// Returns the first and the last time at which a heartbeat counts. A clock that was set back has left later ones.
fn heartbeat_period(now: Timestamp) -> [i64; 2] {
    [before(now, HEARTBEAT_TIMEOUT), now + HEARTBEAT_TIMEOUT].map(millis)
}

/// Records the queue of a process.
fn beat(
    connection: &Connection,
    key: &str,
    process: &str,
    queue: &QueueSummary,
    now: Timestamp,
) -> Result<(), Error> {
    connection
        .prepare_cached("DELETE FROM heartbeats WHERE seen NOT BETWEEN ?1 AND ?2")?
        .execute(heartbeat_period(now))?;
    connection
        .prepare_cached(
            "INSERT INTO heartbeats (gate, process, waiting, oldest, seen) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (gate, process) DO UPDATE SET
                 waiting = excluded.waiting, oldest = excluded.oldest, seen = excluded.seen",
        )?
        .execute(params![
            key,
            process,
            queue.waiting,
            queue.oldest.map(millis),
            millis(now)
        ])?;
    Ok(())
}

/// The queues of all processes before a gate.
struct Fleet {
    processes: u32,
    waiting: u32,
    oldest: Option<Timestamp>,
}

fn fleet(connection: &Connection, key: &str, now: Timestamp) -> Result<Fleet, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*), ifnull(sum(waiting), 0), min(CASE WHEN seen >= ?2 THEN oldest END)
         FROM heartbeats WHERE gate = ?1",
    )?;
    let recent = millis(before(now, ORDER_TIMEOUT));
    let fleet = statement.query_row(params![key, recent], |row| {
        let oldest: Option<i64> = row.get(2)?;
        Ok(Fleet {
            processes: row.get(0)?,
            waiting: clamped(row.get(1)?),
            oldest: oldest.map(timestamp),
        })
    })?;
    Ok(fleet)
}

fn clamped(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn before(now: Timestamp, time: Duration) -> Timestamp {
    Timestamp::default() + now.since(Timestamp::default()).saturating_sub(time)
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
    serde_json::from_str(state).ok().filter(Gate::is_valid)
}

fn save(connection: &Connection, key: &str, gate: &Gate, now: Timestamp) -> Result<(), Error> {
    let state = serde_json::to_string(gate).map_err(|_| Error::NotSerializable("gate"))?;
    connection
        .prepare_cached(
            "INSERT INTO gates (key, state, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (key) DO UPDATE SET state = excluded.state, changed = excluded.changed",
        )?
        .execute(params![key, state, millis(now)])?;
    Ok(())
}

/// Forgets gates that did not change for long, and those beyond the maximum.
fn prune(connection: &Connection, now: Timestamp) -> Result<(), Error> {
    connection
        .prepare_cached(
            "DELETE FROM gates WHERE changed < ?1
             OR key IN (SELECT key FROM gates ORDER BY changed DESC LIMIT -1 OFFSET ?2)",
        )?
        .execute([millis(before(now, GATE_RETENTION)), MAX_GATES])?;
    Ok(())
}
