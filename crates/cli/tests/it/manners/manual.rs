//! `outlast man`: a page for every command, valid for a formatter, with every option and section.

use super::all;
use crate::support::{CommandResult, Outlast};
use std::path::Path;
use std::process::Command;

/// Returns the warnings of the formatters for a page. One of them must be installed.
fn complaints(page: &Path) -> String {
    let page = page.to_str().unwrap();
    let mut checks = [
        ("groff", vec!["-man", "-ww", "-z", page]),
        ("mandoc", vec!["-T", "lint", "-W", "error", page]),
    ]
    .map(|(program, arguments)| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    });
    let said = checks.iter_mut().filter_map(|check| {
        let output = check.output().ok()?;
        Some(CommandResult::from(output))
    });
    let said: Vec<CommandResult> = said.collect();
    assert!(
        !said.is_empty(),
        "neither groff nor mandoc is here; `scripts/test` installs groff"
    );
    said.into_iter()
        .map(|ran| ran.stdout + &ran.stderr)
        .collect()
}

/// Returns the page as text, without markup.
fn words(page: &str) -> String {
    page.replace("\\-", "-")
        .replace("\\fB", "")
        .replace("\\fI", "")
        .replace("\\fR", "")
        .replace("\\*(Aq", "'")
        .replace("\\\\", "\\")
}

#[test]
fn every_man_page_covers_options_and_examples_of_help() {
    let outlast = Outlast::new();
    let ran = outlast.run(&["man", "--out", "share/man/man1"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "", "")
    );
    let folder = outlast.folder.path().join("share/man/man1");
    let mut expected = Vec::new();
    for help in all() {
        let name = format!("{}.1", help.title().replace(' ', "-"));
        let page = std::fs::read_to_string(folder.join(&name)).unwrap();
        assert_eq!(complaints(&folder.join(&name)), "", "{name}");
        let words = words(&page);
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXTRA"] {
            assert_eq!(
                words.matches(&format!(".SH {section}\n")).count(),
                1,
                "{name} {section}"
            );
        }
        for option in help.options() {
            assert!(words.contains(option), "{name} lacks {option}");
        }
        for command in help.commands() {
            assert!(words.contains(&format!("{}-{command}(1)", name.trim_end_matches(".1"))));
        }
        let (_, examples) = words.split_once("\nExamples:\n").unwrap();
        for example in help.examples() {
            assert!(examples.contains(example), "{name} lacks {example}");
        }
        expected.push(name);
    }
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut found: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn man_prints_page_to_stdout() {
    let outlast = Outlast::new();
    let own = outlast.run(&["man"]);
    assert_eq!((own.code, own.stderr.as_str()), (0, ""));
    assert!(own.stdout.contains(".TH OUTLAST 1 "), "{}", own.stdout);
    for code in ["0", "1", "2", "3", "4", "130"] {
        assert!(own.stdout.contains(&format!("\n  {code}  ")), "{code}");
    }
    let other = outlast.run(&["man", "gateway", "run"]);
    let page = other.stdout.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!("page_gateway_run", page);
    let unknown = outlast.run(&["man", "gateway", "walk"]);
    assert_eq!(
        (unknown.code, unknown.stderr.as_str()),
        (
            2,
            "error: there is no command `outlast gateway walk`; `outlast --help` lists all\n"
        )
    );
}

#[test]
fn man_reports_unwritable_folder() {
    let outlast = Outlast::new();
    outlast.write("file", "");
    let ran = outlast.run(&["man", "--out", "file/man1"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.starts_with(
            "error: cannot make the folder file/man1; name a folder that you can write to: "
        ),
        "{}",
        ran.stderr
    );
}
