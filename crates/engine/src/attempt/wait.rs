//! The waits of a call: for the time of a retry, and for its gate.
//!
//! Invariants: a wait looks after its caller until it ends; listeners learn of a moved time at most every few seconds; a
//! deadline and the rules of the call end a hold.
//! Not here: the account and the permit before an attempt (see `admit`), the rules (see the kernel), the queue of the gate
//! (see `admission`).

use super::admit::choose;
use super::driver::Announced;
use super::{Announcement, Call, Ended, HoldReason, Interrupt};
use crate::BoxFuture;
use crate::accounts::Accounts;
use crate::admission::GateRequest;
use crate::strategy::Aborted;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, RetryScheduled};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::gate::has_moved;
use outlast_kernel::verdict::Cause;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;

/// Where another account may become free by time alone, a held call looks for one this often.
const RECONSIDER_INTERVAL: Duration = Duration::from_secs(60);
/// Listeners learn of a moved time at most this often.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);

/// The end of a wait.
pub(super) enum WaitEnd {
    Admitted,
    /// The time of the retry has come.
    RetryDue,
    /// The injected sleep was aborted.
    SleepAborted,
    Interrupted(Interrupt),
    /// The call is held for longer than its rules accept.
    Rejected(GiveUp),
    DeadlinePassed,
    /// The target is to be left for another.
    TargetLeft(Timestamp),
    /// Another account is free, or may be.
    Reconsider,
}

// --- Retry ---

/// Waits for a retry, or until the gate admits it earlier.
pub(super) async fn for_retry<'c>(
    call: &mut dyn Call<'c>,
    retry: &RetryScheduled,
) -> Result<Event, Ended> {
    let is_stated = retry.is_stated();
    let now = call.now();
    call.driver().announced = Some(Announced {
        wake: retry.at,
        at: now,
    });
    loop {
        enter_wait(call, retry.at, is_stated).await?;
        let end = wait(call, Some(retry.at)).await;
        call.driver().forget_tried_accounts();
        let now = call.now();
        return Ok(match end {
            WaitEnd::Interrupted(Interrupt::Ended(ended)) => return Err(ended),
            WaitEnd::Interrupted(Interrupt::Reconsider) => {
                let target = call.target();
                // The wait was for another target.
                match call.driver().is_other_gate(target.as_ref()) {
                    true => Event::Woke { now },
                    false => continue,
                }
            }
            WaitEnd::Interrupted(Interrupt::AbortRetry) => Event::RetryAborted { now },
            WaitEnd::Interrupted(Interrupt::Abort) | WaitEnd::SleepAborted => {
                Event::Aborted { now }
            }
            WaitEnd::Interrupted(Interrupt::RetryNow) => {
                call.driver().skips_gate = true;
                Event::Woke { now }
            }
            WaitEnd::RetryDue => {
                if let Some(request) = &mut call.driver().request {
                    request.wake();
                }
                Event::Woke { now }
            }
            WaitEnd::Admitted
            | WaitEnd::Reconsider
            | WaitEnd::Rejected(_)
            | WaitEnd::DeadlinePassed
            | WaitEnd::TargetLeft(_) => Event::Woke { now },
        });
    }
}

/// Puts the request into the queue of its gate, asleep until its own time. A call that an earlier process began has to
/// choose its account first; without a usable key, it waits by its own time alone.
async fn enter_wait<'c>(
    call: &mut dyn Call<'c>,
    at: Timestamp,
    is_stated: bool,
) -> Result<(), Ended> {
    let is_chosen = call.driver().account().is_some()
        || match choose(call).await {
            Ok(_) => true,
            Err(Interrupt::Ended(ended)) => return Err(ended),
            Err(_) => false,
        };
    let (target, now) = (call.target().filter(|_| is_chosen), call.now());
    let driver = call.driver();
    driver.set_gate(target, now);
    if let Some(request) = &mut driver.request {
        request.wait_until(at, is_stated);
    }
    Ok(())
}

// --- Any wait ---

/// The times at which a hold ends in any case.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The end of the longest hold that the rules accept.
    pub(super) hold: Option<Timestamp>,
    deadline: Option<Timestamp>,
}

