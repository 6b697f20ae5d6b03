//! The errors that a command printed before it failed: finds them in its last lines, and classifies them.
//!
//! A command may print any text. Only its last lines are read, and of them only those that look like an error. Wordings
//! that are clear from a provider, but not from a compiler, do not count.

use crate::process::ProcessResult;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::{Cause, Verdict};
use outlast_kernel::{Timestamp, text};

/// Maximum number of last lines to read, stack traces not counted.
const MAX_LINES: usize = 12;
/// Maximum bytes of a line to read.
const MAX_LINE_BYTES: usize = 1024;

/// The source of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputSource {
    /// Any command.
    Command,
    /// An agent, whose messages are about models and providers.
    Agent,
}

/// A line that states an error, and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorLine {
    pub(super) line: String,
    pub(super) cause: Cause,
    pub(super) not_before: Option<Timestamp>,
}

/// Returns the last printed line, of the standard error if it has any.
pub(crate) fn last_line(ran: &ProcessResult) -> Option<&str> {
    let mut lines = lines_from_end(&ran.errors).chain(lines_from_end(&ran.tail));
    lines.next()
}

/// Returns the lines with letters or digits, the last one first.
fn lines_from_end(text: &str) -> impl Iterator<Item = &str> {
    let says_something = |line: &&str| line.chars().any(char::is_alphanumeric);
    text.lines().rev().map(str::trim).filter(says_something)
}

/// Classifies the last lines of the standard error, or, if they state no error, of all output.
pub(super) fn find_error(
    speaker: OutputSource,
    ran: &ProcessResult,
    now: Timestamp,
) -> Option<ErrorLine> {
    [&ran.errors, &ran.tail]
        .into_iter()
        .find_map(|text| find_error_in(speaker, text, now))
}

fn find_error_in(speaker: OutputSource, text: &str, now: Timestamp) -> Option<ErrorLine> {
    let last = lines_from_end(text)
        .filter(|line| !is_stack_frame(line))
        .take(MAX_LINES);
    last.filter(|line| looks_like_error(line))
        .find_map(|line| classify_line(speaker, line, now))
}

/// Classifies an error text from the given source; `None` if it states no cause.
pub(super) fn classify_line(
    speaker: OutputSource,
    line: &str,
    now: Timestamp,
) -> Option<ErrorLine> {
    let line = text::bounded(line, MAX_LINE_BYTES);
    let verdict = classify(&Failure::process("", strip_program_name(&line), now));
    let cause = match speaker {
        OutputSource::Command => command_cause(&verdict, &line.to_lowercase())?,
        OutputSource::Agent => agent_cause(verdict.cause)?,
    };
    Some(ErrorLine {
        line: line.into_owned(),
        cause,
        not_before: verdict.hint.map(|hint| hint.not_before),
    })
}

/// Removes the program's name from the line, so that a status at the beginning is found: `curl: (22) The …`.
fn strip_program_name(line: &str) -> &str {
    const NAMES: [&str; 4] = ["npm ERR!", "npm error", "[ERROR]", "API Error:"];
    let named = NAMES.iter().find_map(|name| line.strip_prefix(name));
    let named = named.or_else(|| {
        let rest = line.strip_prefix("API ")?;
        rest.starts_with(['4', '5']).then_some(rest)
    });
    named.map_or(line, str::trim_start)
}

fn agent_cause(cause: Cause) -> Option<Cause> {
    match cause {
        Cause::Unknown => None,
        // The agent is at fault, not our program.
        Cause::Internal => Some(Cause::Unknown),
        // Only a signal, or its sender, can state a cancellation.
        Cause::Interrupted => None,
        cause => Some(cause),
    }
}

/// Accepts a verdict only if it is reliable for text about any subject.
fn command_cause(verdict: &Verdict, line: &str) -> Option<Cause> {
    let by_fact = verdict
        .evidence
        .first()
        .is_some_and(|fact| fact.source == "status");
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    let counts = match verdict.cause {
        Cause::Unknown | Cause::Interrupted => return None,
        Cause::Internal => return Some(Cause::Unknown),
        Cause::MissingBinary if !has(&["command not found", "path", "missing binary"]) => {
            return Some(Cause::Misconfigured);
        }
        Cause::ModelNotFound => by_fact || has(&["model not found", "model_not_found"]),
        Cause::InvalidRequest | Cause::ContentFilter => by_fact,
        // In compiler output many things are truncated or unreadable that never came over a network.
        Cause::TruncatedStream => has(&[
            "stream",
            "connection",
            "response",
            "chunk",
            "premature",
            "download",
            "message body",
        ]),
        Cause::ServerError => {
            let spoken = [
                "server",
                "gateway",
                "upstream",
                "backend",
                "try again",
                "retry",
            ];
            by_fact || has(&spoken) || has(&["temporar", "later"])
        }
        _ => true,
    };
    counts.then_some(verdict.cause)
}

/// Returns whether the line belongs to a stack trace and is no error of its own.
fn is_stack_frame(line: &str) -> bool {
    ["at ", "File \"", "from ", "Node.js v", "... "]
        .iter()
        .any(|start| line.starts_with(start))
}

fn looks_like_error(line: &str) -> bool {
    const LEVELS: [&str; 7] = [
        "info", "debug", "trace", "warn", "warning", "notice", "verbose",
    ];
    const WORDS: [&str; 35] = [
        "error",
        "err!",
        "fatal",
        "fail",
        "cannot",
        "can't",
        "could not",
        "couldn't",
        "unable",
        "denied",
        "refused",
        "exception",
        "panic",
        "abort",
        "exceed",
        "limit",
        "quota",
        "not found",
        "invalid",
        "timed out",
        "timeout",
        "no space",
        "unauthorized",
        "forbidden",
        "unavailable",
        "overloaded",
        "too many",
        "too long",
        "too large",
        "reset",
        "insufficient",
        "maximum",
        "no such",
        "balance",
        "enospc",
    ];
    const ANNOUNCED_BY: [&str; 4] = ["api ", "http ", "http/1.1 ", "status "];
    let line = line.to_lowercase();
    let head = text::bounded(&line, 60);
    // Most logs state their level near the beginning of the line.
    let level = |word: &&str| {
        head.split(|c: char| !c.is_alphanumeric())
            .any(|part| part == *word)
    };
    let is_over = line.contains("retrying") || line.contains("will retry");
    let passes = is_over || LEVELS.iter().any(level);
    let announced = |word: &&str| {
        let after = head.split_once(word).map(|(_, after)| after);
        after.is_some_and(|after| after.starts_with(['4', '5']))
    };
    let status = head.starts_with(['4', '5']) || ANNOUNCED_BY.iter().any(announced);
    !passes && (status || WORDS.iter().any(|word| line.contains(word)))
}
