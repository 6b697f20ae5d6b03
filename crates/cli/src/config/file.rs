//! Reads one `outlast.toml` and checks every key against the table of settings.

use super::key::Key;
use super::problem::{LineIndex, Problem, Problems};
use super::renamed::Renamed;
use super::value::{RawValue, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const MAX_FILE_BYTES: u64 = 1 << 20;
/// The largest number of problems that get a suggestion: nobody reads more.
const MAX_SUGGESTIONS: usize = 1000;

/// A setting in a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    pub(crate) line: usize,
    /// Set if the file uses the old name of the setting.
    pub(crate) renamed: Option<&'static Renamed>,
}

impl Entry {
    /// Returns a notice with its location if the given file uses the old name of the setting.
    pub(crate) fn notice(&self, file: &Path) -> Option<String> {
        let (file, line, notice) = (file.display(), self.line, self.renamed?.notice());
        Some(format!("{file}:{line}: {notice}"))
    }
}

pub(crate) type Entries = BTreeMap<Key, Entry>;

/// Returns every setting of the file, or all of its problems.
pub(crate) fn read(path: &Path) -> Result<Entries, Problems> {
    let text = contents(path).map_err(|text| {
        Problems(vec![Problem {
            location: path.display().to_string(),
            key: None,
            text,
        }])
    })?;
    parse(path, &text)
}

/// Returns the text of a small file; an error for anything else.
fn contents(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    // Checked before it is opened: opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {} MiB", MAX_FILE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        format!("is not UTF-8 text (line {line})")
    })
}

fn parse(path: &Path, text: &str) -> Result<Entries, Problems> {
    let mut walk = TableWalker {
        path,
        lines: LineIndex::new(text),
        entries: Entries::new(),
        problems: Vec::new(),
    };
    match DeTable::parse(text) {
        Ok(table) => walk.table(&Key::default(), table.get_ref()),
        // The message quotes nothing of the file; its `Display` would.
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            walk.problem(at, None, format!("is not TOML: {}", error.message()));
        }
    }
    if walk.problems.is_empty() {
        return Ok(walk.entries);
    }
    walk.problems.sort_by_key(|(at, _)| *at);
    Err(Problems(
        walk.problems
            .into_iter()
            .map(|(_, problem)| problem)
            .collect(),
    ))
}

struct TableWalker<'a> {
    path: &'a Path,
    lines: LineIndex<'a>,
    entries: Entries,
    problems: Vec<(usize, Problem)>,
}

