//! `{{ name }}` in a prompt, and where it may not stand.

use super::fault_log::FaultLog;
use super::names::nearest;
use super::{SourceSpan, Spanned, printable};
use crate::template;
use std::collections::BTreeSet;

const OPEN: &str = "{{";

/// Notes names in braces that nothing stands behind. `offset` is where the text begins in the file.
pub(super) fn check(text: &Spanned<String>, offset: usize, known: &[&str], log: &FaultLog<'_>) {
    let place_of = |at: usize, len: usize| find_span(text, offset, at, len, log);
    let names = match template::names(&text.value) {
        Ok(names) => names,
        Err(error) => {
            // With what follows in its line: there may be braces before that are closed.
            let rest = text.value.get(error.offset()..).unwrap_or_default();
            let len = rest.lines().next().map_or(0, str::len);
            log.fault(place_of(error.offset(), len), error.to_string());
            return;
        }
    };
    let mut noted = BTreeSet::new();
    for (at, name) in &names {
        // Each name once, and none that nobody will read of: finding its place takes time.
        if !known.contains(&name.as_str()) && !log.is_full() && noted.insert(name) {
            log.fault(place_of(*at, name.len()), unknown_input(name, known));
        }
    }
}

/// Where in the file the braces are that some bytes of a text are in.
fn find_span(
    text: &Spanned<String>,
    offset: usize,
    at: usize,
    len: usize,
    log: &FaultLog<'_>,
) -> SourceSpan {
    let value = &text.value;
    let before = value.get(..(at + OPEN.len()).min(value.len()));
    let open = before.and_then(|before| before.rfind(OPEN)).unwrap_or(at);
    let end = (at + len).max(open + OPEN.len());
    let piece = value.get(open..end).unwrap_or(OPEN);
    log.find(piece, offset, text.span)
}

fn unknown_input(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known.iter().copied());
    let near = near.map_or_else(
        || "; name it under `inputs` of the step or of the pipeline".to_owned(),
        |near| format!("; did you mean `{near}`?"),
    );
    format!("there is no input `{}`{near}", printable(name))
}

/// Notes braces in a command, into which nothing is ever filled.
pub(super) fn reject_in_command(text: &Spanned<String>, log: &FaultLog<'_>) -> Option<()> {
    if !text.value.contains(OPEN) {
        return Some(());
    }
    let message = "a command is never filled in; name it under `inputs` and write \"$INPUT_NAME\", or read the file \"$INPUT_NAME_FILE\"";
    log.fault(text.span, message);
    None
}

/// Notes braces in what a person is asked.
pub(super) fn reject_in_message(text: &Spanned<String>, log: &FaultLog<'_>) {
    if text.value.contains(OPEN) {
        let message = "a message is shown as it is; only prompts have `{{ }}`";
        log.fault(text.span, message);
    }
}
