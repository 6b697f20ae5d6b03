//! When a step is tried again, and what becomes of the run when it has failed for good.

use super::fault_log::FaultLog;
use super::raw::{FailureWord, RawRetry, RawStep, place};
use super::step::{ReferenceKind, StepReference};
use super::work::Kind;
use super::{SourceSpan, yaml};
use crate::definition::{OnFailure, Retry};
use outlast_kernel::policy::{Overrides, Policy};
use outlast_kernel::time::Span;
use std::num::NonZeroU32;

/// The policy of a step that does not name one.
const DEFAULT_POLICY: &str = "standard";

/// Reads when a step is tried again, and what becomes of the run.
pub(super) fn read(
    raw: &mut RawStep,
    kind: Option<Kind>,
    references: &mut Vec<StepReference>,
    log: &FaultLog<'_>,
) -> (Retry, OnFailure) {
    let mut retry = raw.retry.take();
    let on_failure = on_failure(raw, retry.as_mut().map(|it| &mut it.value), references, log);
    let is_explicit = retry.is_some();
    let once = raw.once.as_ref().filter(|once| once.value);
    let policy = match retry {
        Some(retry) => {
            let place = yaml::span(&retry);
            policy(retry.value, place, log)
        }
        None if once.is_none() && kind.is_none_or(Kind::is_retryable) => named(DEFAULT_POLICY),
        None => Policy::none(),
    };
    if let Some(once) = once
        && is_explicit
        && policy.max_attempts != Some(NonZeroU32::MIN)
    {
        let message = "a step that is begun `once` is not tried again; write `retry: {policy: none}`, or leave one out";
        log.fault(yaml::span(once), message);
    }
    let retry = Retry {
        policy,
        is_explicit,
    };
    (retry, on_failure)
}

fn named(name: &str) -> Policy {
    Policy::named(name).unwrap_or_else(|_| Policy::none())
}

fn policy(raw: RawRetry, span: SourceSpan, log: &FaultLog<'_>) -> Policy {
    let name = raw.policy.map_or(DEFAULT_POLICY, |policy| policy.0);
    let attempts = raw.max_attempts.as_ref().map(|attempts| attempts.value.0);
    if let Some(place) = place(&raw.max_attempts)
        && name == "none"
        && attempts > Some(NonZeroU32::MIN)
    {
        let message =
            "policy `none` is one attempt; name another policy, or leave out `max_attempts`";
        log.fault(place, message);
    }
    let overrides = Overrides {
        max_attempts: attempts,
        backoff: raw.backoff.map(|backoff| backoff.0),
        base_delay: raw.base_delay.as_ref().map(|delay| delay.value.0),
        max_delay: raw.max_delay.map(|delay| delay.0),
        ..Overrides::default()
    };
    let policy = named(name).with_overrides(overrides);
    match &policy {
        Err(error) => log.fault(span, error.to_string()),
        Ok(policy) => {
            if let (Some(base), Some(most)) = (&raw.base_delay, policy.max_delay)
                && base.value.0 > most
            {
                let (first, most) = (Span(base.value.0), Span(most));
                let message = format!("`base_delay` ({first}) is longer than `max_delay` ({most})");
                log.fault(yaml::span(base), message);
            }
        }
    }
    policy.unwrap_or_else(|_| named(DEFAULT_POLICY))
}

/// Reads what becomes of the run: from the step, or from its `retry`.
fn on_failure(
    raw: &mut RawStep,
    retry: Option<&mut RawRetry>,
    references: &mut Vec<StepReference>,
    log: &FaultLog<'_>,
) -> OnFailure {
    let (mut word, mut by) = (raw.on_failure.take(), raw.rework_step.take());
    if let Some(retry) = retry {
        for (name, own, within) in [
            ("on_failure", place(&word), place(&retry.on_failure)),
            ("rework_step", place(&by), place(&retry.rework_step)),
        ] {
            if let (Some(_), Some(place)) = (own, within) {
                let message = format!("`{name}` stands in the step as well; write it in one place");
                log.fault(place, message);
            }
        }
        word = retry.on_failure.take().or(word);
        by = retry.rework_step.take().or(by);
    }
    let optional = raw.optional.as_ref().filter(|optional| optional.value);
    let says = word.as_ref().map(|word| word.value);
    if let Some(optional) = optional
        && says.is_some_and(|word| word != FailureWord::Continue)
    {
        let message = "`optional` means `on_failure: continue`, and here is another";
        log.fault(yaml::span(optional), message);
    }
    if let (None, Some(word)) = (&by, &word)
        && word.value == FailureWord::Rework
    {
        let message = "`rework` needs `rework_step`, the step that makes good";
        log.fault(yaml::span(word), message);
    }
    if let Some(by) = by {
        if says != Some(FailureWord::Rework) {
            log.fault(yaml::span(&by), "`rework_step` needs `on_failure: rework`");
        }
        let step = by.value.0.clone();
        references.push(StepReference::new(
            &step,
            yaml::span(&by),
            ReferenceKind::Rework,
        ));
        return OnFailure::Rework { step };
    }
    match says {
        Some(FailureWord::Skip) => OnFailure::Skip,
        Some(FailureWord::Continue) => OnFailure::Continue,
        None if optional.is_some() => OnFailure::Continue,
        _ => OnFailure::Fail,
    }
}
