//! Finds the topics of a message by their phrases, in one pass.
//!
//! This is data for the text rules, the last resort of the classifier. Quoted text is not read: it is most often the
//! user's own text, sent back.
//! Invariant: the work is linear in the message.

use super::phrases::{CUES, PHRASES};
use arrayvec::ArrayVec;
use std::sync::LazyLock;

pub(crate) use super::phrases::Cue;
pub(super) use super::phrases::Topic;

/// A set of topics.
#[derive(Clone, Copy)]
pub(super) struct Topics(u64);

impl Topics {
    pub(super) const fn new(topics: &[Topic]) -> Self {
        let mut set = 0;
        let mut index = 0;
        while index < topics.len() {
            set |= 1 << topics[index] as u8;
            index += 1;
        }
        Self(set)
    }
}

/// The number of cues that are read; further ones are ignored.
const MAX_CUES: usize = 16;

/// A message, read once.
#[derive(Clone, Debug)]
pub(crate) struct Wording {
    text: Vec<u8>,
    topics: u64,
    cues: ArrayVec<(Cue, usize), MAX_CUES>,
}

impl Wording {
    /// Reads a message without its quotations.
    pub(crate) fn read(message: &str) -> Self {
        Self::scan(unquoted(message))
    }

    /// Reads a message and everything that it quotes.
    pub(super) fn read_with_quotations(message: &str) -> Self {
        let marks = ['_', '"', '`', '\''];
        Self::scan(
            message
                .to_ascii_lowercase()
                .replace(marks, " ")
                .into_bytes(),
        )
    }

    fn scan(mut text: Vec<u8>) -> Self {
        blank_links(&mut text);
        let (mut topics, mut cues) = (0, ArrayVec::new());
        let index = &*INDEX;
        let mut at = 0;
        while let Some(kind) = text.get(at).map(|byte| BYTE_KINDS[usize::from(*byte)]) {
            if kind == ByteKind::Separator {
                at += 1;
                continue;
            }
            for phrase in index.prefixes_of(&text[at..]) {
                match phrase.meaning {
                    Meaning::Topic(topic) => topics |= 1 << topic as u8,
                    // Cues beyond the limit are ignored.
                    Meaning::Cue(cue) => drop(cues.try_push((cue, at + phrase.text.len()))),
                }
            }
            at += 1;
            // No phrase begins inside of a word, or after a dash that joins two words.
            let joins = matches!(kind, ByteKind::Letter | ByteKind::Dash);
            while joins
                && text
                    .get(at)
                    .is_some_and(|byte| BYTE_KINDS[usize::from(*byte)] == ByteKind::Letter)
            {
                at += 1;
            }
        }
        Self { text, topics, cues }
    }

    /// Returns whether the message is about any of these topics.
    pub(super) const fn is_about(&self, topics: Topics) -> bool {
        self.topics & topics.0 != 0
    }

    /// Returns the text after each cue, in lower case.
    pub(crate) fn after_cues(&self) -> impl Iterator<Item = (Cue, &str)> {
        // Cues are ASCII, so the text after one is whole characters.
        self.cues
            .iter()
            .filter_map(|(cue, end)| Some((*cue, std::str::from_utf8(&self.text[*end..]).ok()?)))
    }
}

/// The class of a byte for the word scanner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteKind {
    /// A byte that begins no phrase.
    Separator,
    Letter,
    Dash,
    /// Any other byte that a phrase may begin with.
    Mark,
}

static BYTE_KINDS: [ByteKind; 256] = {
    let mut kinds = [ByteKind::Mark; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        kinds[byte as usize] = match byte {
            b'-' => ByteKind::Dash,
            b'/' => ByteKind::Mark,
            byte if byte.is_ascii_alphanumeric() => ByteKind::Letter,
            _ => ByteKind::Separator,
        };
        byte += 1;
    }
    kinds
};

#[derive(Clone, Copy)]
enum Meaning {
    Topic(Topic),
    Cue(Cue),
}

