//! The recovery of one model call, as a reducer: what happened goes in, what to do comes out.
//!
//! Invariants, checked over all event sequences in the tests:
//! - a chain of one or more `RetryScheduled` closes with exactly one `RetryEnded`, in `close_chain` and nowhere else;
//! - what a chain has spent only rises until it closes;
//! - an abort always reaches idle;
//! - no call is made again once content of it was handed on, unless that is taken back or kept first.
//!
//! Not here: time, timers and calls. The shell carries out the effects in order and reports back.

use crate::Timestamp;
use crate::budget::{Chain, Cost, Prompt};
use crate::decision::{
    AfterContent, Decision, GiveUp, Remedies, Remedy, RetryRules, Situation, Target, decide,
};
use crate::failure::{ClassifiedFailure, Phase};
use crate::verdict::{Cause, Class, Scope};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::Duration;

/// What a cancelled wait reports as its error.
pub const RETRY_CANCELLED: &str = "Retry cancelled";

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A call is wanted.
    Started,
    /// Content of the running call was handed on; from here on it cannot be repeated.
    ContentSent,
    /// Money was spent.
    Spent(Cost),
    /// The running call ended well.
    Succeeded,
    /// The running call failed, or its failure is judged anew because the remedy for it could not be carried out.
    Failed {
        /// The failure and its verdict.
        failure: Arc<ClassifiedFailure>,
        /// The caller's own delay at the chain's place in its schedule; `None` when it is spent.
        own_delay: Option<Duration>,
        /// What could be done instead of waiting.
        remedies: Remedies,
        /// The time.
        now: Timestamp,
    },
    /// The wait is over: by its timer, or cut short by a person.
    Woke {
        /// The time.
        now: Timestamp,
    },
    /// The gate lets the call pass before its wait is over. Should it fail, the wait goes on: it was the gate's try.
    LetPass {
        /// The time.
        now: Timestamp,
    },
    /// Another model is asked from here on; a chain that comes to it for the first time has all retries for it.
    ModelChanged {
        /// Whether this chain has asked it before.
        again: bool,
    },
    /// What was done on the way has used the prompt's budget: it is as much as is left.
    PromptSpent(Prompt),
    /// The remedy was carried out.
    RemedyDone,
    /// The remedy could not be carried out, and nothing else can help.
    RemedyFailed,
    /// A person ends the wait for a retry, but not the turn's right to report its error.
    RetryAborted {
        /// The time.
        now: Timestamp,
    },
    /// The same for a retry whose call is held before it begins. One that is made is not stopped by it.
    HeldRetryAborted,
    /// A person ends everything.
    Aborted {
        /// The time.
        now: Timestamp,
    },
}

/// What to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make the call.
    Call,
    /// Stop the call that is running.
    CancelCall,
    /// Tell whoever heard something of the failed call that it does not count.
    Retract,
    /// Keep what the failed call produced: the next one goes on from there.
    KeepPartial,
    /// Say that a retry will happen.
    AnnounceRetry(RetryScheduled),
    /// Wait until then, or until told otherwise.
    SleepUntil(Timestamp),
    /// Stop waiting.
    CancelSleep,
    /// Do this instead of waiting.
    Apply(Remedy),
    /// Say that the chain of retries is over.
    AnnounceEnd(RetryEnded),
    /// Say the error that was held back, once.
    Report(Arc<ClassifiedFailure>, GiveUp),
    /// The call is over for good.
    Settle(Outcome),
}

/// A retry that will happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryScheduled {
    /// The number of the retry, from 1.
    pub attempt: u32,
    /// How many retries there can be, where that is known.
    pub max_attempts: Option<u32>,
    /// When that was decided.
    pub decided_at: Timestamp,
    /// The wait.
    pub delay: Duration,
    /// When it will happen.
    pub at: Timestamp,
    /// What it is for.
    pub failure: Arc<ClassifiedFailure>,
}

/// The end of a chain of retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryEnded {
    /// Whether a retry succeeded.
    pub success: bool,
    /// The number of the last retry.
    pub attempt: u32,
    /// Why it ended without success.
    pub error: Option<String>,
}

/// How a call ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Completed,
    /// It failed.
    Failed(GiveUp),
    /// A person stopped it.
    Aborted,
}

/// At most four effects follow from one event.
pub type Effects = ArrayVec<Effect, 4>;

