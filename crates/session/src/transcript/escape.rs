//! Escapes foreign text for Markdown, so that none of its markup takes effect.

use outlast_kernel::text;

/// The characters that a Markdown reader might take for markup within a line.
const MARKS: &str = r"\`*_[]<>&~|#!$";
const MIN_FENCE_LENGTH: usize = 3;

/// Returns the text unchanged in a code fence.
pub fn fence(language: &str, text: &str) -> String {
    let text = text::plain(text);
    let runs = text.split(|c| c != '`').map(str::len);
    let length = runs
        .max()
        .map_or(MIN_FENCE_LENGTH, |run| MIN_FENCE_LENGTH.max(run + 1));
    let fence = "`".repeat(length);
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{fence}{language}\n{text}{end}{fence}\n\n")
}

/// Returns the text on one line, with all markup escaped.
pub fn escape_line(text: &str) -> String {
    let text = text::plain(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = String::with_capacity(text.len());
    for c in words.join(" ").chars() {
        if MARKS.contains(c) {
            line.push('\\');
        }
        line.push(c);
    }
    line
}
