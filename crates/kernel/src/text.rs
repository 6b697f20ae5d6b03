//! Makes text from outside safe to show and to keep.
//!
//! Invariant: nothing here grows its input by more than a marker, and every cut falls between characters.

use std::borrow::Cow;

/// The maximum length of a provider's message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4096;

const CUT_MARK: &str = "…";
const SECRET_MARK: &str = "[secret]";
/// The prefixes of API keys. `sk-` covers OpenAI, Anthropic (`sk-ant-`) and OpenRouter (`sk-or-`).
const KEY_PREFIXES: [&str; 7] = ["sk-", "gsk_", "xai-", "AIza", "ghp_", "AKIA", "eyJ"];
/// Words that precede a credential.
const CREDENTIAL_LABELS: [&str; 8] = [
    "bearer",
    "basic",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "api_key",
    "apikey",
    "access_token",
];
const MIN_SECRET_LENGTH: usize = 16;

/// Returns the text, or as much of its beginning as fits into `limit` bytes, with a mark that it was cut.
pub fn bounded(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let mut end = limit.saturating_sub(CUT_MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}{CUT_MARK}", &text[..end]))
}

/// Returns a provider's message without anything that looks like a key, cut at [`MAX_MESSAGE_BYTES`].
pub fn sanitized_message(text: &str) -> String {
    // First a generous cut, so that an endless text costs little; the last one after the keys are removed.
    let clean = without_secrets(&bounded(text, 4 * MAX_MESSAGE_BYTES)).into_owned();
    bounded(&clean, MAX_MESSAGE_BYTES).into_owned()
}

/// Returns the text without control characters and terminal escapes; newlines and tabs stay.
///
/// ```
/// use outlast_kernel::text::plain;
///
/// assert_eq!(plain("\u{1b}]0;title\u{7}red \u{1b}[31mtext\u{1b}[0m\nnext"), "red text\nnext");
/// ```
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_until_final(&mut chars),
            c if is_unprintable(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns whether a character is a control character, or one that reorders or hides a terminal's output.
pub fn is_unprintable(c: char) -> bool {
    let control = c.is_control() && c != '\n' && c != '\t';
    let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    control || reorders
}

fn skip_escape(chars: &mut std::str::Chars<'_>) {
    let mut ahead = chars.clone();
    match ahead.next() {
        Some('[') => {
            *chars = ahead;
            skip_until_final(chars);
        }
        // OSC, DCS, SOS, PM and APC run up to BEL or ESC \.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            *chars = ahead;
            skip_string(chars);
        }
        Some(' '..='~') => *chars = ahead,
        _ => {}
    }
}

fn skip_until_final(chars: &mut std::str::Chars<'_>) {
    let mut ahead = chars.clone();
    while let Some(c) = ahead.next() {
        if !matches!(c, ' '..='?') {
            if matches!(c, '@'..='~') {
                *chars = ahead;
            }
            return;
        }
        *chars = ahead.clone();
    }
}

fn skip_string(chars: &mut std::str::Chars<'_>) {
    while let Some(c) = chars.next() {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                if chars.clone().next() == Some('\\') {
                    chars.next();
                }
                return;
            }
            // An unterminated string must not swallow the lines after it.
            '\n' => return,
            _ => {}
        }
    }
}

/// Returns the text with everything that looks like a credential replaced by a mark.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    let mut kept = 0;
    let mut at = 0;
    let mut announced = false;
    while at < text.len() {
        let belongs = |c: char| is_token_char(c) || (announced && matches!(c, '/' | '='));
        let word_end = text[at..]
            .find(|c| !belongs(c))
            .map_or(text.len(), |n| at + n);
        if word_end == at || (announced && text[at..].starts_with('=')) {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let word = &text[at..word_end];
        if is_secret(word, announced) {
            let out = out.get_or_insert_default();
            out.push_str(&text[kept..at]);
            out.push_str(SECRET_MARK);
            kept = word_end;
        }
        announced = CREDENTIAL_LABELS
            .iter()
            .any(|name| word.eq_ignore_ascii_case(name));
        at = word_end;
    }
    match out {
        Some(mut out) => {
            out.push_str(&text[kept..]);
            Cow::Owned(out)
        }
        None => Cow::Borrowed(text),
    }
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+')
}

fn is_secret(word: &str, announced: bool) -> bool {
    if word.len() < MIN_SECRET_LENGTH {
        return false;
    }
    announced || KEY_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = "é".repeat(4000);
        let kept = sanitized_message(&long);
        assert!(
            kept.len() <= MAX_MESSAGE_BYTES && kept.ends_with('…'),
            "{} bytes",
            kept.len()
        );
        assert_eq!(sanitized_message("short"), "short");
    }

    #[test]
    fn api_keys_are_redacted() {
        let table = [
            (
                "Incorrect API key provided: sk-proj-abcdefghijklmnop1234.",
                "Incorrect API key provided: [secret]",
            ),
            (
                "Authorization: Bearer abcdef0123456789abcdef, retry",
                "Authorization: Bearer [secret], retry",
            ),
            ("x-api-key: 0123456789abcdef0123", "x-api-key: [secret]"),
            ("key AIzaSyA1234567890abcdef", "key [secret]"),
            (
                "Bearer abcdefgh/ijklmnop+qrstuvwxyz/0123==",
                "Bearer [secret]",
            ),
            ("url?api_key=0123456789abcdef0123", "url?api_key=[secret]"),
        ];
        for (text, clean) in table {
            assert_eq!(without_secrets(text), clean);
        }
    }

    #[test]
    fn ordinary_words_are_not_redacted() {
        for text in [
            "skip-this-rather-long-word",
            "the bearer of bad news",
            "model claude-opus-4-20250514 not found",
            "sk-short",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }

    #[test]
    fn escapes_cannot_move_the_cursor_or_set_a_title() {
        let table = [
            ("\u{1b}[2J\u{1b}[1;1Hgone", "gone"),
            ("\u{1b}]0;pwned\u{1b}\\text", "text"),
            ("\u{9b}31mred", "red"),
            ("\u{1b}Pq#0;2\u{1b}\\image", "image"),
            ("a\rb\u{8}c", "abc"),
            ("\u{1b}]0;never ended\nnext line", "next line"),
            ("safe\u{202e}reversed", "safereversed"),
            ("broken \u{1b}[3", "broken "),
        ];
        for (text, clean) in table {
            assert_eq!(plain(text), clean, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn plain_text_never_holds_a_control_character(text in any::<String>()) {
            prop_assert!(!plain(&text).contains(is_unprintable));
        }

        #[test]
        fn messages_are_bounded_whatever_comes_in(text in "(?s).{0,6000}") {
            prop_assert!(sanitized_message(&text).len() <= MAX_MESSAGE_BYTES * 2);
            prop_assert!(bounded(&text, 100).len() <= 100);
        }
    }
}
