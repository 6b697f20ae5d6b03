//! Draws complete blocks.

use outlast_kernel::text::plain;
use pulldown_cmark::HeadingLevel;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::highlight::Highlighter;
use super::super::wrap::{Indent, wrapped};
use super::{Block, LastDrawn, Renderer};

const CODE_INDENT: &str = "  ";

impl Renderer<'_> {
    pub(super) fn end_block(&mut self) {
        match std::mem::replace(&mut self.block, Block::None) {
            Block::None => {}
            Block::Text => self.draw_text(),
            Block::Heading(level) => self.draw_heading(level),
            Block::Ambiguous(underline) => {
                self.inline.push(&format!("\n{underline}"));
                self.inline.close();
                self.draw_text();
            }
            Block::Code { language, code } => {
                let code = without_unfinished_fence(&language, &code);
                self.draw_code(&language.unwrap_or_default(), code);
            }
            Block::Html(html) => {
                for line in html.lines() {
                    let line = styled(plain(line), self.theme.text);
                    self.draw(line);
                }
            }
            Block::Table(table) => {
                let room = usize::from(self.width) - self.nesting.columns();
                let room = u16::try_from(room).unwrap_or(u16::MAX);
                for line in table.lines(room, self.theme) {
                    self.draw(line);
                }
            }
        }
    }

    fn draw_text(&mut self) {
        if self.inline.is_blank() {
            self.inline.take();
            return;
        }
        let line = Line::from(self.inline.take());
        self.draw(line);
        self.last_drawn = LastDrawn::Text;
    }

    /// Draws a heading with its marks, so that levels differ without colours as well.
    fn draw_heading(&mut self, level: HeadingLevel) {
        self.inline.close();
        let marks = "#".repeat(level as usize) + " ";
        let mut indent = self.nesting.indent();
        indent.later.push(Span::raw(" ".repeat(marks.len())));
        indent.first.push(Span::styled(marks, self.theme.heading));
        let line = Line::from(self.inline.take());
        self.draw_within(line, &indent);
    }

    fn draw_code(&mut self, language: &str, code: &str) {
        if !language.is_empty() {
            let line = styled(language, self.theme.faint);
            self.draw_code_line(line);
        }
        let mut highlighter = Highlighter::new(language, self.theme);
        for line in code.lines() {
            let spans = highlighter.line(&plain(line));
            self.draw_code_line(Line::from(spans));
        }
    }

    fn draw_code_line(&mut self, line: Line<'static>) {
        let mut indent = self.nesting.indent();
        indent.first.push(Span::raw(CODE_INDENT));
        indent.later.push(Span::raw(CODE_INDENT));
        self.draw_within(line, &indent);
    }

    pub(super) fn draw(&mut self, line: Line<'static>) {
        let indent = self.nesting.indent();
        self.draw_within(line, &indent);
    }

    fn draw_within(&mut self, mut line: Line<'static>, indent: &Indent) {
        line.spans.splice(0..0, self.nesting.take_pending_markers());
        self.lines.extend(wrapped(&line, self.width, indent));
        self.last_drawn = LastDrawn::Other;
    }
}

pub(super) fn styled(text: impl Into<String>, style: Style) -> Line<'static> {
    Line::from(Span::styled(text.into(), style))
}

/// Removes an incomplete closing fence at the end of streamed text, which is not code.
fn without_unfinished_fence<'a>(fence: &Option<String>, code: &'a str) -> &'a str {
    let (before, last) = code.rsplit_once('\n').unwrap_or(("", code));
    let ticks =
        !last.is_empty() && (last.bytes().all(|b| b == b'`') || last == "~" || last == "~~");
    if fence.is_some() && ticks {
        before
    } else {
        code
    }
}
