//! Reads the window that a provider states when a conversation does not fit it.
//!
//! A server's own statement outweighs any table: a local one often runs a model with less space than it could have.
//! Invariant: the result is the stated maximum, never the requested number; in doubt there is none.

use crate::classify::classify;
use crate::failure::Failure;
use crate::verdict::Cause;

/// The range of plausible windows: no model has a smaller one, and no known model one as large as the upper bound.
const PLAUSIBLE_WINDOW: std::ops::RangeInclusive<u64> = 256..=100_000_000;

/// Fields that hold the window.
const WINDOW_FIELDS: [&str; 2] = ["n_ctx", "max_model_len"];

/// The cues before the number of a window, the surest first. `LINK_WORDS` may stand between cue and number.
const CUES: [&str; 24] = [
    "maximum context length",
    "maximum context size",
    "maximum prompt length",
    "maximum input length",
    "number of tokens allowed",
    "max tokens allowed",
    "n_ctx",
    "max_model_len",
    "max_seq_len",
    "context length",
    "context window",
    "context size",
    "context limit",
    "token limit",
    "exceeds the limit",
    "exceed the limit",
    "limit of",
    "maximum of",
    "a maximum of",
    "must be <=",
    "must have less than",
    "less than or equal to",
    "supports at most",
    "only supports up to",
];

/// Words and signs that may stand between a cue and its number.
const LINK_WORDS: [&str; 14] = [
    "is",
    "of",
    "only",
    "to",
    "size",
    "currently",
    "set",
    "for",
    "this",
    "model",
    "the",
    "in",
    "at",
    "limit",
];

/// Units of a number that counts something other than tokens.
const OTHER_UNITS: [&str; 11] = [
    "byte", "char", "kb", "kib", "mb", "mib", "message", "image", "request", "output", "page",
];

/// Returns the stated maximum of tokens of a conversation, if this failure is an overflow.
///
/// ```
/// use outlast_kernel::failure::Failure;
/// use outlast_kernel::{Timestamp, model_info::overflow::stated_window};
///
/// let message = "prompt is too long: 215000 tokens > 200000 maximum";
/// let failure = Failure::http("anthropic", 400, message, Timestamp::default());
/// assert_eq!(stated_window(&failure), Some(200_000));
/// ```
pub fn stated_window(failure: &Failure) -> Option<u64> {
    if classify(failure).cause != Cause::ContextOverflow {
        return None;
    }
    let text = failure.message.to_lowercase();
    window_in_fields(failure)
        .or_else(|| number_after_greater_than(&text))
        .or_else(|| number_after_cue(&text))
        .or_else(|| number_before_cue(&text))
        .or_else(|| rate_bucket_limit(&text))
}

fn window_in_fields(failure: &Failure) -> Option<u64> {
    let stated = WINDOW_FIELDS.iter().filter_map(|name| failure.field(name));
    stated
        .filter_map(|value| parse_token_count(value.trim()))
        .next()
}

fn number_after_cue(text: &str) -> Option<u64> {
    let after = |cue: &&str| {
        let places = memchr::memmem::find_iter(text.as_bytes(), cue.as_bytes());
        let mut numbers = places.filter_map(|at| linked_number(&text[at + cue.len()..]));
        numbers.next()
    };
    CUES.iter().find_map(after)
}

/// Returns the number that follows, with nothing before it but link words.
fn linked_number(text: &str) -> Option<u64> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', ':', '(', '=', '[', '"', '\'', '`', ',', '~']);
        let word = rest.find(|c: char| !c.is_ascii_alphabetic());
        match word.map(|end| rest.split_at(end)) {
            Some((word, after)) if LINK_WORDS.contains(&word) => rest = after,
            _ => return parse_token_count(rest),
        }
    }
}

/// Reads `131072 maximum context length`, `200000-token limit`.
fn number_before_cue(text: &str) -> Option<u64> {
    const AFTER: [&str; 4] = [
        "maximum context",
        "token context",
        "token limit",
        "token maximum",
    ];
    let before = |cue: &&str| {
        let at = memchr::memmem::find(text.as_bytes(), cue.as_bytes())?;
        let head = text[..at].trim_end_matches([' ', '-']);
        let is_number = |c: char| c.is_ascii_digit() || c == ',' || c == 'k';
        let start = head.trim_end_matches(is_number).len();
        parse_token_count(&head[start..])
    };
    AFTER.iter().find_map(before)
}

/// Reads `199759 + 8192 > 200000`: the excess stands before the sign.
fn number_after_greater_than(text: &str) -> Option<u64> {
    let (before, after) = text.split_once('>')?;
    let counted = before.trim_end().trim_end_matches("tokens").trim_end();
    counted
        .ends_with(|c: char| c.is_ascii_digit())
        .then(|| parse_token_count(after.trim_start_matches(['=', ' '])))?
}

