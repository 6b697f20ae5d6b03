//! Tables: in columns if these are wide enough to be read, otherwise as one list for each row.
//!
//! Invariant: no line exceeds the width, and the labels that repeat for each row are bounded.

use pulldown_cmark::Alignment;
use ratatui::text::{Line, Span};

use super::super::theme::Theme;
use super::super::wrap::{Indent, columns, trim_end, truncated, wrapped};

const COLUMN_SEPARATOR: &str = " │ ";
const COLUMN_SEPARATOR_WIDTH: usize = 3;
/// Minimum width of a column that is narrower than its content.
const MIN_COLUMN_WIDTH: usize = 8;
/// Maximum width of a header that is repeated before each value.
const MAX_LABEL_COLUMNS: u16 = 30;

type Cell = Vec<Span<'static>>;

pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The rows; the first one is the header.
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self {
            alignments,
            rows: Vec::new(),
        }
    }

    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn push(&mut self, cell: Cell) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub(super) fn lines(&self, room: u16, theme: &Theme) -> Vec<Line<'static>> {
        match self.widths(room) {
            Some(widths) => self.grid(&widths, theme),
            None => self.list(room, theme),
        }
    }

    // --- columns ---

    /// Returns the widths of the columns, or `None` if they would be too narrow.
    fn widths(&self, room: u16) -> Option<Vec<usize>> {
        let count = self.alignments.len();
        let between = COLUMN_SEPARATOR_WIDTH.checked_mul(count.checked_sub(1)?)?;
        let available = usize::from(room).checked_sub(between)?;
        if available < count {
            return None;
        }
        let mut widths = vec![1; count];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell_width(cell, room).max(*width);
            }
        }
        shrunk(widths, available)
    }

    fn grid(&self, widths: &[usize], theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            lines.extend(self.grid_row(row, widths, theme));
            if at == 0 {
                let rules: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                let rule = Span::styled(rules.join("─┼─"), theme.border);
                lines.push(Line::from(rule));
            }
        }
        lines
    }

    fn grid_row(&self, row: &[Cell], widths: &[usize], theme: &Theme) -> Vec<Line<'static>> {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| wrapped_cell(cell, u16::try_from(*width).unwrap_or(u16::MAX)))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        let mut lines = Vec::new();
        for at in 0..height {
            let mut spans = Vec::new();
            for (column, width) in widths.iter().enumerate() {
                if column > 0 {
                    spans.push(Span::styled(COLUMN_SEPARATOR, theme.border));
                }
                let line = cells.get(column).and_then(|lines| lines.get(at));
                let content = line.map(|line| line.spans.clone()).unwrap_or_default();
                let alignment = self.alignments.get(column).copied();
                push_aligned(&mut spans, content, *width, alignment);
            }
            trim_end(&mut spans);
            lines.push(Line::from(spans));
        }
        lines
    }

    // --- one line for each value ---

    fn list(&self, room: u16, theme: &Theme) -> Vec<Line<'static>> {
        let Some((header, body)) = self.rows.split_first() else {
            return Vec::new();
        };
        let labels: Vec<Cell> = header.iter().map(|cell| label(cell, room)).collect();
        let mut lines = Vec::new();
        if body.is_empty() {
            for cell in header.iter().filter(|cell| !is_blank(cell)) {
                lines.extend(wrapped(&Line::from(cell.clone()), room, &Indent::default()));
            }
        }
        for (at, row) in body.iter().enumerate() {
            if at > 0 {
                lines.push(Line::default());
            }
            for (label, cell) in labels.iter().zip(row).filter(|(_, cell)| !is_blank(cell)) {
                let mut spans = label.clone();
                if !is_blank(label) {
                    spans.push(Span::styled(": ", theme.strong));
                }
                spans.extend(cell.iter().cloned());
                let indent = Indent {
                    first: Vec::new(),
                    later: vec![Span::raw("  ")],
                };
                lines.extend(wrapped(&Line::from(spans), room, &indent));
            }
        }
        lines
    }
}

fn wrapped_cell(cell: &Cell, width: u16) -> Vec<Line<'static>> {
    wrapped(&Line::from(cell.clone()), width, &Indent::default())
}

fn cell_width(cell: &Cell, room: u16) -> usize {
    let lines = wrapped_cell(cell, room);
    let widths = lines.iter().map(|line| columns(&line.spans));
    widths.max().unwrap_or_default()
}

/// Shrinks the wide columns to share the space that narrow ones leave. Returns `None` if that is
/// too little.
fn shrunk(mut widths: Vec<usize>, available: usize) -> Option<Vec<usize>> {
    if widths.iter().sum::<usize>() <= available {
        return Some(widths);
    }
    let mut sorted = widths.clone();
    sorted.sort_unstable();
    let mut left = available;
    let mut most = available;
    for (at, width) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - at);
        if *width > share {
            most = share;
            break;
        }
        left -= width;
    }
    for width in &mut widths {
        *width = (*width).min(most);
    }
    (most >= MIN_COLUMN_WIDTH).then_some(widths)
}

fn push_aligned(
    spans: &mut Vec<Span<'static>>,
    content: Cell,
    width: usize,
    alignment: Option<Alignment>,
) {
    let free = width.saturating_sub(columns(&content));
    let before = match alignment {
        Some(Alignment::Right) => free,
        Some(Alignment::Center) => free / 2,
        _ => 0,
    };
    spans.push(Span::raw(" ".repeat(before)));
    spans.extend(content);
    spans.push(Span::raw(" ".repeat(free - before)));
}

fn label(cell: &Cell, room: u16) -> Cell {
    truncated(&Line::from(cell.clone()), room.min(MAX_LABEL_COLUMNS)).spans
}

fn is_blank(cell: &Cell) -> bool {
    cell.iter().all(|span| span.content.trim().is_empty())
}
