//! The key of a setting: its path with every name filled in, and its entry in the table of settings.

use super::table::{Placeholder, Setting, settings};
use outlast_kernel::text;
use std::fmt;

/// The segment of a path that stands for the index in a list of tables.
const LIST_INDEX: &str = "<number>";
/// The longest word of a key that is shown, in bytes.
const MAX_SHOWN_LENGTH: usize = 80;

/// A path in a file. Its names may hold dots, so it is a list of segments and not one text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Vec<String>);

impl Key {
    /// Returns the key of a path without placeholders.
    pub(crate) fn from_path(path: &str) -> Self {
        Self(path.split('.').map(str::to_owned).collect())
    }

    /// Returns the key of a path with the given name for its placeholder.
    pub(crate) fn with_name(path: &str, name: &str) -> Self {
        let fill = |segment: &str| match Placeholder::parse(segment) {
            Some(_) => name.to_owned(),
            None => segment.to_owned(),
        };
        Self(path.split('.').map(fill).collect())
    }

    pub(crate) fn child(&self, word: &str) -> Self {
        let mut words = self.0.clone();
        words.push(word.to_owned());
        // The names of headers are the same in any case.
        if self.next_segments().any(|segment| segment == "<header>") {
            words
                .last_mut()
                .into_iter()
                .for_each(|word| word.make_ascii_lowercase());
        }
        Self(words)
    }

    /// Returns the key of a path below this one.
    pub(crate) fn below(&self, path: &str) -> Self {
        let words = path.split('.').filter(|word| !word.is_empty());
        let all = self.0.iter().cloned().chain(words.map(str::to_owned));
        Self(all.collect())
    }

    /// Returns the word that follows the given path, if the key is below that.
    pub(crate) fn name_below(&self, path: &str) -> Option<&str> {
        let mut words = self.0.iter();
        let begins = path
            .split('.')
            .all(|word| words.next().is_some_and(|own| own == word));
        words.next().filter(|_| begins).map(String::as_str)
    }

    pub(crate) fn last(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// Reports whether the key is directly in the given table.
    pub(crate) fn is_directly_in(&self, table: &Self) -> bool {
        self.0
            .split_last()
            .is_some_and(|(_, words)| words == table.0)
    }

    /// Returns the setting with this key.
    pub(crate) fn setting(&self) -> Option<&'static Setting> {
        self.settings_below()
            .find(|setting| setting.segments().count() == self.0.len())
    }

    /// Reports whether this is a table of settings.
    pub(crate) fn is_table(&self) -> bool {
        self.next_segments().next().is_some()
    }

    /// Reports whether this is a list of tables of settings.
    pub(crate) fn is_list(&self) -> bool {
        self.next_segments().any(|segment| segment == LIST_INDEX)
    }

    /// Returns the required settings of this table of a list.
    pub(crate) fn required(&self) -> impl Iterator<Item = &'static str> {
        let required = self.settings_below().filter(|setting| setting.required);
        required.filter_map(|setting| setting.segments().nth(self.0.len()))
    }

    /// Returns the index in a list of tables, if the key is in one.
    pub(crate) fn list_index(&self) -> Option<u32> {
        self.0[self.list_index_position()?].parse().ok()
    }

    /// Returns the key moved down by that many places in its list, if it is in one.
    pub(crate) fn shifted_by(mut self, places: u32) -> Self {
        if let (Some(at), Some(number)) = (self.list_index_position(), self.list_index()) {
            self.0[at] = number.saturating_add(places).to_string();
        }
        self
    }

    fn list_index_position(&self) -> Option<usize> {
        self.setting()?
            .segments()
            .position(|segment| segment == LIST_INDEX)
    }

    /// Returns the settings with this key or below it.
    fn settings_below(&self) -> impl Iterator<Item = &'static Setting> {
        settings().filter(|setting| {
            let mut segments = setting.segments();
            self.0.iter().all(|word| {
                segments
                    .next()
                    .is_some_and(|segment| segment_matches(segment, word))
            })
        })
    }

    /// Returns the segments that may follow, as the table has them.
    fn next_segments(&self) -> impl Iterator<Item = &'static str> {
        self.settings_below()
            .filter_map(|setting| setting.segments().nth(self.0.len()))
    }

    /// Returns the segments that may follow, in words.
    pub(crate) fn expected(&self) -> String {
        let mut words: Vec<String> = self
            .next_segments()
            .map(|segment| {
                Placeholder::parse(segment)
                    .map_or_else(|| segment.to_owned(), Placeholder::expected)
            })
            .collect();
        words.dedup();
        words.join(", ")
    }

    /// Returns the key that was probably meant by a word that may not follow here.
    pub(crate) fn closest_key(&self, word: &str) -> Option<Self> {
        let siblings = self
            .next_segments()
            .flat_map(|segment| match Placeholder::parse(segment) {
                Some(free) => free.names().to_vec(),
                None => vec![segment],
            });
        if let Some(near) = closest_word(word, siblings) {
            return Some(self.child(near));
        }
        // Elsewhere only the exact word counts: `policy` is `retry.policy`.
        let elsewhere = settings()
            .find(|setting| !setting.has_free_name() && setting.segments().last() == Some(word));
        elsewhere.map(|setting| Self::from_path(setting.path))
    }
}

