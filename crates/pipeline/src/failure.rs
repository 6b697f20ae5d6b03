//! The cause of a failed command or agent program.
//!
//! Facts decide first: the signal, the exit code of a known program, a test runner on the line; only then the printed
//! text. Invariants: no wording changes a cause that the exit has settled; an exit that says nothing about itself is
//! retried only if the step asks for it; only a signal or the caller can state a cancellation. Not here: the reaction
//! (see `graph::react`).

pub(super) mod command_line;
pub(super) mod error_output;
mod exit_codes;
mod test_failures;
mod test_runners;

pub(super) use test_failures::summarize_failures;

use super::agents::NO_RESULT;
use super::definition::CommandLine;
use super::entry::Problem;
use super::process::{ProcessResult, display_name};
use error_output::{ErrorLine, OutputSource};
use exit_codes::ExitMeaning;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::{Cause, Class};

/// Returns the problem of a command that did not succeed. `is_explicit` states whether the step itself configures
/// retries.
pub(crate) fn command_problem(
    line: &CommandLine,
    ran: &ProcessResult,
    is_explicit: bool,
    now: Timestamp,
) -> Problem {
    let commands = command_line::fallible_commands(line);
    let program = commands.last();
    let code = ran.code.unwrap_or_default();
    let is_test_failure = |program| test_runners::is_test_failure(code, program, &ran.tail);
    if program.is_some_and(is_test_failure) && !is_shell_error(ran) {
        let is_settled = commands.len() == 1 || test_runners::has_failure_markers(&ran.tail);
        let other = match is_settled {
            true => download_failure(ran, now),
            false => error_output::find_error(OutputSource::Command, ran, now),
        };
        return other.map_or_else(
            || test_failure_problem(line, ran),
            |heard| problem_from_line(ran, heard, is_explicit),
        );
    }
    let meaning = match ran.signal {
        Some(signal) => exit_codes::meaning_of_signal(signal),
        None => exit_codes::meaning_of_code(code, program),
    };
    let heard = || error_output::find_error(OutputSource::Command, ran, now);
    match problem_from_exit(ran, meaning, heard, is_explicit) {
        // The rework needs the output of the failed tests.
        problem if problem.cause == Cause::TestsFailed => test_failure_problem(line, ran),
        problem => problem,
    }
}

/// Returns the problem of an agent program that did not succeed, or that reports a failure itself.
pub(crate) fn agent_problem(
    error: Option<&str>,
    ran: &ProcessResult,
    is_explicit: bool,
    now: Timestamp,
) -> Problem {
    // A missing end of the output says less than the standard error, unless the exit status is 0.
    let own = error
        .map(str::trim)
        .filter(|error| !error.is_empty() && (*error != NO_RESULT || ran.code == Some(0)));
    if let Some(own) = own {
        let heard =
            error_output::classify_line(OutputSource::Agent, own, now).unwrap_or_else(|| {
                ErrorLine {
                    line: own.to_owned(),
                    cause: Cause::Unknown,
                    not_before: None,
                }
            });
        let message = heard.line.clone();
        return Problem {
            message: outlast_kernel::text::sanitized_message(&message),
            ..problem_from_line(ran, heard, is_explicit)
        };
    }
    let meaning = match ran.signal {
        Some(signal) => exit_codes::meaning_of_signal(signal),
        None => exit_codes::meaning_of_code(ran.code.unwrap_or_default(), None),
    };
    let heard = || error_output::find_error(OutputSource::Agent, ran, now);
    problem_from_exit(ran, meaning, heard, is_explicit)
}

/// Combines the meaning of the exit with the meaning of the output.
fn problem_from_exit(
    ran: &ProcessResult,
    meaning: Option<ExitMeaning>,
    heard: impl FnOnce() -> Option<ErrorLine>,
    is_explicit: bool,
) -> Problem {
    let bare = |cause| ErrorLine {
        line: error_output::last_line(ran).unwrap_or_default().to_owned(),
        cause,
        not_before: None,
    };
    let heard = match meaning {
        Some(ExitMeaning::Definite(cause)) => bare(cause),
        Some(ExitMeaning::Default(cause)) => heard()
            // A program whose exit asks for a retry is retried, whatever it printed before.
            .filter(|heard| {
                cause != Cause::CommandFailed || heard.cause.class() == Class::Transient
            })
            .unwrap_or_else(|| bare(cause)),
        None => heard().unwrap_or_else(|| bare(Cause::Unknown)),
    };
    // A killed program says nothing about itself either.
    let killed = ran.signal == Some(9) || ran.code == Some(137);
    let heard = match heard.cause {
        Cause::Misconfigured if killed && is_explicit => ErrorLine {
            cause: Cause::Unknown,
            ..heard
        },
        _ => heard,
    };
    problem_from_line(ran, heard, is_explicit)
}

fn problem_from_line(ran: &ProcessResult, heard: ErrorLine, is_explicit: bool) -> Problem {
    let cause = match heard.cause {
        Cause::Unknown if is_explicit => Cause::CommandFailed,
        cause => cause,
    };
    let ending = describe_exit(ran);
    let message = match heard.line.is_empty() {
        true => ending,
        false => format!("{ending}: {}", heard.line),
    };
    Problem {
        not_before: heard
            .not_before
            .filter(|_| cause.class() == Class::Transient),
        ..Problem::new(cause, message)
    }
}

/// Describes an unsuccessful end, in words.
fn describe_exit(ran: &ProcessResult) -> String {
    match (ran.code, ran.signal) {
        (_, Some(signal)) => format!(
            "killed by signal {signal}{}",
            exit_codes::signal_name(signal)
        ),
        (Some(code), None) => format!("exit status {code}"),
        (None, None) => "stopped".to_owned(),
    }
}

/// The same tests give the same message, so that a repeated failure is recognized.
fn test_failure_problem(line: &CommandLine, ran: &ProcessResult) -> Problem {
    let message = format!(
        "{} failed: {}",
        display_name(line),
        summarize_failures(&ran.tail)
    );
    let mut problem = Problem::new(Cause::TestsFailed, message);
    if !ran.tail.is_empty() {
        problem.violations.push(ran.tail.clone());
    }
    problem
}

/// Returns the error of a test runner that could not download its dependencies and never reached its tests.
fn download_failure(ran: &ProcessResult, now: Timestamp) -> Option<ErrorLine> {
    let lines = ran.tail.lines().rev().take(20);
    lines
        .filter(|line| test_runners::is_download_line(line))
        .filter_map(|line| error_output::classify_line(OutputSource::Command, line.trim(), now))
        .find(|heard| heard.cause.class() == Class::Transient)
}

/// Returns whether the last line is an error of the shell itself.
fn is_shell_error(ran: &ProcessResult) -> bool {
    let last = error_output::last_line(ran).unwrap_or_default();
    ["bash: ", "sh: ", "/bin/sh: "]
        .iter()
        .any(|shell| last.starts_with(shell))
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
