//! Converts Python's repr of a dictionary to JSON: clients pass such texts on.

use serde_json::Value;

/// Returns the value, if the text is a dictionary.
pub(super) fn to_json(text: &str) -> Option<Value> {
    let mut json = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    let mut word = String::new();
    while let Some(c) = chars.next() {
        if c.is_ascii_alphabetic() {
            word.push(c);
            continue;
        }
        flush_word(&mut word, &mut json);
        match c {
            '\'' | '"' => copy_string(c, &mut chars, &mut json)?,
            '(' => json.push('['),
            ')' => json.push(']'),
            c => json.push(c),
        }
    }
    flush_word(&mut word, &mut json);
    serde_json::from_str(&json).ok()
}

fn flush_word(word: &mut String, json: &mut String) {
    json.push_str(match word.as_str() {
        "None" => "null",
        "True" => "true",
        "False" => "false",
        other => other,
    });
    word.clear();
}

/// Copies a string up to its closing quote.
fn copy_string(
    open: char,
    chars: &mut impl Iterator<Item = char>,
    json: &mut String,
) -> Option<()> {
    json.push('"');
    loop {
        match chars.next()? {
            c if c == open => break,
            '\\' => match chars.next()? {
                '\'' => json.push('\''),
                'x' => json.push_str("\\u00"),
                c => json.extend(['\\', c]),
            },
            '"' => json.push_str("\\\""),
            c if c.is_control() => json.push(' '),
            c => json.push(c),
        }
    }
    json.push('"');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn python_dict_is_converted_to_json() {
        let text = r#"{'error': {'message': "it's \"so\"", 'param': None, 'ok': True, 'n': 4.5, 'list': ('a', 'b')}}"#;
        let value = json!({"error": {"message": "it's \"so\"", "param": null, "ok": true, "n": 4.5, "list": ["a", "b"]}});
        assert_eq!(to_json(text), Some(value));
    }

    #[test]
    fn invalid_python_dict_is_rejected() {
        for text in ["{", "{'a", "{a: b}", "", "{'a': foo()}"] {
            assert_eq!(to_json(text), None, "{text}");
        }
    }
}
