//! The account, the gate and the permit of a call before its attempt.
//!
//! Invariants: a call that waits for its gate holds no permit; a call that waits for a permit is in no queue of a gate; a
//! hold that exceeds the rules of the call ends it, without an attempt.
//! Not here: the wait for a retry, and how a wait looks after its caller (see `wait`); the choice among accounts (see
//! `accounts`).

use super::driver::{Driver, current_gate_key, provider_name};
use super::wait::{Goal, WaitEnd, announce_hold, wait, watch};
use super::{Call, Ended, HoldReason, Interrupt, Wait, classify, no_usable_key};
use crate::BoxFuture;
use crate::accounts::SelectedAccount;
use crate::admission::GateRequest;
use crate::permits::{self, Permit};
use futures_util::FutureExt;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effects, Event, step};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::pin::{Pin, pin};

/// The reason why no attempt is made.
pub(super) enum Stopped {
    /// The caller has ended the call.
    Ended(Ended),
    /// These effects follow instead.
    Instead(Box<Effects>),
}

impl Stopped {
    fn instead(effects: Effects) -> Self {
        Self::Instead(Box::new(effects))
    }
}

impl From<Ended> for Stopped {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

/// The step that follows one of the steps before an attempt.
#[derive(PartialEq, Eq)]
enum Next {
    /// The step after it.
    Step,
    /// The first step: the account may be another one.
    ChooseAgain,
}

/// Chooses an account, passes the gate and takes a permit.
pub(super) async fn admit<'c>(call: &mut dyn Call<'c>) -> Result<(), Stopped> {
    loop {
        choose_account(call).await?;
        let (gate, now) = (current_gate_key(call), call.now());
        let driver = call.driver();
        driver.set_gate(gate, now);
        let skips_gate = std::mem::take(&mut driver.skips_gate);
        if let Some(request) = &mut driver.request {
            if skips_gate {
                request.bypass();
            }
            if !request.enter() {
                // A call that waits does not count against the account's calls in flight.
                driver.permit = None;
                if hold(call).await? == Next::ChooseAgain {
                    continue;
                }
            }
        }
        match take_permit(call).await? {
            Next::Step => return Ok(()),
            Next::ChooseAgain => call.driver().skips_gate = skips_gate,
        }
    }
}

// --- Account ---

async fn choose_account<'c>(call: &mut dyn Call<'c>) -> Result<(), Stopped> {
    match choose(call).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(problem)) => {
            let failure = no_usable_key(&provider_name(call), &problem, call.now());
            Err(Stopped::instead(call.on_failure(failure).await?))
        }
        Err(interrupt) => interrupted_before_attempt(call, interrupt),
    }
}

/// Chooses the account, if there are any. The inner error is the reason why none has a usable key.
pub(super) async fn choose<'c>(call: &mut dyn Call<'c>) -> Result<Result<(), String>, Interrupt> {
    let Some(accounts) = call.accounts() else {
        return Ok(Ok(()));
    };
    let model = call.target().map(|target| target.model.to_owned());
    let Some(model) = model else {
        return Ok(Ok(()));
    };
    let driver = call.driver();
    let in_use = driver.account().map(|account| account.name.clone());
    let left = driver.left_accounts();
    let mut choosing: BoxFuture<'static, Result<SelectedAccount, String>> = Box::pin(async move {
        let chosen = accounts.choose(in_use.as_deref(), &left, &model);
        chosen.await
    });
    let chosen = match choosing.as_mut().now_or_never() {
        Some(chosen) => chosen,
        None => {
            // A caller that leaves does not end a command that fetches a key: the next one needs it, too.
            let task = pin!(tokio::spawn(choosing));
            let failed = |_| Err("it could not be fetched".to_owned());
            watch_until_done(call, task).await?.unwrap_or_else(failed)
        }
    };
    Ok(chosen.map(|chosen| {
        let is_new = call.driver().use_account(chosen);
        call.account_chosen(is_new);
    }))
}

