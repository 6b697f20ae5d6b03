//! What it means that a command or an agent program failed.
//!
//! Facts decide: the signal that ended it, the exit code where the program is known for what it means by it, a test
//! runner on the line. Only then is read what it printed. Invariants: what an exit has settled, no wording changes; an exit
//! that says nothing about itself is tried again only where the step asks for it; nobody but a signal or the caller says
//! that it was cancelled.
//! Not here: what is done about it (see `react`).

pub(super) mod command_line;
pub(super) mod error_output;
mod exit_codes;
mod test_failures;
mod test_runners;

pub(super) use test_failures::summarize_failures;

use super::agents::NO_RESULT;
use super::definition::CommandLine;
use super::entry::Problem;
use super::process::{ProcessResult, name};
use error_output::{ErrorLine, OutputSource};
use exit_codes::ExitMeaning;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::{Cause, Class};

/// What went wrong with a command that did not end well. `is_explicit`: whether the step says itself that it is to be
/// tried again.
pub(crate) fn problem(
    line: &CommandLine,
    ran: &ProcessResult,
    is_explicit: bool,
    now: Timestamp,
) -> Problem {
    let programs = command_line::answerable(line);
    let code = ran.code.unwrap_or_default();
    if test_runners::is_test_failure(code, &programs, &ran.tail) && !is_shell_error(ran) {
        let settled = programs.len() == 1 || test_runners::has_marks(&ran.tail);
        let other = match settled {
            true => fetching(ran, now),
            false => error_output::heard(OutputSource::Command, ran, now),
        };
        return other.map_or_else(
            || tests_failed(line, ran),
            |heard| found(ran, heard, is_explicit),
        );
    }
    let meaning = match ran.signal {
        Some(signal) => exit_codes::meaning_of_signal(signal),
        None => exit_codes::meaning(code, &programs),
    };
    let heard = || error_output::heard(OutputSource::Command, ran, now);
    match judged(ran, meaning, heard, is_explicit) {
        // Whoever repairs them has to see what they printed.
        problem if problem.cause == Cause::TestsFailed => tests_failed(line, ran),
        problem => problem,
    }
}

/// What went wrong with an agent program: it did not end well, or it says itself that it failed.
pub(crate) fn agent_problem(
    error: Option<&str>,
    ran: &ProcessResult,
    is_explicit: bool,
    now: Timestamp,
) -> Problem {
    // That its answer has no end says less than what it printed to its errors, unless it ended as though all was well.
    let own = error
        .map(str::trim)
        .filter(|error| !error.is_empty() && (*error != NO_RESULT || ran.code == Some(0)));
    if let Some(own) = own {
        let heard =
            error_output::meaning(OutputSource::Agent, own, now).unwrap_or_else(|| ErrorLine {
                line: own.to_owned(),
                cause: Cause::Unknown,
                not_before: None,
            });
        let message = heard.line.clone();
        return Problem {
            message: outlast_kernel::text::message(&message),
            ..found(ran, heard, is_explicit)
        };
    }
    let meaning = match ran.signal {
        Some(signal) => exit_codes::meaning_of_signal(signal),
        None => exit_codes::meaning(ran.code.unwrap_or_default(), &[]),
    };
    let heard = || error_output::heard(OutputSource::Agent, ran, now);
    judged(ran, meaning, heard, is_explicit)
}

/// What follows from what the exit means and what was said.
fn judged(
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
        Some(ExitMeaning::Settled(cause)) => bare(cause),
        Some(ExitMeaning::Default(cause)) => heard()
            // What asks to be tried again is, whatever it said before.
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
    found(ran, heard, is_explicit)
}

fn found(ran: &ProcessResult, heard: ErrorLine, is_explicit: bool) -> Problem {
    let cause = match heard.cause {
        Cause::Unknown if is_explicit => Cause::CommandFailed,
        cause => cause,
    };
    let ending = how_it_ended(ran);
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

/// How it ended that did not end well, in words.
fn how_it_ended(ran: &ProcessResult) -> String {
    match (ran.code, ran.signal) {
        (_, Some(signal)) => format!(
            "killed by signal {signal}{}",
            exit_codes::signal_name(signal)
        ),
        (Some(code), None) => format!("exit status {code}"),
        (None, None) => "stopped".to_owned(),
    }
}

/// The same tests make the same message, so that the same failure is known again.
fn tests_failed(line: &CommandLine, ran: &ProcessResult) -> Problem {
    let message = format!("{} failed: {}", name(line), summarize_failures(&ran.tail));
    let mut problem = Problem::new(Cause::TestsFailed, message);
    if !ran.tail.is_empty() {
        problem.violations.push(ran.tail.clone());
    }
    problem
}

/// What a test runner says that never came to its tests, since it could not fetch what they need.
fn fetching(ran: &ProcessResult, now: Timestamp) -> Option<ErrorLine> {
    let lines = ran.tail.lines().rev().take(20);
    lines
        .filter(|line| test_runners::is_download_line(line))
        .filter_map(|line| error_output::meaning(OutputSource::Command, line.trim(), now))
        .find(|heard| heard.cause.class() == Class::Transient)
}

/// Whether the shell itself says last that something could not be done.
fn is_shell_error(ran: &ProcessResult) -> bool {
    let last = error_output::last_line(ran).unwrap_or_default();
    ["bash: ", "sh: ", "/bin/sh: "]
        .iter()
        .any(|shell| last.starts_with(shell))
}

#[cfg(test)]
#[path = "failing_tests.rs"]
mod tests;
