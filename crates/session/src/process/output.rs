//! What is kept of a tool's output: its beginning and its end.
//!
//! Invariant: memory and result are bounded, whatever comes in, and what was left out is counted.

use outlast_kernel::text;

/// The most that a tool says to the model, in bytes.
pub(crate) const OUTPUT_LIMIT: usize = 64 * 1024;
/// The most of it that is content: the rest is for what is said about it.
pub(crate) const CONTENT_LIMIT: usize = OUTPUT_LIMIT - 1024;

const HEAD: usize = 16 * 1024;
const TAIL: usize = CONTENT_LIMIT - HEAD;

/// Where something was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// To the standard output; or to either, when they are told as one.
    Output,
    /// To the standard error.
    Errors,
}

/// The beginning and the end of what came in.
#[derive(Debug)]
pub struct HeadTailBuffer {
    head: Vec<u8>,
    tail: Vec<u8>,
    cut: usize,
    /// How many bytes of the beginning are kept, and how many of the end.
    room: (usize, usize),
}

impl Default for HeadTailBuffer {
    fn default() -> Self {
        Self::of(HEAD, TAIL)
    }
}

impl HeadTailBuffer {
    /// Keeps that many bytes of the beginning, and that many of the end.
    pub const fn of(beginning: usize, end: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            cut: 0,
            room: (beginning, end),
        }
    }

    /// Takes in more.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (self.room.0 - self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Not at every push: what is moved then is paid for by what came in between.
        if self.tail.len() > 2 * self.room.1 {
            self.shorten();
        }
    }

    /// Whether something of it is left out.
    pub(crate) const fn is_cut(&self) -> bool {
        self.cut > 0 || self.tail.len() > self.room.1
    }

    /// All that was kept, as text.
    pub(crate) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.into_bytes()).into_owned()
    }

    /// All that was kept, as it came.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.shorten();
        if self.cut == 0 {
            self.head.append(&mut self.tail);
            return self.head;
        }
        let head = trim_partial_end(&self.head);
        let tail = without_cut_start(&self.tail);
        let cut = self.cut + self.head.len() - head.len() + self.tail.len() - tail.len();
        let note = format!("\n[{cut} bytes were left out here]\n");
        [head, note.as_bytes(), tail].concat()
    }

    fn shorten(&mut self) {
        let excess = self.tail.len().saturating_sub(self.room.1);
        self.tail.drain(..excess);
        self.cut += excess;
    }
}

/// What was printed, without what only a terminal understands. A return that begins a line anew becomes a line end.
pub fn printed(output: &str) -> String {
    let lines = output.replace("\r\n", "\n").replace('\r', "\n");
    text::plain(&lines).into_owned()
}

/// The text itself, or its beginning and its end when it is longer than a tool may say.
pub(crate) fn bounded(text: String) -> String {
    if text.len() <= OUTPUT_LIMIT {
        return text;
    }
    let mut kept = HeadTailBuffer::default();
    kept.push(text.as_bytes());
    kept.into_text()
}

/// Without the first bytes of a character that was cut in two.
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

/// Without the last bytes of a character that was cut in two.
pub fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| continues(**byte));
    &bytes[rest.count()..]
}

/// Whether the byte is one of a character, but not its first.
fn continues(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_kept_as_it_came_however_it_is_cut_into_pieces() {
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
    fn the_beginning_and_the_end_are_kept_and_the_rest_is_counted() {
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
