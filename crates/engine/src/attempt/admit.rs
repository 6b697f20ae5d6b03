//! The account, the gate and the permit of a call before its attempt.
//!
//! Invariants: a call that waits for its gate holds no permit; a call that waits for a permit is in no queue of a gate; a
//! hold that exceeds the rules of the call ends it, without an attempt.
//! Not here: the wait for a retry, and how a wait looks after its caller (see `wait`); the choice among accounts (see
//! `accounts`).

use super::driver::{Driver, provider_name};
use super::wait::{
    Limits, WaitEnd, announce_hold, changed, has_better_account, sleep_until, wait, watch,
};
use super::{Call, Ended, HoldReason, Interrupt, Wait, classify, no_usable_key};
use crate::BoxFuture;
use crate::accounts::{Accounts, SelectedAccount};
use crate::admission::GateRequest;
use crate::permits::{self, Permit};
use futures_util::FutureExt;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effects, Event, step};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::pin::{Pin, pin};

/// Whether an attempt may be made.
pub(super) enum Admitted {
    Yes,
    /// These effects follow instead.
    No(Box<Effects>),
}

/// Chooses an account, passes the gate and takes a permit.
pub(super) async fn admit<'c>(call: &mut dyn Call<'c>) -> Result<Admitted, Ended> {
    loop {
        if let Some(stopped) = choose_account(call).await? {
            return Ok(Admitted::No(Box::new(stopped)));
        }
        let (target, now) = (call.target(), call.now());
        let driver = call.driver();
        driver.set_gate(target, now);
        let skips_gate = std::mem::take(&mut driver.skips_gate);
        if let Some(request) = &mut driver.request {
            if skips_gate {
                request.bypass();
            }
            if !request.enter() {
                // A call that waits does not count against the account's calls in flight.
                driver.permit = None;
                match hold(call).await? {
                    Held::Admitted => {}
                    Held::ChooseAgain => continue,
                    Held::Stopped(effects) => return Ok(Admitted::No(effects)),
                }
            }
        }
        match take_permit(call).await? {
            Held::Admitted => return Ok(Admitted::Yes),
            Held::ChooseAgain => call.driver().skips_gate = skips_gate,
            Held::Stopped(effects) => return Ok(Admitted::No(effects)),
        }
    }
}

/// The end of a hold.
enum Held {
    Admitted,
    ChooseAgain,
    Stopped(Box<Effects>),
}

// --- Account ---

/// Chooses the account. Returns effects if that stops the call.
async fn choose_account<'c>(call: &mut dyn Call<'c>) -> Result<Option<Effects>, Ended> {
    match choose(call).await {
        Ok(Chosen::Yes) => Ok(None),
        Ok(Chosen::NoKey(problem)) => {
            let failure = no_usable_key(&provider_name(call), &problem, call.now());
            Ok(Some(call.on_failure(failure).await?))
        }
        Err(interrupt) => interrupted_before_attempt(call, interrupt),
    }
}

pub(super) enum Chosen {
    Yes,
    NoKey(String),
}

pub(super) async fn choose<'c>(call: &mut dyn Call<'c>) -> Result<Chosen, Interrupt> {
    let (Some(accounts), Some(target)) = (call.accounts(), call.target()) else {
        return Ok(Chosen::Yes);
    };
    let driver = call.driver();
    let in_use = driver.account().map(|account| account.name.clone());
    let left = driver.left_accounts();
    let mut choosing: BoxFuture<'static, Result<SelectedAccount, String>> = Box::pin(async move {
        let chosen = accounts.choose(in_use.as_deref(), &left, &target.model);
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
    match chosen {
        Ok(chosen) => {
            let is_new = call.driver().use_account(chosen);
            call.account_chosen(is_new);
            Ok(Chosen::Yes)
        }
        Err(problem) => Ok(Chosen::NoKey(problem)),
    }
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

/// The effects of a wish that ends the call before its attempt; `None` if it does not.
fn interrupted_before_attempt<'c>(
    call: &mut dyn Call<'c>,
    interrupt: Interrupt,
) -> Result<Option<Effects>, Ended> {
    let now = call.now();
    let state = call.driver().state_mut();
    Ok(Some(match interrupt {
        Interrupt::Ended(ended) => return Err(ended),
        Interrupt::Abort => step(state, Event::Aborted { now }),
        Interrupt::AbortRetry if state.is_retrying() => step(state, Event::HeldRetryAborted),
        Interrupt::AbortRetry | Interrupt::RetryNow | Interrupt::Reconsider => return Ok(None),
    }))
}

