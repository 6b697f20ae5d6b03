//! Prompt templates with names in double braces, which are replaced: `Review {{ diff }}`.
//!
//! `{{ "{{" }}` stands for two literal braces; closing ones need no escape. Invariants: replacements are never parsed
//! again, so no input can refer to another; the result is bounded, and never cut silently. Not here: the values of the
//! names. Commands use no templates: they find their inputs in variables and files (see `step::input_files`).

/// Maximum length of a filled text in bytes.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
/// The escape for two literal braces.
const LITERAL: &str = "\"{{\"";
/// Maximum bytes of an invalid name to show.
const MAX_SHOWN_BYTES: usize = 40;

/// The error of a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Braces are opened and not closed.
    #[error("`{{{{` is not closed; write `{{{{ \"{{{{\" }}}}` for two braces")]
    Unclosed {
        /// The offset in bytes.
        offset: usize,
    },
    /// The braces contain no valid name.
    #[error(
        "`{found}` is not a name of letters, digits, `-` and `_`; write `{{{{ \"{{{{\" }}}}` for two braces"
    )]
    InvalidName {
        /// The offset in bytes.
        offset: usize,
        /// The text in the braces.
        found: String,
    },
    /// The name has no value.
    #[error("nothing is called `{name}` here")]
    Unknown {
        /// The offset in bytes.
        offset: usize,
        /// The name.
        name: String,
    },
    /// The filled text is too long.
    #[error("with its inputs it has more than {MAX_BYTES} bytes")]
    TooLong {
        /// The offset in bytes.
        offset: usize,
    },
}

impl Error {
    /// Returns the offset of the error in the text, in bytes.
    pub(crate) const fn offset(&self) -> usize {
        match self {
            Self::Unclosed { offset }
            | Self::InvalidName { offset, .. }
            | Self::Unknown { offset, .. }
            | Self::TooLong { offset } => *offset,
        }
    }
}

/// Returns the names in a text, each with its offset in bytes.
pub(crate) fn names(text: &str) -> Result<Vec<(usize, String)>, Error> {
    let mut names = Vec::new();
    for part in Parts::new(text) {
        if let (offset, Part::Name(name)) = part? {
            names.push((offset, name.to_owned()));
        }
    }
    Ok(names)
}

/// Replaces all names in the text by their values.
pub(crate) fn fill(text: &str, value: &dyn Fn(&str) -> Option<String>) -> Result<String, Error> {
    let mut filled = String::new();
    for part in Parts::new(text) {
        let (offset, part) = part?;
        let owned;
        let piece = match part {
            Part::Text(text) => text,
            Part::Name(name) => {
                let name = name.to_owned();
                owned = value(&name).ok_or(Error::Unknown { offset, name })?;
                &owned
            }
        };
        if filled.len() + piece.len() > MAX_BYTES {
            return Err(Error::TooLong { offset });
        }
        filled.push_str(piece);
    }
    Ok(filled)
}

/// A part of a template.
enum Part<'a> {
    /// Literal text.
    Text(&'a str),
    /// A name to replace.
    Name(&'a str),
}

/// An iterator over the parts of a template, each with its offset.
struct Parts<'a> {
    text: &'a str,
    /// The offset of the rest; the end of the text after an error.
    at: usize,
}

impl<'a> Parts<'a> {
    const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Parses the braces that open at the current offset.
    fn braces(&mut self) -> Result<(usize, Part<'a>), Error> {
        let open = self.at;
        let start = open + OPEN.len();
        let inside = &self.text[start..];
        let padding = inside.len() - inside.trim_start().len();
        let (offset, inside) = (start + padding, inside.trim_start());
        if let Some(rest) = inside.strip_prefix(LITERAL)
            && rest.trim_start().starts_with(CLOSE)
        {
            let closed = self.text.len() - rest.trim_start().len() + CLOSE.len();
            self.at = closed;
            return Ok((offset, Part::Text(OPEN)));
        }
        // Only up to the next opening braces: a brace that is missing here is not closed there.
        let end = inside.find(OPEN).unwrap_or(inside.len());
        let Some(close) = inside[..end].find(CLOSE) else {
            return Err(Error::Unclosed { offset: open });
        };
        let name = inside[..close].trim_end();
        if !is_name(name) {
            let found = outlast_kernel::text::bounded(name, MAX_SHOWN_BYTES).into_owned();
            return Err(Error::InvalidName { offset, found });
        }
        self.at = offset + close + CLOSE.len();
        Ok((offset, Part::Name(name)))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(usize, Part<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (offset, rest) = (self.at, &self.text[self.at..]);
        if rest.is_empty() {
            return None;
        }
        if rest.starts_with(OPEN) {
            let part = self.braces();
            if part.is_err() {
                self.at = self.text.len();
            }
            return Some(part);
        }
        let end = rest.find(OPEN).unwrap_or(rest.len());
        self.at += end;
        Some(Ok((offset, Part::Text(&rest[..end]))))
    }
}

fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn filled(text: &str) -> Result<String, Error> {
        fill(text, &|name| Some(format!("<{name}>")))
    }

