//! `outlast explain`: explains a failure, in words or as lines of JSON.

mod input;

use crate::args::ExplainArguments;
use crate::output::print;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use input::Input;
pub(crate) use input::TransportKind;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::decision::{Decision, Remedies, RetryRules, Situation, decide};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::policy::Policy;
use outlast_kernel::text;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::{Cause, Class, Scope, Verdict};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

const MAX_LINE_BYTES: u64 = 4 << 20;

pub(crate) fn run(arguments: ExplainArguments) -> anyhow::Result<Exit> {
    let policy = Policy::named(&arguments.policy).map_err(|error| UsageError(error.to_string()))?;
    let now = input::LocalTime::from_clock(&clock::clock()?);
    match &arguments.jsonl {
        Some(path) => explain_lines(path, now),
        None => {
            let input = Input::from_arguments(&arguments)?;
            let judged = ClassifiedFailure::new(input.failure(now)?);
            let text = if arguments.json {
                as_json(&input.id, &judged).to_string() + "\n"
            } else {
                describe(&judged, &policy)
            };
            print(&text)
        }
    }
}

/// Explains every line of a file. A line that cannot be read gets an error line, and the next one follows.
fn explain_lines(path: &str, now: input::LocalTime) -> anyhow::Result<Exit> {
    let mut lines: Box<dyn BufRead> = if path == "-" {
        Box::new(BufReader::new(std::io::stdin()))
    } else {
        let file = std::fs::File::open(path)
            .map_err(|error| UsageError(format!("--jsonl: cannot read {path}: {error}")))?;
        Box::new(BufReader::new(file))
    };
    let mut exit = Exit::Success;
    for number in 1_u64.. {
        let line = read_line(&mut lines)
            .with_context(|| format!("cannot read line {number} of {path}"))?;
        let answer = match line {
            Line::End => break,
            Line::Complete(line) => explain_line(&line, now),
            Line::TooLong => Err(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)),
        };
        match answer {
            Ok(None) => {}
            Ok(Some(answer)) => drop(print(&(answer.to_string() + "\n"))?),
            Err(problem) => {
                exit = Exit::Failed;
                let error = text::sanitized_message(&format!("line {number}: {problem}"));
                print(&(json!({ "line": number, "error": error }).to_string() + "\n"))?;
            }
        }
    }
    Ok(exit)
}

enum Line {
    Complete(Vec<u8>),
    TooLong,
    End,
}

/// Reads the next line; the content of a line that is too long is dropped.
fn read_line(lines: &mut dyn BufRead) -> std::io::Result<Line> {
    let mut line = Vec::new();
    lines.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(Line::End);
    }
    if line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE_BYTES {
        return Ok(Line::Complete(line));
    }
    while !line.is_empty() && !line.ends_with(b"\n") {
        line.clear();
        lines.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    }
    Ok(Line::TooLong)
}

fn explain_line(line: &[u8], now: input::LocalTime) -> Result<Option<Value>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with('{') {
        return Err("it is not a JSON object".to_owned());
    }
    let input: Input = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let failure = input.failure(now).map_err(|error| error.to_string())?;
    Ok(Some(as_json(&input.id, &ClassifiedFailure::new(failure))))
}

/// The longest wait that is accepted without asking a person.
const MAX_WORTHWHILE_WAIT: Duration = Duration::from_secs(8 * 24 * 3600);

/// Reports whether the same request should be retried automatically.
fn is_retryable(failure: &Failure, verdict: &Verdict) -> bool {
    let in_time = verdict
        .hint
        .as_ref()
        .is_none_or(|hint| hint.wait(failure.at) <= MAX_WORTHWHILE_WAIT);
    match verdict.class() {
        Class::BudgetExhausted | Class::Canceled => false,
        class => in_time && failure.retryable.unwrap_or(class == Class::Transient),
    }
}

fn as_json(id: &Value, judged: &ClassifiedFailure) -> Value {
    let ClassifiedFailure { failure, verdict } = judged;
    let retry_after = verdict
        .hint
        .as_ref()
        .map(|hint| hint.wait(failure.at).as_millis());
    let mut evidence: Vec<String> = verdict
        .evidence
        .iter()
        .map(|seen| format!("{}: {}", seen.source, seen.found))
        .collect();
    evidence.extend(
        verdict
            .hint
            .as_ref()
            .map(|hint| format!("wait: {}", hint.source)),
    );
    json!({
        "id": id,
        "class": corpus_label(judged),
        "cause": verdict.cause,
        "scope": verdict.scope,
        "retryable": is_retryable(failure, verdict),
        "retry_after_ms": retry_after.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX)),
        "action": action(verdict.cause),
        "evidence": evidence,
        "failure_class": verdict.class(),
    })
}

