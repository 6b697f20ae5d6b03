//! Blocks on accounts, shared by all processes.

use crate::time::millis;
use crate::{Error, Store};
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Blocks};
use rusqlite::{Connection, params};

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
    let text =
        serde_json::to_string(block).map_err(|_| Error::NotSerializable { what: "block" })?;
    let model = block.model.as_deref().unwrap_or_default();
    connection
        .prepare_cached(
            "INSERT INTO blocks (account, model, block, until) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![block.account, model, text, millis(block.until)])?;
    Ok(())
}
