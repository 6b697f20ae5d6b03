//! What can be written in a script, in words.

use super::table::ROWS;
use crate::reply::{HintForm, Kind, Trouble, Word};
use std::fmt::Write;

/// All faults and their words, for a command's help.
pub fn help() -> String {
    let mut help =
        String::from("Faults, joined by `+`; when all are over, every call is answered:\n");
    let usages: Vec<(String, &str)> = ROWS.iter().map(|row| (row.usage(), row.help)).collect();
    list(&mut help, &usages);
    let lists = [
        ("KIND of answer", words(&Kind::WORDS)),
        (
            "HINT, where a rate limit says when it ends",
            words(&HintForm::WORDS),
        ),
        ("TROUBLE", words(&Trouble::WORDS)),
    ];
    for (title, words) in lists {
        help.push_str(&format!("\n{title}:\n"));
        list(&mut help, &words);
    }
    help.push_str(
        "\nPIECES are counted after the opening of the answer. times=always never ends.\n",
    );
    help
}

fn words<T>(words: &[Word<T>]) -> Vec<(String, &'static str)> {
    let words = words.iter();
    words
        .map(|(word, _, help)| ((*word).to_owned(), *help))
        .collect()
}

fn list(help: &mut String, rows: &[(String, &str)]) {
    const WIDTH: usize = 40;
    for (name, text) in rows {
        // Writing to a string does not fail.
        match name.len() {
            0..=WIDTH => writeln!(help, "  {name:WIDTH$}  {text}").ok(),
            _ => writeln!(help, "  {name}\n  {:WIDTH$}  {text}", "").ok(),
        };
    }
}
