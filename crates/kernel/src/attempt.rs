//! The recovery of one model call, as a reducer: events go in, effects come out.
//!
//! Invariants, checked over all event sequences in the tests:
//! - a chain of one or more `RetryScheduled` closes with exactly one `RetryEnded`, in `close_chain` and nowhere else;
//! - the spending of a chain only rises until it closes;
//! - an abort always reaches idle;
//! - no call is repeated once content of it was handed on, unless that content is retracted or kept first.
//!
//! Not here: time, timers and calls. The engine carries out the effects in order and reports back.
//! Long because every transition of the one reducer stands here.

use crate::Timestamp;
use crate::budget::{Chain, Cost, Prompt};
use crate::decision::{
    AfterContent, Decision, GiveUp, Remedies, Remedy, RetryRules, Situation, Target, decide,
};
use crate::failure::{ClassifiedFailure, Phase};
use crate::verdict::{Authority, Cause, Class, Scope};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::Duration;

/// The error that a cancelled wait reports.
pub const RETRY_CANCELLED: &str = "Retry cancelled";

/// The delay after a failed probe whose failure says nothing about the provider.
const DELAY_AFTER_PROBE: Duration = Duration::from_secs(5);

/// An input of the reducer.
#[derive(Clone, Debug)]
pub enum Event {
    /// A call is wanted.
    Started,
    /// Content of the running call was handed on; from here on the call cannot be repeated.
    ContentSent,
    /// Money was spent.
    CostIncurred(Cost),
    /// The running call ended well.
    Succeeded,
    /// The running call failed, or its failure is judged again because its remedy could not be carried out.
    Failed {
        /// The failure and its verdict.
        failure: Arc<ClassifiedFailure>,
        /// The caller's own delay at the position of [`State::schedule_index_for`]; `None` when the schedule is spent.
        scheduled_delay: Option<Duration>,
        /// Whether that delay is a quick retry outside the schedule, because others succeed.
        is_quick: bool,
        /// The remedies that are available instead of waiting.
        remedies: Remedies,
        /// The current time.
        now: Timestamp,
    },
    /// The wait is over: its timer fired, a person cut it short, or the gate admits the call earlier.
    Woke {
        /// The current time.
        now: Timestamp,
    },
    /// The provider began to answer the running call.
    Accepted,
    /// The running call probed for all callers of its gate and failed: it spends no retry, and the call is queued again,
    /// unless waiting cannot help.
    ProbeFailed {
        /// The failure and its verdict.
        failure: Arc<ClassifiedFailure>,
        /// The remedies that are available instead of waiting.
        remedies: Remedies,
        /// The current time.
        now: Timestamp,
    },
    /// The call is held for longer than the rules accept, after this failure.
    HoldRejected {
        /// The last failure.
        failure: Arc<ClassifiedFailure>,
        /// The limit that the hold exceeds.
        why: GiveUp,
    },
    /// Another model is asked from here on; a model that is new to this chain has all retries.
    ModelChanged {
        /// Whether this chain has asked it before.
        was_used_before: bool,
    },
    /// Work in between has used the prompt's budget, which is now this one.
    PromptBudgetUpdated(Prompt),
    /// The remedy was carried out.
    RemedyDone,
    /// The remedy could not be carried out, and nothing else can help.
    RemedyFailed,
    /// A person ends the wait for a retry; the turn may still report its error.
    RetryAborted {
        /// The current time.
        now: Timestamp,
    },
    /// The same for a retry whose call is held before it begins. A call that has begun is not stopped by it.
    HeldRetryAborted,
    /// A person ends everything.
    Aborted {
        /// The current time.
        now: Timestamp,
    },
}

/// An action for the engine. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make the call.
    Call,
    /// Cancel the running call.
    CancelCall,
    /// Tell the listeners that the content of the failed call does not count.
    Retract,
    /// Keep the partial completion of the failed call: the next call continues from there.
    KeepPartial,
    /// Announce a retry.
    AnnounceRetry(RetryScheduled),
    /// Sleep until that time, or until another event arrives.
    SleepUntil(Timestamp),
    /// Cancel the sleep.
    CancelSleep,
    /// Apply this remedy instead of waiting.
    Apply(Remedy),
    /// Announce the end of the retry chain.
    AnnounceEnd(RetryEnded),
    /// Report the error that was held back, once.
    ReportError(Arc<ClassifiedFailure>, GiveUp),
    /// The call is over for good.
    Settle(Outcome),
}

/// An announced retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryScheduled {
    /// The number of the retry, from 1.
    pub attempt: u32,
    /// The maximum number of retries, where it is known.
    pub max_attempts: Option<u32>,
    /// The time of the decision.
    pub decided_at: Timestamp,
    /// The wait.
    pub delay: Duration,
    /// The time of the retry.
    pub at: Timestamp,
    /// The failure that is retried.
    pub failure: Arc<ClassifiedFailure>,
}

