//! Verdicts in words.

use crate::commands::explain::is_retryable;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::decision::{Decision, Remedies, RetryRules, Situation, decide};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::policy::Policy;
use outlast_kernel::text::plain;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::{Cause, Class, Scope};

/// Returns the coarse class of the public corpus: the kind of failure rather than the reaction to it.
pub(in crate::commands::explain) fn corpus_label(judged: &ClassifiedFailure) -> &'static str {
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
pub(in crate::commands::explain) fn action(cause: Cause) -> &'static str {
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

pub(in crate::commands::explain) fn explain(judged: &ClassifiedFailure, policy: &Policy) -> String {
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
    plain(&text).into_owned()
}