impl Limits {
    pub(super) fn of<'c>(call: &mut dyn Call<'c>, held_since: Timestamp) -> Self {
        let driver = call.driver();
        let arrived = driver
            .request
            .as_ref()
            .map_or(held_since, GateRequest::arrived);
        let state = driver.state();
        Self {
            hold: state.rules().hold_limit(arrived, held_since),
            deadline: state.prompt().deadline(),
        }
    }

    pub(super) fn first(self) -> Option<Timestamp> {
        self.hold.into_iter().chain(self.deadline).min()
    }
}

/// Waits for the gate, and for the time of a retry if there is one.
pub(super) async fn wait<'c>(call: &mut dyn Call<'c>, retry_at: Option<Timestamp>) -> WaitEnd {
    // The request is out of the driver while it waits, so that the caller can be looked after meanwhile.
    let mut request = call.driver().request.take();
    let end = wait_with(call, request.as_mut(), retry_at).await;
    call.driver().request = request;
    end
}

/// One of the things that may happen in a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Admitted,
    RetryDue,
    SleepAborted,
    Timer,
    GateChanged,
    AccountsChanged,
}

async fn wait_with<'c>(
    call: &mut dyn Call<'c>,
    mut request: Option<&mut GateRequest>,
    retry_at: Option<Timestamp>,
) -> WaitEnd {
    let mut own_sleep = retry_at.map(|at| call.sleep_for_retry(at));
    let mut gate_changes = request.as_ref().map(|request| request.changes());
    let accounts = call.accounts().filter(Accounts::has_multiple);
    let shared_state = call.driver().shared_state().cloned();
    let mut account_changes = accounts
        .as_ref()
        .and_then(|_| Some(shared_state.as_ref()?.changes()));
    let mut reconsider_at = accounts.as_ref().map(|_| call.now() + RECONSIDER_INTERVAL);
    loop {
        let times = match retry_at {
            None => match hold_times(call, request.as_deref_mut()) {
                Ok(times) => times,
                Err(end) => return end,
            },
            Some(_) => None,
        };
        let announce_at = announce_moved(call, request.as_deref(), retry_at);
        let first = [times, announce_at, reconsider_at]
            .into_iter()
            .flatten()
            .min();
        let timer = sleep_until(call, first);
        let admitted = admitted(request.as_deref_mut());
        // Pinned here: moved into the future below, it would take its room twice in every call that waits.
        let work = pin!(async {
            tokio::select! {
                biased;
                () = admitted => Signal::Admitted,
                slept = sleep(own_sleep.as_mut()) => match slept {
                    Ok(()) => Signal::RetryDue,
                    Err(Aborted) => Signal::SleepAborted,
                },
                () = timer => Signal::Timer,
                () = changed(account_changes.as_mut()) => Signal::AccountsChanged,
                () = changed(gate_changes.as_mut()) => Signal::GateChanged,
            }
        });
        match watch(call, work).await {
            Err(Interrupt::AbortRetry) if !call.driver().state().is_retrying() => {}
            Err(interrupt) => return WaitEnd::Interrupted(interrupt),
            Ok(Signal::Admitted) => return WaitEnd::Admitted,
            Ok(Signal::RetryDue) => return WaitEnd::RetryDue,
            Ok(Signal::SleepAborted) => return WaitEnd::SleepAborted,
            Ok(Signal::GateChanged) => {}
            Ok(Signal::Timer | Signal::AccountsChanged) => {
                if let Some(accounts) = &accounts
                    && has_better_account(call, accounts)
                {
                    return WaitEnd::Reconsider;
                }
                let now = call.now();
                reconsider_at = reconsider_at.map(|at| match at <= now {
                    true => now + RECONSIDER_INTERVAL,
                    false => at,
                });
            }
        }
    }
}

pub(super) fn has_better_account<'c>(call: &mut dyn Call<'c>, accounts: &Accounts) -> bool {
    let target = call.target();
    let driver = call.driver();
    target.is_some_and(|target| driver.has_better_account(accounts, &target.model))
}

