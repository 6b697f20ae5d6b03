//! Shortens long texts in the middle: the beginning and the end carry most information.
//!
//! Invariant: the result is shorter and has fewer tokens, and shortening it again at the same length changes nothing.

use outlast_kernel::event::ToolCall;
use serde_json::Value;

/// Returns the beginning and the end of a text that is much longer than `limit` bytes, with a note on the omitted part;
/// `None` when the text can stay as it is.
pub(super) fn shortened(text: &str, limit: usize) -> Option<String> {
    // A smaller saving is not worth the note.
    if text.len() <= limit.saturating_add((limit / 4).max(64)) {
        return None;
    }
    let (mut head, mut tail) = (limit / 3 * 2, text.len() - limit / 3);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let left_out = tail - head;
    let (head, tail) = (&text[..head], &text[tail..]);
    Some(format!("{head}\n[{left_out} bytes left out]\n{tail}"))
}

/// Returns the text as [`shortened`], or as it is.
pub(super) fn shorten_or_keep(text: &str, limit: usize) -> String {
    shortened(text, limit).unwrap_or_else(|| text.to_owned())
}

/// Shortens the long texts within a call's arguments, which stay JSON. Arguments that are not JSON stay as they are.
pub(super) fn shorten_arguments(call: &mut ToolCall, limit: usize) {
    if call.arguments.len() <= limit {
        return;
    }
    let Ok(mut arguments) = serde_json::from_str::<Value>(&call.arguments) else {
        return;
    };
    if shorten_within(&mut arguments, limit) {
        call.arguments = arguments.to_string();
    }
}

/// Shortens the texts within a value and returns whether any of them changed.
fn shorten_within(value: &mut Value, limit: usize) -> bool {
    let inner = |value: &mut Value| shorten_within(value, limit);
    match value {
        Value::String(text) => match shortened(text, limit) {
            Some(shorter) => {
                *text = shorter;
                true
            }
            None => false,
        },
        // `filter` and `count` visit all values; `any` would stop at the first one that changed.
        Value::Array(values) => values.iter_mut().map(inner).filter(|done| *done).count() > 0,
        Value::Object(fields) => fields.values_mut().map(inner).filter(|done| *done).count() > 0,
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_engine::token_estimate;
    use proptest::prelude::*;

    #[test]
    fn shortened_text_keeps_both_ends_and_states_bytes_cut() {
        let text = format!("first {} last", "x".repeat(1000));
        let short = shortened(&text, 120).unwrap();
        assert!(
            short.starts_with("first xx") && short.ends_with("xx last"),
            "{short}"
        );
        assert!(short.contains("\n[891 bytes left out]\n"), "{short}");
        assert_eq!(shortened("short", 120), None);
    }

    #[test]
    fn only_long_strings_of_json_arguments_are_shortened() {
        let mut call = ToolCall {
            arguments: format!(
                r#"{{"path":"a.rs","edits":[{{"new":"{}"}}],"line":3}}"#,
                "y".repeat(900)
            ),
            ..ToolCall::default()
        };
        shorten_arguments(&mut call, 90);
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        assert_eq!(
            (&arguments["path"], &arguments["line"]),
            (&"a.rs".into(), &3.into())
        );
        let new = arguments["edits"][0]["new"].as_str().unwrap();
        assert!(new.contains("bytes left out") && new.len() < 130, "{new}");
        let mut broken = ToolCall {
            arguments: "{".repeat(500),
            ..ToolCall::default()
        };
        shorten_arguments(&mut broken, 90);
        assert_eq!(broken.arguments, "{".repeat(500));
    }

    proptest! {
        #[test]
        fn shortening_reduces_size_and_is_idempotent(text in "\\PC{0,900}", limit in 90_usize..400) {
            if let Some(short) = shortened(&text, limit) {
                prop_assert!(short.len() < text.len());
                prop_assert!(token_estimate::text_tokens(&short) <= token_estimate::text_tokens(&text));
                prop_assert_eq!(shortened(&short, limit), None);
            }
        }
    }
}
