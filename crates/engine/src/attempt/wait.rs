//! The waits of a call: for the time of a retry, for its gate, and for a permit.
//!
//! Invariants: the caller is looked after until a wait ends; listeners learn of a moved time at most every few seconds; a
//! deadline and the rules of the call end a hold.
//! Not here: the steps before an attempt (see `admit`), the rules (see the kernel), the queue of the gate (see
//! `admission`).

use super::admit::choose;
use super::driver::{Announced, current_gate_key};
use super::{Announcement, Call, Ended, HoldReason, Interrupt};
use crate::BoxFuture;
use crate::accounts::Accounts;
use crate::admission::GateRequest;
use crate::permits::Permit;
use crate::strategy::Aborted;
use futures_util::future::{Either, Pending, pending};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, RetryScheduled};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::gate::has_moved;
use outlast_kernel::verdict::Cause;
use std::pin::pin;
use std::time::Duration;

/// Where another account may become free by time alone, a held call looks for one this often.
const RECONSIDER_INTERVAL: Duration = Duration::from_secs(60);
/// Listeners learn of a moved time at most this often.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);

/// The thing that a call waits for.
pub(super) enum Goal<'w> {
    /// The time of a retry; the gate may admit the call earlier.
    Retry(Timestamp),
    Gate,
    /// A permit; if there is a time, until then, else for as long as the rules allow.
    Permit(&'w mut BoxFuture<'static, Permit>, Option<Timestamp>),
}

/// The end of a wait.
pub(super) enum WaitEnd {
    Admitted,
    PermitTaken(Permit),
    /// The time of the goal has come.
    TimeOver,
    /// The caller wants something else, or has aborted its own sleep.
    Interrupted(Interrupt),
    /// The call is held for longer than its rules accept.
    Rejected(GiveUp),
    DeadlinePassed,
    /// The target is to be left for another.
    TargetLeft(Timestamp),
    /// Another account is free.
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
        let end = wait(call, Goal::Retry(retry.at)).await;
        call.driver().forget_tried_accounts();
        let (now, gate) = (call.now(), current_gate_key(call));
        let driver = call.driver();
        match end {
            WaitEnd::Interrupted(Interrupt::Ended(ended)) => return Err(ended),
            WaitEnd::Interrupted(Interrupt::AbortRetry) => return Ok(Event::RetryAborted { now }),
            WaitEnd::Interrupted(Interrupt::Abort) => return Ok(Event::Aborted { now }),
            WaitEnd::Interrupted(Interrupt::Reconsider)
                if !driver.is_other_gate(gate.as_deref()) =>
            {
                continue;
            }
            WaitEnd::Interrupted(Interrupt::RetryNow) => driver.skips_gate = true,
            WaitEnd::TimeOver => {
                if let Some(request) = &mut driver.request {
                    request.wake();
                }
            }
            // The gate admits the call, another account is free, or the wait was for another target.
            _ => {}
        }
        return Ok(Event::Woke { now });
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
    let (gate, now) = (current_gate_key(call), call.now());
    let driver = call.driver();
    driver.set_gate(gate.filter(|_| is_chosen), now);
    if let Some(request) = &mut driver.request {
        request.wait_until(at, is_stated);
    }
    Ok(())
}

// --- Any wait ---

/// Waits for the goal.
pub(super) async fn wait<'c>(call: &mut dyn Call<'c>, goal: Goal<'_>) -> WaitEnd {
    if let Goal::Permit(..) = goal {
        return wait_with(call, None, goal).await;
    }
    // The request is out of the driver while it waits, so that the caller can be looked after meanwhile.
    let mut request = call.driver().request.take();
    let end = wait_with(call, request.as_mut(), goal).await;
    call.driver().request = request;
    end
}

