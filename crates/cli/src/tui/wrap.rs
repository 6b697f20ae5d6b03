//! Wraps styled text by words to a number of columns.
//!
//! Invariants: no line exceeds the width as ratatui counts it; no visible character is lost, except one that alone is
//! wider than the line, which shows as `…`; no control character is emitted; the time is linear in the text. Not here:
//! the meaning of the text (see `markdown`).

mod unit;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
pub(crate) use unit::columns;
use unit::{Kind, Unit, columns_of, for_each_unit, is_variation_selector};

const ELLIPSIS: &str = "…";
/// Minimum number of columns beside a prefix; a prefix that leaves fewer is omitted.
const MIN_TEXT_COLUMNS: usize = 2;
/// Characters that must not begin a line after a wide character, and those that must not end one before it.
const CLOSING: &str = "、。，．！？：；）」』】》〉〕］｝ー々)]},.!?:;";
const OPENING: &str = "（「『【《〈〔［｛([{";

/// The prefixes of the first line and of those after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indent {
    pub(crate) first: Vec<Span<'static>>,
    pub(crate) later: Vec<Span<'static>>,
}

impl Indent {
    /// Creates an indent with the same prefix for every line.
    pub(crate) fn uniform(prefix: Vec<Span<'static>>) -> Self {
        Self {
            first: prefix.clone(),
            later: prefix,
        }
    }
}

/// Wraps a line into at least one line. A newline ends a line; blanks at a break are dropped.
pub(crate) fn wrapped(line: &Line<'_>, width: u16, indent: &Indent) -> Vec<Line<'static>> {
    let mut wrapper = Wrapper::new(width.into(), indent);
    for_each_unit(&line.spans, |unit| {
        wrapper.take(&unit);
        true
    });
    let mut lines = wrapper.finish();
    for wrapped in &mut lines {
        wrapped.style = line.style;
        wrapped.alignment = line.alignment;
    }
    lines
}

/// Returns the line, or the part of its beginning that fits, with an ellipsis. Newlines become blanks.
pub(crate) fn truncated(line: &Line<'_>, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let mut kept = SpanRun::default();
    // This text fits only if nothing follows, because the ellipsis needs its columns.
    let mut last = SpanRun::default();
    let mut cut = None;
    for_each_unit(&line.spans, |unit| {
        let symbol = if unit.kind == Kind::NewLine {
            " "
        } else {
            unit.symbol
        };
        let unit_width = unit.width.max(usize::from(unit.kind == Kind::NewLine));
        if kept.width + last.width + unit_width > width {
            cut = Some(unit.style);
            return false;
        }
        let fits_before_an_ellipsis =
            last.is_empty() && kept.width + unit_width + columns_of(ELLIPSIS) <= width;
        let run = if fits_before_an_ellipsis {
            &mut kept
        } else {
            &mut last
        };
        run.push(symbol, unit.style, unit_width);
        true
    });
    match cut {
        None => kept.append(&mut last),
        Some(style) if width > 0 => kept.push(ELLIPSIS, style, columns_of(ELLIPSIS)),
        Some(_) => {}
    }
    Line {
        spans: kept.spans,
        style: line.style,
        alignment: line.alignment,
    }
}

// --- impl SpanRun ---

/// Spans that grow at their end.
#[derive(Default)]
struct SpanRun {
    spans: Vec<Span<'static>>,
    width: usize,
}

impl SpanRun {
    fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn clear(&mut self) {
        self.spans.clear();
        self.width = 0;
    }

    fn push(&mut self, symbol: &str, style: Style, width: usize) {
        self.width += width;
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(symbol),
            _ => self.spans.push(Span::styled(symbol.to_owned(), style)),
        }
    }

    /// Moves all spans of the other run to its end.
    fn append(&mut self, other: &mut Self) {
        let mut moved = other.spans.drain(..);
        if let Some(first) = moved.next() {
            match self.spans.last_mut() {
                Some(last) if last.style == first.style => {
                    last.content.to_mut().push_str(&first.content);
                }
                _ => self.spans.push(first),
            }
        }
        self.spans.extend(moved);
        self.width += std::mem::take(&mut other.width);
    }

    /// Keeps the given number of columns of blanks.
    fn shorten_blanks(&mut self, width: usize) {
        let style = self.spans.first().map_or_else(Style::new, |s| s.style);
        self.clear();
        if width > 0 {
            self.push(&" ".repeat(width), style, width);
        }
    }
}

// --- impl Wrapper ---

/// The part of a prefix that fits, and the columns left beside it.
struct Margin<'a> {
    prefix: &'a [Span<'static>],
    room: usize,
}

