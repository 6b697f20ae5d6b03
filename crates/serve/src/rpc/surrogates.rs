//! Repairs lone surrogates in JSON.
//!
//! Programs that count text in UTF-16 units write `"\ud83d"` when they cut a text in the middle of a character. A lone
//! surrogate is no character, and a strict parser refuses the whole line for it.

/// Returns the same JSON with U+FFFD in place of each lone surrogate.
pub(super) fn replace_lone_surrogates(json: &str) -> String {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        mended.push_str(before);
        let length = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push_str("\\ufffd");
                rest = escape.get(6..).unwrap_or_default();
                continue;
            }
            // The character after a backslash belongs to it, even if it is another backslash.
            _ => escape
                .char_indices()
                .nth(2)
                .map_or(escape.len(), |(end, _)| end),
        };
        let (whole, after) = escape.split_at(length);
        mended.push_str(whole);
        rest = after;
    }
    mended + rest
}

/// Returns the number in an escape such as `\ud83d`.
fn unit(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    // `from_str_radix` would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::replace_lone_surrogates;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        let table = [
            (r#""a\ud83d""#, "\"a\u{fffd}\""),
            (r#""\ude00b""#, "\"\u{fffd}b\""),
            (r#""\ud83d\ude00""#, "\"😀\""),
            (r#""\ud83d\ud83d\ude00""#, "\"\u{fffd}😀\""),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\u0041\n\"é""#, "\"A\\n\\\"é\""),
            (r#"{"ü":"\ud83dü"}"#, "{\"ü\":\"\u{fffd}ü\"}"),
        ];
        for (json, expected) in table {
            let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
            assert_eq!(
                read(&replace_lone_surrogates(json)),
                read(expected),
                "{json}"
            );
        }
        for odd in ["\\", "\\u", "\"\\ud8", "\\ud83d\\", "\\u+123", "\\ü"] {
            replace_lone_surrogates(odd);
        }
    }
}
