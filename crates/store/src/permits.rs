//! Seats: how many calls an account has under way, over all processes.

use crate::queue::millis;
use crate::{Error, Store};
use outlast_kernel::Timestamp;
use rusqlite::params;

/// What came of asking for a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitReply {
    /// It is the caller's, until it is given back or not renewed.
    Taken,
    /// All are taken; the first of them expires then at the latest.
    Full {
        /// When to ask again at the latest.
        until: Timestamp,
    },
}

/// Who wants a seat, and how many there are.
#[derive(Clone, Debug)]
pub struct PermitRequest {
    /// The account.
    pub account: String,
    /// Who wants it.
    pub holder: String,
    /// How many the account has.
    pub most: u32,
}

impl Store {
    /// Takes, or renews, one of an account's seats, until `expires` if it is not renewed.
    pub async fn take_seat(
        &self,
        claim: PermitRequest,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<PermitReply, Error> {
        let PermitRequest {
            account,
            holder,
            most,
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
            if taken >= most {
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
            Ok(PermitReply::Taken)
        })
        .await
    }

    /// Gives a seat back.
    pub async fn leave_seat(&self, holder: &str) -> Result<(), Error> {
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