/// Where the recovery of one call stands.
#[derive(Clone, Debug)]
pub struct State {
    rules: RetryRules,
    chain: Chain,
    prompt: Prompt,
    /// What the open chain was last for.
    retried: Option<Arc<ClassifiedFailure>>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Idle,
    Calling {
        committed: bool,
        /// The wait that goes on if this call fails.
        within: Option<Wait>,
    },
    Waiting(Wait),
    Mending {
        failure: Arc<ClassifiedFailure>,
    },
}

/// A wait that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When it began.
    pub since: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// What it is for.
    pub failure: Arc<ClassifiedFailure>,
}

impl State {
    /// A fresh start under these rules and this budget.
    pub fn new(rules: RetryRules, prompt: Prompt) -> Self {
        Self {
            rules,
            chain: Chain::default(),
            prompt,
            retried: None,
            stage: Stage::Idle,
        }
    }

    /// Goes on from where an earlier process left a call: with what its open chain has spent.
    #[must_use]
    pub fn with_chain(mut self, chain: Chain) -> Self {
        self.chain = chain;
        self
    }

    /// Takes up a wait that an earlier process began; it ends when it would have ended. Only for a state in which
    /// nothing is under way.
    pub fn take_up(&mut self, wait: Wait, now: Timestamp) -> Effects {
        // The clock may have been set back meanwhile: no wait grows longer than it was, and what is slept is paid for.
        let until = wait.until.min(now + wait.until.since(wait.since));
        let since = wait.since.min(now);
        let announcement = scheduled(self, now, until, &wait.failure);
        let failure = wait.failure;
        self.stage = Stage::Waiting(Wait {
            since,
            until,
            failure,
        });
        Effects::from_iter([announcement, Effect::SleepUntil(until)])
    }

    /// The rules may change between one failure and the next.
    pub const fn set_rules(&mut self, rules: RetryRules) {
        self.rules = rules;
    }

    /// What the open chain has spent.
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// What the prompt has spent.
    pub const fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// Whether a chain of retries is open.
    pub const fn is_retrying(&self) -> bool {
        self.chain.is_open()
    }

    /// Whether nothing is under way.
    pub const fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }
}

/// Advances the state by one event. An event that makes no sense where the state stands changes nothing.
pub fn step(state: &mut State, event: Event) -> Effects {
    let stage = std::mem::replace(&mut state.stage, Stage::Idle);
    match (stage, event) {
        (Stage::Idle, Event::Started) => call(state, None),
        (Stage::Calling { within, .. }, Event::ContentSent) => {
            let committed = true;
            remain(state, Stage::Calling { committed, within })
        }
        (Stage::Calling { .. }, Event::Succeeded) => {
            let mut effects = close_chain(state, ChainEnd::Success);
            effects.push(Effect::Settle(Outcome::Completed));
            effects
        }
        (Stage::Calling { committed, within }, event @ Event::Failed { .. }) => {
            let committed = committed || is_after_content(&event);
            failed(state, event, committed, within)
        }
        // What was handed on is settled: it was taken back or kept before the remedy.
        (Stage::Mending { .. }, event @ Event::Failed { .. }) => failed(state, event, false, None),
        (Stage::Waiting(wait), Event::Woke { now }) => {
            end_wait(state, &wait, now);
            call(state, None)
        }
        (Stage::Waiting(wait), Event::LetPass { now }) => {
            end_wait(state, &wait, now);
            call(state, Some(wait))
        }
        (Stage::Mending { .. }, Event::RemedyDone) => call(state, None),
        (Stage::Mending { failure }, Event::RemedyFailed) => {
            let why = match failure.verdict.cause {
                Cause::ContextOverflow => GiveUp::Overflow,
                _ => GiveUp::NotRetryable,
            };
            give_up(state, failure, why)
        }
        (Stage::Waiting(wait), Event::RetryAborted { now }) => {
            end_wait(state, &wait, now);
            cancel_retry(state, Effect::CancelSleep, wait.failure)
        }
        (
            stage @ Stage::Calling {
                committed: false, ..
            },
            Event::HeldRetryAborted,
        ) => match state.retried.take() {
            Some(failure) => cancel_retry(state, Effect::CancelCall, failure),
            None => remain(state, stage),
        },
        (stage, Event::Aborted { now }) => abort(state, stage, now),
        (stage, event) => {
            update_budget(state, event);
            remain(state, stage)
        }
    }
}

/// What changes what may be spent, and nothing else.
fn update_budget(state: &mut State, event: Event) {
    match event {
        Event::Spent(cost) => state.prompt.spend(cost),
        Event::PromptSpent(prompt) => state.prompt = prompt,
        Event::ModelChanged { again: false } => state.chain.start_model(),
        _ => {}
    }
}

