//! A bounded buffer for a tool's output: keeps its beginning and its end.
//!
//! Invariant: memory and result are bounded for any input, and omitted bytes are counted.

use outlast_kernel::text;

/// Maximum length of a tool's result for the model, in bytes.
pub(crate) const OUTPUT_LIMIT: usize = 64 * 1024;
/// Maximum length of the content in it, in bytes: the rest is reserved for notes about it.
pub(crate) const CONTENT_LIMIT: usize = OUTPUT_LIMIT - 1024;

const HEAD: usize = 16 * 1024;
const TAIL: usize = CONTENT_LIMIT - HEAD;

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output; or either stream, when both are captured as one.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Keeps the beginning and the end of its input.
#[derive(Debug)]
pub struct HeadTailBuffer {
    head: Vec<u8>,
    tail: Vec<u8>,
    omitted: usize,
    /// Number of bytes kept of the beginning, and of the end.
    limits: (usize, usize),
}

impl Default for HeadTailBuffer {
    fn default() -> Self {
        Self::with_limits(HEAD, TAIL)
    }
}

impl HeadTailBuffer {
    /// Creates a buffer that keeps that many bytes of the beginning, and that many of the end.
    pub const fn with_limits(beginning: usize, end: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            omitted: 0,
            limits: (beginning, end),
        }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (self.limits.0 - self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Not at every push: the cost of moving bytes is spread over the bytes that came in between.
        if self.tail.len() > 2 * self.limits.1 {
            self.trim_tail();
        }
    }

    /// Returns whether bytes were omitted.
    pub(crate) const fn is_truncated(&self) -> bool {
        self.omitted > 0 || self.tail.len() > self.limits.1
    }

    /// Returns all kept bytes as text, with invalid bytes replaced.
    pub(crate) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.into_bytes()).into_owned()
    }

    /// Returns all kept bytes unchanged.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.trim_tail();
        if self.omitted == 0 {
            self.head.append(&mut self.tail);
            return self.head;
        }
        let head = trim_partial_end(&self.head);
        let tail = trim_partial_start(&self.tail);
        let cut = self.omitted + self.head.len() - head.len() + self.tail.len() - tail.len();
        let note = format!("\n[{cut} bytes were left out here]\n");
        [head, note.as_bytes(), tail].concat()
    }

    fn trim_tail(&mut self) {
        let excess = self.tail.len().saturating_sub(self.limits.1);
        self.tail.drain(..excess);
        self.omitted += excess;
    }
}

/// Removes terminal control sequences from output. A carriage return that begins a line anew becomes a line end.
pub fn sanitize(output: &str) -> String {
    let lines = output.replace("\r\n", "\n").replace('\r', "\n");
    text::plain(&lines).into_owned()
}

/// Returns the text, or its beginning and its end when it exceeds the limit of a tool's result.
pub(crate) fn bounded(text: String) -> String {
    if text.len() <= OUTPUT_LIMIT {
        return text;
    }
    let mut kept = HeadTailBuffer::default();
    kept.push(text.as_bytes());
    kept.into_text()
}

/// Removes the incomplete character at the end.
pub(crate) fn trim_partial_end(bytes: &[u8]) -> &[u8] {
    let last = bytes
        .iter()
        .rev()
        .take(4)
        .position(|byte| !continues(*byte));
    let Some(last) = last.map(|back| bytes.len() - 1 - back) else {
        return bytes;
    };
    match std::str::from_utf8(&bytes[last..]) {
        Err(error) if error.error_len().is_none() => &bytes[..last],
        _ => bytes,
    }
}

/// Removes the incomplete character at the beginning.
pub fn trim_partial_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| continues(**byte));
    &bytes[rest.count()..]
}

/// Returns whether the byte continues a UTF-8 character.
fn continues(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_within_limit_is_kept_for_any_chunk_size() {
        let text = "é…𝄞x".repeat(CONTENT_LIMIT / 11);
        for size in [1, 2, 3, 7, 8192] {
            let mut kept = HeadTailBuffer::default();
            text.as_bytes()
                .chunks(size)
                .for_each(|piece| kept.push(piece));
            assert_eq!(kept.into_text(), text);
        }
    }

    #[test]
    fn long_output_keeps_head_and_tail_and_counts_the_rest() {
        for character in ["x", "é", "…", "𝄞"] {
            let text = format!("first{}last", character.repeat(300_000));
            let said = bounded(text.clone());
            assert!(said.len() <= OUTPUT_LIMIT, "{}", said.len());
            assert!(said.starts_with("first") && said.ends_with("last"));
            assert!(!said.contains('\u{fffd}'), "a character was cut in two");
            let (_, after) = said.split_once("\n[").unwrap();
            let (count, _) = after.split_once(" bytes").unwrap();
            let mark = format!("\n[{count} bytes were left out here]\n").len();
            assert_eq!(
                count.parse::<usize>().unwrap() + said.len() - mark,
                text.len()
            );
        }
    }
}