impl<'a> Margin<'a> {
    fn new(prefix: &'a [Span<'static>], width: usize) -> Self {
        match width.checked_sub(columns(prefix)) {
            Some(room) if room >= MIN_TEXT_COLUMNS => Self { prefix, room },
            _ => Self {
                prefix: &[],
                room: width,
            },
        }
    }
}

/// The class of a word's last character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordEnding {
    Narrow,
    Wide,
    Opening,
}

impl WordEnding {
    fn classify(wide: bool, symbol: &str) -> Self {
        if symbol.starts_with(|c| OPENING.contains(c)) {
            Self::Opening
        } else if wide {
            Self::Wide
        } else {
            Self::Narrow
        }
    }

    /// Whether a line may break before the next character without a blank.
    fn allows_break(self, wide: bool, symbol: &str) -> bool {
        self != Self::Opening
            && (wide || self == Self::Wide)
            && !symbol.starts_with(|c| CLOSING.contains(c))
    }
}

struct Wrapper<'a> {
    first: Margin<'a>,
    later: Margin<'a>,
    lines: Vec<Line<'static>>,
    /// The current line, the blanks after it, and the incomplete word.
    row: SpanRun,
    blanks: SpanRun,
    word: SpanRun,
    word_ending: WordEnding,
}

impl<'a> Wrapper<'a> {
    fn new(width: usize, indent: &'a Indent) -> Self {
        Self {
            first: Margin::new(&indent.first, width),
            later: Margin::new(&indent.later, width),
            lines: Vec::new(),
            row: SpanRun::default(),
            blanks: SpanRun::default(),
            word: SpanRun::default(),
            word_ending: WordEnding::Narrow,
        }
    }

    fn margin(&self) -> &Margin<'a> {
        if self.lines.is_empty() {
            &self.first
        } else {
            &self.later
        }
    }

    fn take(&mut self, unit: &Unit<'_>) {
        match unit.kind {
            Kind::NewLine => {
                self.finish_word();
                self.end_row();
            }
            Kind::Blank => {
                self.finish_word();
                self.blanks.push(unit.symbol, unit.style, unit.width);
            }
            Kind::Word | Kind::Wide => {
                let wide = unit.kind == Kind::Wide;
                if self.word_ending.allows_break(wide, unit.symbol) {
                    self.finish_word();
                }
                self.extend_word(unit);
                self.word_ending = WordEnding::classify(wide, unit.symbol);
            }
        }
    }

    fn extend_word(&mut self, unit: &Unit<'_>) {
        let narrowest = self.first.room.min(self.later.room);
        if unit.width <= narrowest {
            self.push(unit.symbol, unit.style, unit.width);
            return;
        }
        // The unit does not even fit alone on a line: its characters are added one by one, without selectors that would
        // widen them again.
        let chars = unit.symbol.char_indices();
        for (at, c) in chars.filter(|(_, c)| !is_variation_selector(*c)) {
            let symbol = &unit.symbol[at..at + c.len_utf8()];
            let width = columns_of(symbol);
            if width <= narrowest {
                self.push(symbol, unit.style, width);
            } else if narrowest > 0 {
                self.push(ELLIPSIS, unit.style, columns_of(ELLIPSIS));
            }
        }
    }

    fn push(&mut self, symbol: &str, style: Style, width: usize) {
        // A word after others can only move to a later line.
        let limit = if self.row.is_empty() {
            self.margin().room
        } else {
            self.later.room
        };
        if self.word.width + width > limit {
            self.finish_word();
            self.end_row();
        }
        self.word.push(symbol, style, width);
    }

    /// Places the complete word: on this row if it fits, else on the next.
    fn finish_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let room = self.margin().room;
        if self.row.width + self.blanks.width + self.word.width > room {
            if self.row.is_empty() {
                let left = room.saturating_sub(self.word.width);
                self.blanks.shorten_blanks(left);
            } else {
                self.end_row();
            }
        }
        self.row.append(&mut self.blanks);
        self.row.append(&mut self.word);
        self.word_ending = WordEnding::Narrow;
    }

    fn end_row(&mut self) {
        self.blanks.clear();
        let mut spans = self.margin().prefix.to_vec();
        if self.row.is_empty() {
            trim_end(&mut spans);
        }
        spans.append(&mut self.row.spans);
        self.row.clear();
        self.lines.push(Line::from(spans));
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.finish_word();
        if !self.row.is_empty() || self.lines.is_empty() {
            self.end_row();
        }
        self.lines
    }
}

/// Removes blanks at the end.
pub(crate) fn trim_end(spans: &mut Vec<Span<'static>>) {
    while let Some(last) = spans.last_mut() {
        let kept = last.content.trim_end().len();
        if kept > 0 {
            last.content.to_mut().truncate(kept);
            return;
        }
        spans.pop();
    }
}

#[cfg(test)]
#[path = "wrap_tests.rs"]
mod tests;
