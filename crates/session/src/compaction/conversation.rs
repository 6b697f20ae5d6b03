//! Renders a conversation as text, for a model that summarises it.
//!
//! Invariant: every line begins with the mark, whatever its content, so that no content can imitate another speaker.

use super::shorten::shorten_or_keep;
use outlast_dialect::{Message, Part, Role, ToolResult};
use outlast_kernel::event::ToolCall;
use std::collections::HashMap;

const MARK: &str = "| ";
const NO_LIMIT: usize = usize::MAX;

/// The lengths in bytes to which content is clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clip {
    /// Limit for arguments and results of tools.
    outputs: usize,
    /// Limit for messages.
    texts: usize,
}

impl Clip {
    /// All clip levels, from mild to severe.
    pub(super) const ALL: [Self; 9] = [
        Self::to(16_384, NO_LIMIT),
        Self::to(4096, NO_LIMIT),
        Self::to(1024, NO_LIMIT),
        Self::to(256, NO_LIMIT),
        Self::to(96, NO_LIMIT),
        Self::to(96, 8192),
        Self::to(96, 2048),
        Self::to(96, 512),
        Self::HARDEST,
    ];
    pub(super) const HARDEST: Self = Self::to(96, 192);

    const fn to(outputs: usize, texts: usize) -> Self {
        Self { outputs, texts }
    }
}

/// Returns the conversation as text, each line with the mark.
pub(super) fn lines(messages: &[Message], clip: Clip) -> String {
    let mut text = String::new();
    let mut calls: HashMap<&str, &ToolCall> = HashMap::new();
    for message in messages {
        let speaker = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        for part in &message.parts {
            match part {
                Part::Text { text: said } => {
                    push_marked(
                        &mut text,
                        &format!("{speaker}: {}", shorten_or_keep(said, clip.texts)),
                    );
                }
                Part::Image(_) => push_marked(&mut text, &format!("{speaker}: [image]")),
                Part::Reasoning(_) => {}
                Part::ToolCall(call) => {
                    calls.insert(&call.id, call);
                }
                Part::ToolResult(result) => {
                    let call = calls.remove(result.id.as_str());
                    push_marked(&mut text, &tool_line(call, result, clip.outputs));
                }
            }
        }
    }
    text
}

fn tool_line(call: Option<&ToolCall>, result: &ToolResult, limit: usize) -> String {
    let (name, arguments) = call.map_or(("unknown", ""), |call| (&call.name, &call.arguments));
    let arguments = shorten_or_keep(arguments, limit);
    let verb = if result.is_error { " failed" } else { "" };
    format!(
        "tool {name} {arguments}{verb}: {}",
        shorten_or_keep(&result.output, limit)
    )
}

fn push_marked(text: &mut String, said: &str) {
    for line in said.lines() {
        text.push_str(MARK);
        text.push_str(line);
        text.push('\n');
    }
}

/// Returns the first and the last lines of a text, together at most that many tokens; `None` when there is no room for
/// any.
pub(super) fn head_and_tail(lines: &str, tokens: u64) -> Option<String> {
    // A byte is at most half a token.
    let most = usize::try_from(tokens.saturating_mul(2)).unwrap_or(NO_LIMIT);
    let half = most.checked_sub(128)? / 2;
    let mut head = half.min(lines.len());
    while !lines.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = lines.len().saturating_sub(half).max(head);
    while !lines.is_char_boundary(tail) {
        tail += 1;
    }
    // The tail begins at the beginning of a line.
    let tail = lines[tail..]
        .find('\n')
        .map_or(lines.len(), |end| tail + end + 1);
    let left_out = tail - head;
    let (head, tail) = (lines[..head].trim_end(), &lines[tail..]);
    Some(format!("{head}\n{MARK}[{left_out} bytes left out]\n{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_engine::token_estimate;

    #[test]
    fn head_and_tail_fit_budget_and_quote_every_line() {
        let messages = [
            Message::user("first\n\nword"),
            Message::user("é!{}\n".repeat(400)),
        ];
        let all = lines(&messages, Clip::to(NO_LIMIT, NO_LIMIT));
        assert_eq!(head_and_tail(&all, 60), None);
        for tokens in 70..600 {
            let text = head_and_tail(&all, tokens).unwrap();
            assert!(
                token_estimate::text_tokens(&text) <= tokens,
                "{tokens}: {text}"
            );
            let marked = |line: &str| line == MARK.trim_end() || line.starts_with(MARK);
            assert!(text.lines().all(marked), "{tokens}: {text}");
            assert!(text.contains("bytes left out"));
        }
    }
}
