//! Fuzz targets: each checks that one parser keeps its promises for any input.
//!
//! `fuzz/main.rs` runs them with coverage guidance (`scripts/fuzz`), the tests of `outlast-pipeline` with a fixed set
//! of inputs.

mod answers;
mod dialects;
mod error_body;
mod fingerprint;
mod headers;
mod pipeline;
mod relay;
mod script;
mod sse;
mod wording;

use std::borrow::Cow;

/// A fuzz target; panics when a promise is broken.
pub(crate) type Target = fn(&[u8]);

/// The targets by name.
pub(crate) const TARGETS: [(&str, Target); 10] = [
    ("answers", |input| {
        let (number, rest) = take_number(input);
        let (choice, text) = rest.split_first().unwrap_or((&0, rest));
        answers::run(number, *choice, &lossy(text));
    }),
    ("dialects", dialects::run),
    ("error_body", |input| error_body::run(&lossy(input))),
    ("fingerprint", |input| fingerprint::run(&lossy(input))),
    ("headers", |input| {
        let (at, text) = take_number(input);
        let text = lossy(text);
        let (one, other) = text.split_once('\n').unwrap_or((&text, &text));
        headers::run(at, one, other);
    }),
    ("pipeline", |input| pipeline::run(&lossy(input))),
    ("relay", relay::run),
    ("script", |input| script::run(&lossy(input))),
    ("sse", sse::run),
    ("wording", |input| {
        let (at, rest) = take_number(input);
        let offset = rest
            .first_chunk()
            .map_or(0, |bytes| i16::from_le_bytes(*bytes));
        wording::run(at, offset, &lossy(rest.get(2..).unwrap_or_default()));
    }),
];

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns the number in the first eight bytes, and the bytes after it. A shorter input is the number 0 and all text.
fn take_number(input: &[u8]) -> (u64, &[u8]) {
    let split = input.split_first_chunk();
    split.map_or((0, input), |(bytes, rest)| {
        (u64::from_le_bytes(*bytes), rest)
    })
}
