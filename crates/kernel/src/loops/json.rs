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
        _ => number(&("text", text)),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u32) -> Option<u64> {
        self.blanks();
        match self.rest.chars().next()? {
            '{' => self.object(depth.checked_sub(1)?),
            '[' => self.array(depth.checked_sub(1)?),
            '"' => Some(number(&("string", self.string()?))),
            _ => self.word(),
        }
    }

    /// Returns the sum of the fields, so that their order does not count.
    fn object(&mut self, depth: u32) -> Option<u64> {
        let mut sum = 0_u64;
        self.eat('{')?;
        if self.eat('}').is_some() {
            return Some(number(&("object", sum)));
        }
        loop {
            self.blanks();
            let name = self.string()?;
            self.eat(':')?;
            let value = self.value(depth)?;
            sum = sum.wrapping_add(number(&("field", name, value)));
            if self.eat(',').is_none() {
                self.eat('}')?;
                return Some(number(&("object", sum)));
            }
        }
    }

    fn array(&mut self, depth: u32) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        "array".hash(&mut hasher);
        self.eat('[')?;
        if self.eat(']').is_some() {
            return Some(hasher.finish());
        }
        loop {
            self.value(depth)?.hash(&mut hasher);
            if self.eat(',').is_none() {
                self.eat(']')?;
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
                    'u' => text.push_str(&unit(&mut chars)?),
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
    fn word(&mut self) -> Option<u64> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if matches!(word, "true" | "false" | "null") {
            return Some(number(&("word", word)));
        }
        // Whole numbers exactly, all others as well as they can be told apart.
        let whole = word.parse::<i128>().ok();
        let broken = word
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())?;
        Some(match whole {
            Some(whole) => number(&("number", whole)),
            None if broken.fract() == 0.0 && broken.abs() < 1e15 => {
                number(&("number", format!("{broken:.0}").parse::<i128>().ok()?))
            }
            None => number(&("broken", broken.to_bits())),
        })
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, c: char) -> Option<()> {
        self.blanks();
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }
}

/// Returns the character of an escape by its number; half of a surrogate pair stays a name, so that nothing is lost.
fn unit(chars: &mut std::str::CharIndices<'_>) -> Option<String> {
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

fn number(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