impl RetryScheduled {
    /// Returns whether its time is one that the provider stated or reported.
    pub fn is_stated(&self) -> bool {
        let hint = self.failure.verdict.hint.as_ref();
        hint.is_some_and(|hint| hint.authority != Authority::Guessed && hint.not_before >= self.at)
    }
}

/// The end of a retry chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryEnded {
    /// Whether a retry succeeded.
    pub success: bool,
    /// The number of the last retry.
    pub attempt: u32,
    /// The reason, if no retry succeeded.
    pub error: Option<String>,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call succeeded.
    Completed,
    /// The call failed.
    Failed(GiveUp),
    /// A person stopped the call.
    Aborted,
}

/// The effects of one event, at most four.
pub type Effects = ArrayVec<Effect, 4>;

/// The state of the recovery of one call.
#[derive(Clone, Debug)]
pub struct State {
    rules: RetryRules,
    chain: Chain,
    prompt: Prompt,
    /// The failure that the open chain retried last.
    retry_cause: Option<Arc<ClassifiedFailure>>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Idle,
    Calling { committed: bool },
    Waiting(Wait),
    ApplyingRemedy { failure: Arc<ClassifiedFailure> },
}

/// A wait that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The time at which the wait begins.
    pub since: Timestamp,
    /// The time at which the wait ends.
    pub until: Timestamp,
    /// The failure that it follows.
    pub failure: Arc<ClassifiedFailure>,
}

impl State {
    /// Creates a state with these rules and this budget.
    pub fn new(rules: RetryRules, prompt: Prompt) -> Self {
        Self {
            rules,
            chain: Chain::default(),
            prompt,
            retry_cause: None,
            stage: Stage::Idle,
        }
    }

    /// Resumes a call from an earlier process with the spending of its open chain.
    #[must_use]
    pub fn with_chain(mut self, chain: Chain) -> Self {
        self.chain = chain;
        self
    }

    /// Resumes a wait that an earlier process began; it ends when it would have ended. Only for a state in which
    /// nothing is under way.
    pub fn resume(&mut self, wait: Wait, now: Timestamp) -> Effects {
        // The clock may have been set back meanwhile: no wait grows longer than it was, and time slept is paid for.
        let until = wait.until.min(now + wait.until.since(wait.since));
        let since = wait.since.min(now);
        let announcement = announce_retry(self, now, until, &wait.failure);
        let failure = wait.failure;
        self.stage = Stage::Waiting(Wait {
            since,
            until,
            failure,
        });
        Effects::from_iter([announcement, Effect::SleepUntil(until)])
    }

    /// Replaces the rules; they may change between two failures.
    pub const fn set_rules(&mut self, rules: RetryRules) {
        self.rules = rules;
    }

    /// Returns the rules.
    pub const fn rules(&self) -> &RetryRules {
        &self.rules
    }

    /// Returns the spending of the open chain.
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Returns the spending of the prompt.
    pub const fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// Returns the position in the schedule for a failure with this cause. With quick retries, another cause begins the
    /// schedule anew.
    pub fn schedule_index_for(&self, cause: Cause) -> u32 {
        let earlier = self
            .retry_cause
            .as_ref()
            .map(|failure| failure.verdict.cause);
        match self.rules.quick_retries && earlier.is_some_and(|earlier| earlier != cause) {
            true => 0,
            false => self.chain.schedule_index(),
        }
    }

    /// Decides about the failure of the running call. The delay is that of a quick retry, or else the caller's `own` at the
    /// position in the schedule.
    pub fn fail(
        &mut self,
        failure: Arc<ClassifiedFailure>,
        remedies: Remedies,
        quick: Option<Duration>,
        own: impl FnOnce(u32) -> Option<Duration>,
        now: Timestamp,
    ) -> Effects {
        let index = self.schedule_index_for(failure.verdict.cause);
        let event = Event::Failed {
            failure,
            scheduled_delay: quick.or_else(|| own(index)),
            is_quick: quick.is_some(),
            remedies,
            now,
        };
        step(self, event)
    }

    /// Returns whether a retry chain is open.
    pub const fn is_retrying(&self) -> bool {
        self.chain.is_open()
    }

    /// Returns whether nothing is under way.
    pub const fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }
}