    #[test]
    fn only_names_in_double_braces_are_filled() {
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("{{a}}", "<a>"),
            ("{{ a }}{{b-1}}", "<a><b-1>"),
            ("x {{\n a_b \t}} y", "x <a_b> y"),
            ("é {{ a }} ü", "é <a> ü"),
            (
                r#"{"a": {"b": 1}} {x} } }} { {"#,
                r#"{"a": {"b": 1}} {x} } }} { {"#,
            ),
            (r#"{{ "{{" }} a }}"#, "{{ a }}"),
            (r#"{{"{{"}}{{ a }}"#, "{{<a>"),
        ];
        for (text, expected) in table {
            assert_eq!(filled(text).unwrap(), expected);
        }
    }

    #[test]
    fn names_are_found_with_their_offsets() {
        let found = names("a {{ one }} b {{two}} {{ one }}").unwrap();
        let expected = [(5, "one"), (16, "two"), (25, "one")];
        assert_eq!(found, expected.map(|(at, name)| (at, name.to_owned())));
        assert_eq!(names("nothing } here }}").unwrap(), []);
    }

    #[test]
    fn malformed_placeholder_is_an_error_with_offset() {
        let unclosed = |offset| Error::Unclosed { offset };
        let no_name = |offset, found: &str| Error::InvalidName {
            offset,
            found: found.to_owned(),
        };
        let table = [
            ("ab {{", unclosed(3)),
            ("ab {{ name", unclosed(3)),
            ("ab {{ name }", unclosed(3)),
            ("{{ one {{ two }}", unclosed(0)),
            (r#"{{ "{{" "#, unclosed(0)),
            ("{{}}", no_name(2, "")),
            ("x {{ two words }}", no_name(5, "two words")),
            ("{{ a.b }}", no_name(3, "a.b")),
            ("Größe: {{ ä }}", no_name(12, "ä")),
            ("{{{ a }}}", no_name(2, "{ a")),
            (r#"{{ "x" }}"#, no_name(3, r#""x""#)),
            ("{{ $(id) }}", no_name(3, "$(id)")),
        ];
        for (text, expected) in table {
            assert_eq!(names(text), Err(expected.clone()), "{text}");
            assert_eq!(filled(text), Err(expected), "{text}");
        }
        let said = names("{{ a.b }}").unwrap_err().to_string();
        let expected = r#"`a.b` is not a name of letters, digits, `-` and `_`; write `{{ "{{" }}` for two braces"#;
        assert_eq!(said, expected);
    }

    #[test]
    fn unknown_name_is_an_error_with_offset() {
        let only_a = |name: &str| (name == "a").then(String::new);
        let error = fill("{{ a }}{{ b }}", &only_a).unwrap_err();
        assert_eq!(error.to_string(), "nothing is called `b` here");
        assert_eq!(error.offset(), 10);
    }

    #[test]
    fn filled_values_are_not_expanded_again() {
        let tricky = |name: &str| Some(if name == "a" { "{{ b }}" } else { "secret" }.to_owned());
        assert_eq!(fill("{{ a }}!", &tricky).unwrap(), "{{ b }}!");
        let half = |_: &str| Some("{".to_owned());
        assert_eq!(fill("{{ a }}{ b }}", &half).unwrap(), "{{ b }}");
    }

    #[test]
    fn oversized_result_is_an_error() {
        let mebibyte = "x".repeat(1024 * 1024);
        let text = "{{ a }}".repeat(16);
        let value = |_: &str| Some(mebibyte.clone());
        assert_eq!(fill(&text, &value).unwrap().len(), MAX_BYTES);
        let error = fill(&format!("{text}!"), &value).unwrap_err();
        assert_eq!(error, Error::TooLong { offset: text.len() });
    }

    proptest! {
        #[test]
        fn random_text_fills_or_errors_and_plain_text_is_kept(text in "[a{} \"é]{0,24}") {
            match filled(&text) {
                Ok(filled) if !text.contains(OPEN) => prop_assert_eq!(filled, text),
                Ok(_) => prop_assert!(names(&text).is_ok()),
                Err(error) => {
                    prop_assert!(text.is_char_boundary(error.offset()));
                    prop_assert_eq!(names(&text), Err(error));
                }
            }
        }

        #[test]
        fn any_text_can_be_written_with_escaped_braces(text in "[a{} \"é]{0,24}") {
            let written = text.replace(OPEN, "{{ \"{{\" }}");
            prop_assert_eq!(filled(&written), Ok(text));
        }
    }
}
