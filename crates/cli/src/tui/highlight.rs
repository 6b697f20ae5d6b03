//! Highlights code: comments, strings, numbers and keywords, and the lines of a diff.
//!
//! Uses tables instead of a parser: a line at a time, with the open token carried over to the next. Linear, and it only
//! adds styles: the text of the spans is the text of the line. Unknown text is left unchanged. Not here: the tables
//! (see `languages`).

mod languages;

use languages::{Language, Quote, QuoteKind, Traits};
use ratatui::style::Style;
use ratatui::text::Span;

use super::theme::Theme;

pub(crate) struct Highlighter<'a> {
    language: Option<&'static Language>,
    theme: &'a Theme,
    open: OpenToken,
}

/// The token in which a line begins.
enum OpenToken {
    Nothing,
    /// The depth of open comments.
    Comment(usize),
    Quote(&'static Quote),
}

impl<'a> Highlighter<'a> {
    /// Creates a highlighter for a language by one of its usual names; an unknown language is left unstyled.
    pub(crate) fn new(name: &str, theme: &'a Theme) -> Self {
        Self {
            language: languages::named(name),
            theme,
            open: OpenToken::Nothing,
        }
    }

    /// Styles the next line of the code, without its newline.
    pub(crate) fn line(&mut self, line: &str) -> Vec<Span<'static>> {
        let Some(language) = self.language else {
            return vec![Span::styled(line.to_owned(), self.theme.code_block)];
        };
        if language.traits == Traits::Diff {
            return vec![Span::styled(line.to_owned(), self.diff_style(line))];
        }
        let mut painted = SpanBuffer::default();
        let mut at = 0;
        while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
            let (length, style) = match self.open {
                OpenToken::Comment(depth) => {
                    (self.comment(language, rest, depth), self.theme.comment)
                }
                OpenToken::Quote(quote) => (self.quoted(quote, rest), self.theme.string),
                OpenToken::Nothing => self.token(language, rest, &line[..at]),
            };
            painted.push(&rest[..length], style);
            at += length;
        }
        if let OpenToken::Quote(quote) = self.open
            && matches!(quote.kind, QuoteKind::Line | QuoteKind::Character)
        {
            self.open = OpenToken::Nothing;
        }
        painted.spans
    }

    fn diff_style(&self, line: &str) -> Style {
        let headers = ["+++", "---", "diff ", "index "];
        if headers.iter().any(|header| line.starts_with(header)) {
            return self.theme.faint;
        }
        match line.as_bytes().first() {
            Some(b'+') => self.theme.added,
            Some(b'-') => self.theme.removed,
            Some(b'@') => self.theme.accent,
            _ => self.theme.code_block,
        }
    }

    /// Returns the length and the style of the next token, and opens it if it continues.
    fn token(&mut self, language: &'static Language, rest: &str, before: &str) -> (usize, Style) {
        if language.traits != Traits::AtWords || !ends_in_word(before) {
            if begins_with_any(language.line_comments, rest) {
                return (rest.len(), self.theme.comment);
            }
            if let Some(quote) = language.quotes.iter().find(|quote| opens(quote, rest)) {
                self.open = OpenToken::Quote(quote);
                return (quote.open.len(), self.theme.string);
            }
        }
        if let Some((open, _)) = language.block_comment
            && rest.starts_with(open)
        {
            self.open = OpenToken::Comment(1);
            return (open.len(), self.theme.comment);
        }
        let first = rest.chars().next().unwrap_or_default();
        if first.is_ascii_digit() {
            return (number_length(rest), self.theme.number);
        }
        let length = word_length(rest);
        if length == 0 {
            return (first.len_utf8(), self.theme.code_block);
        }
        let style = if is_keyword(language, &rest[..length]) {
            self.theme.keyword
        } else {
            self.theme.code_block
        };
        (length, style)
    }

    /// Returns the length of a comment: to its next mark, or to the end of the line.
    fn comment(&mut self, language: &Language, rest: &str, depth: usize) -> usize {
        let Some((open, close)) = language.block_comment else {
            self.open = OpenToken::Nothing;
            return rest.len();
        };
        let nested = language.traits == Traits::NestedComments;
        for (at, _) in rest.char_indices() {
            let here = &rest[at..];
            if here.starts_with(close) {
                self.open = match depth {
                    0 | 1 => OpenToken::Nothing,
                    _ => OpenToken::Comment(depth - 1),
                };
                return at + close.len();
            }
            if nested && here.starts_with(open) {
                self.open = OpenToken::Comment(depth + 1);
                return at + open.len();
            }
        }
        rest.len()
    }

    /// Returns the length of a string.
    fn quoted(&mut self, quote: &Quote, rest: &str) -> usize {
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            if c == '\\' && quote.kind != QuoteKind::Raw {
                chars.next();
            } else if rest[at..].starts_with(quote.close) {
                self.open = OpenToken::Nothing;
                return at + quote.close.len();
            }
        }
        rest.len()
    }
}

fn opens(quote: &Quote, rest: &str) -> bool {
    let Some(inside) = rest.strip_prefix(quote.open) else {
        return false;
    };
    // A lifetime is not a character.
    quote.kind != QuoteKind::Character
        || inside.starts_with('\\')
        || inside.chars().nth(1) == Some('\'')
}

fn begins_with_any(marks: &[&str], rest: &str) -> bool {
    marks.iter().any(|mark| rest.starts_with(mark))
}

fn ends_in_word(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '{'))
}

fn is_keyword(language: &Language, word: &str) -> bool {
    if language.traits == Traits::AnyCase {
        let mut keywords = language.keywords.iter();
        return keywords.any(|keyword| keyword.eq_ignore_ascii_case(word));
    }
    language.keywords.contains(&word)
}

fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len())
}

/// Returns the length of a number with its suffix, but without the dots of a range.
fn number_length(rest: &str) -> usize {
    let whole = word_length(rest);
    match rest[whole..].strip_prefix('.') {
        Some(fraction) if fraction.starts_with(|c: char| c.is_ascii_digit()) => {
            whole + 1 + word_length(fraction)
        }
        _ => whole,
    }
}

/// Collects spans, and merges neighbours of the same style.
#[derive(Default)]
struct SpanBuffer {
    spans: Vec<Span<'static>>,
}

impl SpanBuffer {
    fn push(&mut self, text: &str, style: Style) {
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(text),
            _ => self.spans.push(Span::styled(text.to_owned(), style)),
        }
    }
}

#[cfg(test)]
#[path = "highlight_tests.rs"]
mod tests;
