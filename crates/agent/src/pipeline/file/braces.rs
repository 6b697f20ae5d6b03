//! `{{ name }}` in a prompt, and where it may not stand.

use super::super::template;
use super::log::Log;
use super::names::nearest;
use super::{Placed, shown};
use std::collections::BTreeSet;

const OPEN: &str = "{{";
/// The most of what cannot be read that is looked for in the file, in characters.
const MOST_SOUGHT: usize = 20;

/// Notes names in braces that nothing stands behind. `offset` is where the text begins in the file.
pub(super) fn check(text: &Placed<String>, offset: usize, known: &[&str], log: &Log<'_>) {
    let value = text.value.as_str();
    let place_of = |piece: &str| log.find(piece, offset, text.place);
    let names = match template::names(value) {
        Ok(names) => names,
        Err(error) => {
            let rest = value.get(error.offset()..).unwrap_or_default();
            let piece: String = rest.chars().take(MOST_SOUGHT).collect();
            let place = place_of(piece.lines().next().unwrap_or(OPEN));
            log.fault(place, error.to_string());
            return;
        }
    };
    let mut noted = BTreeSet::new();
    for (at, name) in names {
        // Each name once, and none that nobody will read of: finding its place takes time.
        if !known.contains(&name.as_str()) && !log.is_full() && noted.insert(name.clone()) {
            let start = value[..at].rfind(OPEN).unwrap_or(at);
            let piece = &value[start..at + name.len()];
            log.fault(place_of(piece), unknown(&name, known));
        }
    }
}

fn unknown(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known.iter().copied());
    let near = near.map_or_else(
        || "; name it under `inputs` of the step or of the pipeline".to_owned(),
        |near| format!("; did you mean `{near}`?"),
    );
    format!("there is no input `{}`{near}", shown(name))
}

/// Notes braces in a command, into which nothing is ever filled.
pub(super) fn refuse(text: &Placed<String>, log: &Log<'_>) -> Option<()> {
    if !text.value.contains(OPEN) {
        return Some(());
    }
    let message = "a command is never filled in; name it under `inputs` and write \"$INPUT_NAME\", or read the file \"$INPUT_NAME_FILE\"";
    log.fault(text.place, message);
    None
}

/// Notes braces in what a person is asked.
pub(super) fn refuse_in_message(text: &Placed<String>, log: &Log<'_>) {
    if text.value.contains(OPEN) {
        log.fault(
            text.place,
            "a message is shown as it is; only prompts have `{{ }}`",
        );
    }
}
