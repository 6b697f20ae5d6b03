//! Finds paragraphs that are nearly the same as earlier ones.
//!
//! A paragraph is represented by the set of its words. Code and tables repeat themselves for good reasons and are
//! skipped, and so are paragraphs that differ in their numbers: a list of cases is no loop.

use super::{HashedWord, Loop};
use std::collections::VecDeque;

/// The number of paragraphs that are kept.
const KEPT_PARAGRAPHS: usize = 16;
/// The number of kept paragraphs that a paragraph must resemble.
const MIN_SIMILAR_PARAGRAPHS: usize = 4;
const MIN_WORDS: usize = 8;
/// The number of words that are counted; further ones are ignored.
const MAX_WORDS: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct Paragraphs {
    last: VecDeque<Paragraph>,
    words: Vec<u32>,
    numbers: Vec<u32>,
    characters: usize,
    symbols: usize,
    line_state: LineState,
    is_code: bool,
    has_code: bool,
}

/// A paragraph: its words and its numbers, sorted.
#[derive(Clone, Debug)]
struct Paragraph {
    words: Vec<u32>,
    numbers: Vec<u32>,
}

/// The kind of the line so far.
#[derive(Clone, Copy, Debug, Default)]
enum LineState {
    #[default]
    Blank,
    /// So many of the marks that begin and end code, and nothing else.
    Fence(u8),
    Text,
}

impl Paragraphs {
    pub(super) fn push_word(&mut self, word: HashedWord) {
        let words = match word.has_digit {
            true => &mut self.numbers,
            false => &mut self.words,
        };
        if words.len() < MAX_WORDS {
            words.push(word.hash);
        }
    }

    /// Reads a character; the words before it are already known.
    pub(super) fn push_char(&mut self, c: char, is_symbol: bool) -> Option<Loop> {
        self.characters += 1;
        self.symbols += usize::from(is_symbol);
        self.line_state = match (self.line_state, c) {
            (LineState::Blank, '\n') => {
                return self.end_paragraph().then_some(Loop::Paragraphs);
            }
            (_, '\n') => LineState::Blank,
            (LineState::Blank, c) if c.is_whitespace() => LineState::Blank,
            (LineState::Blank, '`') => LineState::Fence(1),
            (LineState::Fence(2), '`') => {
                self.is_code = !self.is_code;
                self.has_code = true;
                LineState::Text
            }
            (LineState::Fence(marks), '`') => LineState::Fence(marks + 1),
            _ => LineState::Text,
        };
        None
    }

    /// Ends a paragraph and returns whether it is one too many of its kind.
    fn end_paragraph(&mut self) -> bool {
        let said = Paragraph {
            words: sorted_unique(std::mem::take(&mut self.words)),
            numbers: sorted_unique(std::mem::take(&mut self.numbers)),
        };
        let is_prose = self.symbols * 16 < self.characters && !self.has_code && !self.is_code;
        (self.characters, self.symbols, self.has_code) = (0, 0, false);
        if !is_prose || said.words.len() < MIN_WORDS {
            return false;
        }
        let alike = self
            .last
            .iter()
            .filter(|other| said.is_similar_to(other))
            .count();
        self.last.push_back(said);
        if self.last.len() > KEPT_PARAGRAPHS {
            self.last.pop_front();
        }
        alike >= MIN_SIMILAR_PARAGRAPHS
    }
}

impl Paragraph {
    /// Returns whether four of five words are in both, and all of the numbers.
    fn is_similar_to(&self, other: &Self) -> bool {
        let (one, two) = (self.words.len(), other.words.len());
        // Sets of very different sizes need no closer look.
        if one.min(two) * 5 < one.max(two) * 4 || self.numbers != other.numbers {
            return false;
        }
        let shared = shared_count(&self.words, &other.words);
        shared * 5 >= (one + two - shared) * 4
    }
}

/// Returns the number of values that two sorted lists share.
fn shared_count(one: &[u32], two: &[u32]) -> usize {
    let (mut at, mut count) = (0, 0);
    for value in one {
        while two.get(at).is_some_and(|other| other < value) {
            at += 1;
        }
        count += usize::from(two.get(at) == Some(value));
    }
    count
}

fn sorted_unique(mut words: Vec<u32>) -> Vec<u32> {
    words.sort_unstable();
    words.dedup();
    words
}