#[derive(Clone, Copy)]
struct Phrase {
    text: &'static [u8],
    /// Its fifth to twelfth byte as one number, and the mask of those that exist: they tell the phrases of a bucket
    /// apart.
    middle: u64,
    mask: u64,
    /// Whether more letters may not follow.
    ends_in_word: bool,
    meaning: Meaning,
}

impl Phrase {
    fn new(text: &'static str, meaning: Meaning) -> Self {
        let ends_in_word = text.ends_with(|c: char| c.is_ascii_alphanumeric());
        let text = text.trim_end_matches('*').as_bytes();
        let bytes = text.len().saturating_sub(4).min(8);
        let mask = u64::MAX
            .checked_shr(64 - 8 * u32::try_from(bytes).unwrap_or(8))
            .unwrap_or(0);
        Self {
            text,
            middle: PhrasePrefix::new(text).middle,
            mask,
            ends_in_word,
            meaning,
        }
    }

    /// Returns whether the text begins with the phrase, as whole words: `500` is not in `5000`.
    fn is_prefix_of(&self, middle: u64, text: &[u8]) -> bool {
        middle & self.mask == self.middle
            && text.starts_with(self.text)
            && !(self.ends_in_word
                && text
                    .get(self.text.len())
                    .is_some_and(u8::is_ascii_alphanumeric))
    }
}

/// The first twelve bytes of a text, with zeros for missing ones.
struct PhrasePrefix {
    first: [u8; 4],
    middle: u64,
}

impl PhrasePrefix {
    fn new(text: &[u8]) -> Self {
        let mut padded = [0; 12];
        let bytes = text.first_chunk().unwrap_or_else(|| {
            padded[..text.len()].copy_from_slice(text);
            &padded
        });
        let [a, b, c, d, middle @ ..] = *bytes;
        Self {
            first: [a, b, c, d],
            middle: u64::from_le_bytes(middle),
        }
    }

    /// Returns a number for the first four bytes, of which the last counts only if it is a letter: the shortest
    /// phrases have three.
    fn bucket(&self) -> usize {
        let [first, second, third, fourth] = self.first;
        let fourth = if BYTE_KINDS[usize::from(fourth)] == ByteKind::Letter {
            fourth
        } else {
            0
        };
        let key = u32::from_le_bytes([first, second, third, fourth]);
        let mixed = key.wrapping_mul(0x9E37_79B1) >> (32 - BUCKETS.ilog2());
        usize::try_from(mixed).unwrap_or_default()
    }
}

/// All phrases, in buckets by their first bytes.
struct PhraseIndex {
    phrases: Vec<Phrase>,
    /// The index at which each bucket begins.
    starts: Box<[u16; BUCKETS + 1]>,
}

const BUCKETS: usize = 4096;

static INDEX: LazyLock<PhraseIndex> = LazyLock::new(|| {
    let about = PHRASES
        .iter()
        .map(|(text, topic)| Phrase::new(text, Meaning::Topic(*topic)));
    let leads = CUES
        .iter()
        .map(|(text, cue)| Phrase::new(text, Meaning::Cue(*cue)));
    let mut phrases: Vec<Phrase> = about.chain(leads).collect();
    phrases.sort_by_key(|phrase| PhrasePrefix::new(phrase.text).bucket());
    let before =
        |number| phrases.partition_point(|phrase| PhrasePrefix::new(phrase.text).bucket() < number);
    let mut starts = Box::new([0; BUCKETS + 1]);
    for (number, start) in starts.iter_mut().enumerate() {
        *start = u16::try_from(before(number)).unwrap_or(u16::MAX);
    }
    PhraseIndex { phrases, starts }
});

impl PhraseIndex {
    /// Returns the phrases that a text begins with.
    fn prefixes_of<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a Phrase> {
        let head = PhrasePrefix::new(text);
        let bucket = head.bucket();
        let (start, end) = (
            usize::from(self.starts[bucket]),
            usize::from(self.starts[bucket + 1]),
        );
        self.phrases[start..end]
            .iter()
            .filter(move |phrase| phrase.is_prefix_of(head.middle, text))
    }
}