/// Returns the next time at which a hold may end; the end, if it has come.
fn hold_times<'c>(
    call: &mut dyn Call<'c>,
    request: Option<&mut GateRequest>,
) -> Result<Option<Timestamp>, WaitEnd> {
    let now = call.now();
    let since = *call.driver().held_since.get_or_insert(now);
    let rules = *call.driver().state().rules();
    let deadline = call.driver().state().prompt().deadline();
    let arrived = request.as_ref().map_or(since, |request| request.arrived());
    let limit = rules.hold_limit(arrived, since);
    if deadline.is_some_and(|deadline| now >= deadline) {
        return Err(WaitEnd::DeadlinePassed);
    }
    let (stated, expected) = match &request {
        Some(request) => (request.stated_end(), request.expected_start()),
        None => (None, None),
    };
    if let (Some(limit), Some(stated)) = (limit, stated)
        && stated > limit
    {
        let (requested, allowed) = (stated.since(now), limit.since(now));
        return Err(WaitEnd::Rejected(GiveUp::StatedWaitTooLong {
            requested,
            allowed,
        }));
    }
    if let Some(limit) = limit
        && now >= limit
    {
        let budget = limit.since(arrived.min(since));
        return Err(WaitEnd::Rejected(GiveUp::SleepBudgetExhausted { budget }));
    }
    let leave_at = call.leave_target_at(since);
    if leave_at.is_some_and(|at| now >= at) {
        return Err(WaitEnd::TargetLeft(expected.unwrap_or(now)));
    }
    Ok([limit, deadline, leave_at].into_iter().flatten().min())
}

/// Announces the expected time of the attempt if it has moved; returns the time at which to look again.
fn announce_moved<'c>(
    call: &mut dyn Call<'c>,
    request: Option<&GateRequest>,
    retry_at: Option<Timestamp>,
) -> Option<Timestamp> {
    let now = call.now();
    let request = request?;
    let expected = request.expected_start().or(retry_at)?;
    if let Some(known) = call.driver().announced {
        if !has_moved(known.wake, expected, now) {
            return None;
        }
        let next = known.at + ANNOUNCE_INTERVAL;
        // The first announcement of a hold follows that of the retry at once.
        if now < next && known.at != now {
            return Some(next);
        }
    }
    announce_hold(call, HoldReason::Gate, expected, request.cause());
    None
}

pub(super) fn announce_hold<'c>(
    call: &mut dyn Call<'c>,
    reason: HoldReason,
    until: Timestamp,
    cause: Option<Cause>,
) {
    let at = call.now();
    call.driver().announced = Some(Announced { wake: until, at });
    call.announce(Announcement::Hold {
        until,
        reason,
        cause,
    });
}

// --- The caller, looked after ---

/// Looks after the caller until the work is done, or the caller wants something else.
pub(super) async fn watch<'c, T: Send>(
    call: &mut dyn Call<'c>,
    work: impl Future<Output = T> + Send,
) -> Result<T, Interrupt> {
    let mut result = None;
    let interrupt = {
        let work = pin!(async { result = Some(work.await) });
        call.watch(work).await
    };
    match (interrupt, result) {
        (None, Some(result)) => Ok(result),
        (interrupt, _) => Err(interrupt.unwrap_or(Interrupt::Abort)),
    }
}

// --- Futures that may not be there ---

pub(super) fn sleep_until<'c>(call: &dyn Call<'c>, at: Option<Timestamp>) -> BoxFuture<'c, ()> {
    match at {
        Some(at) => call.sleep_until(at),
        None => Box::pin(std::future::pending()),
    }
}

async fn admitted(request: Option<&mut GateRequest>) {
    match request {
        Some(request) => request.admitted().await,
        None => std::future::pending().await,
    }
}

async fn sleep(sleep: Option<&mut BoxFuture<'_, Result<(), Aborted>>>) -> Result<(), Aborted> {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn changed(changes: Option<&mut watch::Receiver<u64>>) {
    let is_known = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !is_known {
        std::future::pending::<()>().await;
    }
}
