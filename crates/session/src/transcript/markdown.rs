//! A session as Markdown.
//!
//! Invariant: what comes from outside stands in a quotation, in a fence that is longer than any inside of it, or on one
//! line with every mark escaped. So it cannot end what it stands in, nor begin a heading of the document.

use super::Header;
use super::blocks::Block;
use super::escape::{fence, line};
use super::phrases::{HIDDEN_REASONING_NOTE, PARTIAL_OUTPUT_NOTE, picture};
use outlast_dialect::Part;
use outlast_kernel::{Timestamp, text};

/// What no quotation holds: a tag may swallow the rest of the page, a picture is fetched from wherever it says, and a
/// link's definition counts for the whole document.
const UNQUOTABLE: [&str; 3] = ["<", "![", "]:"];

pub(super) fn head(head: &Header) -> String {
    let fact = |(name, value): (&str, String)| format!("- {name}: {}\n", line(&value));
    let facts: String = head.facts().into_iter().map(fact).collect();
    format!("# {}\n\n{facts}\n", line(&head.name()))
}

pub(super) fn piece(piece: &Block) -> String {
    match piece {
        Block::Turn(number) => format!("## Turn {number}\n\n"),
        Block::Said {
            title: name,
            time,
            parts: said,
        } => title(name, *time) + &parts(said),
        Block::Failed {
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
        Block::Output { title, output } => {
            format!("**{}**\n\n", line(title)) + &fence("text", output)
        }
        Block::Note(note) => paragraph(note),
        Block::Ended {
            title: name,
            time,
            message,
            tokens,
        } => title(name, *time) + &details(message) + &paragraph(tokens),
        Block::Unreadable { title, body } => {
            format!("✗ **{}**\n\n", line(title)) + &fence("text", body)
        }
    }
}

fn title(title: &str, time: Timestamp) -> String {
    format!("**{}** ({time})\n\n", line(title))
}

fn details(message: &str) -> String {
    match message {
        "" => String::new(),
        message => fence("text", message),
    }
}

fn paragraph(text: &str) -> String {
    format!("{}\n\n", line(text))
}

fn parts(parts: &[Part]) -> String {
    parts.iter().map(part).collect()
}

fn part(part: &Part) -> String {
    match part {
        Part::Text { text } => speech(text),
        Part::Image(image) => paragraph(&picture(image)),
        Part::Reasoning(reasoning) if reasoning.text.is_empty() => paragraph(HIDDEN_REASONING_NOTE),
        Part::Reasoning(reasoning) => "Reasoning:\n\n".to_owned() + &fence("text", &reasoning.text),
        Part::ToolCall(call) => {
            format!("**Tool call {}**\n\n", line(&call.name)) + &fence("json", &call.arguments)
        }
        Part::ToolResult(result) => {
            format!("**Output of {}**\n\n", line(&result.id)) + &fence("text", &result.output)
        }
    }
}

/// What somebody said. It is Markdown already, and as a quotation it stays readable as such: each of its lines is
/// marked, so whatever it opens ends with it. What could break out even so is fenced, and shown as it was written.
fn speech(text: &str) -> String {
    let text = text::plain(text);
    let text = text.trim_matches('\n');
    if text.trim().is_empty() {
        return String::new();
    }
    if UNQUOTABLE.iter().any(|mark| text.contains(mark)) {
        return fence("markdown", text);
    }
    // The separators of Unicode end a line for some readers.
    let lines = text.split(['\n', '\u{2028}', '\u{2029}']);
    let quoted: String = lines
        .map(|line| match line {
            "" => ">\n".to_owned(),
            line => format!("> {line}\n"),
        })
        .collect();
    quoted + "\n"
}
