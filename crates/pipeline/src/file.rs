//! Reading a pipeline's file, and finding out all that is wrong with it.
//!
//! Text becomes a tree with places (`tree`), the tree becomes steps (`header`, `step`, `work`, `contract`, `retry`), and
//! the names in them are looked up (`resolve`). What is wrong is noted and reading goes on.
//! Invariant: a [`Pipeline`] comes out only if nothing was noted. Not here: what a step does (see `definition`).

use super::definition::Pipeline;
use outlast_kernel::text;
use std::fmt;
use std::path::Path;

mod contract;
mod cycles;
mod document;
mod fault_log;
mod fields;
mod names;
mod placeholders;
mod resolve;
mod retry;
mod runtime;
mod step;
mod tree;
mod values;
mod work;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// How many steps a pipeline may have.
pub const MAX_STEPS: usize = 10_000;
/// The JSON Schema of the file, for editors.
pub const SCHEMA: &str = include_str!("../../../docs/pipeline.schema.json");

/// The most of a word from the file that is shown in a message, in bytes.
const MAX_SHOWN_BYTES: usize = 80;

/// Where something stands in a file, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SourceSpan {
    line: u32,
    column: u32,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
struct Spanned<T> {
    value: T,
    span: SourceSpan,
}

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// All that is wrong with a file, in its order; at least one fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Faults {
    /// The file, as it was named.
    pub file: String,
    /// What is wrong.
    pub list: Vec<Fault>,
    /// How many more there are.
    pub left_out: usize,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.list.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            let (file, line, column) = (&self.file, fault.line, fault.column);
            write!(f, "{newline}{file}:{line}:{column}: {}", fault.message)?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

/// Reads a pipeline. `place` is where its file is: its name is the pipeline's by default, and its folder is where
/// schemas are looked for.
pub fn read(source: &str, place: &Path) -> Result<Pipeline, Faults> {
    let log = fault_log::FaultLog::new(source);
    let pipeline = if source.len() > MAX_FILE_BYTES {
        log.fault(
            SourceSpan { line: 1, column: 1 },
            format!("a pipeline's file may have at most {MAX_FILE_BYTES} bytes"),
        );
        None
    } else {
        tree::parse(source)
            .map_err(|(place, message)| log.fault(place, message))
            .ok()
            .and_then(|node| document::read(&node, place, &log))
    };
    match (pipeline, log.into_faults(place)) {
        (Some(pipeline), None) => Ok(pipeline),
        (_, Some(faults)) => Err(faults),
        // Nobody gives up without saying why; should it be so, it is said here.
        (None, None) => Err(Faults {
            file: printable(&place.to_string_lossy()),
            list: vec![Fault {
                line: 1,
                column: 1,
                message: "this is not a pipeline".to_owned(),
            }],
            left_out: 0,
        }),
    }
}

/// A word from the file as it can be shown: short, on one line, without what looks like a key.
pub(super) fn printable(word: &str) -> String {
    let clean = text::plain(word);
    let clean = text::bounded(&clean, 4 * MAX_SHOWN_BYTES);
    text::bounded(&text::without_secrets(&clean), MAX_SHOWN_BYTES).replace(['\n', '\t'], " ")
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
