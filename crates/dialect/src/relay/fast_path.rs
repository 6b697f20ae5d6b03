//! Recognises most frames without parsing them: by their first bytes or by a few words.
//!
//! A searched word in quotes cannot be part of the model's text: inside a string its quotes are escaped. In doubt there
//! is no result here, and the frame is parsed.

use super::frame_scanner::FrameFields;
use crate::{Dialect, StreamActivity};
use memchr::memchr;
use memchr::memmem::Finder;
use std::sync::LazyLock;

static DELTA_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"delta\""));
static ERROR_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"error\""));
static FINISH_REASON_KEY: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(b"\"finish_reason\""));
/// The number of fields of a delta that are looked at; no known delta has more, and one with more is parsed.
const MAX_DELTA_FIELDS: usize = 8;

/// Returns the activity of a frame that neither ends the completion nor is an error; `None` when the frame must be
/// parsed.
pub(super) fn activity(dialect: Dialect, said: &FrameFields<'_>) -> Option<StreamActivity> {
    let Some(data) = said.data else {
        return Some(StreamActivity::KeepAlive);
    };
    match dialect {
        _ if said.has_more_data => None,
        Dialect::Anthropic => match event_type(said)? {
            b"content_block_delta"
            | b"content_block_start"
            | b"content_block_stop"
            | b"message_delta" => Some(StreamActivity::Progress),
            b"ping" => Some(StreamActivity::KeepAlive),
            _ => None,
        },
        Dialect::OpenaiChat => is_content_chunk(data).then_some(StreamActivity::Progress),
        Dialect::OpenaiResponses => {
            let name = event_type(said)?.strip_prefix(b"response.")?;
            let is_part = |end: &&[u8]| name.ends_with(end);
            let ends: [&[u8]; 3] = [b".delta", b".added", b".done"];
            ends.iter().any(is_part).then_some(StreamActivity::Progress)
        }
    }
}

/// Returns the type of an event: its name, which must match the beginning of its data.
pub(super) fn event_type<'a>(said: &FrameFields<'a>) -> Option<&'a [u8]> {
    match (said.name, leading_type(said.data?)) {
        (b"", kind) => kind,
        (name, None) => Some(name),
        (name, Some(kind)) => (name == kind).then_some(kind),
    }
}

fn leading_type(data: &[u8]) -> Option<&[u8]> {
    let value = strip_token(strip_token(strip_token(data, b"{")?, b"\"type\"")?, b":")?;
    split_string(value).map(|(kind, _)| kind)
}

/// Returns whether this is a chunk with content that ends nothing.
fn is_content_chunk(data: &[u8]) -> bool {
    let says = || has_delta_content(after_word(&DELTA_KEY, data)?);
    says().is_some()
        && is_null_or_absent(&ERROR_KEY, data)
        && is_null_or_absent(&FINISH_REASON_KEY, data)
}

/// Returns the bytes after the first occurrence of a word.
fn after_word<'a>(word: &Finder<'_>, data: &'a [u8]) -> Option<&'a [u8]> {
    let at = word.find(data)?;
    data.get(at + word.needle().len()..)
}

/// Returns whether every field of that name is null.
fn is_null_or_absent(name: &Finder<'_>, mut data: &[u8]) -> bool {
    while let Some(rest) = after_word(name, data) {
        let Some(value) = strip_token(rest, b":").and_then(|value| strip_token(value, b"null"))
        else {
            return false;
        };
        data = value;
    }
    true
}

/// Returns whether a delta has any field besides its role; `rest` begins after its name.
fn has_delta_content(rest: &[u8]) -> Option<()> {
    let mut rest = strip_token(strip_token(rest, b":")?, b"{")?;
    for _ in 0..MAX_DELTA_FIELDS {
        let (name, value) = split_string(rest)?;
        let value = strip_token(value, b":")?.trim_ascii_start();
        let behind = match value {
            [b'[', inside @ ..] => return strip_token(inside, b"]").is_none().then_some(()),
            [b'{', inside @ ..] => return strip_token(inside, b"}").is_none().then_some(()),
            [b'"', b'"', behind @ ..] => behind,
            [b'"', ..] if name != b"role" => return Some(()),
            [b'"', ..] => split_string(value)?.1,
            _ => strip_token(value, b"null")?,
        };
        rest = strip_token(behind, b",")?;
    }
    None
}

/// Returns the string that comes next, up to its first quote, and the bytes after it.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = strip_token(bytes, b"\"")?;
    let end = memchr(b'"', inside)?;
    Some((&inside[..end], &inside[end + 1..]))
}

fn strip_token<'a>(bytes: &'a [u8], token: &[u8]) -> Option<&'a [u8]> {
    bytes.trim_ascii_start().strip_prefix(token)
}
