//! Reading a pipeline's file, and finding out all that is wrong with it.
//!
//! serde reads the text (`yaml`, `raw`, `scalar`) and stops at what has another shape. What has the right shape becomes
//! steps (`document`, `step`, `work`, `contract`, `retry`), and the names in them are looked up (`resolve`); what is
//! wrong there is noted, and reading goes on.
//! Invariant: a [`Pipeline`] comes out only if nothing was noted. Not here: what a step does (see `definition`).

use super::definition::Pipeline;
use outlast_kernel::text;
use std::fmt;
use std::path::Path;

mod contract;
mod document;
mod fault_log;
mod placeholders;
mod raw;
mod resolve;
mod retry;
mod scalar;
mod step;
mod words;
mod work;
mod yaml;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// How many steps a pipeline may have.
pub const MAX_STEPS: usize = 10_000;
/// The JSON Schema of the file, for editors.
pub const SCHEMA: &str = include_str!("../../../docs/pipeline.schema.json");

/// The most of a word from the file that is shown in a message, in bytes.
const MAX_SHOWN_BYTES: usize = 80;

/// Where something stands in a file.
#[derive(Clone, Copy, Debug)]
struct SourceSpan {
    /// From 1.
    line: u32,
    /// From 1, in characters.
    column: u32,
    /// In bytes.
    offset: usize,
    /// In bytes.
    len: usize,
}

impl SourceSpan {
    /// The begin of a file.
    const START: Self = Self {
        line: 1,
        column: 1,
        offset: 0,
        len: 0,
    };

    /// How it is written.
    fn written(self, source: &str) -> &str {
        let end = self.offset.saturating_add(self.len);
        source.get(self.offset..end).unwrap_or_default().trim()
    }
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
    match yaml::parse(source) {
        Ok(raw) => {
            let pipeline = document::read(raw, place, &log);
            if log.is_empty() {
                return Ok(pipeline);
            }
        }
        Err((span, message)) => log.fault(span, message),
    }
    Err(log.into_faults(place))
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
