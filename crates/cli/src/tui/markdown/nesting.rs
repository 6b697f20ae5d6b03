//! The containers of a block: quotes, lists, footnotes, and their prefixes on its left.
//!
//! Invariant: prefixes take at most half of the width, however deep the nesting is; deeper levels align with the last
//! one that fits, with their markers in front of their text. The cost of a line does not depend on the depth.

use ratatui::text::{Line, Span};

use super::super::wrap::{Indent, columns, trim_end};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Quote,
    /// The number of the next item in an ordered list.
    List(Option<u64>),
    Item,
    Footnote,
}

pub(super) struct Nesting {
    levels: Vec<Level>,
    prefixes: Vec<Prefix>,
    /// Markers without room for a prefix, until a line takes them as text.
    pending_markers: Vec<Span<'static>>,
    columns: usize,
    max_columns: usize,
}

struct Level {
    kind: Kind,
    has_prefix: bool,
}

struct Prefix {
    /// Drawn once, in place of `later`.
    marker: Option<Span<'static>>,
    later: Span<'static>,
    columns: usize,
}

impl Nesting {
    pub(super) fn new(width: usize) -> Self {
        Self {
            levels: Vec::new(),
            prefixes: Vec::new(),
            pending_markers: Vec::new(),
            columns: 0,
            max_columns: width / 2,
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn innermost(&self) -> Option<Kind> {
        self.levels.last().map(|level| level.kind)
    }

    /// Returns the number for a new item.
    pub(super) fn next_number(&mut self) -> Option<u64> {
        match self.levels.last_mut()?.kind {
            Kind::List(Some(ref mut next)) => {
                let number = *next;
                *next = number.saturating_add(1);
                Some(number)
            }
            _ => None,
        }
    }

    pub(super) fn enter(&mut self, kind: Kind) {
        self.levels.push(Level {
            kind,
            has_prefix: false,
        });
    }

    /// Enters a container with a bar beside every line.
    pub(super) fn enter_with_bar(&mut self, kind: Kind, bar: Span<'static>) {
        self.enter_with(kind, None, bar);
    }

    /// Enters a container with a marker before the first line and blanks before the others.
    pub(super) fn enter_with_marker(&mut self, kind: Kind, marker: Span<'static>) {
        let blanks = Span::raw(" ".repeat(columns(std::slice::from_ref(&marker))));
        self.enter_with(kind, Some(marker), blanks);
    }

    fn enter_with(&mut self, kind: Kind, marker: Option<Span<'static>>, later: Span<'static>) {
        let columns = columns(std::slice::from_ref(&later));
        let has_prefix = self.columns + columns <= self.max_columns;
        self.levels.push(Level { kind, has_prefix });
        if !has_prefix {
            self.pending_markers.extend(marker);
            return;
        }
        self.columns += columns;
        self.prefixes.push(Prefix {
            marker,
            later,
            columns,
        });
    }

    pub(super) fn leave(&mut self) {
        if self.levels.pop().is_some_and(|level| level.has_prefix)
            && let Some(prefix) = self.prefixes.pop()
        {
            self.columns -= prefix.columns;
        }
    }

    /// Whether the innermost level has a marker that no line has shown yet.
    pub(super) fn has_pending_marker(&self) -> bool {
        let owes_prefix = || self.prefixes.last().is_some_and(|p| p.marker.is_some());
        match self.levels.last() {
            Some(level) if level.has_prefix => owes_prefix(),
            _ => !self.pending_markers.is_empty(),
        }
    }

    pub(super) fn take_pending_markers(&mut self) -> Vec<Span<'static>> {
        std::mem::take(&mut self.pending_markers)
    }

    /// Returns the prefixes for the next lines. Each marker is returned once.
    pub(super) fn indent(&mut self) -> Indent {
        let later = self.prefixes.iter().map(|p| p.later.clone()).collect();
        let first = self.prefixes.iter_mut().map(|prefix| {
            let marker = prefix.marker.take();
            marker.unwrap_or_else(|| prefix.later.clone())
        });
        Indent {
            first: first.collect(),
            later,
        }
    }

    /// Returns the line between two blocks.
    pub(super) fn blank(&self) -> Line<'static> {
        let mut spans = self.prefixes.iter().map(|p| p.later.clone()).collect();
        trim_end(&mut spans);
        Line::from(spans)
    }
}