fn segment_matches(segment: &str, word: &str) -> bool {
    Placeholder::parse(segment).map_or(segment == word, |free| free.accepts(word))
}

/// Returns the word of a list that the given word is a misspelling of.
pub(crate) fn closest_word<'a>(
    word: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if word.len() > MAX_SHOWN_LENGTH {
        return None;
    }
    let word = word.to_lowercase();
    words
        .into_iter()
        .map(|other| (strsim::damerau_levenshtein(&word, other), other))
        .filter(|(distance, other)| *distance <= (other.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// Makes a word from outside safe to show: short and without anything that looks like a secret key.
pub(crate) fn sanitized(word: &str) -> String {
    let clean = text::plain(word);
    text::bounded(&text::without_secrets(&clean), MAX_SHOWN_LENGTH).replace('\n', " ")
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().enumerate() {
            let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let dot = if index == 0 { "" } else { "." };
            let word = sanitized(word);
            if !word.is_empty() && word.chars().all(bare) {
                write!(f, "{dot}{word}")?;
            } else {
                write!(f, "{dot}\"{word}\"")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[&str]) -> Key {
        words
            .iter()
            .fold(Key::default(), |key, word| key.child(word))
    }

    #[test]
    fn key_matches_setting_by_pattern() {
        let table: [(&[&str], Option<&str>); 6] = [
            (&["model"], Some("model")),
            (
                &["models", "llama3.1:8b", "timeouts", "idle"],
                Some("models.<model>.timeouts.idle"),
            ),
            (
                &["providers", "openai", "headers", "X-Team"],
                Some("providers.<provider>.headers.<header>"),
            ),
            (&["providers", "nobody", "api_key"], None),
            (&["providers", "openai", "headers", "no spaces"], None),
            (&["retry"], None),
        ];
        for (words, path) in table {
            assert_eq!(
                key(words).setting().map(|setting| setting.path),
                path,
                "{words:?}"
            );
        }
        assert!(key(&["retry"]).is_table() && !key(&["model"]).is_table());
    }

    #[test]
    fn key_display_quotes_dotted_names_and_lowercases_headers() {
        let long = key(&["models", "llama3.1:8b", "timeouts", "idle"]);
        assert_eq!(long.to_string(), "models.\"llama3.1:8b\".timeouts.idle");
        let header = key(&["providers", "openai", "headers", "X-Team"]);
        assert_eq!(header.to_string(), "providers.openai.headers.x-team");
    }

    #[test]
    fn misspelled_key_suggests_closest_setting() {
        let table: [(&[&str], &str, Option<&str>); 7] = [
            (&[], "modle", Some("model")),
            (&[], "maxTokens", Some("max_tokens")),
            (&[], "policy", Some("retry.policy")),
            (&["retry"], "polcy", Some("retry.policy")),
            (&["providers"], "antropic", Some("providers.anthropic")),
            (
                &["providers", "openai"],
                "baseUrl",
                Some("providers.openai.base_url"),
            ),
            (&[], "colour", None),
        ];
        for (words, word, meant) in table {
            let near = key(words).closest_key(word).map(|key| key.to_string());
            assert_eq!(near.as_deref(), meant, "{words:?} {word}");
        }
    }
}
