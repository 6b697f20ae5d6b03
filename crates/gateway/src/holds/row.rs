//! The encoding of a hold in the file.

use super::identity::Identity;
use super::registry::{HeldRequest, HoldStatus, Key};
use super::{Progress, RequestSummary};
use outlast_kernel::Timestamp;
use outlast_store::holds::Row;
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct EncodedHold<'a> {
    who: &'a Identity,
    about: &'a RequestSummary,
    progress: &'a Progress,
    told: Option<Timestamp>,
    left: Option<Timestamp>,
}

#[derive(Deserialize)]
struct DecodedHold {
    who: Identity,
    about: RequestSummary,
    progress: Progress,
    told: Option<Timestamp>,
    left: Option<Timestamp>,
}

pub(super) fn write(held: &HeldRequest) -> Option<String> {
    let written = EncodedHold {
        who: &held.who,
        about: &held.about,
        progress: &held.progress,
        told: held.told,
        left: held.left(),
    };
    serde_json::to_string(&written).ok()
}

/// Decodes a hold of an earlier process: its client has been without a connection since then, at the latest now.
/// Returns `None` if the row is invalid, or has expired.
pub(super) fn read(row: &Row, now: Timestamp) -> Option<(Key, HeldRequest)> {
    let key = Key::parse(&row.key).filter(|_| row.until >= now)?;
    let read: DecodedHold = serde_json::from_str(&row.value).ok()?;
    let mut held = HeldRequest {
        who: read.who,
        about: read.about,
        progress: read.progress,
        told: read.told,
        standing: HoldStatus::Left {
            at: read.left.unwrap_or(now),
            until: row.until,
        },
    };
    if read.left.is_none() {
        let until = held.until(now);
        held.standing = HoldStatus::Left { at: now, until };
    }
    Some((key, held))
}