// --- Permit ---

/// Takes a permit if the account limits its calls in flight.
async fn take_permit<'c>(call: &mut dyn Call<'c>) -> Result<Held, Ended> {
    let accounts = call.accounts();
    let driver = call.driver();
    let (Some(accounts), Some(account), Some(shared_state)) =
        (accounts, driver.account(), driver.shared_state())
    else {
        return Ok(Held::Admitted);
    };
    let has_permit = |permit: &Permit| permit.belongs_to(&account.name);
    let Some(limit) = accounts
        .max_in_flight(&account.name)
        .filter(|_| !driver.permit.as_ref().is_some_and(has_permit))
    else {
        return Ok(Held::Admitted);
    };
    let name = account.name.clone();
    let mut taking = shared_state.permit(&name, limit);
    if let Some(permit) = taking.as_mut().now_or_never() {
        driver.permit = Some(permit);
        return Ok(Held::Admitted);
    }
    wait_for_permit(call, &name, limit, taking).await
}

async fn wait_for_permit<'c>(
    call: &mut dyn Call<'c>,
    account: &str,
    limit: u32,
    mut taking: BoxFuture<'static, Permit>,
) -> Result<Held, Ended> {
    // The store answers within this time if a permit is free.
    let now = call.now();
    let first_look = now + permits::POLL_INTERVAL / 2;
    let mut taken = permit_until(call, &mut taking, Some(first_look)).await;
    if let Ok(PermitWait::Taken(permit)) = taken {
        call.driver().permit = Some(permit);
        return Ok(Held::Admitted);
    }
    // Nobody may wait for a call that waits for others.
    if let Some(request) = &mut call.driver().request {
        request.leave();
    }
    if let Ok(PermitWait::TimeOver) = taken {
        call.record_wait(Wait::Hold(HoldReason::Permit)).await?;
        let next_look = call.now() + permits::POLL_INTERVAL;
        announce_hold(call, HoldReason::Permit, next_look, None);
        let since = *call.driver().held_since.get_or_insert(now);
        let end = Limits::of(call, since).first();
        taken = permit_until(call, &mut taking, end).await;
    }
    match taken {
        Ok(PermitWait::Taken(permit)) => {
            call.driver().permit = Some(permit);
            Ok(Held::ChooseAgain)
        }
        Ok(PermitWait::Reconsider) => Ok(Held::ChooseAgain),
        Ok(PermitWait::TimeOver) if is_deadline_passed(call) => fail(call, deadline_passed).await,
        Ok(PermitWait::TimeOver) => {
            let message = format!("all {limit} concurrent calls of account {account} are in use");
            let failure = Failure::thrown(&provider_name(call), &message, call.now())
                .with_verdict(Verdict::new(Cause::RateLimited, Scope::Credential));
            let since = call.driver().held_since.unwrap_or_default();
            let budget = call.now().since(since);
            reject(call, Some(failure), GiveUp::SleepBudgetExhausted { budget })
        }
        Err(interrupt) => stopped(interrupted_before_attempt(call, interrupt)?),
    }
}

enum PermitWait {
    Taken(Permit),
    /// Another account is free, or the configuration has changed.
    Reconsider,
    TimeOver,
}

async fn permit_until<'c>(
    call: &mut dyn Call<'c>,
    taking: &mut BoxFuture<'static, Permit>,
    end: Option<Timestamp>,
) -> Result<PermitWait, Interrupt> {
    let mut timer = sleep_until(call, end);
    let accounts = call.accounts().filter(Accounts::has_multiple);
    let shared_state = call.driver().shared_state().cloned();
    let mut changes = accounts
        .as_ref()
        .and_then(|_| Some(shared_state.as_ref()?.changes()));
    loop {
        let work = pin!(async {
            tokio::select! {
                biased;
                permit = taking.as_mut() => Some(PermitWait::Taken(permit)),
                () = timer.as_mut() => Some(PermitWait::TimeOver),
                () = changed(changes.as_mut()) => None,
            }
        });
        match watch(call, work).await {
            Ok(Some(end)) => return Ok(end),
            Ok(None) | Err(Interrupt::RetryNow) => {}
            Err(Interrupt::Reconsider) => return Ok(PermitWait::Reconsider),
            Err(Interrupt::AbortRetry) if !call.driver().state().is_retrying() => {}
            Err(interrupt) => return Err(interrupt),
        }
        if let Some(accounts) = &accounts
            && has_better_account(call, accounts)
        {
            return Ok(PermitWait::Reconsider);
        }
    }
}