/// Advances the state by one event. An event that makes no sense in the current state changes nothing.
pub fn step(state: &mut State, event: Event) -> Effects {
    let stage = std::mem::replace(&mut state.stage, Stage::Idle);
    match (stage, event) {
        (Stage::Idle, Event::Started) => start_call(state),
        (Stage::Calling { .. }, Event::ContentSent) => {
            stay_in(state, Stage::Calling { committed: true })
        }
        (Stage::Calling { .. }, Event::Succeeded) => {
            let mut effects = close_chain(state, ChainEnd::Success);
            effects.push(Effect::Settle(Outcome::Completed));
            effects
        }
        (Stage::Calling { committed }, event @ Event::Failed { .. }) => {
            let committed = committed || is_after_content(&event);
            on_failure(state, event, committed)
        }
        (Stage::Calling { committed }, event @ Event::ProbeFailed { .. }) => {
            on_failed_probe(state, event, committed)
        }
        (Stage::Calling { committed: false }, Event::HoldRejected { failure, why }) => {
            give_up(state, failure, why)
        }
        // Content that was handed on is settled: it was retracted or kept before the remedy.
        (Stage::ApplyingRemedy { .. }, event @ Event::Failed { .. }) => {
            on_failure(state, event, false)
        }
        (Stage::Waiting(wait), Event::Woke { now }) => {
            end_wait(state, &wait, now);
            start_call(state)
        }
        (Stage::ApplyingRemedy { .. }, Event::RemedyDone) => start_call(state),
        (Stage::ApplyingRemedy { failure }, Event::RemedyFailed) => {
            let why = give_up_after_remedy(failure.verdict.cause);
            give_up(state, failure, why)
        }
        (Stage::Waiting(wait), Event::RetryAborted { now }) => {
            end_wait(state, &wait, now);
            cancel_retry(state, Effect::CancelSleep, wait.failure)
        }
        (stage @ Stage::Calling { committed: false }, Event::HeldRetryAborted) => {
            match state.retry_cause.take() {
                Some(failure) => cancel_retry(state, Effect::CancelCall, failure),
                None => stay_in(state, stage),
            }
        }
        (stage, Event::Aborted { now }) => abort(state, stage, now),
        (stage, event) => {
            update_budget(state, event);
            stay_in(state, stage)
        }
    }
}

/// Returns the reason to give up after the remedy for this cause has failed.
const fn give_up_after_remedy(cause: Cause) -> GiveUp {
    match cause {
        Cause::ContextOverflow => GiveUp::Overflow,
        _ => GiveUp::NotRetryable,
    }
}

/// Applies an event that changes budgets and nothing else.
fn update_budget(state: &mut State, event: Event) {
    match event {
        Event::CostIncurred(cost) => state.prompt.spend(cost),
        Event::PromptBudgetUpdated(prompt) => state.prompt = prompt,
        Event::ModelChanged {
            was_used_before: false,
        } => state.chain.start_model(),
        Event::Accepted if state.rules.quick_retries => state.chain.restart_schedule(),
        _ => {}
    }
}

fn is_after_content(event: &Event) -> bool {
    matches!(event, Event::Failed { failure, .. } if failure.failure.phase == Phase::AfterContent)
}

/// Handles a failed call.
fn on_failure(state: &mut State, event: Event, committed: bool) -> Effects {
    let Event::Failed {
        failure,
        scheduled_delay,
        is_quick,
        remedies,
        now,
    } = event
    else {
        return Effects::new();
    };
    let situation = Situation {
        verdict: &failure.verdict,
        retryable: failure.failure.retryable,
        committed,
        scheduled_delay,
        remedies,
        now,
    };
    let decision = decide(&state.rules, &state.chain, &state.prompt, &situation);
    let goes_on = !matches!(decision, Decision::GiveUp(_));
    let mut effects = apply_decision(state, decision, failure, now, is_quick);
    if committed && goes_on {
        let first = match remedies.after_content {
            AfterContent::Continue => Effect::KeepPartial,
            AfterContent::Retract | AfterContent::Fail => Effect::Retract,
        };
        effects.insert(0, first);
    }
    effects
}

/// Handles a failed probe: its call is queued again, and waits there without a limit of the schedule. Its rules decide
/// about everything else, with a fixed delay in place of the schedule.
fn on_failed_probe(state: &mut State, event: Event, committed: bool) -> Effects {
    let Event::ProbeFailed {
        failure,
        remedies,
        now,
    } = event
    else {
        return Effects::new();
    };
    // Where another account is free, the limit of this one need not be waited out.
    let rotates = remedies.switch.account && failure.verdict.scope == Scope::Credential;
    let may_wait = failure.verdict.class() == Class::Transient
        && failure.failure.retryable != Some(false)
        && !committed
        && !rotates;
    let is_over = |deadline: Timestamp| now > deadline;
    if may_wait
        && !state.prompt.cost_limit_reached()
        && !state.prompt.deadline().is_some_and(is_over)
    {
        state.stage = Stage::Calling { committed: false };
        return Effects::from_iter([Effect::Call]);
    }
    let event = Event::Failed {
        failure,
        scheduled_delay: Some(DELAY_AFTER_PROBE),
        is_quick: true,
        remedies,
        now,
    };
    on_failure(state, event, committed)
}

