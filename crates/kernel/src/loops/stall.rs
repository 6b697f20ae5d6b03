//! Finds many words in a row without a new one.
//!
//! Words are counted in segments. A segment is stale when the segments just before it have all of its words; numbers
//! always count as new, and so does text that looks like code or a table. A long text that is written down a second
//! time has no new words either, but many different ones: a stall has few.

use super::HashedWord;
use std::collections::VecDeque;

/// The words of a segment.
const SEGMENT_WORDS: usize = 64;
/// The number of segments that are kept, and of stale ones in a row that make a stall.
const KEPT_SEGMENTS: usize = 8;
const MAX_STALE_SEGMENTS: u32 = 8;
/// The most distinct words of a stall: ordinary text of that length has about twice as many.
const MAX_DISTINCT_WORDS: usize = KEPT_SEGMENTS * SEGMENT_WORDS / 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Stall {
    /// The words of the last segments, sorted.
    last: VecDeque<Vec<u32>>,
    words: Vec<u32>,
    numbers: usize,
    characters: usize,
    symbols: usize,
    stale: u32,
}

impl Stall {
    pub(super) fn count_char(&mut self, is_symbol: bool) {
        self.characters += 1;
        self.symbols += usize::from(is_symbol);
    }

    /// Reads a word and returns whether nothing new has come for too long.
    pub(super) fn push_word(&mut self, word: HashedWord) -> bool {
        match word.has_digit {
            true => self.numbers += 1,
            false => self.words.push(word.hash),
        }
        if self.words.len() + self.numbers < SEGMENT_WORDS {
            return false;
        }
        let mut words = std::mem::take(&mut self.words);
        words.sort_unstable();
        words.dedup();
        let is_stale = self.is_prose() && words.iter().all(|word| self.has_seen(*word));
        self.stale = if is_stale { self.stale + 1 } else { 0 };
        (self.numbers, self.characters, self.symbols) = (0, 0, 0);
        self.last.push_back(words);
        if self.last.len() > KEPT_SEGMENTS {
            self.last.pop_front();
        }
        self.stale >= MAX_STALE_SEGMENTS && self.has_few_words()
    }

    fn is_prose(&self) -> bool {
        self.numbers * 16 <= SEGMENT_WORDS && self.symbols * 16 < self.characters
    }

    fn has_few_words(&self) -> bool {
        let mut all: Vec<u32> = self.last.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all.len() <= MAX_DISTINCT_WORDS
    }

    fn has_seen(&self, word: u32) -> bool {
        self.last
            .iter()
            .any(|words| words.binary_search(&word).is_ok())
    }
}
