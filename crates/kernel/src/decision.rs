//! Decides how to handle one failure.
//!
//! A pure function of rules, budgets and the situation.
//! Invariants: after content was handed on, nothing is retried unless that content can be retracted or continued; an
//! overflow is never waited for; no wait exceeds a budget or the prompt's deadline.

use crate::Timestamp;
use crate::budget::{Chain, Prompt};
use crate::policy::{Policy, Switches};
use crate::time::Span;
use crate::verdict::{Authority, Cause, Class, Scope, Verdict};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The limits of a retry chain, taken from a policy once, when the turn begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// The maximum number of retries; `None` leaves it to the schedule.
    pub retries: Option<u32>,
    /// The longest total sleep of the chain.
    pub sleep_budget: Option<Duration>,
    /// The longest stated wait that is accepted.
    pub max_stated_wait: Option<Duration>,
    /// Accepts a stated reset, however far away.
    pub wait_for_reset: bool,
    /// The targets that may be switched to.
    pub may_switch: Switches,
    /// Retries quickly, outside the schedule, while others succeed. The schedule begins anew when an answer has begun and
    /// when the cause changes.
    pub quick_retries: bool,
    /// The shortest limit of a hold at the gate, however short the policy's own waits are.
    pub min_hold: Duration,
}

impl RetryRules {
    /// No retry of any kind.
    pub const NONE: Self = Self {
        retries: Some(0),
        sleep_budget: None,
        max_stated_wait: None,
        wait_for_reset: false,
        may_switch: Switches::NONE,
        quick_retries: false,
        min_hold: Duration::ZERO,
    };

    /// Retries as long as the caller's own schedule gives a delay.
    pub const BY_SCHEDULE: Self = Self {
        retries: None,
        may_switch: Switches::ALL,
        ..Self::NONE
    };

    /// Returns the time until which a call may be held at the gate, or `None` without a limit. The limit on stated waits
    /// counts before the sleep budget. A sleep budget counts from the beginning of the trouble; without one, attempts may
    /// take long, and only the hold itself counts.
    pub fn hold_limit(&self, arrived: Timestamp, held_since: Timestamp) -> Option<Timestamp> {
        if self.retries == Some(0) {
            return Some(held_since);
        }
        if self.wait_for_reset {
            return None;
        }
        let longest = self
            .max_stated_wait
            .or(self.sleep_budget)?
            .max(self.min_hold);
        let since = match self.sleep_budget {
            Some(_) => arrived.min(held_since),
            None => held_since,
        };
        Some(since + longest)
    }
}

impl From<&Policy> for RetryRules {
    fn from(policy: &Policy) -> Self {
        // Quick retries are bounded by the sleep budget alone, not by the length of the schedule.
        let retries = match policy.quick_retries {
            true => policy.max_attempts.map(|attempts| attempts.get() - 1),
            false => policy.retries(),
        };
        Self {
            retries,
            sleep_budget: policy.sleep_budget,
            max_stated_wait: policy.max_stated_wait,
            wait_for_reset: policy.wait_for_reset,
            may_switch: policy.may_switch,
            quick_retries: policy.quick_retries,
            min_hold: Duration::ZERO,
        }
    }
}

/// A target to switch to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Another account of the same provider.
    Account,
    /// Another model.
    Model,
    /// Another provider.
    Provider,
}

/// A remedy other than waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Switch to another account, model or provider, at once.
    Switch(Target),
    /// Compact the conversation.
    Compact,
    /// Have the work redone, with the failure explained.
    Rework,
}

/// The treatment of a completion that broke off after part of it was handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterContent {
    /// It ends there: no listener may receive anything twice.
    #[default]
    Fail,
    /// The listeners are told that it does not count, and the request is repeated.
    Retract,
    /// It is kept and continued where it broke off.
    Continue,
}