fn apply_decision(
    state: &mut State,
    decision: Decision,
    failure: Arc<ClassifiedFailure>,
    now: Timestamp,
    is_quick: bool,
) -> Effects {
    match decision {
        Decision::RetryAt(at) => {
            let delay = at.since(now);
            let index = state.schedule_index_for(failure.verdict.cause);
            let next_index = if is_quick {
                index
            } else {
                index.saturating_add(1)
            };
            state.chain.start_wait(delay, next_index);
            state.prompt.reserve_sleep(delay);
            let announcement = announce_retry(state, now, at, &failure);
            let (since, until) = (now, at);
            state.stage = Stage::Waiting(Wait {
                since,
                until,
                failure,
            });
            Effects::from_iter([announcement, Effect::SleepUntil(at)])
        }
        Decision::Try(remedy @ Remedy::Switch(Target::Account)) => {
            state.chain.start_switch();
            let announcement = announce_retry(state, now, now, &failure);
            state.stage = Stage::ApplyingRemedy { failure };
            Effects::from_iter([announcement, Effect::Apply(remedy)])
        }
        Decision::Try(remedy) => {
            state.stage = Stage::ApplyingRemedy { failure };
            Effects::from_iter([Effect::Apply(remedy)])
        }
        Decision::GiveUp(why) => give_up(state, failure, why),
    }
}

fn announce_retry(
    state: &mut State,
    now: Timestamp,
    at: Timestamp,
    failure: &Arc<ClassifiedFailure>,
) -> Effect {
    state.retry_cause = Some(Arc::clone(failure));
    Effect::AnnounceRetry(RetryScheduled {
        attempt: state.chain.retries(),
        max_attempts: max_retries(state),
        decided_at: now,
        delay: at.since(now),
        at,
        failure: Arc::clone(failure),
    })
}

/// Returns the maximum number of retries: the model's own on top of those that the models before it had.
fn max_retries(state: &State) -> Option<u32> {
    let most = state.rules.retries?;
    Some(most.saturating_add(state.chain.retries_on_previous_models()))
}

fn give_up(state: &mut State, failure: Arc<ClassifiedFailure>, why: GiveUp) -> Effects {
    let mut effects = close_chain(state, ChainEnd::Failure(&failure));
    effects.extend([
        Effect::ReportError(failure, why),
        Effect::Settle(Outcome::Failed(why)),
    ]);
    effects
}

fn cancel_retry(state: &mut State, first: Effect, failure: Arc<ClassifiedFailure>) -> Effects {
    let mut effects = Effects::from_iter([first]);
    effects.extend(close_chain(state, ChainEnd::Cancelled));
    effects.extend([
        Effect::ReportError(failure, GiveUp::Canceled),
        Effect::Settle(Outcome::Failed(GiveUp::Canceled)),
    ]);
    effects
}

fn abort(state: &mut State, stage: Stage, now: Timestamp) -> Effects {
    let mut effects = Effects::new();
    match stage {
        Stage::Idle => return effects,
        Stage::Calling { .. } => effects.push(Effect::CancelCall),
        Stage::Waiting(wait) => {
            end_wait(state, &wait, now);
            effects.push(Effect::CancelSleep);
        }
        Stage::ApplyingRemedy { .. } => {}
    }
    effects.extend(close_chain(state, ChainEnd::Cancelled));
    effects.push(Effect::Settle(Outcome::Aborted));
    effects
}

enum ChainEnd<'a> {
    Success,
    Failure(&'a ClassifiedFailure),
    Cancelled,
}

/// Closes the chain. A chain ends nowhere else, so its end is announced exactly once.
fn close_chain(state: &mut State, closing: ChainEnd<'_>) -> Effects {
    let chain = std::mem::take(&mut state.chain);
    state.retry_cause = None;
    let mut effects = Effects::new();
    if chain.is_open() {
        let (success, error) = match closing {
            ChainEnd::Success => (true, None),
            ChainEnd::Failure(judged) => (false, Some(judged.failure.message.clone())),
            ChainEnd::Cancelled => (false, Some(RETRY_CANCELLED.to_owned())),
        };
        effects.push(Effect::AnnounceEnd(RetryEnded {
            success,
            attempt: chain.retries(),
            error,
        }));
    }
    effects
}

fn end_wait(state: &mut State, wait: &Wait, now: Timestamp) {
    let slept = now.since(wait.since);
    state.chain.end_wait(slept);
    state.prompt.settle_sleep(slept);
}

fn start_call(state: &mut State) -> Effects {
    state.stage = Stage::Calling { committed: false };
    Effects::from_iter([Effect::Call])
}

fn stay_in(state: &mut State, stage: Stage) -> Effects {
    state.stage = stage;
    Effects::new()
}

#[cfg(test)]
#[path = "attempt_tests.rs"]
mod tests;
