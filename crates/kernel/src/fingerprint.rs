//! The identity of a failure: step, class and its message without accidental parts.
//!
//! Request ids, times, durations, addresses, ports, counters and folders differ from one occurrence to the next; words,
//! file names, test names and status codes do not. Every accidental part becomes `#`.
//! Invariant: the work is linear in the message, and a fingerprint is bounded.

use crate::text;
use crate::verdict::Class;
use serde::{Deserialize, Serialize};

/// The longest part of a message that is read, and that takes part in its fingerprint, in bytes.
const MAX_READ_BYTES: usize = 4096;
const MAX_FINGERPRINT_BYTES: usize = 512;
/// The minimum length of an id: hexadecimal digits and dashes, whatever they begin with.
const MIN_UUID_LENGTH: usize = 32;

/// The identity of a failure: two failures with the same fingerprint are the same failure.
///
/// ```
/// use outlast_kernel::fingerprint::Fingerprint;
/// use outlast_kernel::verdict::Class;
///
/// let of = |message| Fingerprint::new("test", Class::TestFailure, message);
/// assert_eq!(of("--- FAIL: TestA (0.03s)"), of("--- FAIL: TestA (0.07s)"));
/// assert_ne!(of("--- FAIL: TestA (0.03s)"), of("--- FAIL: TestB (0.03s)"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint {
    step: String,
    class: Class,
    message: String,
}

impl Fingerprint {
    /// Creates the fingerprint of a failure of that step.
    pub fn new(step: &str, class: Class, message: &str) -> Self {
        let message = text::bounded(message, MAX_READ_BYTES);
        let message = normalize(&text::plain(&message));
        Self {
            step: step.to_owned(),
            class,
            message: text::bounded(&message, MAX_FINGERPRINT_BYTES).into_owned(),
        }
    }

    /// Returns the step that failed.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Returns the class of the failure.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Returns the normalised message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

fn normalize(message: &str) -> String {
    let mut out = Normalizer::default();
    for token in message.split_whitespace() {
        out.push_token(file_name(token));
        out.end_token();
    }
    out.text
}

/// Returns the last name of a token that is a path; any other token unchanged.
fn file_name(token: &str) -> &str {
    let is_separator = |c: char| c == '/' || c == '\\';
    let rooted = token
        .trim_start_matches(['(', '\'', '"', '`', '<', '[', '='])
        .starts_with(['/', '~', '.', '\\']);
    let separators = token.chars().filter(|c| is_separator(*c)).count();
    let is_path = separators >= 2 || (separators == 1 && rooted) || token.contains(":\\");
    if !is_path {
        return token;
    }
    token
        .trim_end_matches(is_separator)
        .rsplit(is_separator)
        .next()
        .unwrap_or(token)
}

/// Builds the normalised text.
#[derive(Default)]
struct Normalizer {
    text: String,
    /// The last word, which may give a number its meaning.
    last_word: String,
}

impl Normalizer {
    fn push_token(&mut self, token: &str) {
        if token.contains("::")
            && token
                .chars()
                .all(|c| c.is_ascii_hexdigit() || ":[]%.".contains(c))
        {
            return self.push_placeholder();
        }
        let mut rest = token;
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length =
                |fits: &dyn Fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
            let id = length(&|c| c.is_ascii_hexdigit() || c == '-');
            let used = if id >= MIN_UUID_LENGTH {
                self.push_placeholder();
                id
            } else if is_word(first) {
                let used = length(&is_word);
                self.push_word(&rest[..used]);
                used
            } else {
                self.text.push(first);
                first.len_utf8()
            };
            rest = &rest[used..];
        }
    }

    fn push_word(&mut self, run: &str) {
        let word = run.to_lowercase();
        let accidental = is_volatile(&word) || is_calendar_name(&word);
        if accidental && !self.is_meaningful_number(&word) {
            self.push_placeholder();
        } else {
            self.text.push_str(&word);
        }
        self.last_word = word;
    }

    /// Adds a placeholder. Marks on either side of an accidental part belong to it: `12:30:01.5`, `10.0.0.1:443`.
    fn push_placeholder(&mut self) {
        if !self.ends_in_placeholder() {
            self.text.push('#');
            return;
        }
        let kept = self.text.trim_end_matches(|c: char| c != '#').len();
        self.text.truncate(kept);
    }

    fn ends_in_placeholder(&self) -> bool {
        let joined = |c: char| " .:,-+/".contains(c);
        self.text.trim_end_matches(joined).ends_with('#')
    }

