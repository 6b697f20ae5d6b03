//! A session as short text for a terminal.
//!
//! Invariants: the output contains no terminal control sequences; foreign text is indented, so that it cannot imitate the
//! document's own lines.

use super::Header;
use super::blocks::Block;
use super::phrases::{HIDDEN_REASONING_NOTE, PARTIAL_OUTPUT_NOTE, describe_image};
use outlast_dialect::Part;
use outlast_kernel::{Timestamp, text};

/// Number of lines shown of arguments, outputs and reasoning.
const LINES: usize = 6;
const LINE_BYTES: usize = 240;

pub(super) fn header(head: &Header) -> String {
    let fact = |(name, value): (&str, String)| format!("  {name:<8} {}\n", line(&value));
    let facts: String = head.facts().into_iter().map(fact).collect();
    format!("{}\n{facts}", line(&head.document_title()))
}

pub(super) fn block(piece: &Block) -> String {
    match piece {
        Block::Turn(number) => format!("\n=== Turn {number} ===\n"),
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
            let mut failed = title(&format!("! {name}"), *time) + &short(message);
            if !partial.is_empty() {
                failed += &format!("  {PARTIAL_OUTPUT_NOTE}\n");
                failed += &parts(partial);
            }
            failed
        }
        Block::ToolOutput { title, output } => format!("\n{}\n", line(title)) + &short(output),
        Block::Note(note) => format!("\n{}\n", line(note)),
        Block::TurnEnd {
            title: name,
            time,
            message,
            tokens,
        } => title(name, *time) + &short(message) + &whole(tokens),
        Block::Unreadable { title, body } => format!("\n! {}\n", line(title)) + &short(body),
    }
}

fn title(title: &str, time: Timestamp) -> String {
    format!("\n{} ({time})\n", line(title))
}

fn parts(parts: &[Part]) -> String {
    parts.iter().map(part).collect()
}

fn part(part: &Part) -> String {
    match part {
        Part::Text { text } => whole(text),
        Part::Image(image) => whole(&describe_image(image)),
        Part::Reasoning(reasoning) if reasoning.text.is_empty() => whole(HIDDEN_REASONING_NOTE),
        Part::Reasoning(reasoning) => "  Reasoning:\n".to_owned() + &short(&reasoning.text),
        Part::ToolCall(call) => {
            format!("  Tool call {}:\n", line(&call.name)) + &short(&call.arguments)
        }
        Part::ToolResult(result) => {
            format!("  Output of {}:\n", line(&result.id)) + &short(&result.output)
        }
    }
}

/// Returns the text on one line.
fn line(text: &str) -> String {
    let text = text::plain(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Returns the whole text, indented.
fn whole(text: &str) -> String {
    let text = text::plain(text);
    let lines = text.trim_matches('\n').lines();
    lines.map(|line| indented(2, line)).collect()
}

/// Returns the first lines of the text, and the number of omitted ones.
fn short(text: &str) -> String {
    let text = text::plain(text);
    let mut lines = text.trim_matches('\n').lines();
    let first = lines.by_ref().take(LINES);
    let mut shown: String = first
        .map(|line| indented(4, &text::bounded(line, LINE_BYTES)))
        .collect();
    match lines.count() {
        0 => {}
        more => shown += &format!("    … lines left out: {more}\n"),
    }
    shown
}

fn indented(columns: usize, line: &str) -> String {
    match line {
        "" => "\n".to_owned(),
        line => format!("{:columns$}{line}\n", ""),
    }
}
