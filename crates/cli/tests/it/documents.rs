//! Checks that `ARCHITECTURE.md` and the decision pages name files and items that exist, and that the map stays short.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_MAP_LINES: usize = 250;

/// The folders with everything that the documents may name.
const FOLDERS: [&str; 7] = [
    "clients", "corpus", "crates", "docs", "fuzz", "scripts", "web",
];

/// Lists names that no longer exist.
const PAGE_OF_OLD_NAMES: &str = "0001-plain-names.md";

fn repository() -> PathBuf {
    let app = Path::new(env!("CARGO_MANIFEST_DIR"));
    app.ancestors().nth(2).unwrap().to_owned()
}

/// Adds the files and folders below `folder`, each with a `/` before its path in the repository.
fn collect_paths(folder: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        found.push(format!("/{path}"));
        if entry.path().is_dir() && !path.ends_with("node_modules") {
            collect_paths(&path, found);
        }
    }
}

fn paths() -> Vec<String> {
    let mut found: Vec<String> = ["Cargo.toml", "clippy.toml", "outlast.toml"]
        .map(|file| format!("/{file}"))
        .into();
    for folder in FOLDERS {
        found.push(format!("/{folder}"));
        collect_paths(folder, &mut found);
    }
    found
}

fn is_name_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns all words of the sources.
fn words(paths: &[String]) -> HashSet<String> {
    let is_source = |path: &&String| {
        [".rs", ".js", ".toml"]
            .iter()
            .any(|end| path.ends_with(end))
    };
    let mut found = HashSet::new();
    for path in paths.iter().filter(is_source) {
        // `outlast.toml` is a name, and no file of the repository.
        let source = fs::read_to_string(repository().join(&path[1..])).unwrap_or_default();
        for word in source.split(|letter| !is_name_part(letter)) {
            if !found.contains(word) {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

/// Returns the alternatives of `a/{b,c}.rs`.
fn alternatives(term: &str) -> Vec<String> {
    let parts = term.split_once('{').and_then(|(start, rest)| {
        let (middle, end) = rest.split_once('}')?;
        Some((start, middle, end))
    });
    let Some((start, middle, end)) = parts else {
        return vec![term.to_owned()];
    };
    let parts = middle.split(',');
    let each = parts.flat_map(|part| alternatives(&format!("{start}{}{end}", part.trim())));
    each.collect()
}

/// Returns the terms between backticks, outside of code blocks and without patterns.
fn terms(page: &str) -> Vec<String> {
    let text: String = page.split("```").step_by(2).collect();
    let quoted = text.split('`').skip(1).step_by(2);
    let named = quoted.filter(|term| !term.contains(['*', '…', '\n', ' ']) || term.contains('{'));
    named.flat_map(alternatives).collect()
}

/// Whether a term is a file or a folder that is missing, or an item that no source names.
fn is_unknown(term: &str, paths: &[String], words: &HashSet<String>) -> bool {
    let is_file = [".rs", ".js", ".md", ".toml"]
        .iter()
        .any(|end| term.ends_with(end));
    if is_file || term.ends_with('/') {
        let end = format!("/{}", term.trim_end_matches('/'));
        return !paths.iter().any(|path| path.ends_with(&end));
    }
    let parts: Vec<&str> = term.split("::").collect();
    let is_item = parts
        .iter()
        .all(|part| !part.is_empty() && part.chars().all(is_name_part));
    is_item && !words.contains(parts[parts.len() - 1])
}

#[test]
fn map_and_decisions_name_existing_files_and_items() {
    let paths = paths();
    let words = words(&paths);
    let mut pages = vec!["ARCHITECTURE.md".to_owned()];
    let decisions = paths
        .iter()
        .filter(|path| path.starts_with("/docs/decisions/0"));
    pages.extend(
        decisions
            .filter(|path| path.ends_with(".md"))
            .map(|path| path[1..].to_owned()),
    );
    pages.retain(|page| !page.ends_with(PAGE_OF_OLD_NAMES));
    let mut unknown = Vec::new();
    for page in pages {
        let text = fs::read_to_string(repository().join(&page)).unwrap();
        let terms = terms(&text).into_iter();
        let missing = terms.filter(|term| is_unknown(term, &paths, &words));
        unknown.extend(missing.map(|term| format!("{page}: {term}")));
    }
    assert!(
        unknown.is_empty(),
        "does not exist:\n{}",
        unknown.join("\n")
    );
}

#[test]
fn map_is_short() {
    let map = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let lines = map.lines().count();
    assert!(
        lines <= MAX_MAP_LINES,
        "ARCHITECTURE.md has {lines} lines, {MAX_MAP_LINES} at most: reasons belong in docs/decisions"
    );
}
