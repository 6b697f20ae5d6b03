//! Prints to stdout, for commands that print and end.

pub(crate) mod approval;
pub(crate) mod deliver;
pub(crate) mod diagnostics;
pub(crate) mod progress;
pub(crate) mod run_view;
pub(crate) mod screen;
pub(crate) mod spinner;
pub(crate) mod watcher;

use crate::platform::exit::Exit;
use anyhow::Context;
use outlast_kernel::text;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{ErrorKind, Write};

/// Prints the text. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<Exit> {
    diagnostics::clear_line();
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(Exit::Success),
    }
}

/// Prints a value as JSON, indented.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<Exit> {
    let json = serde_json::to_string_pretty(value)? + "\n";
    print(&safe_json(&json))
}

/// Reports whether the error is that the reader of stdout has closed it.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Escapes characters that JSON allows and a terminal interprets; the value stays the same for a JSON
/// parser.
pub(crate) fn safe_json(line: &str) -> Cow<'_, str> {
    if !line.contains(text::is_unprintable) {
        return Cow::Borrowed(line);
    }
    let escaped = |c: char| match text::is_unprintable(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    Cow::Owned(line.chars().map(escaped).collect())
}
