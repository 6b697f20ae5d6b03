//! Hashes JSON by its value: blanks, the order of fields and the spelling of strings and numbers make no difference.
//! Text that is not JSON is hashed as text.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The greatest depth; deeper values are compared as text.
const MAX_DEPTH: u32 = 64;

/// Returns the hash of a value.
pub(super) fn hash(text: &str) -> u64 {
    let mut reader = Reader { rest: text.trim() };
    match reader.value(MAX_DEPTH) {
        Some(hash) if reader.rest.trim().is_empty() => hash,
        _ => hash_of(&("text", text)),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u32) -> Option<u64> {
        self.skip_whitespace();
        match self.rest.chars().next()? {
            '{' => self.object(depth.checked_sub(1)?),
            '[' => self.array(depth.checked_sub(1)?),
            '"' => Some(hash_of(&("string", self.string()?))),
            _ => self.literal(),
        }
    }

    /// Returns the sum of the fields, so that their order does not count.
    fn object(&mut self, depth: u32) -> Option<u64> {
        let mut sum = 0_u64;
        self.expect_char('{')?;
        if self.expect_char('}').is_some() {
            return Some(hash_of(&("object", sum)));
        }
        loop {
            self.skip_whitespace();
            let name = self.string()?;
            self.expect_char(':')?;
            let value = self.value(depth)?;
            sum = sum.wrapping_add(hash_of(&("field", name, value)));
            if self.expect_char(',').is_none() {
                self.expect_char('}')?;
                return Some(hash_of(&("object", sum)));
            }
        }
    }

    fn array(&mut self, depth: u32) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        "array".hash(&mut hasher);
        self.expect_char('[')?;
        if self.expect_char(']').is_some() {
            return Some(hasher.finish());
        }
        loop {
            self.value(depth)?.hash(&mut hasher);
            if self.expect_char(',').is_none() {
                self.expect_char(']')?;
                return Some(hasher.finish());
            }
        }
    }

    /// Reads a string without its quotes and escapes.
    fn string(&mut self) -> Option<String> {
        let body = self.rest.strip_prefix('"')?;
        let mut text = String::new();
        let mut chars = body.char_indices();
        loop {
            match chars.next()? {
                (end, '"') => {
                    self.rest = &body[end + 1..];
                    return Some(text);
                }
                (_, '\\') => match chars.next()?.1 {
                    'u' => text.push_str(&unicode_escape(&mut chars)?),
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    c @ ('"' | '\\' | '/') => text.push(c),
                    _ => return None,
                },
                (_, c) => text.push(c),
            }
        }
    }

    /// Reads a number or one of the three words.
    fn literal(&mut self) -> Option<u64> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if matches!(word, "true" | "false" | "null") {
            return Some(hash_of(&("word", word)));
        }
        // Whole numbers exactly, all others as well as they can be told apart.
        let whole = word.parse::<i128>().ok();
        let broken = word
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())?;
        Some(match whole {
            Some(whole) => hash_of(&("number", whole)),
            None if broken.fract() == 0.0 && broken.abs() < 1e15 => {
                hash_of(&("number", format!("{broken:.0}").parse::<i128>().ok()?))
            }
            None => hash_of(&("broken", broken.to_bits())),
        })
    }

    fn skip_whitespace(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn expect_char(&mut self, c: char) -> Option<()> {
        self.skip_whitespace();
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }
}

/// Returns the character of an escape by its number; half of a surrogate pair stays a name, so that nothing is lost.
fn unicode_escape(chars: &mut std::str::CharIndices<'_>) -> Option<String> {
    let mut four = || {
        let digits: String = chars.take(4).map(|(_, c)| c).collect();
        u32::from_str_radix(&digits, 16)
            .ok()
            .filter(|_| digits.len() == 4)
    };
    let first = four()?;
    if let Some(c) = char::from_u32(first) {
        return Some(c.to_string());
    }
    let mut ahead = chars.clone();
    let follows =
        ahead.next().map(|(_, c)| c) == Some('\\') && ahead.next().map(|(_, c)| c) == Some('u');
    let digits: String = ahead.clone().take(4).map(|(_, c)| c).collect();
    let second = u32::from_str_radix(&digits, 16).ok().filter(|_| follows);
    match second {
        Some(second @ 0xDC00..=0xDFFF) if (0xD800..0xDC00).contains(&first) => {
            ahead.nth(3);
            *chars = ahead;
            let pair = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            char::from_u32(pair).map(String::from)
        }
        _ => Some(format!("\\u{first:04x}")),
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