/// Returns the message in lower case, with spaces for underscores and for everything in quotes.
fn unquoted(message: &str) -> Vec<u8> {
    let mut bytes = message.to_ascii_lowercase().into_bytes();
    for byte in &mut bytes {
        *byte = if *byte == b'_' { b' ' } else { *byte };
    }
    let Some(mut at) = memchr::memchr3(b'\'', b'"', b'`', &bytes) else {
        return bytes;
    };
    // The end of the unsuccessful search for each kind of closing mark, so that no byte is searched twice.
    let mut unclosed = [0; 3];
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            // An escaped character neither opens nor closes a quotation.
            b'\\' => {
                at += 2;
                continue;
            }
            b'\'' if at == 0 || !bytes[at - 1].is_ascii_alphanumeric() => {
                quotation_end(&bytes, at, &mut unclosed[0])
            }
            b'"' => quotation_end(&bytes, at, &mut unclosed[1]),
            b'`' => quotation_end(&bytes, at, &mut unclosed[2]),
            _ => None,
        };
        match end {
            Some(end) => {
                bytes[at..end].fill(b' ');
                at = end;
            }
            None => at += 1,
        }
    }
    bytes
}

/// Blanks out links: the target of a link does not describe the failure.
fn blank_links(text: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&text[from..], b"://") {
        let start = from + at;
        let is_link =
            |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b')' | b'>' | b'"' | b',');
        let length = text[start..]
            .iter()
            .take_while(|byte| is_link(byte))
            .count();
        text[start..start + length].fill(b' ');
        from = start + length;
    }
}

/// Returns the end of the quotation that begins at `start`; `None` when it does not close soon. `unclosed` is the end
/// of earlier unsuccessful searches for the same mark.
fn quotation_end(bytes: &[u8], start: usize, unclosed: &mut usize) -> Option<usize> {
    const MAX_QUOTATION_BYTES: usize = 2000;
    let mark = bytes[start];
    let closes = |at: &usize| {
        let escaped = bytes[at - 1] == b'\\';
        let apostrophe = mark == b'\'' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric);
        !escaped && !apostrophe
    };
    let end = bytes.len().min(start + MAX_QUOTATION_BYTES);
    let from = (*unclosed).max(start + 1).min(end);
    let found = memchr::memchr_iter(mark, &bytes[from..end])
        .map(|at| from + at)
        .find(closes);
    if found.is_none() {
        *unclosed = end;
    }
    found.map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_matches_no_topic() {
        let table = [
            (
                "invalid content: 'please explain the rate limit header'",
                Topic::Rate,
            ),
            ("Unknown parameter: 'timeout'.", Topic::Slow),
            ("field `overloaded` is unknown", Topic::Overload),
            ("bad value \"it's overloaded\"", Topic::Overload),
        ];
        for (message, topic) in table {
            assert!(
                !Wording::read(message).is_about(Topics::new(&[topic])),
                "{message}"
            );
        }
        assert!(
            Wording::read("You've hit your usage limit, it's over")
                .is_about(Topics::new(&[Topic::Usage]))
        );
        assert!(
            Wording::read("isn't the server overloaded? it isn't")
                .is_about(Topics::new(&[Topic::Overload]))
        );
    }

    #[test]
    fn phrases_match_at_word_boundaries() {
        assert!(
            !Wording::read("string must be null-terminated")
                .is_about(Topics::new(&[Topic::Network]))
        );
        assert!(Wording::read("TypeError: terminated").is_about(Topics::new(&[Topic::Network])));
        assert!(Wording::read("overloaded_error").is_about(Topics::new(&[Topic::Overload])));
        assert!(!Wording::read("unexceeded").is_about(Topics::new(&[Topic::Exceeds])));
    }

    #[test]
    fn topics_fit_64_bits_and_phrases_are_valid() {
        assert!((Topic::Tests as u8) < 64);
        assert!(INDEX.phrases.iter().all(|phrase| phrase.text.len() >= 3));
        let begins =
            |phrase: &Phrase| BYTE_KINDS[usize::from(phrase.text[0])] != ByteKind::Separator;
        assert!(INDEX.phrases.iter().all(begins));
        let starred = PHRASES
            .iter()
            .filter(|(phrase, _)| phrase.trim_end_matches('*').is_empty());
        assert_eq!(starred.count(), 0);
    }
}
