//! The encoding of a hold in the file.

use super::identity::Identity;
use super::registry::{HeldRequest, HoldStatus, Key};
use super::{Progress, RequestSummary};
use outlast_kernel::Timestamp;
use outlast_store::holds::Row;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Serialize, Deserialize)]
struct EncodedHold<'a> {
    who: Identity,
    about: Cow<'a, RequestSummary>,
    progress: Cow<'a, Progress>,
    told: Option<Timestamp>,
    left: Option<Timestamp>,
}

pub(super) fn encode(held: &HeldRequest) -> Option<String> {
    let written = EncodedHold {
        who: held.identity,
        about: Cow::Borrowed(&held.summary),
        progress: Cow::Borrowed(&held.progress),
        told: held.return_at,
        left: held.abandoned_at(),
    };
    serde_json::to_string(&written).ok()
}

/// Decodes a hold of an earlier process: its client has been without a connection since then, at the latest now.
/// Returns `None` if the row is invalid, or has expired.
pub(super) fn decode(row: &Row, now: Timestamp) -> Option<(Key, HeldRequest)> {
    let key = Key::parse(&row.key).filter(|_| row.until >= now)?;
    let read: EncodedHold<'_> = serde_json::from_str(&row.value).ok()?;
    let mut held = HeldRequest {
        identity: read.who,
        summary: read.about.into_owned(),
        progress: read.progress.into_owned(),
        return_at: read.told,
        status: HoldStatus::Abandoned {
            at: read.left.unwrap_or(now),
            until: row.until,
        },
    };
    if read.left.is_none() {
        let until = held.resumable_until(now);
        held.status = HoldStatus::Abandoned { at: now, until };
    }
    Some((key, held))
}
