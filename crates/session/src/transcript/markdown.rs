//! A session as Markdown.
//!
//! Invariant: foreign text stands in a quotation, in a fence that is longer than any inside of it, or on one line with all
//! markup escaped. So it cannot end its container, nor begin a heading of the document.

use super::Header;
use super::blocks::Block;
use super::escape::{escape_line, fence};
use super::phrases::{HIDDEN_REASONING_NOTE, PARTIAL_OUTPUT_NOTE, describe_image};
use outlast_dialect::Part;
use outlast_kernel::{Timestamp, text};

/// Markup that is not allowed in a quotation: a tag may swallow the rest of the page, a picture is fetched from any address,
/// and a link's definition counts for the whole document.
const UNQUOTABLE: [&str; 3] = ["<", "![", "]:"];

pub(super) fn header(head: &Header) -> String {
    let fact = |(name, value): (&str, String)| format!("- {name}: {}\n", escape_line(&value));
    let facts: String = head.facts().into_iter().map(fact).collect();
    format!("# {}\n\n{facts}\n", escape_line(&head.document_title()))
}

pub(super) fn block(piece: &Block) -> String {
    match piece {
        Block::Turn(number) => format!("## Turn {number}\n\n"),
        Block::Message {
            title: name,
            time,
            parts: said,
        } => title(name, *time) + &parts(said),
        Block::FailedAttempt {
            title: name,
            time,
            message,
            parts: partial,
        } => {
            let mut failed = format!("✗ {}", title(name, *time)) + &details(message);
            if !partial.is_empty() {
                failed += &paragraph(PARTIAL_OUTPUT_NOTE);
                failed += &parts(partial);
            }
            failed
        }
        Block::ToolOutput { title, output } => {
            format!("**{}**\n\n", escape_line(title)) + &fence("text", output)
        }
        Block::Note(note) => paragraph(note),
        Block::TurnEnd {
            title: name,
            time,
            message,
            tokens,
        } => title(name, *time) + &details(message) + &paragraph(tokens),
        Block::Unreadable { title, body } => {
            format!("✗ **{}**\n\n", escape_line(title)) + &fence("text", body)
        }
    }
}

fn title(title: &str, time: Timestamp) -> String {
    format!("**{}** ({time})\n\n", escape_line(title))
}

fn details(message: &str) -> String {
    match message {
        "" => String::new(),
        message => fence("text", message),
    }
}

fn paragraph(text: &str) -> String {
    format!("{}\n\n", escape_line(text))
}

fn parts(parts: &[Part]) -> String {
    parts.iter().map(part).collect()
}

fn part(part: &Part) -> String {
    match part {
        Part::Text { text } => speech(text),
        Part::Image(image) => paragraph(&describe_image(image)),
        Part::Reasoning(reasoning) if reasoning.text.is_empty() => paragraph(HIDDEN_REASONING_NOTE),
        Part::Reasoning(reasoning) => "Reasoning:\n\n".to_owned() + &fence("text", &reasoning.text),
        Part::ToolCall(call) => {
            format!("**Tool call {}**\n\n", escape_line(&call.name))
                + &fence("json", &call.arguments)
        }
        Part::ToolResult(result) => {
            format!("**Output of {}**\n\n", escape_line(&result.id))
                + &fence("text", &result.output)
        }
    }
}

/// Renders a message. It is Markdown already and stays readable as a quotation: each of its lines is marked, so any markup
/// that it opens ends with it. Text that could break out even so is put in a fence, unchanged.
fn speech(text: &str) -> String {
    let text = text::plain(text);
    let text = text.trim_matches('\n');
    if text.trim().is_empty() {
        return String::new();
    }
    if UNQUOTABLE.iter().any(|mark| text.contains(mark)) {
        return fence("markdown", text);
    }
    // Some readers treat the Unicode separators as line ends.
    let lines = text.split(['\n', '\u{2028}', '\u{2029}']);
    let quoted: String = lines
        .map(|line| match line {
            "" => ">\n".to_owned(),
            line => format!("> {line}\n"),
        })
        .collect();
    quoted + "\n"
}
