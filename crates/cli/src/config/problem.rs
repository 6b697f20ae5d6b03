//! Problems with the settings, and their locations.
//!
//! Invariant: a problem holds no text of a file except a key and, where it cannot be a secret, a value.

use super::key::Key;
use std::fmt;

/// The largest number of problems that are shown; further ones are counted.
const MAX_SHOWN: usize = 50;

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// A file with line and column, a variable or a flag.
    pub(crate) location: String,
    pub(crate) key: Option<Key>,
    pub(crate) text: String,
}

/// At least one problem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.text)
    }
}

impl Problems {
    /// Returns one line for each problem.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .0
            .iter()
            .take(MAX_SHOWN)
            .map(Problem::to_string)
            .collect();
        if let Some(more) = self.0.len().checked_sub(MAX_SHOWN + 1) {
            lines.push(format!("and {} more problems", more + 1));
        }
        lines
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\nerror: "))
    }
}

impl std::error::Error for Problems {}

/// Converts offsets in a text to line and column.
pub(crate) struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Self { text, starts }
    }

    /// Returns line and column of an offset, both from 1; the column is in characters.
    pub(crate) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).map_or(0, |before| self.starts[before]);
        let before = self.text.get(start..offset.min(self.text.len()));
        let column = before.map_or(0, |text| {
            text.trim_start_matches('\u{feff}').chars().count()
        });
        (line, column + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let text = "\u{feff}a = 1\né = 2\n";
        let lines = LineIndex::new(text);
        assert_eq!(lines.position(3), (1, 1));
        assert_eq!(lines.position(text.find('2').unwrap()), (2, 5));
        assert_eq!(lines.position(999), (3, 1));
        assert_eq!(LineIndex::new("").position(0), (1, 1));
    }
}
