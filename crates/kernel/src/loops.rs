//! Detects models that go in circles: in their reasoning, as it arrives, and in their tool calls.
//!
//! Three kinds of loop are found in reasoning: the same text again and again, paragraphs that are nearly the same, and
//! many words in a row without a new one. In doubt there is no loop: cutting off good reasoning costs a call.
//! Invariants: the verdict does not depend on how the text is cut into pieces; the work for a character and the memory
//! are bounded.
//! Not here: the reaction to a loop (see `completion` for the notice to the model).

mod calls;
mod cycle;
mod paragraphs;
mod stall;

pub use calls::RepeatedCallCounter;
use cycle::Cycles;
use paragraphs::Paragraphs;
use stall::Stall;

/// A loop in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// The same characters come again and again.
    Cycle {
        /// The number of characters that repeat.
        period: usize,
        /// The number of repeats.
        repeats: usize,
    },
    /// Paragraphs that are nearly the same.
    Paragraphs,
    /// Many words in a row without a new one.
    Stall,
}

/// Watches reasoning as it arrives.
///
/// ```
/// use outlast_kernel::loops::{Loop, LoopDetector};
///
/// let mut guard = LoopDetector::default();
/// let again = "Wait, let me check that once more. ".repeat(9);
/// assert_eq!(guard.push(&again), Some(Loop::Cycle { period: 35, repeats: 5 }));
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoopDetector {
    cycles: Cycles,
    paragraphs: Paragraphs,
    stall: Stall,
    word: Option<HashedWord>,
    found: Option<Loop>,
}

/// A word, represented by a number.
#[derive(Clone, Copy, Debug)]
struct HashedWord {
    hash: u32,
    has_digit: bool,
}

impl LoopDetector {
    /// Reads the next piece; a loop, once found, stays found.
    pub fn push(&mut self, piece: &str) -> Option<Loop> {
        for c in piece.chars() {
            if self.found.is_some() {
                break;
            }
            self.found = self.push_char(c);
        }
        self.found
    }

    fn push_char(&mut self, c: char) -> Option<Loop> {
        let cycle = self.cycles.push(c);
        let (paragraph, stall) = self.push_to_words(c);
        cycle.or(paragraph).or(stall)
    }

    /// Reads words and paragraphs.
    fn push_to_words(&mut self, c: char) -> (Option<Loop>, Option<Loop>) {
        let is_part = c.is_alphanumeric() || c == '_' || c == '\'';
        // Scripts without spaces have about a word in each character.
        let stands_alone = c >= '\u{2e80}';
        let mut stall = None;
        if !is_part || stands_alone {
            stall = self.end_word();
        }
        if is_part {
            let word = self.word.get_or_insert(HashedWord::EMPTY);
            word.add(c);
        }
        if is_part && stands_alone {
            stall = stall.or(self.end_word());
        }
        let is_symbol = is_symbol(c);
        self.stall.count_char(is_symbol);
        (self.paragraphs.push_char(c, is_symbol), stall)
    }

    fn end_word(&mut self) -> Option<Loop> {
        let word = self.word.take()?;
        self.paragraphs.push_word(word);
        self.stall.push_word(word).then_some(Loop::Stall)
    }
}

impl HashedWord {
    const EMPTY: Self = Self {
        hash: 0x811c_9dc5,
        has_digit: false,
    };

    fn add(&mut self, c: char) {
        let c = c.to_ascii_lowercase();
        self.has_digit |= c.is_ascii_digit();
        self.hash = (self.hash ^ u32::from(c)).wrapping_mul(0x0100_0193);
    }
}

/// Returns whether a character occurs in code and tables rather than in sentences.
fn is_symbol(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '.' | ',' | '?' | '!' | '\'' | '"' | '-' | ':' | '*')
}

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
