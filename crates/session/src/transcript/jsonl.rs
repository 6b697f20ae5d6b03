//! A session as lines of JSON: all entries with their complete content, for programs.
//!
//! Invariants: an entry is one line; nothing is cut, and no value is parsed and written anew: a value that a provider wants
//! back byte for byte is the same in the document as in the journal.

use super::Header;
use outlast_kernel::{Timestamp, text};
use outlast_store::journal::StoredEntry;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The version of the line format.
const VERSION: u32 = 1;
/// The field names that the line itself uses.
const RESERVED_NAMES: [&str; 4] = ["seq", "turn", "time", "kind"];

type Fields<'a> = BTreeMap<String, &'a RawValue>;

#[derive(Serialize)]
struct HeaderLine<'a> {
    v: u32,
    session: &'a Header,
}

#[derive(Serialize)]
struct EntryLine<'a, B> {
    seq: u64,
    turn: u64,
    time: Timestamp,
    kind: &'a str,
    #[serde(flatten)]
    body: B,
}

#[derive(Serialize)]
struct UnreadableBody<'a> {
    unreadable: &'a str,
}

pub(super) fn header(head: &Header) -> serde_json::Result<String> {
    line(&HeaderLine {
        v: VERSION,
        session: head,
    })
}

pub(super) fn entry(stored: &StoredEntry) -> serde_json::Result<String> {
    match fields(stored) {
        Some(fields) => line(&with_body(stored, fields)),
        None => {
            let unreadable = &stored.entry.body;
            line(&with_body(stored, UnreadableBody { unreadable }))
        }
    }
}

fn with_body<B>(stored: &StoredEntry, body: B) -> EntryLine<'_, B> {
    EntryLine {
        seq: stored.seq,
        turn: stored.entry.turn,
        time: stored.entry.time,
        kind: &stored.entry.kind,
        body,
    }
}

/// Returns the fields of the body; `None` if it is not an object, or uses a reserved name with another value.
fn fields(stored: &StoredEntry) -> Option<Fields<'_>> {
    let mut fields: Fields<'_> = serde_json::from_str(&stored.entry.body).ok()?;
    if let Some(kind) = fields.remove("kind") {
        let kind: String = serde_json::from_str(kind.get()).ok()?;
        if kind != stored.entry.kind {
            return None;
        }
    }
    let is_taken = RESERVED_NAMES.iter().any(|name| fields.contains_key(*name));
    (!is_taken).then_some(fields)
}

fn line(value: &impl Serialize) -> serde_json::Result<String> {
    let json = serde_json::to_string(value)?;
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            // These stand between values: within a string they are escaped.
            '\n' | '\r' => line.push(' '),
            // A terminal would interpret these; escaped, they mean the same to a reader of JSON.
            c if text::is_unprintable(c) => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => line.push(c),
        }
    }
    line.push('\n');
    Ok(line)
}