// --- Words ---

/// Returns the coarse class of the public corpus: the kind of failure rather than the reaction to it.
fn corpus_label(judged: &ClassifiedFailure) -> &'static str {
    match judged.verdict.cause {
        // A timeout without a status is one of the client's.
        Cause::Timeout if judged.failure.status.is_none() => "network",
        Cause::Overloaded => "overloaded",
        Cause::RateLimited => "rate_limited",
        Cause::UsageLimit | Cause::Billing | Cause::CeilingReached => "usage_limit",
        Cause::Network | Cause::Stalled | Cause::TruncatedStream => "network",
        Cause::ContextOverflow | Cause::PayloadTooLarge => "context_overflow",
        Cause::ContentFilter => "content_filter",
        cause => match cause.class() {
            Class::Transient => "transient",
            Class::Canceled => "canceled",
            _ => "deterministic",
        },
    }
}

/// Returns the action that Outlast would take, as one word for programs.
fn action(cause: Cause) -> &'static str {
    match cause {
        Cause::Overloaded => "retry_long_backoff_then_fallback_model",
        Cause::RateLimited => "retry_after_or_backoff",
        Cause::UsageLimit => "rotate_account_else_wait_reset",
        Cause::Billing => "rotate_account_else_stop_ask_user",
        Cause::Auth => "refresh_credentials_once_else_stop",
        Cause::Permission => "rotate_account_else_stop",
        Cause::Network | Cause::Stalled | Cause::TruncatedStream => "reconnect_if_replay_safe",
        Cause::ContextOverflow | Cause::PayloadTooLarge => "compact_then_retry",
        cause => match cause.class() {
            Class::Transient => "retry_backoff",
            Class::Canceled => "stop",
            Class::ContractFailure | Class::TestFailure => "rework",
            _ => "stop_and_report",
        },
    }
}

fn scope_phrase(scope: Scope) -> &'static str {
    match scope {
        Scope::Request => "this request alone",
        Scope::Credential => "everyone who uses this credential",
        Scope::Model => "everyone who uses this model",
        Scope::Provider => "everyone who uses this provider",
        Scope::Process => "this machine or program",
    }
}

fn class_phrase(class: Class) -> &'static str {
    match class {
        Class::Transient => "transient: it can pass by itself",
        Class::Deterministic => "deterministic: it fails the same way every time",
        Class::BudgetExhausted => "budget_exhausted: make it smaller, or fall back",
        Class::ContractFailure => "contract_failure: rework it",
        Class::TestFailure => "test_failure: fix it and test again",
        Class::Canceled => "canceled: somebody stopped it",
    }
}

/// Describes the first reaction to the failure under the given policy.
fn next_action(judged: &ClassifiedFailure, policy: &Policy) -> String {
    let ClassifiedFailure { failure, verdict } = judged;
    let situation = Situation {
        verdict,
        retryable: failure.retryable,
        committed: false,
        scheduled_delay: policy.delay_for(0),
        remedies: Remedies::NONE,
        now: failure.at,
    };
    match decide(
        &RetryRules::from(policy),
        &Chain::default(),
        &Prompt::default(),
        &situation,
    ) {
        Decision::RetryAt(at) => {
            format!(
                "wait {} (until {at}), then try again",
                Span(at.since(failure.at))
            )
        }
        Decision::GiveUp(why) => format!("give up: {why}"),
        Decision::Try(_) => "try something else".to_owned(),
    }
}

fn describe(judged: &ClassifiedFailure, policy: &Policy) -> String {
    let ClassifiedFailure { failure, verdict } = judged;
    let mut evidence: Vec<String> = verdict
        .evidence
        .iter()
        .map(|seen| format!("{} says {}", seen.source, seen.found))
        .collect();
    let stated = match &verdict.hint {
        Some(hint) => {
            evidence.push(format!("the time comes from {}", hint.source));
            format!(
                "not before {} ({})",
                hint.not_before,
                Span(hint.wait(failure.at))
            )
        }
        None => "no time is stated".to_owned(),
    };
    let retryable = if is_retryable(failure, verdict) {
        "yes"
    } else {
        "no"
    };
    let text = format!(
        "cause      {}: {}\nclass      {}\nconcerns   {}\nretryable  {retryable}, {stated}\naction     {}\npolicy     {}: {}\nevidence   {}\n",
        verdict.cause,
        verdict.cause.phrase(),
        class_phrase(verdict.class()),
        scope_phrase(verdict.scope),
        action(verdict.cause).replace('_', " "),
        policy.name,
        next_action(judged, policy),
        evidence.join("; "),
    );
    text::plain(&text).into_owned()
}
