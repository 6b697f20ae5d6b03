//! The output of a demo: lines, and on a terminal a status line below them that is repainted in place.
//!
//! Invariants: no line is wider than the terminal; anything but a terminal gets plain text.

use crate::output::run_view::{stdout_size, truncate, width};
use anyhow::Context;
use outlast_kernel::text;
use std::io::{IsTerminal, Write};

/// The width of lines without a terminal, and its limits on one.
const DEFAULT_COLUMNS: usize = 80;
const MIN_COLUMNS: usize = 40;
const MAX_COLUMNS: usize = 100;

pub(super) struct View<Out: Write> {
    out: Out,
    /// Returns the width of the terminal; `None` if stdout is none.
    columns: Option<fn() -> usize>,
    /// The status line.
    painted: String,
}

impl View<std::io::Stdout> {
    pub(super) fn stdout() -> Self {
        let stdout = std::io::stdout();
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        let repaints = stdout.is_terminal() && !is_dumb;
        Self::new(stdout, repaints.then_some(|| stdout_size().0))
    }
}

impl<Out: Write> View<Out> {
    fn new(out: Out, columns: Option<fn() -> usize>) -> Self {
        Self {
            out,
            columns,
            painted: String::new(),
        }
    }

    pub(super) fn columns(&self) -> usize {
        let columns = self.columns.map_or(DEFAULT_COLUMNS, |columns| columns());
        columns.clamp(MIN_COLUMNS, MAX_COLUMNS)
    }

    /// Reports whether there is a status line.
    pub(super) const fn is_live(&self) -> bool {
        self.columns.is_some()
    }

    pub(super) fn heading(&mut self, text: &str) -> anyhow::Result<()> {
        let line = format!("── {text} ");
        let missing = self.columns().saturating_sub(width(&line));
        self.write_lines(&[String::new(), line + &"─".repeat(missing)])
    }

    pub(super) fn paragraph(&mut self, text: &str) -> anyhow::Result<()> {
        self.write_lines(&wrapped(text, "", self.columns()))
    }

    /// Writes a mark and a text that may take several lines.
    pub(super) fn event(&mut self, mark: char, text: &str) -> anyhow::Result<()> {
        self.write_marked(&format!("  {mark} "), text)
    }

    /// Writes a finding.
    pub(super) fn finding(&mut self, holds: bool, text: &str) -> anyhow::Result<()> {
        self.write_marked(if holds { "✓ " } else { "✗ " }, text)
    }

    fn write_marked(&mut self, mark: &str, text: &str) -> anyhow::Result<()> {
        let indent = " ".repeat(width(mark));
        let mut lines = wrapped(text, &indent, self.columns());
        if let Some(first) = lines.first_mut() {
            first.replace_range(..indent.len(), mark);
        }
        self.write_lines(&lines)
    }

    /// Writes lines without wrapping them.
    pub(super) fn block(&mut self, text: &str) -> anyhow::Result<()> {
        let columns = self.columns();
        let lines: Vec<String> = text.lines().map(|line| truncate(line, columns)).collect();
        self.write_lines(&lines)
    }

    /// Repaints the status line.
    pub(super) fn paint(&mut self, line: &str) -> anyhow::Result<()> {
        // The last column stays free: terminals differ in what they do there.
        let line = truncate(&text::plain(line), self.columns().saturating_sub(1));
        if self.columns.is_none() || line == self.painted {
            return Ok(());
        }
        self.write(&format!("\r\u{1b}[2K{line}"))?;
        self.painted = line;
        Ok(())
    }

    fn write_lines(&mut self, lines: &[String]) -> anyhow::Result<()> {
        let lines = lines.iter().map(|line| format!("{}\n", text::plain(line)));
        let lines: String = lines.collect();
        let painted = std::mem::take(&mut self.painted);
        let taken_back = if painted.is_empty() {
            ""
        } else {
            "\r\u{1b}[2K"
        };
        self.write(&format!("{taken_back}{lines}"))
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let written = self.out.write_all(text.as_bytes());
        written
            .and_then(|()| self.out.flush())
            .context("cannot write to stdout")
    }
}

impl<Out: Write> Drop for View<Out> {
    /// Clears the status line, so that the next writer begins on an empty line.
    fn drop(&mut self) {
        if !self.painted.is_empty() {
            self.out
                .write_all(b"\r\x1b[2K")
                .and_then(|()| self.out.flush())
                .ok();
        }
    }
}

/// Wraps a text into indented lines of at most that many columns.
pub(super) fn wrapped(text: &str, indent: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_first = width(&line) == width(indent);
        if !is_first && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        }
        if width(&line) > width(indent) {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines
        .into_iter()
        .map(|line| truncate(&line, columns))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(columns: Option<fn() -> usize>) -> String {
        let mut out = Vec::new();
        let mut view = View::new(&mut out, columns);
        view.paint("  1s left").unwrap();
        view.paint("  1s left").unwrap();
        view.event(
            '⚠',
            "\u{1b}[31mword word word word word word word word word",
        )
        .unwrap();
        view.paint("  0s left, and no room for all of this in one line")
            .unwrap();
        drop(view);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn terminal_status_is_redrawn_in_place_and_cleared() {
        let clear = "\r\u{1b}[2K";
        let expected = format!(
            "{clear}  1s left{clear}  ⚠ word word word word word word\n    word word word\n\
             {clear}  0s left, and no room for all of this…{clear}"
        );
        assert_eq!(shown(Some(|| 40)), expected);
    }

    #[test]
    fn pipe_gets_plain_text_without_escapes() {
        let line = "  ⚠ word word word word word word word word word\n";
        assert_eq!(shown(None), line);
    }
}