fn is_after_content(event: &Event) -> bool {
    matches!(event, Event::Failed { failure, .. } if failure.failure.phase == Phase::AfterContent)
}

/// A call failed. One that the gate let pass early costs nothing: its wait goes on.
fn failed(state: &mut State, event: Event, committed: bool, within: Option<Wait>) -> Effects {
    let Event::Failed {
        failure,
        own_delay,
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
        own_delay,
        remedies,
        now,
    };
    if let Some(wait) = within {
        // Where another account is free, its own limit need not be waited out.
        let rotates = remedies.switch.account && failure.verdict.scope == Scope::Credential;
        let may_wait = !committed && !rotates && failure.verdict.class() == Class::Transient;
        if may_wait && failure.failure.retryable != Some(false) && now < wait.until {
            return continue_wait(state, wait, now);
        }
    }
    let decision = decide(&state.rules, &state.chain, &state.prompt, &situation);
    let goes_on = !matches!(decision, Decision::GiveUp(_));
    let mut effects = follow(state, decision, failure, now);
    if committed && goes_on {
        let first = match remedies.after_content {
            AfterContent::Continue => Effect::KeepPartial,
            AfterContent::Retract | AfterContent::Fail => Effect::Retract,
        };
        effects.insert(0, first);
    }
    effects
}

fn continue_wait(state: &mut State, wait: Wait, now: Timestamp) -> Effects {
    let (until, rest) = (wait.until, wait.until.since(now));
    state.chain.resume_wait(rest);
    state.prompt.reserve_sleep(rest);
    state.stage = Stage::Waiting(Wait { since: now, ..wait });
    Effects::from_iter([Effect::SleepUntil(until)])
}

fn follow(
    state: &mut State,
    decision: Decision,
    failure: Arc<ClassifiedFailure>,
    now: Timestamp,
) -> Effects {
    match decision {
        Decision::RetryAt(at) => {
            let delay = at.since(now);
            state.chain.start_wait(delay);
            state.prompt.reserve_sleep(delay);
            let announcement = scheduled(state, now, at, &failure);
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
            let announcement = scheduled(state, now, now, &failure);
            state.stage = Stage::Mending { failure };
            Effects::from_iter([announcement, Effect::Apply(remedy)])
        }
        Decision::Try(remedy) => {
            state.stage = Stage::Mending { failure };
            Effects::from_iter([Effect::Apply(remedy)])
        }
        Decision::GiveUp(why) => give_up(state, failure, why),
    }
}

fn scheduled(
    state: &mut State,
    now: Timestamp,
    at: Timestamp,
    failure: &Arc<ClassifiedFailure>,
) -> Effect {
    state.retried = Some(Arc::clone(failure));
    Effect::AnnounceRetry(RetryScheduled {
        attempt: state.chain.retries(),
        max_attempts: max_retries(state),
        decided_at: now,
        delay: at.since(now),
        at,
        failure: Arc::clone(failure),
    })
}

/// Where models before this one had retries, it has its own beyond them.
fn max_retries(state: &State) -> Option<u32> {
    let most = state.rules.retries?;
    Some(most.saturating_add(state.chain.retries_on_previous_models()))
}

fn give_up(state: &mut State, failure: Arc<ClassifiedFailure>, why: GiveUp) -> Effects {
    let mut effects = close_chain(state, ChainEnd::Failure(&failure));
    effects.extend([
        Effect::Report(failure, why),
        Effect::Settle(Outcome::Failed(why)),
    ]);
    effects
}

fn cancel_retry(state: &mut State, first: Effect, failure: Arc<ClassifiedFailure>) -> Effects {
    let mut effects = Effects::from_iter([first]);
    effects.extend(close_chain(state, ChainEnd::Cancelled));
    effects.extend([
        Effect::Report(failure, GiveUp::Canceled),
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
        Stage::Mending { .. } => {}
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

/// The only place where a chain ends, so that its end is said exactly once.
fn close_chain(state: &mut State, closing: ChainEnd<'_>) -> Effects {
    let chain = std::mem::take(&mut state.chain);
    state.retried = None;
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

fn call(state: &mut State, within: Option<Wait>) -> Effects {
    let committed = false;
    state.stage = Stage::Calling { committed, within };
    Effects::from_iter([Effect::Call])
}

fn remain(state: &mut State, stage: Stage) -> Effects {
    state.stage = stage;
    Effects::new()
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
