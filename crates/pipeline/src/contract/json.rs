//! Parses JSON from the output of models, which sometimes put it between code fences.
//!
//! Invariant: the result is the whole text or its only eligible block; if there are two, neither is taken. Invalid JSON
//! is not repaired: the error states the place.

use super::quoted;
use serde_json::Value;
use std::fmt;

/// Maximum bytes of a line to show, and the part of them that precedes the error.
const MAX_EXCERPT_BYTES: usize = 60;
const EXCERPT_BYTES_BEFORE_ERROR: usize = 20;

/// The parsed JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedJson {
    /// The value.
    pub(crate) value: Value,
    /// Whether the value was a block between fences in other text.
    pub(crate) was_fenced: bool,
}

/// The place and the cause of a parse error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// The mistake, in words that are the same for the same mistake.
    pub(crate) message: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The column in bytes, from 1.
    pub(crate) column: usize,
    /// The text at that place.
    excerpt: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message,
            line,
            column,
            ..
        } = self;
        write!(
            f,
            "line {line}, column {column}: {message}, near {}",
            self.excerpt
        )
    }
}

/// Parses the text as JSON, or else the only JSON block between fences in it.
pub(crate) fn read(text: &str) -> Result<ParsedJson, ParseError> {
    let whole = match parse(text, 0) {
        Ok(value) => {
            return Ok(ParsedJson {
                value,
                was_fenced: false,
            });
        }
        Err(error) => error,
    };
    let Some(block) = only_json_block(text) else {
        return Err(whole);
    };
    parse(block.text, block.lines_before).map(|value| ParsedJson {
        value,
        was_fenced: true,
    })
}

fn parse(text: &str, lines_before: usize) -> Result<Value, ParseError> {
    serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        let what = match text.trim().is_empty() {
            true => "it is empty",
            // The place is reported separately from the mistake.
            false => said
                .rsplit_once(" at line ")
                .map_or(&*said, |(what, _)| what),
        };
        let line = text.split('\n').nth(error.line().saturating_sub(1));
        ParseError {
            message: what.to_owned(),
            line: lines_before + error.line().max(1),
            column: error.column().max(1),
            excerpt: excerpt(line.unwrap_or_default(), error.column()),
        }
    })
}

fn excerpt(line: &str, column: usize) -> String {
    let mut start = column
        .saturating_sub(EXCERPT_BYTES_BEFORE_ERROR)
        .min(line.len());
    while !line.is_char_boundary(start) {
        start -= 1;
    }
    quoted(line[start..].trim_end(), MAX_EXCERPT_BYTES)
}

/// A block between fences.
struct Block<'a> {
    /// The info string of its opening fence.
    language: &'a str,
    text: &'a str,
    lines_before: usize,
}

/// Returns the only block that is marked as JSON, or else the only unmarked block.
fn only_json_block(text: &str) -> Option<Block<'_>> {
    let mut blocks = blocks(text);
    let says = |block: &Block<'_>, kind: &str| block.language.eq_ignore_ascii_case(kind);
    let kind = match blocks.iter().any(|block| says(block, "json")) {
        true => "json",
        false => "",
    };
    blocks.retain(|block| says(block, kind));
    match blocks.len() {
        1 => blocks.pop(),
        _ => None,
    }
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block<'_>, usize)> = None;
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let fence = fence(line);
        match (&mut open, fence) {
            (None, Some((length, language))) => {
                let block = Block {
                    language,
                    text: "",
                    lines_before: number + 1,
                };
                open = Some((length, block, at + line.len()));
            }
            (Some((length, block, start)), Some((closing, ""))) if closing >= *length => {
                block.text = &text[*start..at];
                blocks.extend(open.take().map(|(_, block, _)| block));
            }
            _ => {}
        }
        at += line.len();
    }
    blocks
}

/// Parses a fence: the number of backquotes and the text after them.
fn fence(line: &str) -> Option<(usize, &str)> {
    let line = line.trim();
    let rest = line.trim_start_matches('`');
    let length = line.len() - rest.len();
    (length >= 3 && !rest.contains('`')).then(|| (length, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn json_is_read_directly_or_from_only_eligible_block() {
        let table = [
            (" {\"a\": 1}\n", json!({"a": 1}), false),
            ("```json\n{\"a\": 1}\n```", json!({"a": 1}), true),
            ("Here it is:\n```\n[1]\n```\nDone.", json!([1]), true),
            ("```JSON\r\n[1]\r\n```\r\n", json!([1]), true),
            ("```sh\nls\n```\n```json\n[2]\n```", json!([2]), true),
            ("```\nls\n```\n```json\n[2]\n```", json!([2]), true),
            ("````json\n[\"\\n```\"]\n````", json!(["\n```"]), true),
            ("\"```json\\n1\\n```\"", json!("```json\n1\n```"), false),
        ];
        for (text, value, was_fenced) in table {
            assert_eq!(read(text), Ok(ParsedJson { value, was_fenced }), "{text:?}");
        }
    }

    #[test]
    fn json_error_reports_line_and_column_of_full_text() {
        let table = [
            ("", "line 1, column 1: it is empty, near \"\""),
            ("Sure!", "line 1, column 1: expected value, near \"Sure!\""),
            (
                "{\n  \"a\": 1,\n}",
                "line 3, column 1: trailing comma, near \"}\"",
            ),
            (
                "Here:\n```json\n{\"a\" 1}\n```",
                "line 3, column 6: expected `:`, near \"{\\\"a\\\" 1}\"",
            ),
            // Two blocks are eligible: neither is taken.
            (
                "```json\n1\n```\n```json\n2\n```",
                "line 1, column 1: expected value, near \"```json\"",
            ),
            (
                "````json\n[1,\n```\n2]\n````",
                "line 3, column 1: expected value, near \"```\"",
            ),
            (
                "```json\n{\"a\": 1}",
                "line 1, column 1: expected value, near \"```json\"",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(read(text).unwrap_err().to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn json_error_excerpt_is_cut_at_char_boundaries() {
        for spaces in 0..4 {
            let text = format!("[{}\"{}\" x]", " ".repeat(spaces), "𝄞".repeat(20));
            let error = read(&text).unwrap_err().to_string();
            assert!(error.ends_with("𝄞\\\" x]\""), "{error}");
            assert!(error.contains("near \"𝄞"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn json_error_message_is_bounded(text in "(?s)(`{3}(json)?\n|[{}\\[\\]\":,é0 ]|.){0,60}") {
            if let Err(error) = read(&text) {
                prop_assert!(error.to_string().len() < 600, "{error}");
            }
        }

        #[test]
        fn any_json_between_fences_is_found(value in "[a-zé`\\\\\"]{0,9}") {
            let fenced = format!("So:\n```json\n{}\n```\n", json!({"a": value}));
            prop_assert_eq!(read(&fenced).unwrap().value, json!({"a": value}));
        }
    }
}
