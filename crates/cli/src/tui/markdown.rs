//! Renders Markdown as terminal lines: CommonMark with tables, strikethrough, task lists and footnotes.
//!
//! Pure, and safe for untrusted text: only printable characters are emitted, no line exceeds the width, and neither
//! depth nor length can exhaust the stack or take more than linear time. Streamed text can be shown at any moment:
//! finished blocks do not change when more of it arrives. Not here: colours (see `theme`), line breaks (see `wrap`) and
//! the languages of code (see `highlight`).

mod draw;
mod inline;
mod nesting;
mod table;

use draw::styled;
use inline::{Inline, Target};
use nesting::{Kind, Nesting};
use outlast_kernel::text::plain;
use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use std::ops::Range;
use table::Table;

use super::theme::Theme;

const BULLET: &str = "• ";
const QUOTE_BAR: &str = "│ ";

pub(crate) fn lines(text: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    if width == 0 {
        return Vec::new();
    }
    let source = plain(text);
    let parser = Parser::new_ext(&source, options()).into_offset_iter();
    let definitions = parser.reference_definitions().iter();
    let mut definitions: Vec<_> = definitions.map(|(_, it)| it.span.clone()).collect();
    definitions.sort_unstable_by_key(|span| std::cmp::Reverse(span.start));
    let mut page = Renderer {
        source: &source,
        width,
        theme,
        definitions,
        lines: Vec::new(),
        nesting: Nesting::new(width.into()),
        inline: Inline::default(),
        block: Block::None,
        last_drawn: LastDrawn::Nothing,
    };
    for (event, range) in parser {
        page.handle_event(event, range);
    }
    page.finish()
}

fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
}

/// The block that is being read.
enum Block {
    None,
    Text,
    Heading(HeadingLevel),
    /// The underline of a paragraph which may still become a list.
    Ambiguous(String),
    Code {
        /// The info string of a fence, which may be empty; `None` for indented code.
        language: Option<String>,
        code: String,
    },
    Html(String),
    Table(Table),
}

/// The kind of the last block, if no blank line follows it yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastDrawn {
    Nothing,
    Text,
    Other,
}

struct Renderer<'a> {
    source: &'a str,
    width: u16,
    theme: &'a Theme,
    /// The positions of link definitions, in reverse order.
    definitions: Vec<Range<usize>>,
    lines: Vec<Line<'static>>,
    nesting: Nesting,
    inline: Inline,
    block: Block,
    last_drawn: LastDrawn,
}

// --- impl Renderer: events ---

impl Renderer<'_> {
    fn handle_event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.end(tag),
            Event::Rule => {
                self.begin(range.start);
                let room = usize::from(self.width) - self.nesting.columns();
                self.draw(styled("─".repeat(room), self.theme.border));
            }
            Event::Text(text) => match &mut self.block {
                Block::Code { code, .. } => code.push_str(&text),
                _ => self.text(&text, range.start),
            },
            Event::Html(html) => match &mut self.block {
                Block::Html(all) => all.push_str(&html),
                _ => self.text(&html, range.start),
            },
            Event::InlineHtml(html) if is_line_break(&html) => self.text("\n", range.start),
            Event::InlineHtml(html) => self.text(&html, range.start),
            Event::Code(code) | Event::InlineMath(code) | Event::DisplayMath(code) => {
                self.begin_text(range.start);
                self.inline.push_patched(&code, self.theme.code);
            }
            Event::FootnoteReference(name) => self.text(&format!("[^{name}]"), range.start),
            Event::SoftBreak | Event::HardBreak => self.text("\n", range.start),
            Event::TaskListMarker(done) => {
                self.begin_text(range.start);
                let mark = if done { "[x] " } else { "[ ] " };
                self.inline.push_patched(mark, self.theme.marker);
            }
        }
    }

    fn text(&mut self, text: &str, at: usize) {
        self.begin_text(at);
        self.inline.push(text);
    }

    fn start(&mut self, tag: Tag<'_>, range: Range<usize>) {
        let at = range.start;
        match tag {
            Tag::Emphasis => self.open(self.theme.emphasis, at),
            Tag::Strong => self.open(self.theme.strong, at),
            Tag::Strikethrough => self.open(self.theme.struck, at),
            Tag::Superscript | Tag::Subscript => self.open(self.theme.text, at),
            Tag::Link {
                link_type,
                dest_url,
                id,
                ..
            } => {
                self.begin_text(at);
                let target = Target::link(link_type, &dest_url, &id);
                self.inline.open_link(target, self.theme);
            }
            Tag::Image { dest_url, .. } => {
                self.begin_text(at);
                let target = Target::image(&dest_url);
                self.inline.open_link(target, self.theme);
            }
            Tag::TableHead | Tag::TableRow | Tag::TableCell => self.start_in_table(&tag),
            tag => self.start_block(tag, range),
        }
    }

    fn start_block(&mut self, tag: Tag<'_>, range: Range<usize>) {
        let at = range.start;
        if matches!(tag, Tag::List(_)) {
            self.begin_list(at);
        } else {
            self.begin(at);
        }
        match tag {
            Tag::Paragraph => self.begin_text(at),
            Tag::Heading { level, .. } => self.begin_heading(level, range),
            Tag::BlockQuote(_) => {
                let bar = Span::styled(QUOTE_BAR, self.theme.quote);
                self.nesting.enter_with_bar(Kind::Quote, bar);
            }
            Tag::List(number) => self.nesting.enter(Kind::List(number)),
            Tag::Item => {
                let marker = match self.nesting.next_number() {
                    Some(number) => format!("{number}. "),
                    None => BULLET.to_owned(),
                };
                self.enter_with_marker(Kind::Item, marker);
            }
            Tag::FootnoteDefinition(name) => {
                self.enter_with_marker(Kind::Footnote, format!("[^{}]: ", plain(&name)));
            }
            Tag::CodeBlock(kind) => {
                self.block = Block::Code {
                    language: language(&kind),
                    code: String::new(),
                };
            }
            Tag::HtmlBlock => self.block = Block::Html(String::new()),
            Tag::Table(alignments) => self.block = Block::Table(Table::new(alignments)),
            _ => {}
        }
    }

    fn start_in_table(&mut self, tag: &Tag<'_>) {
        if let Block::Table(table) = &mut self.block
            && matches!(tag, Tag::TableHead | Tag::TableRow)
        {
            table.begin_row();
        }
        if matches!(tag, Tag::TableHead) {
            self.inline.open(self.theme.strong);
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::TableHead => self.inline.close(),
            TagEnd::Link | TagEnd::Image => self.inline.close_link(self.theme),
            TagEnd::TableCell => {
                let cell = self.inline.take();
                if let Block::Table(table) = &mut self.block {
                    table.push(cell);
                }
            }
            TagEnd::TableRow => {}
            TagEnd::Item | TagEnd::FootnoteDefinition => {
                self.end_block();
                if self.nesting.has_pending_marker() {
                    self.draw(Line::default());
                }
                self.nesting.leave();
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) => {
                self.end_block();
                self.nesting.leave();
            }
            _ => self.end_block(),
        }
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.begin(self.source.len());
        self.lines
    }
}

