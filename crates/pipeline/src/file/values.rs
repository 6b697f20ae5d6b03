//! Values that are written as text: durations, money, conditions, places of inputs, paths.
//!
//! Each answers with what it is, or with a sentence about what was expected.

use super::printable;
use super::words::not_one_of;
use crate::definition::{Condition, OUTPUT, Source, Target};
use outlast_kernel::breaker;
use outlast_kernel::budget::Cost;
use outlast_kernel::policy::{BackoffKind, Policy};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Class;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The edge that ends a run.
pub(super) const COMPLETE: &str = "_complete";
/// What an input of the run is written with.
const RUN_INPUT_PREFIX: &str = "inputs.";
/// Names of steps that would mean something else.
pub(super) const RESERVED: [&str; 2] = [COMPLETE, "inputs"];
/// The longest name.
const MAX_NAME_LENGTH: usize = 64;

/// A text that can be given to a program.
pub(super) fn without_zero_byte(text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err("a text may not have a zero byte in it".to_owned());
    }
    Ok(text.to_owned())
}

/// A text with something in it.
pub(super) fn non_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("expected a text, found an empty one".to_owned());
    }
    Ok(text.to_owned())
}

/// What a word of a list stands for.
fn one_of<T: Copy, const N: usize>(text: &str, words: [(&str, T); N]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| not_one_of(text, &words.map(|(word, _)| word)))
}

/// The name of a retry policy.
pub(super) fn policy_name(text: &str) -> Result<&'static str, String> {
    one_of(text, Policy::NAMES.map(|name| (name, name)))
}

/// The shape of a backoff.
pub(super) fn backoff(text: &str) -> Result<BackoffKind, String> {
    let kinds = [
        ("fixed", BackoffKind::Fixed),
        ("linear", BackoffKind::Linear),
        ("exponential", BackoffKind::Exponential),
    ];
    one_of(text, kinds)
}

/// A class that the circuit breaker can track.
pub(super) fn tracked_class(text: &str) -> Result<Class, String> {
    if matches!(text, "canceled" | "cancelled") {
        return Err(breaker::Error::CanceledTracked.to_string());
    }
    let classes = [
        ("transient", Class::Transient),
        ("deterministic", Class::Deterministic),
        ("budget_exhausted", Class::BudgetExhausted),
        ("contract_failure", Class::ContractFailure),
        ("test_failure", Class::TestFailure),
    ];
    one_of(text, classes)
}

/// A duration; it may be zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span = text.parse::<Span>();
    span.map(|span| span.0)
        .map_err(|error| format!("{error}, found `{}`", printable(text)))
}

/// A duration above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected a duration above zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A number of minutes above zero.
pub(super) fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.bytes().all(|byte| byte.is_ascii_digit());
    let span = minutes.then(|| format!("{text}m").parse::<Span>());
    match span {
        Some(Ok(Span(duration))) if !duration.is_zero() => Ok(duration),
        _ => Err(format!(
            "expected a number of minutes above zero, found `{}`",
            printable(text)
        )),
    }
}

/// Dollars above zero.
pub(super) fn dollars(text: &str) -> Result<Cost, String> {
    let wrong = || {
        let text = printable(text);
        format!("expected an amount of dollars above zero, such as 5.00, found `{text}`")
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 {
        return Err(wrong());
    }
    let millionths = format!("{whole}{part:0<6}").parse().map_err(|_| wrong())?;
    if millionths == 0 {
        return Err(wrong());
    }
    Ok(Cost(millionths))
}

/// A share between nothing and all, in hundredths.
pub(super) fn percent(text: &str) -> Result<u8, String> {
    let wrong = || {
        let text = printable(text);
        format!("expected a share between 0 and 1, such as 0.8, found `{text}`")
    };
    let share: f64 = text.parse().map_err(|_| wrong())?;
    if !(0.0..=1.0).contains(&share) {
        return Err(wrong());
    }
    // Rounded up: a threshold is never lower than it was written.
    let percent = (0..=100_u8).find(|percent| f64::from(*percent) >= share * 100.0 - 1e-9);
    percent.ok_or_else(wrong)
}

/// A name of letters, digits, `-` and `_`.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() > MAX_NAME_LENGTH || !text.chars().all(fits) {
        return Err(format!(
            "expected a name of at most {MAX_NAME_LENGTH} letters, digits, `-` and `_`, found `{}`",
            printable(text)
        ));
    }
    Ok(text.to_owned())
}

/// The name of a step.
pub(super) fn step_name(text: &str) -> Result<String, String> {
    if RESERVED.contains(&text) {
        return Err(format!("a step cannot be called `{text}`"));
    }
    name(text)
}

/// The name of an artifact: as that of a step, with dots.
pub(super) fn artifact_name(text: &str) -> Result<String, String> {
    if text == OUTPUT {
        return Err("`output` is what a step says in the end; call the file otherwise".to_owned());
    }
    name(&text.replace('.', "-")).map(|_| text.to_owned())
}

/// The name of a variable.
pub(super) fn variable(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = text.chars().next().is_some_and(|c| !c.is_ascii_digit());
    if !begins || !text.chars().all(fits) {
        return Err(format!(
            "expected the name of a variable, such as NAME, found `{}`",
            printable(text)
        ));
    }
    Ok(text.to_owned())
}

/// A path that stays where it is.
pub(super) fn path_within(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if text.is_empty() || text.contains('\0') || !path.components().all(stays) {
        return Err(format!(
            "expected a path within the folder, without `..` and a leading `/`, found `{}`",
            printable(text)
        ));
    }
    Ok(path.to_owned())
}

/// Where an edge leads.
pub(super) fn target(text: &str) -> Target {
    if text == COMPLETE {
        Target::Complete
    } else {
        Target::Step(text.to_owned())
    }
}

/// Where an input comes from.
pub(super) fn source(text: &str) -> Result<Source, String> {
    let (from, optional) = match text.strip_suffix('?') {
        Some(from) => (from, true),
        None => (text, false),
    };
    if let Some(name) = from.strip_prefix(RUN_INPUT_PREFIX) {
        if optional {
            return Err("an input of the run is always there; leave out the `?`".to_owned());
        }
        return Ok(Source::Run {
            name: name.to_owned(),
        });
    }
    let (step, artifact) = from.split_once('.').unwrap_or((from, OUTPUT));
    if step.is_empty() || artifact.is_empty() {
        return Err(format!(
            "expected STEP, STEP.ARTIFACT or inputs.NAME, found `{}`",
            printable(text)
        ));
    }
    Ok(Source::Step {
        step: step.to_owned(),
        artifact: artifact.to_owned(),
        optional,
    })
}

/// What must hold of a step that has ended.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    let wrong = || {
        format!(
            "expected outcome=success, outcome=failure, context.KEY=VALUE or context.KEY!=VALUE, found `{}`",
            printable(text)
        )
    };
    let (left, value) = text.split_once('=').ok_or_else(wrong)?;
    let (left, negated) = match left.strip_suffix('!') {
        Some(left) => (left.trim(), true),
        None => (left.trim(), false),
    };
    let value = value.trim();
    match (left, value, negated) {
        ("outcome", "success", false) | ("outcome", "failure", true) => Ok(Condition::Success),
        ("outcome", "failure", false) | ("outcome", "success", true) => Ok(Condition::Failure),
        _ => match left.strip_prefix("context.") {
            Some(key) if !key.is_empty() => Ok(Condition::Context {
                key: key.to_owned(),
                value: value.to_owned(),
                negated,
            }),
            _ => Err(wrong()),
        },
    }
}
