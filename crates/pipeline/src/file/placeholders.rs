//! `{{ name }}` in a prompt, and where it may not stand.

use super::fault_log::FaultLog;
use super::words::nearest;
use super::{SourceSpan, printable};
use crate::template;
use std::collections::BTreeSet;

const OPEN: &str = "{{";

/// Notes names in braces that nothing stands behind.
pub(super) fn check(text: &str, span: SourceSpan, known: &[&str], log: &FaultLog<'_>) {
    let place_of = |at: usize, len: usize| log.find(braces(text, at, len), span);
    let names = match template::names(text) {
        Ok(names) => names,
        Err(error) => {
            // With what follows in its line: there may be braces before that are closed.
            let rest = text.get(error.offset()..).unwrap_or_default();
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

/// The piece of a text from the braces that some bytes are in, to the end of the bytes.
fn braces(text: &str, at: usize, len: usize) -> &str {
    let before = text.get(..(at + OPEN.len()).min(text.len()));
    let open = before.and_then(|before| before.rfind(OPEN)).unwrap_or(at);
    let end = (at + len).max(open + OPEN.len());
    text.get(open..end).unwrap_or(OPEN)
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
pub(super) fn reject_in_command(text: &str, span: SourceSpan, log: &FaultLog<'_>) {
    if text.contains(OPEN) {
        let message = "a command is never filled in; name it under `inputs` and write \"$INPUT_NAME\", or read the file \"$INPUT_NAME_FILE\"";
        log.fault(span, message);
    }
}

/// Notes braces in what a person is asked.
pub(super) fn reject_in_message(text: &str, span: SourceSpan, log: &FaultLog<'_>) {
    if text.contains(OPEN) {
        let message = "a message is shown as it is; only prompts have `{{ }}`";
        log.fault(span, message);
    }
}
