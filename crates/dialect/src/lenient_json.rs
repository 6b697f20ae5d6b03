//! Reads JSON as leniently as other clients, where the strict reader fails.
//!
//! Half a character (`"\ud83d"`), `NaN`, numbers without end and nesting without end are no reason to lose a
//! completion. The strict reader comes first; only text that it refuses is repaired, once, in one pass, and read again.
//! Invariant: a text that was cut off stays unreadable, because nothing is ever added at the end.

use memchr::memchr2;
use serde_json::Value;

/// Maximum nesting depth; deeper values become null. The strict parser's own limit is a little deeper.
const MAX_DEPTH: usize = 100;
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Parses the frames of one stream.
#[derive(Debug, Default)]
pub(crate) struct LenientParser {
    /// The first half of a surrogate pair at the end of a text: the next piece may begin with the other half.
    high_surrogate: Option<u16>,
}

impl LenientParser {
    /// Returns the value, if there is any way to read it.
    pub(crate) fn parse(&mut self, text: &str) -> Option<Value> {
        serde_json::from_str(text)
            .ok()
            .or_else(|| serde_json::from_str(&self.repair(text)?).ok())
    }

    fn repair(&mut self, text: &str) -> Option<String> {
        let half = self.high_surrogate.take();
        let mut out = String::with_capacity(text.len());
        let (mut rest, mut depth) = (text.trim(), 0_usize);
        if !rest.starts_with(['{', '[']) {
            return None;
        }
        while let Some(first) = rest.bytes().next() {
            let too_deep = matches!(first, b'{' | b'[') && depth == MAX_DEPTH;
            let length = match first {
                b'"' => string_length(rest)?,
                b'{' | b'[' if too_deep => value_length(rest)?,
                b'{' | b'[' => {
                    depth += 1;
                    1
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    1
                }
                _ => token_length(rest),
            };
            let (token, after) = rest.split_at_checked(length)?;
            match first {
                b'"' => self.repair_string(token, half, &mut out),
                _ if too_deep || is_non_json_number(token) => out.push_str("null"),
                _ => out.push_str(token),
            }
            rest = after;
        }
        Some(out)
    }

    /// Repairs a string with its quotes; `half` is the half character that the string before it may have ended with.
    fn repair_string(&mut self, token: &str, half: Option<u16>, out: &mut String) {
        let mut rest = token;
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            let is_first = rest.len() == token.len() && at == 1;
            rest = &rest[at..];
            let length = match (
                escaped_code_unit(rest),
                rest.get(6..).and_then(escaped_code_unit),
            ) {
                (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => {
                    out.push_str(&rest[..12]);
                    12
                }
                (Some(high @ 0xd800..0xdc00), _) => {
                    if rest.len() == 7 {
                        self.high_surrogate = Some(high);
                    } else {
                        out.push(REPLACEMENT);
                    }
                    6
                }
                (Some(low @ 0xdc00..0xe000), _) => {
                    let high = half.filter(|_| is_first);
                    out.push(high.map_or(REPLACEMENT, |high| join_surrogates(high, low)));
                    6
                }
                _ => {
                    let length = rest.chars().take(2).map(char::len_utf8).sum();
                    out.push_str(&rest[..length]);
                    length
                }
            };
            rest = &rest[length..];
        }
        out.push_str(rest);
    }
}

fn join_surrogates(high: u16, low: u16) -> char {
    let mut decoded = char::decode_utf16([high, low]);
    decoded
        .next()
        .and_then(Result::ok)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the number in an escape like `\u00e9` at the beginning of the text.
fn escaped_code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    are_digits.then(|| u16::from_str_radix(digits, 16).ok())?
}

/// Returns the length of the string at the beginning, with its quotes.
fn string_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Returns the length of the object or array at the beginning, however deep it is.
fn value_length(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.as_bytes().get(at)? {
            b'"' => at += string_length(text.get(at..)?)? - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the length of a number or a word, or of the one character that is neither.
fn token_length(text: &str) -> usize {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
    match text.find(|c| !is_part(c)) {
        Some(0) => text.chars().next().map_or(0, char::len_utf8),
        Some(length) => length,
        None => text.len(),
    }
}

/// Returns whether other clients accept this as a number although JSON does not.
fn is_non_json_number(token: &str) -> bool {
    let is_numeric = || token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    matches!(token, "NaN" | "Infinity" | "-Infinity")
        || is_numeric() && token.parse().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(text: &str) -> Option<Value> {
        LenientParser::default().parse(text)
    }

    #[test]
    fn nan_huge_numbers_surrogates_and_deep_nesting_parse() {
        let deep = format!(
            r#"{{"x":{}"]"{},"y":1}}"#,
            "[".repeat(9999),
            "]".repeat(9999)
        );
        assert_eq!(parse(&deep).unwrap()["y"], 1);
        let table = [
            (
                r#"{"x":NaN,"y":[-Infinity,1]}"#,
                json!({"x": null, "y": [null, 1]}),
            ),
            (
                r#"{"x":1e999,"y":-1e999,"z":-1.5e3}"#,
                json!({"x": null, "y": null, "z": -1500.0}),
            ),
            (
                r#"{"x":"a\ude00\n\\u\ud83d\ude00 \ud83d."}"#,
                json!({"x": "a\u{fffd}\n\\u😀 \u{fffd}."}),
            ),
        ];
        for (text, value) in table {
            assert_eq!(parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn surrogate_pair_split_across_texts_is_joined() {
        let mut lenient = LenientParser::default();
        assert_eq!(lenient.parse(r#"["a\ud83d"]"#), Some(json!(["a"])));
        assert_eq!(lenient.parse(r#"["b"]"#), Some(json!(["b"])));
        assert_eq!(lenient.parse(r#"["\ude00c"]"#), Some(json!(["😀c"])));
        assert_eq!(lenient.parse(r#"["\ude00c"]"#), Some(json!(["\u{fffd}c"])));
    }

    #[test]
    fn truncated_or_non_json_text_is_rejected() {
        let table = [
            "",
            "NaN",
            "busy",
            r#"{"x":NaN"#,
            r#"{"x":"\ud83d"#,
            r#"{"x":NaN,"y":"\"#,
            "{]",
            r#"["\ud8"]"#,
        ];
        for text in table {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in r#"[{\[]([\[\]{}:,"\\a-fu0-9é😀.-]|\\ud83d|\\ude00|NaN|1e999){0,60}"#) {
            parse(&text);
        }

        #[test]
        fn strict_json_is_not_changed_by_repair(text in r#"(\PC|["\\])*"#) {
            let json = json!({ "x": [text, 1.5, null] });
            let repaired = LenientParser::default().repair(&json.to_string()).unwrap();
            prop_assert_eq!(repaired, json.to_string());
        }
    }
}