/// Reads `Limit 30000, Requested 30601`: a request larger than a minute's limit never fits, whatever the model could
/// take.
fn rate_bucket_limit(text: &str) -> Option<u64> {
    let at = memchr::memmem::find(text.as_bytes(), b"limit ")?;
    let rest = &text[at + "limit ".len()..];
    parse_token_count(rest).filter(|_| rest.contains("requested "))
}

/// Returns the number of tokens at the beginning of a text: `131072`, `131,072`, `128k`.
fn parse_token_count(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',');
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    // A comma at the end belongs to the sentence; the text after it is another thing.
    let ends = digits.ends_with(',');
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().ok()?;
    let (number, rest) = match rest.strip_prefix('k') {
        Some(after) if !after.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
            (number.checked_mul(1000)?, after)
        }
        _ => (number, rest),
    };
    let unit = rest.trim_start_matches([' ', '-']);
    let counts_other = !ends && OTHER_UNITS.iter().any(|other| unit.starts_with(other));
    let goes_on = rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    (PLAUSIBLE_WINDOW.contains(&number) && !counts_other && !goes_on).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use proptest::prelude::*;

    fn refused(message: &str) -> Failure {
        Failure::http("p", 400, message, Timestamp::default())
    }

    #[test]
    fn window_is_parsed_from_overflow_messages() {
        #[rustfmt::skip]
        let table = [
            ("This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 in the messages, 730 in the functions, and 800 in the completion).", 8_192),
            ("This model's maximum context length is 128,000 tokens. However, your messages resulted in 130001 tokens.", 128_000),
            ("This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens", 32_768),
            ("Requested token count exceeds the model's maximum context length of 131072 tokens.", 131_072),
            ("The input (516368 tokens) is longer than the model's context length (262144 tokens).", 262_144),
            ("prompt token count of 130482 exceeds the limit of 128000", 128_000),
            ("The input token count (134123) exceeds the maximum number of tokens allowed (131072).", 131_072),
            ("The input token count exceeds the maximum number of tokens allowed 1048576.", 1_048_576),
            ("Prompt contains 162074 tokens and 0 draft tokens, too large for model with 131072 maximum context length", 131_072),
            ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.", 131_072),
            ("input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` and try again", 200_000),
            ("prompt is too long: 215000 tokens > 200000 maximum", 200_000),
            ("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 30601.", 30_000),
            ("the request exceeds the available context size (8192 tokens), try increasing it", 8_192),
            ("The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000 >= n_ctx: 4096)", 4_096),
            ("Trying to keep the first 5000 tokens when context overflows. However, the model is loaded with context length of only 4096 tokens", 4_096),
            ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.", 272_000),
            ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 inputs tokens and 512 max_new_tokens", 4_096),
            ("prompt is too long: it does not fit the 128k token context of this model", 128_000),
            ("Your input exceeds the context window of 200k tokens", 200_000),
        ];
        for (message, window) in table {
            assert_eq!(stated_window(&refused(message)), Some(window), "{message}");
        }
    }

    #[test]
    fn other_numbers_are_not_taken_for_a_window() {
        let table = [
            "Your input exceeds the context window of this model.",
            "Input is too long for requested model.",
            "prompt is too long: 215000 tokens",
            "Requested 30601 tokens, prompt is too long",
            "Please reduce the length of the messages or completion.",
            "maximum context length is 12 tokens",
            "maximum context length is 99999999999999999999999999 tokens",
            "the prompt is too long, the limit of 5242880 bytes is reached",
            "prompt is too long: a maximum of 2000 messages is allowed",
            // About something else, and only this makes it no overflow.
            "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens",
            "Rate limit reached: limit of 30000 tokens per minute",
        ];
        for message in table {
            assert_eq!(stated_window(&refused(message)), None, "{message}");
        }
    }

    #[test]
    fn window_field_wins_over_message() {
        let mut failure = refused("the request exceeds the available context size of 1024 tokens");
        failure.fields = vec![("n_ctx".to_owned(), "8192".to_owned())];
        assert_eq!(stated_window(&failure), Some(8_192));
    }

    proptest! {
        #[test]
        fn requested_tokens_are_never_the_window(window in 1_000_u64..2_000_000, more in 1_u64..5_000_000) {
            let asked = window + more;
            for message in [
                format!("This model's maximum context length is {window} tokens. However, you requested {asked} tokens"),
                format!("prompt is too long: {asked} tokens > {window} maximum"),
                format!("The input token count ({asked}) exceeds the maximum number of tokens allowed ({window})."),
                format!("Input length ({asked}) exceeds model's maximum context length ({window})."),
                format!("prompt token count of {asked} exceeds the limit of {window}"),
            ] {
                prop_assert_eq!(stated_window(&refused(&message)), Some(window), "{}", message);
            }
        }

        #[test]
        fn stated_window_is_plausible_for_any_text(text in "(?s).{0,200}|((maximum context length|limit of|>|n_ctx)[ :(0-9k,é]{0,12}){0,6}") {
            let stated = stated_window(&refused(&format!("prompt is too long: {text}")));
            prop_assert!(stated.is_none_or(|window| PLAUSIBLE_WINDOW.contains(&window)));
        }
    }
}