impl TableWalker<'_> {
    fn table(&mut self, parent: &Key, table: &DeTable<'_>) {
        for (word, value) in table {
            let (key, renamed) = Renamed::resolve(parent.child(word.get_ref()));
            let at = word.span().start;
            match (key.setting(), value.get_ref()) {
                (Some(_), _) => self.setting(key, renamed, at, value),
                (None, _) if key.is_list() => self.list(&key, value),
                (None, DeValue::Table(table)) if key.is_table() => self.table(&key, table),
                (None, other) if key.is_table() => {
                    let found = RawValue::from_toml(other).type_name();
                    let text = format!("expected a table of {}, found {found}", key.expected());
                    self.problem(value.span().start, Some(key), text);
                }
                (None, _) => {
                    let text = if self.problems.len() < MAX_SUGGESTIONS {
                        unknown_key_message(parent, word.get_ref())
                    } else {
                        "there is no such setting".to_owned()
                    };
                    self.problem(at, Some(key), text);
                }
            }
        }
    }

    /// Reads a list of unnamed tables, which are numbered.
    fn list(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) {
        let not_one =
            |found: &str| format!("expected tables that begin with [[{key}]], found {found}");
        let DeValue::Array(list) = value.get_ref() else {
            let found = not_one(RawValue::from_toml(value.get_ref()).type_name());
            return self.problem(value.span().start, Some(key.clone()), found);
        };
        for (index, element) in list.iter().enumerate() {
            let key = key.child(&(index + 1).to_string());
            let at = element.span().start;
            let DeValue::Table(table) = element.get_ref() else {
                let found = not_one(RawValue::from_toml(element.get_ref()).type_name());
                self.problem(at, Some(key), found);
                continue;
            };
            self.table(&key, table);
            for word in key.required() {
                if !table.iter().any(|(other, _)| other.get_ref() == word) {
                    self.problem(at, Some(key.clone()), format!("`{word}` is missing"));
                }
            }
        }
    }

    /// Reads the value of a setting; `renamed` is set if the file uses its old name.
    fn setting(
        &mut self,
        key: Key,
        renamed: Option<&'static Renamed>,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        let Some(setting) = key.setting() else {
            return;
        };
        let name = |renamed: Option<&Renamed>| match renamed {
            Some(renamed) => Key::from_path(renamed.old),
            None => key.clone(),
        };
        let line = self.lines.position(at).0;
        if let Some(first) = self.entries.get(&key) {
            let mut text = format!("is set twice; also on line {}", first.line);
            if first.renamed != renamed {
                text += &format!(" as `{}`", name(first.renamed));
            }
            return self.problem(at, Some(name(renamed)), text);
        }
        match Value::parse(setting.kind, RawValue::from_toml(value.get_ref())) {
            Ok(value) => {
                let entry = Entry {
                    value,
                    line,
                    renamed,
                };
                self.entries.insert(key, entry);
            }
            Err(text) => self.problem(value.span().start, Some(name(renamed)), text),
        }
    }

    fn problem(&mut self, at: usize, key: Option<Key>, text: String) {
        let (line, column) = self.lines.position(at);
        let location = format!("{}:{line}:{column}", self.path.display());
        let problem = Problem {
            location,
            key,
            text,
        };
        self.problems.push((at, problem));
    }
}

fn unknown_key_message(parent: &Key, word: &str) -> String {
    let near = parent
        .closest_key(word)
        .map_or(String::new(), |key| format!("; did you mean `{key}`?"));
    format!(
        "there is no such setting; allowed here: {}{near}",
        parent.expected()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse(Path::new("f"), text).map_or_else(|problems| problems.lines(), |_| Vec::new())
    }

    #[test]
    fn all_problems_are_reported_in_the_order_of_the_file() {
        let text = "zebra = 1\nmodel = 5\n[retry]\npolicy = \"overnite\"\n[alpha]\nx = 1\n";
        let found = problems(text);
        let places: Vec<&str> = found
            .iter()
            .filter_map(|line| line.split(": ").next())
            .collect();
        assert_eq!(places, ["f:1:1", "f:2:9", "f:4:10", "f:5:2"]);
    }

    #[test]
    fn same_header_in_two_cases_is_an_error() {
        let text = "[providers.openai.headers]\nX-Team = \"a\"\nx-team = \"b\"\n";
        assert_eq!(
            problems(text),
            ["f:3:1: providers.openai.headers.x-team: is set twice; also on line 2"]
        );
    }

    #[test]
    fn old_and_new_name_in_one_file_are_an_error() {
        let one = "[recovery]\nodd_answers = true\nretry_unusable_responses = true\n";
        let other = "recovery.retry_unusable_responses = true\nrecovery.odd_answers = true\n";
        for text in [one, other] {
            let [problem] = &problems(text)[..] else {
                panic!("{text}");
            };
            assert!(problem.contains("is set twice; also on line "), "{problem}");
            for name in ["odd_answers", "retry_unusable_responses"] {
                assert!(problem.contains(&format!("recovery.{name}")), "{problem}");
            }
        }
    }

    #[test]
    fn invalid_value_is_reported_under_the_name_in_the_file() {
        assert_eq!(
            problems("recovery.odd_answers = 1\n"),
            ["f:1:24: recovery.odd_answers: expected true or false, found a number"]
        );
    }

    #[test]
    fn problems_beyond_limit_are_counted() {
        let text: String = (0..60).map(|n| format!("zebra{n} = 1\n")).collect();
        assert_eq!(
            problems(&text).last().map(String::as_str),
            Some("and 10 more problems")
        );
    }
}