/// Looks after the caller until the work is done. Wishes about a wait for a retry do not end it.
async fn watch_until_done<'c, T: Send>(
    call: &mut dyn Call<'c>,
    mut work: Pin<&mut (impl Future<Output = T> + Send)>,
) -> Result<T, Interrupt> {
    loop {
        match watch(call, work.as_mut()).await {
            Err(Interrupt::RetryNow | Interrupt::Reconsider) => {}
            Err(Interrupt::AbortRetry) if !call.driver().state().is_retrying() => {}
            ended => return ended,
        }
    }
}

/// Ends the call before its attempt, if the wish of the caller demands it.
fn interrupted_before_attempt<'c>(
    call: &mut dyn Call<'c>,
    interrupt: Interrupt,
) -> Result<(), Stopped> {
    let now = call.now();
    let state = call.driver().state_mut();
    let event = match interrupt {
        Interrupt::Ended(ended) => return Err(ended.into()),
        Interrupt::Abort => Event::Aborted { now },
        Interrupt::AbortRetry if state.is_retrying() => Event::HeldRetryAborted,
        Interrupt::AbortRetry | Interrupt::RetryNow | Interrupt::Reconsider => return Ok(()),
    };
    Err(Stopped::instead(step(state, event)))
}

// --- Permit ---

/// Takes a permit if the account limits its calls in flight.
async fn take_permit<'c>(call: &mut dyn Call<'c>) -> Result<Next, Stopped> {
    let accounts = call.accounts();
    let driver = call.driver();
    let (Some(accounts), Some(account), Some(shared_state)) =
        (accounts, driver.account(), driver.shared_state())
    else {
        return Ok(Next::Step);
    };
    let has_permit = |permit: &Permit| permit.belongs_to(&account.name);
    let Some(limit) = accounts
        .max_in_flight(&account.name)
        .filter(|_| !driver.permit.as_ref().is_some_and(has_permit))
    else {
        return Ok(Next::Step);
    };
    let name = account.name.clone();
    let mut taking = shared_state.permit(&name, limit);
    if let Some(permit) = taking.as_mut().now_or_never() {
        driver.permit = Some(permit);
        return Ok(Next::Step);
    }
    wait_for_permit(call, &name, limit, taking).await
}

async fn wait_for_permit<'c>(
    call: &mut dyn Call<'c>,
    account: &str,
    limit: u32,
    mut taking: BoxFuture<'static, Permit>,
) -> Result<Next, Stopped> {
    // The store answers within this time if a permit is free.
    let began = call.now();
    let first_look = began + permits::POLL_INTERVAL / 2;
    let mut end = wait(call, Goal::Permit(&mut taking, Some(first_look))).await;
    if let WaitEnd::PermitTaken(permit) = end {
        call.driver().permit = Some(permit);
        return Ok(Next::Step);
    }
    // Nobody may wait for a call that waits for others.
    if let Some(request) = &mut call.driver().request {
        request.leave();
    }
    if let WaitEnd::TimeOver = end {
        call.record_wait(Wait::Hold(HoldReason::Permit)).await?;
        let next_look = call.now() + permits::POLL_INTERVAL;
        announce_hold(call, HoldReason::Permit, next_look, None);
        call.driver().held_since.get_or_insert(began);
        end = wait(call, Goal::Permit(&mut taking, None)).await;
    }
    match end {
        WaitEnd::PermitTaken(permit) => call.driver().permit = Some(permit),
        WaitEnd::Interrupted(interrupt) => interrupted_before_attempt(call, interrupt)?,
        WaitEnd::DeadlinePassed => return Err(deadline_stop(call).await),
        WaitEnd::Rejected(why) => {
            let message = format!("all {limit} concurrent calls of account {account} are in use");
            let failure = Failure::thrown(&provider_name(call), &message, call.now())
                .with_verdict(Verdict::new(Cause::RateLimited, Scope::Credential));
            return Err(reject(call, Some(failure), why));
        }
        // Another account is free.
        _ => {}
    }
    Ok(Next::ChooseAgain)
}

