//! `read`: returns a part of a text file.
//!
//! Invariant: the output says which part was left out, and how to get it.

use super::lines::Lines;
use super::toolbox::append_note;
use super::{Context, Tool, input, path_resolution};
use crate::process::output::CONTENT_LIMIT;
use outlast_engine::BoxFuture;
use outlast_engine::tools::{Effect, Output};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;

const MAX_LINES: usize = 2000;
const MAX_LINE_CHARS: usize = 2000;

/// The tool.
pub(super) struct Read;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    offset: Option<NonZeroUsize>,
    limit: Option<NonZeroUsize>,
}

impl Tool for Read {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "read".to_owned(),
            description: format!(
                "Read a text file. Gives at most {MAX_LINES} lines at a time, and says how to read on when there is \
                 more. Lines longer than {MAX_LINE_CHARS} characters are cut."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the working folder or absolute"},
                    "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read"}
                },
                "required": ["path"]
            }),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn summary(&self, arguments: &Value) -> String {
        input::one_line(&format!("read: {}", input::text_field(arguments, "path")))
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        input::deserialize::<Arguments>(arguments).map(drop)
    }

    fn paths(&self, arguments: &Value) -> Vec<PathBuf> {
        vec![input::text_field(arguments, "path").into()]
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        Box::pin(input::run_blocking(arguments, context, read))
    }
}

fn read(arguments: &Arguments, context: &Context) -> Result<String, String> {
    let path = &arguments.path;
    let said = |error: io::Error| format!("{path}: {error}");
    let place = path_resolution::resolve_in_scope(context, path)?;
    let mut lines = Lines::open(&place, &context.cancel).map_err(said)?;
    let first = arguments.offset.map_or(1, NonZeroUsize::get);
    let before = skip(&mut lines, first - 1).map_err(said)?;
    let limit = arguments.limit.map_or(MAX_LINES, NonZeroUsize::get);
    let text = take(&mut lines, first, limit.min(MAX_LINES)).map_err(said)?;
    match before {
        _ if !text.is_empty() => Ok(text),
        0 => Ok("[the file is empty]".to_owned()),
        count => Err(format!("{path}: has {count} lines only")),
    }
}

/// Skips at most that many lines and returns how many there were.
fn skip(lines: &mut Lines<'_>, count: usize) -> io::Result<usize> {
    for skipped in 0..count {
        if lines.next(0)?.is_none() {
            return Ok(skipped);
        }
    }
    Ok(count)
}

/// Returns the lines that fit, and a note on how to read on.
fn take(lines: &mut Lines<'_>, first: usize, limit: usize) -> io::Result<String> {
    let mut text = String::new();
    let mut number = first;
    // A character has four bytes at most.
    while let Some(length) = lines.next(4 * MAX_LINE_CHARS)? {
        let line = display_line(lines.line_prefix(), length);
        if number - first == limit || text.len() + line.len() > CONTENT_LIMIT {
            return Ok(append_note(
                &text,
                &format!("there is more: read on with offset {number}"),
            ));
        }
        text.push_str(&line);
        number += 1;
    }
    Ok(text)
}

/// Formats a line of that length, of which this much was kept.
fn display_line(kept: &[u8], length: usize) -> String {
    let line = String::from_utf8_lossy(kept);
    let content = line.trim_end_matches('\n');
    match content.char_indices().nth(MAX_LINE_CHARS) {
        None if kept.len() == length => line.into_owned(),
        cut => {
            let shown = &content[..cut.map_or(content.len(), |(at, _)| at)];
            let more = length.saturating_sub(shown.len());
            format!("{shown}… [{more} more bytes in this line]\n")
        }
    }
}
