//! Holds the code to its own style: plain names, comments that name their subject, small files, folders that one can survey.
//!
//! `docs/glossary.md` has the names to use instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Type names that say nothing by themselves, from the glossary of names not to use.
const BANNED_TYPES: [&str; 24] = [
    "Answered",
    "Asked",
    "Came",
    "Course",
    "Desk",
    "Doing",
    "Given",
    "Heard",
    "House",
    "Kept",
    "Knowledge",
    "Lane",
    "Letter",
    "News",
    "Odd",
    "Place",
    "Said",
    "Scribe",
    "Seat",
    "Standing",
    "Told",
    "Trouble",
    "Voice",
    "What",
];

/// Module names from the glossary of names not to use.
const BANNED_MODULES: [&str; 28] = [
    "alarms",
    "around",
    "asked",
    "assemble",
    "desk",
    "ends",
    "failing",
    "given",
    "house",
    "in_band",
    "keeping",
    "kept",
    "knowledge",
    "known",
    "lane",
    "letters",
    "notice",
    "odd",
    "passing",
    "reach",
    "room",
    "rooms",
    "said",
    "scribe",
    "seats",
    "standing",
    "voice",
    "working",
];

/// Parts of function and constant names from the glossary of names not to use.
const BANNED_PARTS: [&str; 6] = [
    "in_vain",
    "take_up",
    "taken_up",
    "too_dear",
    "said_held",
    "stand_in_line",
];

/// Prefixes of constants: `MAX_` and `MIN_` say the same.
const BANNED_PREFIXES: [&str; 4] = ["MOST_", "LEAST_", "LONGEST_", "SHORTEST_"];

/// Files and folders (by how their path begins) that later changes replace: their prose comes with the new code. Remove a line with its file.
const TO_BE_REWRITTEN: [&str; 41] = [
    "cli/src/commands/compact.rs",
    "cli/src/commands/demo",
    "cli/src/commands/prompt.rs",
    "cli/src/commands/resume.rs",
    "cli/src/config/kind.rs",
    "cli/src/config/schema.rs",
    "cli/src/config/settings.rs",
    "cli/src/config/value.rs",
    "cli/src/factory/run_host.rs",
    "cli/src/factory/session.rs",
    "cli/src/factory/session_host",
    "cli/src/factory/session_lookup.rs",
    "cli/src/output/deliver.rs",
    "cli/src/output/run_view",
    "cli/src/output/watcher.rs",
    "cli/src/tui/driver",
    "engine/src/admission.rs",
    "engine/src/provider/response.rs",
    "engine/src/shared_state",
    "engine/src/turn",
    "engine/tests/it/gate.rs",
    "gateway/src/call",
    "gateway/src/finish.rs",
    "gateway/src/relay.rs",
    "kernel/src/gate",
    "mock/src/simulation",
    "pipeline/src/file",
    "pipeline/src/report/axis.rs",
    "pipeline/src/report/drawing.rs",
    "pipeline/src/report/timeline.rs",
    "pipeline/src/step/prompt.rs",
    "serve/src/http/gateways.rs",
    "serve/src/live_sessions",
    "serve/src/native/event_buffer.rs",
    "serve/src/native/log.rs",
    "serve/src/rpc/command_queue.rs",
    "serve/src/rpc/control.rs",
    "serve/src/rpc/run.rs",
    "serve/src/rpc/session_state.rs",
    "store/src/gates.rs",
    "store/src/queue.rs",
];

/// Beginnings of test names that hide the subject.
const HIDDEN_SUBJECTS: [&str; 5] = ["what_", "whatever_", "where_", "who_", "whoever_"];

const MAX_TEST_NAME: usize = 64;
const MAX_COMMENTS_WITHOUT_SUBJECT: usize = 20;
const MAX_TUPLE_PARAMETERS: usize = 10;
const MAX_LINES: usize = 500;
const MAX_MODULES_IN_FOLDER: usize = 20;

/// A line in the header of a file over the limit that begins like this gives the reason.
const REASON_FOR_LENGTH: &str = "//! Long because";

struct Source {
    /// Relative to `crates/`.
    path: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        let stem = self.path.trim_end_matches(".rs");
        stem.split('/')
            .any(|part| part == "tests" || part.ends_with("_tests"))
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Rust files below `crates/`.
fn sources() -> Vec<Source> {
    let root = crates();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path
                    .strip_prefix(&root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// All files but those that will be rewritten.
fn sources_in_plain_language() -> Vec<Source> {
    let mut sources = sources();
    sources.retain(|source| {
        !TO_BE_REWRITTEN
            .iter()
            .any(|file| source.path.starts_with(file))
    });
    sources
}

/// The lines that offend, as `path:line: text`.
fn offenders(sources: &[Source], offends: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            if offends(line) {
                found.push(format!("{}:{}: {}", source.path, index + 1, line.trim()));
            }
        }
    }
    found
}

/// The name that a line defines after one of these keywords.
fn defined<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| keywords.contains(word))?;
    let name = words.next()?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

