//! Decodes a command's output to text that is safe to show.
//!
//! Invariant: the decoded pieces equal the decoded whole, however the output was split into reads. An incomplete character,
//! line end or terminal escape is held back until it is complete; an escape that is longer than any real one is not.

use super::output::{sanitize, trim_partial_end};
use outlast_kernel::text;

/// The longest escape that is held back, in bytes.
const MAX_ESCAPE_BYTES: usize = 4096;
/// Number of escape starts to look at: the end of a string is one as well, and more are garbage.
const MAX_ESCAPE_STARTS: usize = 3;

/// Decodes output piece by piece.
#[derive(Default)]
pub(crate) struct TextDecoder {
    pending: Vec<u8>,
}

impl TextDecoder {
    /// Adds output and returns the text that is complete now; may be empty.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let whole = trim_partial_end(&self.pending).len();
        // Invalid UTF-8 keeps its length until it is decoded: the length determines the split.
        let piece = match std::str::from_utf8(&self.pending[..whole]) {
            Ok(text) => text[..complete_len(text)].to_owned(),
            Err(_) => return self.push_invalid(whole),
        };
        self.pending.drain(..piece.len());
        sanitize(&piece)
    }

    /// Returns the rest at the end of the output.
    pub(crate) fn finish(self) -> String {
        sanitize(&String::from_utf8_lossy(&self.pending))
    }

    /// Decodes invalid UTF-8 with replacement characters.
    fn push_invalid(&mut self, whole: usize) -> String {
        let rest = self.pending.split_off(whole);
        let text = String::from_utf8_lossy(&self.pending);
        let (piece, held) = text.split_at(complete_len(&text));
        let piece = sanitize(piece);
        self.pending = [held.as_bytes(), &rest].concat();
        piece
    }
}

/// Returns the length of the prefix that means the same whatever follows it.
fn complete_len(text: &str) -> usize {
    let whole = text.strip_suffix('\r').unwrap_or(text);
    let line = whole.rfind(['\n', '\r']).map_or(0, |end| end + 1);
    // No escape extends beyond its line.
    let unfinished = &whole[line..];
    if !is_open(unfinished) {
        return whole.len();
    }
    let beginnings = unfinished.rmatch_indices(['\u{1b}', '\u{9b}']);
    let closed = beginnings
        .map(|(at, _)| at)
        .take(MAX_ESCAPE_STARTS)
        .find(|at| !is_open(&unfinished[..*at]));
    let end = closed.unwrap_or(0);
    match unfinished.len() - end > MAX_ESCAPE_BYTES {
        true => whole.len(),
        false => line + end,
    }
}

/// Returns whether the line ends within an escape: the next character would belong to it.
fn is_open(line: &str) -> bool {
    let longer = format!("{line}x");
    line.ends_with('\u{1b}') || text::plain(&longer).len() == text::plain(line).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_pieces(output: &[u8], sizes: &[usize]) -> Vec<String> {
        let mut pieces = TextDecoder::default();
        let mut said = Vec::new();
        let mut rest = output;
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            let size = sizes.next().map_or(1, |size| (*size).clamp(1, rest.len()));
            said.push(pieces.push(&rest[..size]));
            rest = &rest[size..];
        }
        said.push(pieces.finish());
        said
    }

    proptest! {
        #[test]
        fn decoded_chunks_equal_sanitized_output(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "word", " ", "é", "𝄞", "\n", "\r\n", "\r", "\u{1b}", "\u{1b}[31m", "\u{1b}[", "\u{1b}]0;title",
                    "\u{7}", "\u{1b}\\", "\u{9b}2J", "\u{9b}", "\u{1b}P", "3;4", "m", "\u{202e}",
                ]),
                0..30,
            ),
            sizes in prop::collection::vec(1_usize..9, 1..5),
        ) {
            let output = parts.concat();
            let said = in_pieces(output.as_bytes(), &sizes).concat();
            prop_assert_eq!(said, sanitize(&output));
        }

        #[test]
        fn invalid_utf8_is_replaced_for_any_chunking(
            output in prop::collection::vec(prop_oneof![Just(0xff), Just(0xc3), Just(0xa9), Just(b'a'), any::<u8>()], 0..40),
            sizes in prop::collection::vec(1_usize..9, 1..5),
        ) {
            let said = in_pieces(&output, &sizes).concat();
            prop_assert_eq!(said, sanitize(&String::from_utf8_lossy(&output)));
        }
    }

    #[test]
    fn partial_line_is_emitted_without_escape_sequences() {
        let table: [(&str, &str); 6] = [
            ("Password: ", "Password: "),
            ("\u{1b}[32mbuilding\u{1b}[0m a", "building a"),
            ("a \u{1b}[3", "a "),
            ("a \u{1b}]0;title", "a "),
            ("a \u{1b}]0;title\u{1b}", "a "),
            ("50%\r", "50%"),
        ];
        for (output, expected) in table {
            let mut pieces = TextDecoder::default();
            assert_eq!(pieces.push(output.as_bytes()), expected, "{output:?}");
        }
    }

    #[test]
    fn unterminated_escape_keeps_buffer_bounded() {
        let mut pieces = TextDecoder::default();
        for _ in 0..100 {
            pieces.push("\u{1b}]0;".as_bytes());
            pieces.push(&[b'x'; 1000]);
            assert!(
                pieces.pending.len() <= MAX_ESCAPE_BYTES,
                "{}",
                pieces.pending.len()
            );
        }
    }
}