/// The remedies that the caller has available right now. The caller that offers a remedy limits how often it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remedies {
    /// The targets that are free to switch to.
    pub switch: Switches,
    /// The other model is asked before any wait.
    pub model_first: bool,
    /// The conversation can be compacted.
    pub compact: bool,
    /// The treatment of content that was handed on.
    pub after_content: AfterContent,
    /// The work can be reworked.
    pub rework: bool,
}

impl Remedies {
    /// No remedies: wait or give up.
    pub const NONE: Self = Self {
        switch: Switches::NONE,
        model_first: false,
        compact: false,
        after_content: AfterContent::Fail,
        rework: false,
    };
}

/// One failure and the moment in which it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The verdict on the failure.
    pub verdict: &'a Verdict,
    /// The explicit retry flag of the provider or the caller.
    pub retryable: Option<bool>,
    /// Whether content of this attempt was handed on.
    pub committed: bool,
    /// The caller's own delay at this point of its schedule; `None` when the schedule is spent.
    pub scheduled_delay: Option<Duration>,
    /// The remedies other than waiting.
    pub remedies: Remedies,
    /// The current time.
    pub now: Timestamp,
}

/// The decision about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Wait until that time and retry.
    RetryAt(Timestamp),
    /// Apply a remedy other than waiting.
    Try(Remedy),
    /// Give up.
    GiveUp(GiveUp),
}

/// The reason for giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// A retry would fail the same way.
    NotRetryable,
    /// The conversation does not fit and cannot be made smaller here.
    Overflow,
    /// A retry would show the same content twice.
    ContentSent,
    /// The call was canceled.
    Canceled,
    /// All retries are used up.
    RetriesExhausted {
        /// The number of retries there were.
        retries: u32,
    },
    /// The chain's sleep budget is used up.
    SleepBudgetExhausted {
        /// The size of that budget.
        budget: Duration,
    },
    /// The server asks for a longer wait than the policy accepts.
    StatedWaitTooLong {
        /// The wait that the server asks for.
        requested: Duration,
        /// The longest wait that the policy accepts.
        allowed: Duration,
    },
    /// The wait would exceed the prompt's deadline.
    DeadlineExceeded,
    /// The wait would exceed the prompt's sleep budget.
    PromptSleepExhausted {
        /// The sleep that is left.
        left: Duration,
    },
    /// The prompt's cost limit is reached.
    CostLimitReached,
}

impl GiveUp {
    /// Returns whether a budget ended it, rather than the failure itself.
    pub const fn is_budget_exhausted(self) -> bool {
        match self {
            Self::RetriesExhausted { retries } => retries > 0,
            Self::SleepBudgetExhausted { .. }
            | Self::StatedWaitTooLong { .. }
            | Self::DeadlineExceeded
            | Self::PromptSleepExhausted { .. }
            | Self::CostLimitReached => true,
            Self::NotRetryable | Self::Overflow | Self::ContentSent | Self::Canceled => false,
        }
    }
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRetryable => f.write_str("trying again cannot help"),
            Self::Overflow => {
                f.write_str("the conversation is too long for the model; waiting cannot help")
            }
            Self::ContentSent => {
                f.write_str("part of the answer was already delivered; a retry would repeat it")
            }
            Self::Canceled => f.write_str("it was cancelled"),
            Self::RetriesExhausted { retries: 0 } => f.write_str("retries are off"),
            Self::RetriesExhausted { retries } => write!(f, "gave up after {retries} retries"),
            Self::SleepBudgetExhausted { budget } => write!(
                f,
                "gave up: the policy's {} of waiting are used up",
                Span(*budget)
            ),
            Self::StatedWaitTooLong { requested, allowed } => {
                write!(
                    f,
                    "the provider asks to wait {}, the policy accepts {}",
                    Span(*requested),
                    Span(*allowed)
                )
            }
            Self::DeadlineExceeded => f.write_str("no time is left for another try"),
            Self::PromptSleepExhausted { left } => {
                write!(f, "the prompt may only wait {} more", Span(*left))
            }
            Self::CostLimitReached => f.write_str("the cost ceiling is reached"),
        }
    }
}

