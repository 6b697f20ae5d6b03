//! The help text for the script syntax.

use super::fault_table::FAULTS;
use crate::reply::{AnswerKind, HintForm, Keyword, ProviderError};
use std::fmt::Write;

const NOTES: &str = "
PIECES are counted after the opening of the answer. A fault strikes once, N times, or with
times=always for ever; when all are over, the answers are of the kind `text`.

An agent takes each line `call NAME {arguments}` of the prompt for a step, and a line
`and NAME {arguments}` right after it for one more call of the same step; at the end it says the
lines `say TEXT` of the prompt, or without such what the tools said. To keep it after other faults:
overloaded:2+ok:agent,times=always
After a line `script:` of the system text, such lines are for the first prompt of the conversation,
whatever it says; after a line `then` for the second, and so on; the last are for all further ones.
Told to \"Judge whether a piece of work meets each of these criteria\", it finds a criterion met when
what stands in backticks in it occurs in the work, and answers with JSON.
Told by the system text to \"Summarise the conversation\", it counts the lines `| user:` and
`| assistant:` of the prompt and repeats the steps that are not answered there; a prompt that holds
such a summary is gone on with.

An answer that was begun is gone on with: after the assistant's own words at the end, or after a
user's message that begins with \"Your last answer was cut off\".

A Responses answer in background mode goes on whatever happens to its connection. The next fault
strikes whoever fetches its rest; error:404 there means that it is lost: drop-after:5+error:404
";

/// Returns the help text with all faults and keywords.
pub fn help() -> String {
    let mut help =
        String::from("Faults, joined by `+`; when all are over, every call is answered:\n");
    let usages: Vec<(String, &str)> = FAULTS.iter().map(|row| (row.usage(), row.help)).collect();
    append_rows(&mut help, &usages);
    let lists = [
        ("KIND of answer", keyword_rows(&AnswerKind::KEYWORDS)),
        (
            "HINT, where a rate limit says when it ends",
            keyword_rows(&HintForm::KEYWORDS),
        ),
        ("TROUBLE", keyword_rows(&ProviderError::KEYWORDS)),
    ];
    for (title, words) in lists {
        help.push_str(&format!("\n{title}:\n"));
        append_rows(&mut help, &words);
    }
    help.push_str(NOTES);
    help
}

fn keyword_rows<T>(words: &[Keyword<T>]) -> Vec<(String, &'static str)> {
    let words = words.iter();
    words
        .map(|(word, _, help)| ((*word).to_owned(), *help))
        .collect()
}

fn append_rows(help: &mut String, rows: &[(String, &str)]) {
    const WIDTH: usize = 40;
    for (name, text) in rows {
        // Writing to a string does not fail.
        match name.len() {
            0..=WIDTH => writeln!(help, "  {name:WIDTH$}  {text}").ok(),
            _ => writeln!(help, "  {name}\n  {:WIDTH$}  {text}", "").ok(),
        };
    }
}
