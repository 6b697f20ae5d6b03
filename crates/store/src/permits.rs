//! Permits: the concurrency slots of an account, over all processes.

use crate::time::millis;
use crate::{Error, Store};
use outlast_kernel::Timestamp;
use rusqlite::params;

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
