//! A session as one page for a browser: nothing is loaded, nothing runs.
//!
//! Invariant: markup is written in this program; whatever comes from elsewhere passes [`Page::text`], which leaves no
//! character that means something to a browser. Should one slip through all the same, the page's own policy forbids
//! scripts, pictures and connections.

use super::Header;
use super::blocks::Block;
use super::phrases::{HIDDEN_REASONING_NOTE, PARTIAL_OUTPUT_NOTE, picture};
use outlast_dialect::Part;
use outlast_kernel::{Timestamp, text};

/// What ends the page.
pub const PAGE_END: &str = "</main>\n</body>\n</html>\n";

const BEGINNING: &str = concat!(
    r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
"#,
    include_str!("page.css"),
    "</style>\n<title>"
);

/// A page as far as it is written.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// A page with that name, up to what stands below it.
    pub fn begin(name: &str) -> Self {
        let mut page = Self::default();
        page.markup(BEGINNING)
            .text(name)
            .markup("</title>\n</head>\n<body>\n<main>\n<h1 dir=\"auto\">")
            .text(name)
            .markup("</h1>\n");
        page
    }

    /// A picture of our own, in which what came from outside is no markup.
    pub fn picture(&mut self, picture: &str) -> &mut Self {
        self.0.push_str(picture);
        self
    }

    /// What was written.
    pub fn finish(self) -> String {
        self.0
    }

    /// Our own markup: it cannot be made of anything that came from outside.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// A text, whoever wrote it.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in text::plain(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// A text with its line ends. A browser drops the first one after the tag, so there is one to drop.
    pub fn verbatim(&mut self, text: &str) -> &mut Self {
        self.markup("<pre dir=\"auto\">\n")
            .text(text)
            .markup("</pre>\n")
    }

    /// A text that is shown when somebody asks for it.
    fn folded(&mut self, title: &str, text: &str) -> &mut Self {
        self.markup("<details><summary>")
            .text(title)
            .markup("</summary>\n")
            .verbatim(text)
            .markup("</details>\n")
    }

    fn title(&mut self, title: &str, time: Timestamp) -> &mut Self {
        self.markup("<h3>")
            .text(title)
            .markup(" <time>")
            .text(&time.to_string())
            .markup("</time></h3>\n")
    }

    fn message(&mut self, message: &str) -> &mut Self {
        match message {
            "" => self,
            message => self.verbatim(message),
        }
    }

    fn note(&mut self, note: &str) -> &mut Self {
        self.markup("<p class=\"note\">")
            .text(note)
            .markup("</p>\n")
    }

    fn parts(&mut self, parts: &[Part]) -> &mut Self {
        parts.iter().fold(self, Self::part)
    }

    fn part<'a>(&'a mut self, part: &Part) -> &'a mut Self {
        match part {
            Part::Text { text } => self
                .markup("<div class=\"speech\" dir=\"auto\">")
                .text(text)
                .markup("</div>\n"),
            Part::Image(image) => self.note(&picture(image)),
            Part::Reasoning(reasoning) if reasoning.text.is_empty() => {
                self.note(HIDDEN_REASONING_NOTE)
            }
            Part::Reasoning(reasoning) => self.folded("Reasoning", &reasoning.text),
            Part::ToolCall(call) => self
                .markup("<h4>Tool call ")
                .text(&call.name)
                .markup("</h4>\n")
                .verbatim(&call.arguments),
            Part::ToolResult(result) => {
                self.folded(&format!("Output of {}", result.id), &result.output)
            }
        }
    }
}

pub(super) fn head(head: &Header) -> String {
    let mut page = Page::begin(&head.name());
    page.markup("<dl>\n");
    for (name, value) in head.facts() {
        page.markup("<dt>")
            .markup(name)
            .markup("</dt><dd>")
            .text(&value)
            .markup("</dd>\n");
    }
    page.markup("</dl>\n");
    page.0
}

pub(super) fn piece(piece: &Block) -> String {
    let mut page = Page::default();
    match piece {
        Block::Turn(number) => page
            .markup("<h2>Turn ")
            .text(&number.to_string())
            .markup("</h2>\n"),
        Block::Said { title, time, parts } => page.title(title, *time).parts(parts),
        Block::Failed {
            title,
            time,
            message,
            parts,
        } => failed(&mut page, title, *time, message, parts),
        Block::Output { title, output } => page.folded(title, output),
        Block::Note(note) => page.note(note),
        Block::Ended {
            title,
            time,
            message,
            tokens,
        } => page.title(title, *time).message(message).note(tokens),
        Block::Unreadable { title, body } => page
            .markup("<div class=\"failed\">\n")
            .folded(title, body)
            .markup("</div>\n"),
    };
    page.0
}

fn failed<'a>(
    page: &'a mut Page,
    title: &str,
    time: Timestamp,
    message: &str,
    parts: &[Part],
) -> &'a mut Page {
    page.markup("<div class=\"failed\">\n")
        .title(title, time)
        .message(message);
    if !parts.is_empty() {
        page.note(PARTIAL_OUTPUT_NOTE).parts(parts);
    }
    page.markup("</div>\n")
}
