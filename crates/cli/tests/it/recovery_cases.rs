//! Checks the table of cases in `docs/recovery.md`: each case occurs once, and the named tests exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The groups of cases: a letter, and the first and the last number.
const GROUPS: [(char, u32, u32); 5] = [
    ('C', 30, 33),
    ('D', 1, 18),
    ('G', 1, 22),
    ('H', 1, 17),
    ('I', 1, 31),
];

/// Beginnings of rows that name no test.
const REASONS: [&str; 2] = ["does not apply: ", "not done: "];

fn repository() -> PathBuf {
    let app = Path::new(env!("CARGO_MANIFEST_DIR"));
    app.ancestors().nth(2).unwrap().to_owned()
}

/// Returns the columns of the table: the case, the required behaviour, and its tests.
fn rows(page: &str) -> Vec<[&str; 3]> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<[&str; 3]> {
    let cells: Vec<&str> = line
        .strip_prefix('|')?
        .strip_suffix('|')?
        .split('|')
        .collect();
    let [case, what, proof] = cells[..] else {
        return None;
    };
    let case = case.trim();
    let is_case = case.starts_with(|letter: char| letter.is_ascii_uppercase())
        && case[1..].parse::<u32>().is_ok();
    is_case.then(|| [case, what.trim(), proof.trim()])
}

/// Returns all test functions, each with the name of its file.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![repository().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let source = fs::read_to_string(&path).unwrap();
                found.extend(functions(&source).map(|name| format!("{file}::{name}")));
            }
        }
    }
    found
}

/// Returns the functions that follow a test attribute.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    let marks = ["#[test]", "#[tokio::test"];
    let mut is_next = false;
    source.lines().map(str::trim).filter_map(move |line| {
        is_next |= marks.iter().any(|mark| line.starts_with(mark));
        let line = line.strip_prefix("async ").unwrap_or(line);
        let name = line.strip_prefix("fn ").filter(|_| is_next)?;
        is_next = false;
        name.split('(').next()
    })
}

/// Returns the tests that a text names between backticks.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.contains("::"))
}

#[test]
fn every_recovery_case_is_listed_once() {
    let page = fs::read_to_string(repository().join("docs/recovery.md")).unwrap();
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for (letter, first, last) in GROUPS {
        times.extend((first..=last).map(|number| (format!("{letter}{number}"), 0)));
    }
    for [case, what, _] in rows(&page) {
        assert!(!what.is_empty(), "{case} says nothing");
        *times.entry(case.to_owned()).or_insert(0) += 1;
    }
    times.retain(|_, times| *times != 1);
    assert_eq!(times, BTreeMap::new(), "cases that are there so many times");
}

#[test]
fn every_recovery_case_names_existing_test_or_reason() {
    let page = fs::read_to_string(repository().join("docs/recovery.md")).unwrap();
    let tests = tests();
    let unknown: Vec<&str> = named(&page).filter(|name| !tests.contains(*name)).collect();
    assert_eq!(unknown, [""; 0], "tests that do not exist");
    for [case, _, proof] in rows(&page) {
        let is_explained = REASONS.iter().any(|reason| proof.starts_with(reason));
        assert!(
            named(proof).next().is_some() || is_explained,
            "{case}: {proof}"
        );
    }
}
