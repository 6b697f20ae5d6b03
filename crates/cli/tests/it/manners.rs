//! The conventions of the command line, for every command: help, examples, completions, manual, errors, `--quiet`.
//!
//! The list of commands is read from the help texts, so that a new command is checked as well.

mod completions;
mod examples;
mod manual;
mod quiet;
mod remedies;
mod stage;
mod terminal;

use crate::support::Outlast;
use std::collections::BTreeMap;

/// Wide enough that no line is wrapped.
const WIDE: &str = "400";
/// Maximum width of a line of examples, in columns.
const MAX_COLUMNS: usize = 110;

/// A command by its names, such as `gateway`, `run`, and its help text.
struct Help {
    names: Vec<String>,
    text: String,
}

impl Help {
    fn of(names: &[&str]) -> Self {
        let outlast = Outlast::new();
        let ran = outlast.run_with(&[names, &["--help"]].concat(), &[("COLUMNS", WIDE)]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{names:?}");
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            text: ran.stdout,
        }
    }

    /// Returns the full command line, with the program's own name.
    fn title(&self) -> String {
        let names = self.names.iter().map(String::as_str);
        let names: Vec<&str> = std::iter::once("outlast").chain(names).collect();
        names.join(" ")
    }

    /// Returns the lines of a section, such as `Commands`, without their indentation.
    fn section(&self, name: &str) -> Vec<&str> {
        let lines = self.text.lines();
        let mut lines = lines.skip_while(|line| line.strip_suffix(':') != Some(name));
        lines.next();
        let own = lines.take_while(|line| line.starts_with("  "));
        own.map(str::trim).collect()
    }

    /// Returns its subcommands, without the one that only prints help.
    fn commands(&self) -> Vec<&str> {
        let lines = self.section("Commands").into_iter();
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").collect()
    }

    fn examples(&self) -> Vec<&str> {
        self.section("Examples")
    }

    /// Returns every option in its help, such as `--json`.
    fn options(&self) -> Vec<&str> {
        let lines = self.text.lines().map(str::trim_start);
        let lines = lines.take_while(|line| *line != "Examples:");
        let words = lines
            .filter(|line| line.starts_with('-'))
            .flat_map(|line| line.split([' ', ',']));
        words.filter(|word| word.starts_with("--")).collect()
    }
}

/// Returns every command, each before its subcommands.
fn all() -> Vec<Help> {
    fn walk(help: Help, all: &mut Vec<Help>) {
        let names: Vec<String> = help.commands().into_iter().map(str::to_owned).collect();
        let before = help.names.clone();
        all.push(help);
        for name in names {
            let names: Vec<&str> = before.iter().chain([&name]).map(String::as_str).collect();
            walk(Help::of(&names), all);
        }
    }
    let mut found = Vec::new();
    walk(Help::of(&[]), &mut found);
    found
}

#[test]
fn every_help_ends_with_examples() {
    let all = all();
    assert!(all.len() > 35, "{} commands", all.len());
    for help in &all {
        let title = help.title();
        let examples = help.examples();
        assert!(!examples.is_empty(), "{title} has no examples");
        let last = help.text.trim_end().lines().last().map(str::trim);
        let is_last = last == examples.last().copied();
        assert!(is_last, "{title}: the examples do not come last");
        for example in examples {
            assert!(example.contains("outlast") || example.starts_with("curl "));
            let columns = example.chars().count() + 2;
            assert!(columns <= MAX_COLUMNS, "{title}: {example}");
        }
    }
}

#[test]
fn every_help_text_matches_its_snapshot() {
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    for help in all() {
        let family = help.names.first().map_or("outlast", String::as_str);
        let names: Vec<&str> = help.names.iter().map(String::as_str).collect();
        // At the default width, for a terminal of unknown size.
        let shown = Outlast::new().run(&[&names, &["--help"][..]].concat());
        let text = format!("$ {} --help\n{}\n", help.title(), shown.stdout);
        *families.entry(family.to_owned()).or_default() += &text;
    }
    for (family, text) in families {
        insta::assert_snapshot!(format!("help_{family}"), text);
    }
}

#[test]
fn the_short_help_has_the_examples_too() {
    let short = Outlast::new().run(&["gateway", "-h"]);
    assert_eq!(short.code, 0);
    assert!(short.stdout.contains("\nExamples:\n"), "{}", short.stdout);
}
