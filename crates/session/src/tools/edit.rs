//! `edit`: replaces one place of a file.
//!
//! Invariant: all other bytes stay as they are, and a file keeps its kind of line ends.

use super::atomic_write::{MAX_FILE_BYTES, lock_writes, write_atomically};
use super::lines::open_regular;
use super::{Context, Tool, input, path_resolution};
use memchr::memmem;
use outlast_engine::BoxFuture;
use outlast_engine::tools::{Effect, Output};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The tool.
pub(super) struct Edit;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    old_text: String,
    new_text: String,
}

impl Tool for Edit {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "edit".to_owned(),
            description: "Replace one part of a file. `old_text` must occur in it exactly once, as it stands there, \
                          with its spaces and line ends: take in some lines around it if need be."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the working folder or absolute"},
                    "old_text": {"type": "string", "description": "What is replaced"},
                    "new_text": {"type": "string", "description": "What takes its place"}
                },
                "required": ["path", "old_text", "new_text"]
            }),
        }
    }

    fn effect(&self) -> Effect {
        Effect::AtMostOnce
    }

    /// The permission to write a file includes the permission to edit it.
    fn permissions(&self) -> Vec<String> {
        vec!["edit".to_owned(), "write".to_owned()]
    }

    fn summary(&self, arguments: &Value) -> String {
        let lines = |field| input::text_field(arguments, field).lines().count();
        let (old, new) = (lines("old_text"), lines("new_text"));
        let path = input::text_field(arguments, "path");
        input::one_line(&format!("edit: {path} (-{old} +{new} lines)"))
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        let arguments: Arguments = input::deserialize(arguments)?;
        if arguments.old_text.is_empty() {
            return Err("`old_text` is empty; `write` makes a new file".to_owned());
        }
        if arguments.old_text == arguments.new_text {
            return Err("`old_text` and `new_text` are the same".to_owned());
        }
        Ok(())
    }

    fn paths(&self, arguments: &Value) -> Vec<PathBuf> {
        vec![input::text_field(arguments, "path").into()]
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        Box::pin(input::run_blocking(arguments, context, edit))
    }
}

fn edit(arguments: &Arguments, context: &Context) -> Result<String, String> {
    let path = &arguments.path;
    let place = path_resolution::resolve_in_scope(context, path)?;
    let said = |error: std::io::Error| format!("{path}: {error}");
    let _changing = lock_writes();
    let before = content(&place).map_err(said)?;
    let after = edited(&before, &arguments.old_text, &arguments.new_text)
        .map_err(|why| format!("{path}: {why}; nothing was changed"))?;
    write_atomically(&place, &after, &context.cancel).map_err(said)?;
    Ok(format!("changed {path}"))
}

fn content(place: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let limit = MAX_FILE_BYTES as u64 + 1;
    open_regular(place)?.take(limit).read_to_end(&mut content)?;
    if content.len() > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!(
            "longer than {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok(content)
}

/// Returns the file with the one place replaced.
fn edited(file: &[u8], old: &str, new: &str) -> Result<Vec<u8>, String> {
    let as_it_is = Replacement::new(old.to_owned(), new.to_owned());
    let with_returns = Replacement::new(to_crlf(old), to_crlf(new));
    if has_only_crlf(file) {
        return with_returns.apply(file);
    }
    // Where line ends are mixed, the text may stand where the other kind is.
    match as_it_is.apply(file) {
        Err(_) if memmem::find(file, old.as_bytes()).is_none() => with_returns.apply(file),
        result => result,
    }
}

struct Replacement {
    old: String,
    new: String,
}

impl Replacement {
    fn new(old: String, new: String) -> Self {
        Self { old, new }
    }

    fn apply(&self, file: &[u8]) -> Result<Vec<u8>, String> {
        let old = self.old.as_bytes();
        let Some(at) = memmem::find(file, old) else {
            return Err("`old_text` does not occur in it".to_owned());
        };
        // An overlapping match counts, too: it is not clear which of the two is meant.
        if memmem::find(&file[at + 1..], old).is_some() {
            let count = memmem::find_iter(file, old).count().max(2);
            return Err(format!("`old_text` occurs {count} times in it, not once"));
        }
        let (before, after) = (&file[..at], &file[at + old.len()..]);
        Ok([before, self.new.as_bytes(), after].concat())
    }
}

/// Returns the text with `\r\n` at the end of each line.
fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Returns whether all lines, and at least one, end in `\r\n`.
fn has_only_crlf(file: &[u8]) -> bool {
    let mut ends = memchr::memchr_iter(b'\n', file).peekable();
    ends.peek().is_some() && ends.all(|at| at > 0 && file[at - 1] == b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_replaces_one_occurrence_and_keeps_line_endings() {
        let table: [(&[u8], &str, &str, &[u8]); 7] = [
            (b"a\nb\nc\n", "b\n", "x\ny\n", b"a\nx\ny\nc\n"),
            (b"a\r\nb\r\nc", "a\nb", "x\ny", b"x\r\ny\r\nc"),
            (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
            (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
            (b"a\nb\r\nc\r\n", "b\nc", "x\ny", b"a\nx\r\ny\r\n"),
            (b"a\nb\r\n", "a\n", "x\n", b"x\nb\r\n"),
            (b"\xff\x00a\xfe", "a", "b", b"\xff\x00b\xfe"),
        ];
        for (file, old, new, expected) in table {
            let found = edited(file, old, new).unwrap();
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(&found));
        }
    }

    #[test]
    fn edit_error_distinguishes_no_match_from_several() {
        let table = [
            ("a b c", "d", "does not occur"),
            ("a b a c a", "a", "occurs 3 times"),
            ("aaa", "aa", "occurs 2 times"),
            ("a\r\nb\r\na\r\nb\r\n", "a\nb", "occurs 2 times"),
        ];
        for (file, old, expected) in table {
            let said = edited(file.as_bytes(), old, "x").unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
