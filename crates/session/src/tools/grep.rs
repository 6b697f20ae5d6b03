//! `grep`: finds lines that match a pattern, in a file or in all files of a folder.
//!
//! Invariants: the same files give the same lines in the same order, and every pattern takes linear time at most. Hidden
//! files, binary files and those that `.gitignore` names are skipped; links are not followed.

use super::lines::Lines;
use super::toolbox::append_note;
use super::{Context, Tool, input, path_resolution};
use crate::process::output::{CONTENT_LIMIT, trim_partial_start};
use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};
use outlast_engine::tools::{Effect, Output};
use outlast_engine::{BoxFuture, CancellationToken};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

const DEFAULT_LIMIT: usize = 200;
/// Number of bytes of a line that are searched.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Limits for a shown line: number of characters in all, and of bytes before the match.
const MAX_SHOWN_CHARS: usize = 400;
const MAX_SHOWN_BYTES_BEFORE: usize = 100;

/// The tool.
pub(super) struct Grep;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    ignore_case: Option<bool>,
    limit: Option<NonZeroUsize>,
}

impl Tool for Grep {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "grep".to_owned(),
            description: "Search files line by line for a regular expression. Gives `path:line: text`. Hidden files \
                          and what .gitignore names are passed over."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "The regular expression (no look-around, no backreferences)"},
                    "path": {"type": "string", "description": "A folder or file; the working folder by default"},
                    "glob": {"type": "string", "description": "Only files that match, such as `*.rs` or `src/**/*.{js,ts}`"},
                    "ignore_case": {"type": "boolean", "description": "Whether upper and lower case are the same"},
                    "limit": {"type": "integer", "minimum": 1, "description": "The most lines to give, 200 by default"}
                },
                "required": ["pattern"]
            }),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn summary(&self, arguments: &Value) -> String {
        let (pattern, path) = (
            input::text_field(arguments, "pattern"),
            path_argument(arguments),
        );
        input::one_line(&format!("grep: {pattern} in {path}"))
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        let arguments: Arguments = input::deserialize(arguments)?;
        arguments.regex()?;
        arguments.filter(Path::new(".")).map(drop)
    }

    fn paths(&self, arguments: &Value) -> Vec<PathBuf> {
        vec![path_argument(arguments).into()]
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        Box::pin(input::run_blocking(arguments, context, grep))
    }
}

fn path_argument(arguments: &Value) -> &str {
    arguments["path"].as_str().unwrap_or(".")
}

impl Arguments {
    fn regex(&self) -> Result<Regex, String> {
        RegexBuilder::new(&self.pattern)
            .case_insensitive(self.ignore_case.unwrap_or_default())
            .build()
            .map_err(|error| format!("wrong argument `pattern`: {error}"))
    }

    /// Returns a filter for the files below the folder.
    fn filter(&self, folder: &Path) -> Result<Override, String> {
        let wrong = |error: ignore::Error| format!("wrong argument `glob`: {error}");
        let mut filter = OverrideBuilder::new(folder);
        if let Some(glob) = &self.glob {
            filter.add(glob).map_err(wrong)?;
        }
        filter.build().map_err(wrong)
    }
}

fn grep(arguments: &Arguments, context: &Context) -> Result<String, String> {
    let path = arguments.path.as_deref().unwrap_or(".");
    let said = |error: io::Error| format!("{path}: {error}");
    let place = path_resolution::resolve_in_scope(context, path)?;
    place.metadata().map_err(said)?;
    let mut search = Search {
        regex: arguments.regex()?,
        limit: arguments.limit.map_or(DEFAULT_LIMIT, NonZeroUsize::get),
        cancel: &context.cancel,
        directory: path_resolution::resolve(&context.directory, Path::new(".")).map_err(said)?,
        found: String::new(),
        count: 0,
        unreadable: 0,
    };
    let end = if place.is_dir() {
        search.search_folder(&place, &arguments.filter(&place)?)
    } else {
        search.search_file(&place).map_err(said)?
    };
    Ok(search.report(end))
}

/// The reason why a search ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchEnd {
    Completed,
    LimitReached,
    Cancelled,
}

struct Search<'a> {
    regex: Regex,
    limit: usize,
    cancel: &'a CancellationToken,
    directory: PathBuf,
    found: String,
    count: usize,
    unreadable: usize,
}

