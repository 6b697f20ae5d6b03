//! Detects tool calls that a model wrote into its text, where they are never run.
//!
//! Conservative: only well-known syntax counts, at the beginning of a line and at the end of the text, outside of code
//! and of text that is introduced as an example.

use std::str::Lines;

/// The beginnings of calls in the syntax of one model or another, in lower case.
const BEGINNINGS: [&str; 18] = [
    "<tool_call>",
    "<tool_calls>",
    "<tool_use>",
    "<tool_request>",
    "<function_call>",
    "<function_calls>",
    "<invoke name=",
    "<function=",
    "<|tool_call",
    "<|tool▁call",
    "<｜tool▁call",
    "<|python_tag|>",
    "<|channel|>commentary to=",
    "<|start|>assistant<|channel|>commentary to=",
    "[tool_calls]",
    "[tool_call]",
    "[tool_request]",
    "<start_function_call>",
];

/// Labels of a code block that is a call and not an example of one.
const CALL_BLOCKS: [&str; 4] = ["tool_code", "tool_call", "tool_calls", "function_call"];

/// Phrases that introduce an example.
#[rustfmt::skip]
const EXAMPLES: [&str; 12] = [
    "example", "e.g.", "for instance", "such as", "looks like", "look like", "format", "syntax", "template",
    "like this", "would be", "written as",
];

/// Returns whether the text ends in a call.
pub(super) fn ends_text(text: &str) -> bool {
    let text = text.trim_end();
    // Every known syntax ends in one of these; prose after it means that the call was described, not made.
    if !text.ends_with(['>', ']', '}', ')', '`']) {
        return false;
    }
    let mut is_code = false;
    let mut before = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mark = fence(line);
        if let Some(word) = mark.filter(|_| !is_code)
            && CALL_BLOCKS.contains(&word)
            && !introduces_example(before)
            && is_last_block(lines.clone())
        {
            return true;
        }
        is_code ^= mark.is_some();
        if !is_code && mark.is_none() && starts_call(line) && !introduces_example(before) {
            return true;
        }
        if !line.trim().is_empty() {
            before = line;
        }
    }
    false
}

/// Returns the word after the mark that begins or ends a code block.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim();
    let rest = line
        .strip_prefix("```")
        .or_else(|| line.strip_prefix("~~~"))?;
    Some(rest.trim_start_matches(['`', '~']).trim())
}

/// Returns whether nothing comes after the end of a block whose lines follow.
fn is_last_block(mut lines: Lines<'_>) -> bool {
    let has_end = lines.any(|line| fence(line).is_some());
    !has_end || lines.next().is_none()
}

/// Returns whether a call begins with the line, or right after a sentence in it. Deeply indented text is code.
fn starts_call(line: &str) -> bool {
    let trimmed = line.trim_start();
    if line.len() - trimmed.len() > 3 || trimmed.starts_with(['>', '`', '|']) {
        return false;
    }
    let lower = without_namespace(&trimmed.to_ascii_lowercase());
    BEGINNINGS.iter().any(|beginning| {
        let place = lower.find(beginning);
        place.is_some_and(|at| {
            at == 0 || lower[..at].ends_with(['.', ':', '!']) && is_prose(&lower[..at])
        })
    })
}

/// Removes a model's own name before that of the tag: `<vendor:tool_call>`.
fn without_namespace(line: &str) -> String {
    let tag = line.strip_prefix('<').and_then(|tag| tag.split_once(':'));
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphabetic());
    match tag.filter(|(name, _)| is_name(name)) {
        Some((_, rest)) => format!("<{rest}"),
        None => line.to_owned(),
    }
}

/// Returns whether the text before a call is a sentence, and no code or example.
fn is_prose(before: &str) -> bool {
    !before.contains('`') && !introduces_example(before)
}

fn introduces_example(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    EXAMPLES.iter().any(|word| lower.contains(word))
}