// --- Gate ---

/// Waits until the gate admits the call.
async fn hold<'c>(call: &mut dyn Call<'c>) -> Result<Next, Stopped> {
    let now = call.now();
    call.driver().held_since.get_or_insert(now);
    if is_hopeless(call) {
        bypass(call);
        return Ok(Next::Step);
    }
    call.record_wait(Wait::Hold(HoldReason::Gate)).await?;
    match wait(call, Goal::Gate).await {
        WaitEnd::Admitted => return Ok(Next::Step),
        // Not a bypass: a wait for a permit would forget it.
        WaitEnd::Interrupted(Interrupt::RetryNow) => call.driver().skips_gate = true,
        WaitEnd::Interrupted(interrupt) => interrupted_before_attempt(call, interrupt)?,
        WaitEnd::DeadlinePassed => return Err(deadline_stop(call).await),
        WaitEnd::Rejected(why) => return Err(reject(call, None, why)),
        WaitEnd::TargetLeft(until) => {
            let cause = gate_cause(call.driver());
            call.leave_target(until, cause).await;
        }
        // Another account is free.
        _ => {}
    }
    Ok(Next::ChooseAgain)
}

/// Returns whether nobody would wait: the call does not retry, or others know of a reset beyond its limit, and the call has
/// not failed itself. It then hears it from the provider.
fn is_hopeless<'c>(call: &mut dyn Call<'c>) -> bool {
    let now = call.now();
    let driver = call.driver();
    let (rules, request) = (driver.state().rules(), driver.request.as_ref());
    let since = driver.held_since.unwrap_or(now);
    let arrived = request.map_or(since, GateRequest::arrived);
    let limit = rules.hold_limit(arrived, since);
    let stated = request.and_then(GateRequest::stated_end);
    let is_too_late = limit.is_some_and(|limit| stated.is_some_and(|stated| stated > limit));
    rules.retries == Some(0) || (driver.last_failure().is_none() && is_too_late)
}

fn bypass<'c>(call: &mut dyn Call<'c>) {
    if let Some(request) = &mut call.driver().request {
        request.bypass();
    }
}

fn gate_cause(driver: &Driver) -> Option<Cause> {
    driver.request.as_ref().and_then(GateRequest::cause)
}

/// Ends a call that was held for too long.
fn reject<'c>(call: &mut dyn Call<'c>, failure: Option<Failure>, why: GiveUp) -> Stopped {
    let (provider, now) = (provider_name(call), call.now());
    let driver = call.driver();
    let own = driver.last_failure().cloned();
    let failure = failure.map(|failure| classify(failure, now)).or(own);
    let failure = failure.unwrap_or_else(|| {
        let cause = gate_cause(driver).unwrap_or(Cause::Overloaded);
        let message = format!("{}; the provider did not recover in time", cause.phrase());
        let failure = Failure::thrown(&provider, &message, now);
        ClassifiedFailure::new(failure.with_verdict(Verdict::new(cause, Scope::Provider)))
    });
    Stopped::instead(step(
        driver.state_mut(),
        Event::HoldRejected { failure, why },
    ))
}

/// Ends a call whose deadline has passed while it was held.
async fn deadline_stop<'c>(call: &mut dyn Call<'c>) -> Stopped {
    let failure = deadline_passed(&provider_name(call), call.now());
    let effects = call.on_failure(failure).await;
    effects.map_or_else(Stopped::from, Stopped::instead)
}

/// The deadline of the prompt has passed, which is no fault of the provider.
pub(crate) fn deadline_passed(provider: &str, now: Timestamp) -> Failure {
    let failure = Failure::thrown(provider, "the time for this prompt is over", now);
    failure.with_verdict(Verdict::new(Cause::DeadlinePassed, Scope::Request))
}