impl Search<'_> {
    fn search_folder(&mut self, place: &Path, filter: &Override) -> SearchEnd {
        let walk = WalkBuilder::new(place)
            .require_git(false)
            .git_global(false)
            .sort_by_file_name(std::cmp::Ord::cmp)
            .build();
        for entry in walk {
            if self.cancel.is_cancelled() {
                return SearchEnd::Cancelled;
            }
            let Ok(entry) = entry else {
                self.unreadable += 1;
                continue;
            };
            let regular = entry.file_type().is_some_and(|kind| kind.is_file());
            if !regular || filter.matched(entry.path(), false).is_ignore() {
                continue;
            }
            match self.search_file(entry.path()) {
                Ok(SearchEnd::Completed) => {}
                Ok(end) => return end,
                // A binary file counts as text up to the first line that is not.
                Err(error) if error.kind() == ErrorKind::InvalidData => {}
                Err(_) => self.unreadable += 1,
            }
        }
        SearchEnd::Completed
    }

    fn search_file(&mut self, path: &Path) -> io::Result<SearchEnd> {
        let mut lines = Lines::open(path, self.cancel)?;
        for number in 1_usize.. {
            match lines.next(MAX_LINE_BYTES) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    return Ok(SearchEnd::Cancelled);
                }
                Err(error) => return Err(error),
            }
            let line = lines
                .line_prefix()
                .strip_suffix(b"\n")
                .unwrap_or(lines.line_prefix());
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(found) = self.regex.find(line) else {
                continue;
            };
            let name = path.strip_prefix(&self.directory).unwrap_or(path);
            let text = excerpt(line, found.start());
            let result = format!("{}:{number}: {text}\n", name.display());
            if self.count == self.limit || self.found.len() + result.len() > CONTENT_LIMIT {
                return Ok(SearchEnd::LimitReached);
            }
            self.found.push_str(&result);
            self.count += 1;
        }
        Ok(SearchEnd::Completed)
    }

    fn report(self, end: SearchEnd) -> String {
        let mut text = self.found;
        if self.count == 0 && end == SearchEnd::Completed {
            text.push_str("nothing found\n");
        }
        if end == SearchEnd::LimitReached {
            let count = self.count;
            text = append_note(
                &text,
                &format!("there is more: only the first {count} lines are shown"),
            );
        }
        if self.unreadable > 0 {
            let unreadable = self.unreadable;
            text = append_note(
                &text,
                &format!("{unreadable} files or folders could not be read"),
            );
        }
        text
    }
}

/// Returns the line, or the part around the match if it is too long.
fn excerpt(line: &[u8], found_at: usize) -> String {
    let start = if found_at < MAX_SHOWN_CHARS - MAX_SHOWN_BYTES_BEFORE {
        0
    } else {
        found_at - MAX_SHOWN_BYTES_BEFORE
    };
    let end = line.len().min(start + 4 * MAX_SHOWN_CHARS);
    let part = String::from_utf8_lossy(trim_partial_start(&line[start..end]));
    let text: String = part.chars().take(MAX_SHOWN_CHARS).collect();
    let before = if start > 0 { "…" } else { "" };
    let is_cut = end < line.len() || text.len() < part.len();
    let after = if is_cut { "…" } else { "" };
    format!("{before}{text}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_search_returns_matches_found_so_far() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["0", "1"].map(|name| folder.path().join(name));
        for file in [&first, &second] {
            std::fs::write(file, "needle\nneedle\n").unwrap();
        }
        let cancel = CancellationToken::new();
        let mut search = Search {
            regex: Regex::new("needle").unwrap(),
            limit: DEFAULT_LIMIT,
            cancel: &cancel,
            directory: folder.path().to_owned(),
            found: String::new(),
            count: 0,
            unreadable: 0,
        };
        assert!(search.search_file(&first).unwrap() == SearchEnd::Completed);
        cancel.cancel();
        assert!(search.search_file(&second).unwrap() == SearchEnd::Cancelled);
        let all = Override::empty();
        assert!(search.search_folder(folder.path(), &all) == SearchEnd::Cancelled);
        let found = "0:1: needle\n0:2: needle\n";
        assert_eq!(search.report(SearchEnd::Cancelled), found);
    }
}
