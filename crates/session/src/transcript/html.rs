//! A session as one HTML page that loads nothing and runs nothing.
//!
//! Invariant: markup comes from this program only; all foreign text passes [`Page::text`], which escapes every character
//! with a meaning in HTML. As a second line of defence, the page's own policy forbids scripts, pictures and connections.

use super::Header;
use super::blocks::Block;
use super::phrases::{HIDDEN_REASONING_NOTE, PARTIAL_OUTPUT_NOTE, describe_image};
use outlast_dialect::Part;
use outlast_kernel::{Timestamp, text};

/// The end of the page.
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

/// A page under construction.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Begins a page with that title, up to the content below the heading.
    pub fn begin(name: &str) -> Self {
        let mut page = Self::default();
        page.wrapped(BEGINNING, name, "</title>\n</head>\n<body>\n<main>\n")
            .wrapped("<h1 dir=\"auto\">", name, "</h1>\n");
        page
    }

    /// Returns the page.
    pub fn finish(self) -> String {
        self.0
    }

    /// Adds our own markup: a static string cannot contain foreign text.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds a text from any source, escaped.
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

    /// Adds a text from any source between two pieces of our own markup.
    pub fn wrapped(&mut self, before: &'static str, text: &str, after: &'static str) -> &mut Self {
        self.markup(before).text(text).markup(after)
    }

    /// Adds a list of named values.
    pub fn facts(&mut self, facts: &[(&'static str, String)]) -> &mut Self {
        self.markup("<dl>\n");
        for (name, value) in facts {
            self.wrapped("<dt>", name, "</dt>")
                .wrapped("<dd>", value, "</dd>\n");
        }
        self.markup("</dl>\n")
    }

    /// Adds a text with its line ends. A browser drops the first line end after the tag, so the markup contains an additional
    /// one.
    pub fn verbatim(&mut self, text: &str) -> &mut Self {
        self.wrapped("<pre dir=\"auto\">\n", text, "</pre>\n")
    }

    /// Adds a text that the reader can unfold.
    fn folded(&mut self, title: &str, text: &str) -> &mut Self {
        self.wrapped("<details><summary>", title, "</summary>\n")
            .verbatim(text)
            .markup("</details>\n")
    }

    fn title(&mut self, title: &str, time: Timestamp) -> &mut Self {
        self.wrapped("<h3>", title, " <time>")
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
        self.wrapped("<p class=\"note\">", note, "</p>\n")
    }

    fn parts(&mut self, parts: &[Part]) -> &mut Self {
        parts.iter().fold(self, Self::part)
    }

    fn part<'a>(&'a mut self, part: &Part) -> &'a mut Self {
        match part {
            Part::Text { text } => {
                self.wrapped("<div class=\"speech\" dir=\"auto\">", text, "</div>\n")
            }
            Part::Image(image) => self.note(&describe_image(image)),
            Part::Reasoning(reasoning) if reasoning.text.is_empty() => {
                self.note(HIDDEN_REASONING_NOTE)
            }
            Part::Reasoning(reasoning) => self.folded("Reasoning", &reasoning.text),
            Part::ToolCall(call) => self
                .wrapped("<h4>Tool call ", &call.name, "</h4>\n")
                .verbatim(&call.arguments),
            Part::ToolResult(result) => {
                self.folded(&format!("Output of {}", result.id), &result.output)
            }
        }
    }
}

pub(super) fn header(head: &Header) -> String {
    let mut page = Page::begin(&head.document_title());
    page.facts(&head.facts());
    page.0
}

pub(super) fn block(piece: &Block) -> String {
    let mut page = Page::default();
    match piece {
        Block::Turn(number) => page.wrapped("<h2>Turn ", &number.to_string(), "</h2>\n"),
        Block::Message { title, time, parts } => page.title(title, *time).parts(parts),
        Block::FailedAttempt {
            title,
            time,
            message,
            parts,
        } => failed_attempt(&mut page, title, *time, message, parts),
        Block::ToolOutput { title, output } => page.folded(title, output),
        Block::Note(note) => page.note(note),
        Block::TurnEnd {
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

fn failed_attempt<'a>(
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
