//! Models that go in circles: in their reasoning, as it comes, and in the calls that they make.
//!
//! Three kinds of circle are found in reasoning: the same text again and again, paragraphs that say nearly the same, and
//! many words in a row without a new one. Where it is in doubt, it is none: cutting a good thought off costs a call.
//! Invariants: the verdict is the same however the text is cut into pieces; the work for a character is bounded, and so
//! is what is kept.
//! Not here: what is done about it (see `stop` for what the model is told).

mod calls;
mod cycle;
mod json;
mod paragraphs;
mod stall;

pub use calls::RepeatedCallCounter;
use cycle::Cycles;
use paragraphs::Paragraphs;
use stall::Stall;

/// How a text goes in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// The same characters come again and again.
    Cycle {
        /// How many characters come again.
        period: usize,
        /// How often they have come.
        repeats: usize,
    },
    /// Paragraphs that say nearly the same.
    Paragraphs,
    /// Many words in a row, and none that is new.
    Stall,
}

/// Watches over reasoning as it comes.
///
/// ```
/// use outlast_kernel::repetition::{Guard, Loop};
///
/// let mut guard = Guard::default();
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

/// A word, known by a number.
#[derive(Clone, Copy, Debug)]
struct HashedWord {
    hash: u32,
    has_digit: bool,
}

impl LoopDetector {
    /// Takes the next piece in; once a circle is found, it stays found.
    pub fn push(&mut self, piece: &str) -> Option<Loop> {
        for c in piece.chars() {
            if self.found.is_some() {
                break;
            }
            self.found = self.take_in(c);
        }
        self.found
    }

    fn take_in(&mut self, c: char) -> Option<Loop> {
        let cycle = self.cycles.push(c);
        let (paragraph, stall) = self.read(c);
        cycle.or(paragraph).or(stall)
    }

    /// Reads words and paragraphs.
    fn read(&mut self, c: char) -> (Option<Loop>, Option<Loop>) {
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
        self.stall.mark(is_symbol);
        (self.paragraphs.mark(c, is_symbol), stall)
    }

    fn end_word(&mut self) -> Option<Loop> {
        let word = self.word.take()?;
        self.paragraphs.word(word);
        self.stall.word(word).then_some(Loop::Stall)
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

/// Whether a character is seen in code and tables rather than in sentences.
fn is_symbol(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '.' | ',' | '?' | '!' | '\'' | '"' | '-' | ':' | '*')
}

#[cfg(test)]
#[path = "repetition_tests.rs"]
mod tests;