// --- impl Renderer: starts of blocks ---

impl Renderer<'_> {
    /// Ends the previous block, with a blank line where one belongs.
    fn begin(&mut self, at: usize) {
        self.end_block();
        self.show_definitions(at);
        let compact = matches!(
            self.nesting.innermost(),
            Some(Kind::List(_) | Kind::Item | Kind::Footnote)
        );
        let last = at == self.source.len();
        if !last && (!compact || self.is_after_blank_line(at)) {
            self.separate();
        }
        self.last_drawn = LastDrawn::Nothing;
    }

    /// Begins a list, which may follow its introduction without a blank line.
    fn begin_list(&mut self, at: usize) {
        self.end_block();
        self.show_definitions(at);
        if self.last_drawn == LastDrawn::Text && !self.is_after_blank_line(at) {
            self.last_drawn = LastDrawn::Nothing;
        }
        self.begin(at);
    }

    /// Begins a paragraph if none is open: text in a tight list has none around it.
    fn begin_text(&mut self, at: usize) {
        if matches!(self.block, Block::None) {
            self.begin(at);
            self.block = Block::Text;
        }
    }

    fn begin_heading(&mut self, level: HeadingLevel, range: Range<usize>) {
        self.block = match self.unsettled_underline(range) {
            Some(underline) => Block::Ambiguous(underline),
            None => Block::Heading(level),
        };
        self.inline.open(match self.block {
            Block::Heading(_) => self.theme.heading,
            _ => self.theme.text,
        });
    }

    /// Returns an underline that is still incomplete: at the end of streamed text, one or two dashes below a paragraph
    /// more likely begin a list or a rule than mark a heading.
    fn unsettled_underline(&self, range: Range<usize>) -> Option<String> {
        let at_the_end = range.end == self.source.len();
        let heading = self.source.get(range).filter(|_| at_the_end)?;
        let (_, underline) = heading.rsplit_once('\n')?;
        let underline = underline.trim_start_matches([' ', '>']);
        ["-", "--", "=", "=="]
            .contains(&underline)
            .then(|| underline.to_owned())
    }

    fn open(&mut self, style: Style, at: usize) {
        self.begin_text(at);
        self.inline.open(style);
    }

    fn enter_with_marker(&mut self, kind: Kind, marker: String) {
        let marker = Span::styled(marker, self.theme.marker);
        self.nesting.enter_with_marker(kind, marker);
    }

    /// Whether the source has a blank line there. The source decides, so that a list does not change when a later item
    /// is set apart.
    fn is_after_blank_line(&self, at: usize) -> bool {
        let before = self.source.get(..at).unwrap_or_default();
        let gap = before.bytes().rev();
        let gap = gap.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'>'));
        gap.filter(|byte| *byte == b'\n').nth(1).is_some()
    }

    fn separate(&mut self) {
        if self.last_drawn != LastDrawn::Nothing {
            self.lines.push(self.nesting.blank());
        }
    }

    /// Draws the link definitions before this position verbatim.
    fn show_definitions(&mut self, at: usize) {
        while let Some(span) = self.definitions.pop_if(|span| span.start < at) {
            if self.last_drawn == LastDrawn::Text || self.is_after_blank_line(span.start) {
                self.separate();
            }
            let written = self.source.get(span).unwrap_or_default();
            let words: Vec<_> = written.split_whitespace().collect();
            let line = styled(words.join(" "), self.theme.faint);
            self.draw(line);
        }
    }
}

fn language(kind: &CodeBlockKind<'_>) -> Option<String> {
    let CodeBlockKind::Fenced(info) = kind else {
        return None;
    };
    let end = [' ', '\t', ',', '{'];
    let name = info.trim_start().split(end).next().unwrap_or_default();
    Some(plain(name).into_owned())
}

fn is_line_break(html: &CowStr<'_>) -> bool {
    let name = html.trim_matches(['<', '>', '/', ' ']);
    name.eq_ignore_ascii_case("br")
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
