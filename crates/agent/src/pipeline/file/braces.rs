//! `{{ name }}` in a prompt, and where it may not stand.

use super::log::Log;
use super::names::nearest;
use super::{Placed, shown};
use std::collections::BTreeSet;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
/// How a pair of braces is written that is meant as such.
const LITERAL: &str = "\"{{\"";

/// Notes names in braces that nothing stands behind. `offset` is where the text begins in the file.
pub(super) fn check(text: &Placed<String>, offset: usize, known: &[&str], log: &Log<'_>) {
    let mut rest = text.value.as_str();
    let mut noted = BTreeSet::new();
    while let Some(start) = rest.find(OPEN) {
        let inside = &rest[start + OPEN.len()..];
        let place_of = |piece: &str| log.find(piece, offset, text.place);
        // The literal has braces of its own.
        let trimmed = inside.trim_start();
        if let Some(after) = trimmed.strip_prefix(LITERAL)
            && let Some(after) = after.trim_start().strip_prefix(CLOSE)
        {
            rest = after;
            continue;
        }
        let Some(end) = inside.find(CLOSE) else {
            let piece: String = rest[start..].chars().take(20).collect();
            let message =
                "`{{` without `}}`; braces that are meant as such are written {{ \"{{\" }}";
            log.fault(place_of(piece.lines().next().unwrap_or(OPEN)), message);
            return;
        };
        let name = inside[..end].trim();
        // Each name once, and none that nobody will read of: finding its place takes time.
        if !known.contains(&name) && !log.is_full() && noted.insert(name) {
            let piece = &rest[start..start + OPEN.len() + end + CLOSE.len()];
            log.fault(place_of(piece), unknown(name, known));
        }
        rest = &inside[end + CLOSE.len()..];
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