/// Decides how to handle one failure.
pub fn decide(
    rules: &RetryRules,
    chain: &Chain,
    prompt: &Prompt,
    situation: &Situation<'_>,
) -> Decision {
    let verdict = situation.verdict;
    if verdict.cause == Cause::DeadlinePassed {
        return Decision::GiveUp(GiveUp::DeadlineExceeded);
    }
    if verdict.class() == Class::Canceled {
        return Decision::GiveUp(GiveUp::Canceled);
    }
    if prompt.cost_limit_reached() {
        return Decision::GiveUp(GiveUp::CostLimitReached);
    }
    if prompt
        .deadline()
        .is_some_and(|deadline| situation.now > deadline)
    {
        return Decision::GiveUp(GiveUp::DeadlineExceeded);
    }
    let remedies = &situation.remedies;
    if situation.committed && remedies.after_content == AfterContent::Fail {
        return Decision::GiveUp(GiveUp::ContentSent);
    }
    if remedies.model_first && rules.may_switch.model && remedies.switch.model {
        return Decision::Try(Remedy::Switch(Target::Model));
    }
    if remedies.compact && may_be_size_related(verdict.cause) {
        return Decision::Try(Remedy::Compact);
    }
    if remedies.rework {
        return Decision::Try(Remedy::Rework);
    }
    if verdict.class() == Class::BudgetExhausted {
        return decide_oversized(rules, situation);
    }
    match next_retry(rules, chain, prompt, situation) {
        Ok(at) => match switch_instead_of_waiting(rules, chain, situation) {
            Some(target) => Decision::Try(Remedy::Switch(target)),
            None => Decision::RetryAt(at),
        },
        Err(why) => match switch_after_failed_wait(rules, chain, situation, why) {
            Some(target) => Decision::Try(Remedy::Switch(target)),
            None => Decision::GiveUp(why),
        },
    }
}

/// Returns whether a smaller conversation can help at all; a large one may also take too long to send.
fn may_be_size_related(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ContextOverflow | Cause::PayloadTooLarge | Cause::Timeout
    )
}

fn decide_oversized(rules: &RetryRules, situation: &Situation<'_>) -> Decision {
    if rules.may_switch.model && situation.remedies.switch.model {
        return Decision::Try(Remedy::Switch(Target::Model));
    }
    Decision::GiveUp(match situation.verdict.cause {
        Cause::ContextOverflow => GiveUp::Overflow,
        _ => GiveUp::CostLimitReached,
    })
}

/// Returns whether the same request may succeed later. An explicit flag outweighs the class, except where waiting
/// never helps; those classes were handled before.
fn is_retryable(situation: &Situation<'_>) -> bool {
    situation
        .retryable
        .unwrap_or(situation.verdict.class() == Class::Transient)
}

/// Returns the time of the next retry with the same target, or the reason against one.
fn next_retry(
    rules: &RetryRules,
    chain: &Chain,
    prompt: &Prompt,
    situation: &Situation<'_>,
) -> Result<Timestamp, GiveUp> {
    if !is_retryable(situation) {
        return Err(GiveUp::NotRetryable);
    }
    let Some(own_delay) = situation
        .scheduled_delay
        .filter(|_| has_retries(rules, chain))
    else {
        return Err(GiveUp::RetriesExhausted {
            retries: chain.retries(),
        });
    };
    let wait = match longer_requested_wait(situation, own_delay) {
        Some(hint) => accepted_wait(rules, chain, hint)?.max(own_delay),
        None => within_sleep_budget(rules, chain, own_delay)?,
    };
    let at = situation.now + wait;
    if prompt.deadline().is_some_and(|deadline| at > deadline) {
        return Err(GiveUp::DeadlineExceeded);
    }
    match prompt.sleep_left() {
        Some(left) if wait > left => Err(GiveUp::PromptSleepExhausted { left }),
        _ => Ok(at),
    }
}

