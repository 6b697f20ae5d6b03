//! When a step is tried again, and what becomes of the run when it has failed for good.

use super::document::value;
use super::fields::Fields;
use super::step::{ReferenceKind, StepReference};
use super::work::Kind;
use super::{Spanned, values};
use crate::definition::{OnFailure, Retry};
use outlast_kernel::policy::{BackoffKind, Overrides, Policy};
use outlast_kernel::time::Span;
use std::num::NonZeroU32;
use std::time::Duration;

/// The policy of a step that does not name one.
const DEFAULT_POLICY: &str = "standard";
const BACKOFFS: [&str; 3] = ["fixed", "linear", "exponential"];
const ON_FAILURE: [&str; 4] = ["fail", "skip", "continue", "rework"];

/// Reads when a step is tried again, and whether it is begun once only.
pub(super) fn read(
    fields: &Fields<'_>,
    retry: Option<&Fields<'_>>,
    kind: Option<Kind>,
) -> (Retry, bool) {
    let once = fields.flag("once");
    let is_once = once.as_ref().is_some_and(|once| once.value);
    let policy = retry.map(policy);
    if let (Some(once), Some(policy)) = (&once, &policy)
        && is_once
        && policy.max_attempts != Some(NonZeroU32::MIN)
    {
        let message = "a step that is begun `once` is not tried again; write `retry: {policy: none}`, or leave one out";
        fields.log.fault(once.span, message);
    }
    let is_explicit = policy.is_some();
    let tries = kind.is_none_or(Kind::is_retryable) && !is_once;
    let policy = policy.unwrap_or_else(|| {
        if tries {
            default_policy()
        } else {
            Policy::none()
        }
    });
    (
        Retry {
            policy,
            is_explicit,
        },
        is_once,
    )
}

fn default_policy() -> Policy {
    Policy::named(DEFAULT_POLICY).unwrap_or_else(|_| Policy::none())
}

fn policy(fields: &Fields<'_>) -> Policy {
    let base = fields.one_of("policy", &Policy::NAMES);
    let name = base.as_ref().map_or(DEFAULT_POLICY, |base| base.value);
    let named = Policy::named(name).unwrap_or_else(|_| Policy::none());
    let attempts: Option<Spanned<NonZeroU32>> = fields.count("max_attempts");
    if let Some(attempts) = &attempts
        && name == "none"
        && attempts.value > NonZeroU32::MIN
    {
        let message =
            "policy `none` is one attempt; name another policy, or leave out `max_attempts`";
        fields.log.fault(attempts.span, message);
    }
    let backoff = fields.one_of("backoff", &BACKOFFS);
    let base_delay = fields.parsed("base_delay", values::duration);
    let max_delay = value(fields.parsed("max_delay", values::duration));
    let overrides = Overrides {
        max_attempts: value(attempts),
        backoff: backoff.map(|backoff| match backoff.value {
            "fixed" => BackoffKind::Fixed,
            "linear" => BackoffKind::Linear,
            _ => BackoffKind::Exponential,
        }),
        base_delay: base_delay.as_ref().map(|delay| delay.value),
        max_delay,
        ..Overrides::default()
    };
    match named.with_overrides(overrides) {
        Ok(policy) => {
            reject_base_above_max(base_delay, &policy, fields);
            policy
        }
        Err(error) => {
            fields.log.fault(fields.span, error.to_string());
            default_policy()
        }
    }
}

/// A first delay that is longer than the longest.
fn reject_base_above_max(base: Option<Spanned<Duration>>, policy: &Policy, fields: &Fields<'_>) {
    if let (Some(base), Some(most)) = (base, policy.max_delay)
        && base.value > most
    {
        let (base_words, most) = (Span(base.value), Span(most));
        let message = format!("`base_delay` ({base_words}) is longer than `max_delay` ({most})");
        fields.log.fault(base.span, message);
    }
}

/// Reads what becomes of the run: from the step, or from its `retry`.
pub(super) fn on_failure(
    fields: &Fields<'_>,
    retry: Option<&Fields<'_>>,
    mentions: &mut Vec<StepReference>,
) -> OnFailure {
    let log = fields.log;
    let within = |name: &str| {
        let retry = retry.filter(|retry| retry.has(name));
        if let Some(retry) = retry
            && fields.has(name)
        {
            let message = format!("`{name}` stands in the step as well; write it in one place");
            log.fault(retry.span_of(name), message);
        }
        retry
    };
    let word = within("on_failure")
        .unwrap_or(fields)
        .one_of("on_failure", &ON_FAILURE);
    let by = within("rework_step")
        .unwrap_or(fields)
        .non_empty_text("rework_step");
    let optional = fields.flag("optional").filter(|optional| optional.value);
    if let (Some(optional), Some(word)) = (&optional, &word)
        && word.value != "continue"
    {
        let message = format!(
            "`optional` means `on_failure: continue`, and here is `{}`",
            word.value
        );
        log.fault(optional.span, message);
    }
    let says_rework = word.as_ref().is_some_and(|word| word.value == "rework");
    match (&by, says_rework) {
        (None, true) => {
            let place = word.as_ref().map_or(fields.span, |word| word.span);
            log.fault(
                place,
                "`rework` needs `rework_step`, the step that makes good",
            );
        }
        (Some(by), false) => {
            log.fault(by.span, "`rework_step` needs `on_failure: rework`");
        }
        _ => {}
    }
    if let Some(by) = by {
        let step = by.value.clone();
        mentions.push(by.mentioned(ReferenceKind::Rework));
        return OnFailure::Rework { step };
    }
    match word.map(|word| word.value) {
        Some("skip") => OnFailure::Skip,
        Some("continue") => OnFailure::Continue,
        None if optional.is_some() => OnFailure::Continue,
        _ => OnFailure::Fail,
    }
}