fn stopped(effects: Option<Effects>) -> Result<Held, Ended> {
    Ok(effects.map_or(Held::ChooseAgain, |effects| {
        Held::Stopped(Box::new(effects))
    }))
}

// --- Gate ---

/// Waits until the gate admits the call.
async fn hold<'c>(call: &mut dyn Call<'c>) -> Result<Held, Ended> {
    let now = call.now();
    call.driver().held_since.get_or_insert(now);
    if is_hopeless(call) {
        return Ok(Held::Admitted);
    }
    call.record_wait(Wait::Hold(HoldReason::Gate)).await?;
    let end = wait(call, None).await;
    match end {
        WaitEnd::Admitted => Ok(Held::Admitted),
        WaitEnd::Reconsider | WaitEnd::Interrupted(Interrupt::Reconsider) => Ok(Held::ChooseAgain),
        WaitEnd::Interrupted(Interrupt::RetryNow) | WaitEnd::RetryDue => {
            call.driver().skips_gate = true;
            Ok(Held::ChooseAgain)
        }
        WaitEnd::Interrupted(interrupt) => stopped(interrupted_before_attempt(call, interrupt)?),
        WaitEnd::SleepAborted => stopped(interrupted_before_attempt(call, Interrupt::Abort)?),
        WaitEnd::DeadlinePassed => fail(call, deadline_passed).await,
        WaitEnd::TargetLeft(until) => {
            let cause = gate_cause(call.driver());
            call.leave_target(until, cause).await;
            Ok(Held::ChooseAgain)
        }
        WaitEnd::Rejected(why) => reject(call, None, why),
    }
}

/// Lets the call through where nobody would wait: it does not retry, or others know of a reset beyond its limit, and the
/// call has not failed itself. It then hears it from the provider.
fn is_hopeless<'c>(call: &mut dyn Call<'c>) -> bool {
    let now = call.now();
    let rules = *call.driver().state().rules();
    let since = call.driver().held_since.unwrap_or(now);
    let limit = Limits::of(call, since).hold;
    let driver = call.driver();
    let is_first = driver.last_failure().is_none();
    let stated = driver.request.as_ref().and_then(GateRequest::stated_end);
    let is_too_late = limit.is_some_and(|limit| stated.is_some_and(|stated| stated > limit));
    let is_hopeless = rules.retries == Some(0) || (is_first && is_too_late);
    if is_hopeless {
        bypass(call);
    }
    is_hopeless
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
fn reject<'c>(
    call: &mut dyn Call<'c>,
    failure: Option<Failure>,
    why: GiveUp,
) -> Result<Held, Ended> {
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
    let effects = step(driver.state_mut(), Event::HoldRejected { failure, why });
    Ok(Held::Stopped(Box::new(effects)))
}

async fn fail<'c>(
    call: &mut dyn Call<'c>,
    failure: fn(&str, Timestamp) -> Failure,
) -> Result<Held, Ended> {
    let failure = failure(&provider_name(call), call.now());
    Ok(Held::Stopped(Box::new(call.on_failure(failure).await?)))
}

/// The deadline of the prompt has passed, which is no fault of the provider.
pub(crate) fn deadline_passed(provider: &str, now: Timestamp) -> Failure {
    let failure = Failure::thrown(provider, "the time for this prompt is over", now);
    failure.with_verdict(Verdict::new(Cause::DeadlinePassed, Scope::Request))
}

fn is_deadline_passed<'c>(call: &mut dyn Call<'c>) -> bool {
    let now = call.now();
    let deadline = call.driver().state().prompt().deadline();
    deadline.is_some_and(|deadline| now >= deadline)
}
