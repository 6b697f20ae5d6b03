//! Accounts, over all processes: blocks, and permits (the concurrency slots of an account).

use crate::database::millis;
use crate::{Error, Store};
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Blocks};
use rusqlite::{Connection, params};

// --- Blocks ---

impl Store {
    /// Returns all blocks that have not ended.
    pub async fn blocks(&self, now: Timestamp) -> Result<Blocks, Error> {
        self.read(move |connection| all(connection, now)).await
    }

    /// Changes the blocks and returns the result.
    pub async fn change_blocks(
        &self,
        now: Timestamp,
        change: impl FnOnce(&mut Blocks) + Send + 'static,
    ) -> Result<Blocks, Error> {
        self.change(move |connection| {
            let mut blocks = all(connection, now)?;
            change(&mut blocks);
            blocks.prune(now);
            connection.execute("DELETE FROM blocks", [])?;
            for block in blocks.iter() {
                save(connection, block)?;
            }
            Ok(blocks)
        })
        .await
    }
}

fn all(connection: &Connection, now: Timestamp) -> Result<Blocks, Error> {
    let mut statement = connection.prepare_cached("SELECT block FROM blocks WHERE until > ?1")?;
    let rows = statement.query_map([millis(now)], |row| row.get::<_, String>(0))?;
    let mut blocks = Vec::new();
    for row in rows {
        // An unreadable row blocks no account.
        blocks.extend(serde_json::from_str::<Block>(&row?).ok());
    }
    let mut blocks: Blocks = blocks.into_iter().collect();
    blocks.prune(now);
    Ok(blocks)
}

fn save(connection: &Connection, block: &Block) -> Result<(), Error> {
    let text = serde_json::to_string(block).map_err(|_| Error::NotSerializable("block"))?;
    let model = block.model.as_deref().unwrap_or_default();
    connection
        .prepare_cached(
            "INSERT INTO blocks (account, model, block, until) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![block.account, model, text, millis(block.until)])?;
    Ok(())
}

// --- Permits ---

/// The outcome of asking for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitReply {
    /// The caller has the permit, until it is given back or expires.
    Granted,
    /// All permits are taken.
    Full {
        /// The time at which the first of them expires, if it is not renewed; ask again by then.
        until: Timestamp,
    },
}

/// A request for a permit.
#[derive(Clone, Debug)]
pub struct PermitRequest {
    /// The account.
    pub account: String,
    /// The caller that wants the permit.
    pub holder: String,
    /// The number of permits that the account has.
    pub limit: u32,
}

impl Store {
    /// Takes or renews one of an account's permits, until `expires` if it is not renewed.
    pub async fn acquire_permit(
        &self,
        claim: PermitRequest,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<PermitReply, Error> {
        let PermitRequest {
            account,
            holder,
            limit,
        } = claim;
        self.change(move |connection| {
            connection
                .prepare_cached("DELETE FROM seats WHERE expires <= ?1")?
                .execute([millis(now)])?;
            let (taken, first): (u32, Option<i64>) = connection
                .prepare_cached(
                    "SELECT count(*), min(expires) FROM seats WHERE account = ?1 AND holder <> ?2",
                )?
                .query_row(params![account, holder], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            if taken >= limit {
                let first = first.and_then(|first| u64::try_from(first).ok());
                let until = first.map_or(now, Timestamp::from_millis);
                return Ok(PermitReply::Full { until });
            }
            connection
                .prepare_cached(
                    "INSERT INTO seats (holder, account, expires) VALUES (?1, ?2, ?3)
                     ON CONFLICT (holder) DO UPDATE SET expires = excluded.expires",
                )?
                .execute(params![holder, account, millis(expires)])?;
            Ok(PermitReply::Granted)
        })
        .await
    }

    /// Gives a permit back.
    pub async fn release_permit(&self, holder: &str) -> Result<(), Error> {
        let holder = holder.to_owned();
        self.change(move |connection| {
            connection
                .prepare_cached("DELETE FROM seats WHERE holder = ?1")?
                .execute([holder])?;
            Ok(())
        })
        .await
    }
}