fn within_sleep_budget(
    rules: &RetryRules,
    chain: &Chain,
    wait: Duration,
) -> Result<Duration, GiveUp> {
    match rules.sleep_budget {
        Some(budget) if chain.scheduled_sleep().saturating_add(wait) > budget => {
            Err(GiveUp::SleepBudgetExhausted { budget })
        }
        _ => Ok(wait),
    }
}

/// A requested wait that is longer than our own delay.
struct RequestedWait {
    wait: Duration,
    authority: Authority,
}

fn longer_requested_wait(situation: &Situation<'_>, own_delay: Duration) -> Option<RequestedWait> {
    let hint = situation.verdict.hint.as_ref()?;
    let wait = hint.wait(situation.now);
    (wait > own_delay).then_some(RequestedWait {
        wait,
        authority: hint.authority,
    })
}

/// Returns the part of the requested wait that is accepted. Only the server's own statement may exceed what the policy
/// accepts, and only where the user allowed it; a guess is cut to what is accepted, and to zero where no limit is set.
fn accepted_wait(
    rules: &RetryRules,
    chain: &Chain,
    asked: RequestedWait,
) -> Result<Duration, GiveUp> {
    let left = rules
        .sleep_budget
        .map(|budget| budget.saturating_sub(chain.scheduled_sleep()));
    let allowed = match (rules.max_stated_wait, left) {
        (Some(ceiling), Some(left)) => ceiling.min(left),
        (Some(limit), None) | (None, Some(limit)) => limit,
        (None, None) if asked.authority == Authority::Guessed => Duration::ZERO,
        (None, None) => return Ok(asked.wait),
    };
    match asked.authority {
        _ if asked.wait <= allowed => Ok(asked.wait),
        Authority::Guessed => Ok(allowed),
        Authority::Stated if rules.wait_for_reset => Ok(asked.wait),
        Authority::Stated | Authority::Reported => Err(GiveUp::StatedWaitTooLong {
            requested: asked.wait,
            allowed,
        }),
    }
}

/// Returns the switch to make instead of waiting: a limit of one account need not be waited for while another is free.
fn switch_instead_of_waiting(
    rules: &RetryRules,
    chain: &Chain,
    situation: &Situation<'_>,
) -> Option<Target> {
    let account_is_blocked = situation.verdict.cause == Cause::UsageLimit;
    account_is_blocked
        .then(|| free_account(rules, chain, situation))
        .flatten()
}

/// Returns the switch that may still help when the current target is lost: another account if the failure is the
/// account's, else another model or provider, but only where the failure does not travel with the request.
fn switch_after_failed_wait(
    rules: &RetryRules,
    chain: &Chain,
    situation: &Situation<'_>,
    why: GiveUp,
) -> Option<Target> {
    if situation.retryable == Some(false) {
        return None;
    }
    let account = (situation.verdict.scope == Scope::Credential)
        .then(|| free_account(rules, chain, situation))
        .flatten();
    if account.is_some()
        || (why == GiveUp::NotRetryable && situation.verdict.scope == Scope::Request)
    {
        return account;
    }
    let free = situation.remedies.switch;
    if rules.may_switch.model && free.model {
        Some(Target::Model)
    } else if rules.may_switch.provider && free.provider {
        Some(Target::Provider)
    } else {
        None
    }
}

/// Returns whether the model in use has retries left.
fn has_retries(rules: &RetryRules, chain: &Chain) -> bool {
    let most = rules.retries;
    most.is_none_or(|most| chain.retries_on_current_model() < most)
}

fn free_account(rules: &RetryRules, chain: &Chain, situation: &Situation<'_>) -> Option<Target> {
    let allowed = rules.may_switch.account && has_retries(rules, chain);
    (allowed && situation.remedies.switch.account).then_some(Target::Account)
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
