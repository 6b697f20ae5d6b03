//! The units of a line: graphemes, tabs and newlines, with their widths in columns.
//!
//! Invariant: widths are those that ratatui draws with, and no control character is emitted.

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::Span;
use std::borrow::Cow;

const TAB: usize = 4;

/// Returns the width of the spans in columns, each grapheme as ratatui counts it.
pub(crate) fn columns(spans: &[Span<'_>]) -> usize {
    let mut sum = 0;
    for_each_unit(spans, |unit| {
        sum += unit.width;
        true
    });
    sum
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Blank,
    Word,
    /// A line may be broken before and after it.
    Wide,
    NewLine,
}

/// A grapheme, or the replacement for a tab or a newline.
pub(super) struct Unit<'a> {
    pub(super) symbol: &'a str,
    pub(super) style: Style,
    pub(super) width: usize,
    pub(super) kind: Kind,
}

/// Calls `take` for each unit until it returns `false`.
pub(super) fn for_each_unit(spans: &[Span<'_>], mut take: impl FnMut(Unit<'_>) -> bool) {
    let mut column = 0;
    for span in spans {
        let text = without_controls(&span.content);
        for part in text.split_inclusive(['\n', '\t']) {
            let words = part.trim_end_matches(['\n', '\t']);
            let clean = Span::styled(words, span.style);
            for grapheme in clean.styled_graphemes(Style::new()) {
                let Some(unit) = unit(grapheme.symbol, span.style) else {
                    continue;
                };
                column += unit.width;
                if !take(unit) {
                    return;
                }
            }
            let (symbol, kind) = match part.as_bytes().last() {
                Some(b'\n') => ("", Kind::NewLine),
                Some(b'\t') => (&"    "[..TAB - column % TAB], Kind::Blank),
                _ => continue,
            };
            let style = span.style;
            let width = symbol.len();
            column = if kind == Kind::Blank {
                column + width
            } else {
                0
            };
            if !take(Unit {
                symbol,
                style,
                width,
                kind,
            }) {
                return;
            }
        }
    }
}

fn unit(symbol: &str, style: Style) -> Option<Unit<'_>> {
    // A selector without a character would change the one before it, and with it a width.
    let symbol = symbol.trim_start_matches(is_variation_selector);
    if symbol.is_empty() {
        return None;
    }
    let width = columns_of(symbol);
    let kind = if is_blank(symbol) {
        Kind::Blank
    } else if width > 1 {
        Kind::Wide
    } else {
        Kind::Word
    };
    Some(Unit {
        symbol,
        style,
        width,
        kind,
    })
}

fn without_controls(text: &str) -> Cow<'_, str> {
    let unwanted = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(unwanted) {
        Cow::Owned(text.replace(unwanted, ""))
    } else {
        Cow::Borrowed(text)
    }
}

pub(super) fn columns_of(symbol: &str) -> usize {
    // Ratatui counts in 16 bits, which a hostile grapheme can overflow.
    let least = if symbol.len() > usize::from(u16::MAX) {
        unicode_width::UnicodeWidthStr::width(symbol)
    } else {
        0
    };
    least.max(symbol.cell_width().into())
}

fn is_blank(symbol: &str) -> bool {
    const ZERO_WIDTH_SPACE: char = '\u{200b}';
    const NO_BREAK: [char; 3] = ['\u{a0}', '\u{2007}', '\u{202f}'];
    symbol
        .chars()
        .all(|c| c == ZERO_WIDTH_SPACE || (c.is_whitespace() && !NO_BREAK.contains(&c)))
}

pub(super) fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}