    fn end_token(&mut self) {
        if !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    /// Returns whether a number states the kind of failure rather than its time or place: an exit code, a status, an
    /// error code.
    fn is_meaningful_number(&self, word: &str) -> bool {
        const CODE_LABELS: [&str; 8] = [
            "status", "http", "code", "exit", "errno", "signal", "returned", "got",
        ];
        if !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let is_status = word.len() == 3 && word.starts_with(['4', '5']);
        let in_front = self.text.is_empty() || self.text.ends_with('(');
        let announced = CODE_LABELS.contains(&self.last_word.as_str()) && word.len() <= 5;
        let error_code = self.last_word == "error" && (3..=5).contains(&word.len());
        announced || error_code || (is_status && in_front)
    }
}

/// Returns whether a word is a number, a length of time or size, or an id.
fn is_volatile(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 {
        return false;
    }
    let starts_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
    let hex = word.len() >= 7 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let random = word.len() >= 12 && digits >= 2 && digit_letter_transitions(word) >= 3;
    let labelled = word
        .split('_')
        .any(|part| part.len() >= 4 && part.bytes().all(|byte| byte.is_ascii_digit()));
    starts_with_digit || hex || random || labelled
}

/// Returns the number of changes between letters and digits: few in names, many in ids.
fn digit_letter_transitions(word: &str) -> usize {
    let kinds: Vec<bool> = word.bytes().map(|byte| byte.is_ascii_digit()).collect();
    kinds.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

fn is_calendar_name(word: &str) -> bool {
    const NAMES: [&str; 19] = [
        "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "mon", "tue",
        "wed", "thu", "fri", "sat", "sun", "gmt",
    ];
    NAMES.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(message: &str) -> Fingerprint {
        Fingerprint::new("s", Class::Deterministic, message)
    }

    #[test]
    fn volatile_details_do_not_change_fingerprint() {
        let table = [
            (
                "failed (request id req_011CSHoEeqs5C35K2UUqR7Fy)",
                "failed (request id req_09ABcdEFghiJ3K4l5mNOPqrs)",
            ),
            (
                "id 550e8400-e29b-41d4-a716-446655440000 gone",
                "id 123e4567-e89b-12d3-a456-426614174000 gone",
            ),
            (
                "2026-11-15T04:07:00.123Z connection lost",
                "2027-01-02T23:59:59Z connection lost",
            ),
            ("at 12:30:01 it broke", "at 9:05 it broke"),
            ("Nov 15 05:34:58 broke", "Dec 1 15:00:00 broke"),
            ("--- FAIL: TestA (0.03s)", "--- FAIL: TestA (1.27s)"),
            ("took 1h2m3s", "took 45ms"),
            ("panic at 0x7ffee4c0a1b2", "panic at 0xc000123456"),
            (
                "dial tcp 10.0.0.1:443: refused",
                "dial tcp 192.168.17.3:8443: refused",
            ),
            ("dial [::1]:80 refused", "dial [fe80::1ff]:80 refused"),
            (
                "open /tmp/run-8231/out.json: missing",
                "open /home/ann/project/out.json: missing",
            ),
            (
                "open C:\\Users\\ann\\out.json: missing",
                "open C:\\Temp\\out.json: missing",
            ),
            (
                "src/a/main.go:12:5: undefined: foo",
                "src/a/main.go:97:15: undefined: foo",
            ),
            ("attempt 3 of 5 failed", "attempt 4 of 5 failed"),
            ("failed with 12 errors", "failed with 13 errors"),
            ("error 3 of 5", "error 4 of 5"),
            ("worker-3 died, pid 812", "worker-14 died, pid 91022"),
            ("\u{1b}[31merror\u{1b}[0m: x", "error: x"),
            ("Error:  spaced\n out", "Error: spaced out"),
            ("commit 4c42ec9 broke it", "commit a1b2c3d broke it"),
        ];
        for (one, other) in table {
            assert_eq!(of(one).message(), of(other).message());
        }
    }

    #[test]
    fn different_failures_stay_different() {
        let table = [
            ("--- FAIL: TestA (0.03s)", "--- FAIL: TestB (0.03s)"),
            ("HTTP 401 from provider", "HTTP 500 from provider"),
            ("exit code 1", "exit code 2"),
            ("429 Too Many Requests", "529 Too Many Requests"),
            ("the server returned 404", "the server returned 500"),
            ("failed (429)", "failed (500)"),
            ("os error 10061", "os error 10054"),
            ("status 429", "status 529"),
            ("cannot find module a.js", "cannot find module b.js"),
            ("/tmp/x/a.rs: no such file", "/tmp/x/b.rs: no such file"),
            ("undefined: foo", "undefined: bar"),
            ("missing field `name`", "missing field `title`"),
            (
                "expected string, found number",
                "expected number, found string",
            ),
            ("sha256 mismatch", "sha512 mismatch"),
            ("invalid api key", "invalid api version"),
        ];
        for (one, other) in table {
            assert_ne!(of(one).message(), of(other).message());
        }
        assert_ne!(
            Fingerprint::new("a", Class::Transient, "x"),
            Fingerprint::new("b", Class::Transient, "x")
        );
        assert_ne!(
            Fingerprint::new("a", Class::Transient, "x"),
            Fingerprint::new("a", Class::Deterministic, "x")
        );
    }

    proptest! {
        #[test]
        fn any_text_has_a_bounded_fingerprint(message in "(?s).{0,3000}") {
            prop_assert!(of(&message).message().len() <= MAX_FINGERPRINT_BYTES);
        }

        #[test]
        fn numbers_do_not_change_fingerprint(a in any::<u32>(), b in any::<u32>()) {
            prop_assert_eq!(of(&format!("lost {a} packets")), of(&format!("lost {b} packets")));
        }
    }
}