fn has_banned_name(line: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") {
        return false;
    }
    let head = code.split(['(', '=', '{', '"']).next().unwrap_or_default();
    defined(head, &["struct", "enum", "trait", "type"])
        .is_some_and(|name| BANNED_TYPES.contains(&name))
        || defined(head, &["mod"]).is_some_and(|name| BANNED_MODULES.contains(&name))
        || defined(head, &["fn"])
            .is_some_and(|name| BANNED_PARTS.iter().any(|part| name.contains(part)))
        || defined(head, &["const", "static"]).is_some_and(|name| {
            BANNED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
}

#[test]
fn names_come_from_the_glossary() {
    let found = offenders(&sources(), has_banned_name);
    assert!(
        found.is_empty(),
        "see docs/glossary.md:\n{}",
        found.join("\n")
    );
}

/// Whether a line defines a function whose name hides its subject or is too long to read in a list.
fn has_unreadable_test_name(line: &str) -> bool {
    let code = line.trim_start();
    let code = code.strip_prefix("async ").unwrap_or(code);
    let Some(rest) = code.strip_prefix("fn ") else {
        return false;
    };
    let name = rest.split('(').next().unwrap_or_default();
    HIDDEN_SUBJECTS.iter().any(|start| name.starts_with(start)) || name.len() > MAX_TEST_NAME
}

#[test]
fn test_names_begin_with_their_subject() {
    let found = offenders(&sources_in_plain_language(), has_unreadable_test_name);
    assert!(
        found.is_empty(),
        "subject, condition, result, in at most {MAX_TEST_NAME} characters:\n{}",
        found.join("\n")
    );
}

/// Whether a comment begins with a subject that hides the actor: what, who, whoever, that which.
fn hides_its_subject(line: &str) -> bool {
    let line = line.trim_start();
    let Some(comment) = line.strip_prefix("//") else {
        return false;
    };
    let comment = comment.trim_start_matches(['/', '!']).trim_start();
    let is_question = comment.ends_with('?');
    !is_question
        && ["What ", "Who ", "Whoever ", "That which "]
            .iter()
            .any(|subject| comment.starts_with(subject))
}

#[test]
fn comments_name_their_subject() {
    let found = offenders(&sources_in_plain_language(), hides_its_subject);
    assert!(
        found.len() <= MAX_COMMENTS_WITHOUT_SUBJECT,
        "{} comments begin with what, who or whoever:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Whether a line is, or has, a parameter that takes a tuple apart: `(a, b): (A, B)`.
fn has_tuple_parameter(line: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") || code.starts_with("let ") || code.starts_with("for ") {
        return false;
    }
    code.match_indices("): (").any(|(end, _)| {
        let Some(start) = code[..end].rfind('(') else {
            return false;
        };
        let names = &code[start + 1..end];
        let is_list = names.contains(", ")
            && names.chars().all(|letter| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_, ".contains(letter)
            });
        is_list && !code[..start].ends_with('|')
    })
}

#[test]
fn tuple_parameters_stay_within_limit() {
    let found = offenders(&sources(), has_tuple_parameter);
    assert!(
        found.len() <= MAX_TUPLE_PARAMETERS,
        "{} parameters take a tuple apart; up to six plain ones are fine:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// The number of lines before the inline tests.
fn length(text: &str) -> usize {
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .count()
}

#[test]
fn files_are_short_or_say_why_not() {
    let is_too_long = |source: &Source| {
        source.path.contains("/src/")
            && !source.is_test()
            && length(&source.text) > MAX_LINES
            && !source
                .text
                .lines()
                .any(|line| line.starts_with(REASON_FOR_LENGTH))
    };
    let sources = sources();
    let found: Vec<&str> = sources
        .iter()
        .filter(|source| is_too_long(source))
        .map(|source| &*source.path)
        .collect();
    assert!(
        found.is_empty(),
        "over {MAX_LINES} lines, without a reason in the header: {found:?}"
    );
}

#[test]
fn folders_stay_within_module_limit() {
    let mut modules: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources() {
        let Some((folder, name)) = source.path.rsplit_once('/') else {
            continue;
        };
        let is_counted =
            folder.contains("/src") && !source.is_test() && !["lib.rs", "main.rs"].contains(&name);
        if is_counted && !folder.ends_with("/commands") {
            *modules.entry(folder.to_owned()).or_default() += 1;
        }
    }
    modules.retain(|_, count| *count > MAX_MODULES_IN_FOLDER);
    assert!(
        modules.is_empty(),
        "more than {MAX_MODULES_IN_FOLDER} modules side by side: {modules:?}"
    );
}