async fn wait_with<'c>(
    call: &mut dyn Call<'c>,
    mut request: Option<&mut GateRequest>,
    goal: Goal<'_>,
) -> WaitEnd {
    let (retry_at, mut permit, end) = match goal {
        Goal::Retry(at) => (Some(at), None, None),
        Goal::Gate => (None, None, None),
        Goal::Permit(taking, end) => (None, Some(taking), end),
    };
    let is_permit = permit.is_some();
    let mut own_sleep = retry_at.map(|at| call.sleep_for_retry(at));
    let mut gate_changes = request.as_ref().map(|request| request.changes());
    let accounts = call.accounts().filter(Accounts::has_multiple);
    let shared_state = accounts.as_ref().and(call.driver().shared_state());
    let mut account_changes = shared_state.map(|shared_state| shared_state.changes());
    let mut reconsider_at = accounts.as_ref().map(|_| call.now() + RECONSIDER_INTERVAL);
    loop {
        let hold_end = match retry_at.or(end) {
            Some(_) => end,
            None => match next_hold_end(call, request.as_deref()) {
                Ok(at) => at,
                Err(end) => return end,
            },
        };
        let announce_at = announce_moved(call, request.as_deref(), retry_at);
        let first = earliest([hold_end, announce_at, reconsider_at]);
        let timer = maybe(first.map(|at| call.sleep_until(at)));
        let admitted = maybe(request.as_deref_mut().map(GateRequest::admitted));
        // Pinned here: moved into the future below, it would take its room twice in every call that waits.
        let work = pin!(async {
            tokio::select! {
                biased;
                () = admitted => Some(WaitEnd::Admitted),
                permit = maybe(permit.as_mut()) => Some(WaitEnd::PermitTaken(permit)),
                slept = maybe(own_sleep.as_mut()) => Some(match slept {
                    Ok(()) => WaitEnd::TimeOver,
                    Err(Aborted) => WaitEnd::Interrupted(Interrupt::Abort),
                }),
                // The end of the goal comes before all other times, also if the clock is set back meanwhile.
                () = timer => end.map(|_| WaitEnd::TimeOver),
                // The senders live as long as the request and the driver.
                _ = maybe(account_changes.as_mut().map(|changes| changes.changed())) => None,
                _ = maybe(gate_changes.as_mut().map(|changes| changes.changed())) => None,
            }
        });
        match watch(call, work).await {
            Ok(Some(end)) => return end,
            Err(Interrupt::AbortRetry) if !call.driver().state().is_retrying() => {}
            // No permit comes earlier because a person wants it.
            Err(Interrupt::RetryNow) if is_permit => {}
            Err(interrupt) => return WaitEnd::Interrupted(interrupt),
            Ok(None) => {}
        }
        let now = call.now();
        if let Some(accounts) = &accounts {
            let model = call.target().map(|target| target.model.to_owned());
            if model.is_some_and(|model| call.driver().has_better_account(accounts, &model)) {
                return WaitEnd::Reconsider;
            }
        }
        if reconsider_at.is_some_and(|at| at <= now) {
            reconsider_at = Some(now + RECONSIDER_INTERVAL);
        }
    }
}

/// Returns the next time at which a hold may end; the end, if it has come.
fn next_hold_end<'c>(
    call: &mut dyn Call<'c>,
    request: Option<&GateRequest>,
) -> Result<Option<Timestamp>, WaitEnd> {
    let now = call.now();
    let driver = call.driver();
    let since = driver.held_since.unwrap_or(now);
    let deadline = driver.state().prompt().deadline();
    if deadline.is_some_and(|deadline| now >= deadline) {
        return Err(WaitEnd::DeadlinePassed);
    }
    let arrived = request.or(driver.request.as_ref());
    let arrived = arrived.map_or(since, GateRequest::arrived);
    let limit = driver.state().rules().hold_limit(arrived, since);
    if let Some(limit) = limit {
        let stated = request.and_then(GateRequest::stated_end);
        if let Some(stated) = stated.filter(|stated| *stated > limit) {
            let (requested, allowed) = (stated.since(now), limit.since(now));
            return Err(WaitEnd::Rejected(GiveUp::StatedWaitTooLong {
                requested,
                allowed,
            }));
        }
        if now >= limit {
            let budget = limit.since(arrived.min(since));
            return Err(WaitEnd::Rejected(GiveUp::SleepBudgetExhausted { budget }));
        }
    }
    // A call that waits for a permit stays with its target.
    let leave_at = request.and_then(|_| call.leave_target_at(since));
    if leave_at.is_some_and(|at| now >= at) {
        let expected = request.and_then(GateRequest::expected_start);
        return Err(WaitEnd::TargetLeft(expected.unwrap_or(now)));
    }
    Ok(earliest([limit, deadline, leave_at]))
}

fn earliest(times: [Option<Timestamp>; 3]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
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

/// Resolves like the future; never, if there is none.
pub(crate) fn maybe<F: Future>(future: Option<F>) -> Either<F, Pending<F::Output>> {
    match future {
        Some(future) => Either::Left(future),
        None => Either::Right(pending()),
    }
}
