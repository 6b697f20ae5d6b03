//! Finds the same characters again and again.
//!
//! Where a few characters in a row were seen before, the distance to their last position is the period to watch; it is
//! watched as long as each character equals the one a period earlier. So one period is compared at a time, and each
//! character costs the same.

use super::Loop;

/// The longest period, in characters.
const MAX_PERIOD: usize = 2048;
/// The number of characters that are kept.
const RING_SIZE: usize = 2 * MAX_PERIOD;
/// The number of characters in a row that are looked up.
const GRAM_LENGTH: usize = 16;
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
/// The size of the table of earlier positions; an entry overwrites the one in its slot.
const TABLE_SIZE: usize = 4096;
/// The minimum length of a cycle without words, in characters: often it is a rule, a table or a picture.
const MIN_WORDLESS_CYCLE: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct Cycles {
    /// The last characters, in a ring.
    last: Vec<char>,
    /// The last position of each run of characters: its hash and the number of its last character.
    seen: Vec<(u64, usize)>,
    count: usize,
    hash: u64,
    candidate: Option<Candidate>,
}

/// A period that holds so far.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    period: usize,
    /// The number of characters in a row that equal those of a period earlier.
    matched: usize,
    letters: usize,
}

impl Cycles {
    pub(super) fn push(&mut self, c: char) -> Option<Loop> {
        if self.last.is_empty() {
            self.last = vec!['\0'; RING_SIZE];
            self.seen = vec![(0, 0); TABLE_SIZE];
        }
        let leaving = self.char_before(GRAM_LENGTH - 1);
        self.last[self.count % RING_SIZE] = c;
        self.count += 1;
        self.roll_hash(c, leaving);
        self.candidate = self
            .candidate
            .and_then(|candidate| self.extend_candidate(candidate, c));
        let before = self.record_position();
        if self.candidate.is_none() {
            self.candidate = before.and_then(|place| self.start_candidate(place));
        }
        self.candidate.and_then(Candidate::verdict)
    }

    /// Returns the character that many before the last one.
    fn char_before(&self, distance: usize) -> Option<char> {
        let place = self.count.checked_sub(distance + 1)?;
        (distance < RING_SIZE).then(|| self.last[place % RING_SIZE])
    }

    fn roll_hash(&mut self, c: char, leaving: Option<char>) {
        const OLDEST: u64 = power(BASE, GRAM_LENGTH);
        let number = |c: char| u64::from(c).wrapping_add(1);
        let left = leaving.map_or(0, number).wrapping_mul(OLDEST);
        let hash = self.hash.wrapping_mul(BASE).wrapping_add(number(c));
        self.hash = hash.wrapping_sub(left);
    }

    /// Returns the last position of the last few characters, and records the current one.
    fn record_position(&mut self) -> Option<usize> {
        if self.count < GRAM_LENGTH {
            return None;
        }
        let place = usize::try_from(self.hash >> 52).unwrap_or_default() % TABLE_SIZE;
        let (hash, at) = std::mem::replace(&mut self.seen[place], (self.hash, self.count));
        (hash == self.hash && at > 0).then_some(at)
    }

    fn start_candidate(&self, before: usize) -> Option<Candidate> {
        let period = self.count - before;
        let is_same = |distance: usize| {
            let now = self.char_before(distance);
            now.is_some() && now == self.char_before(distance + period)
        };
        let holds = (1..=MAX_PERIOD).contains(&period) && (0..GRAM_LENGTH).all(is_same);
        let letters = (0..GRAM_LENGTH).filter_map(|distance| self.char_before(distance));
        holds.then(|| Candidate {
            period,
            matched: GRAM_LENGTH,
            letters: letters.filter(|c| c.is_alphabetic()).count(),
        })
    }

    fn extend_candidate(&self, candidate: Candidate, c: char) -> Option<Candidate> {
        let goes_on = self.char_before(candidate.period) == Some(c);
        goes_on.then(|| Candidate {
            matched: candidate.matched + 1,
            letters: candidate.letters + usize::from(c.is_alphabetic()),
            ..candidate
        })
    }
}

impl Candidate {
    /// Returns a loop after four repeats and 180 characters, or three repeats and 1024.
    fn verdict(self) -> Option<Loop> {
        let length = self.matched + self.period;
        let repeats = length / self.period;
        let has_words = self.letters * 4 >= self.matched;
        let is_long = (repeats >= 4 && length >= 180) || (repeats >= 3 && length >= 1024);
        let counts = is_long && (has_words || length >= MIN_WORDLESS_CYCLE);
        let period = self.period;
        counts.then_some(Loop::Cycle { period, repeats })
    }
}

const fn power(base: u64, exponent: usize) -> u64 {
    let (mut result, mut left) = (1_u64, exponent);
    while left > 0 {
        result = result.wrapping_mul(base);
        left -= 1;
    }
    result
}
