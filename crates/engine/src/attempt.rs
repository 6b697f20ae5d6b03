//! The one retry loop: makes the attempts of a call, and performs every wait between them.
//!
//! The kernel decides (`attempt`, `decision`, `gate`); [`run`] carries the decisions out: it chooses the account, passes the
//! gate, takes a permit, lets the caller make one attempt, reports the result, records a wait, announces it, and waits. A
//! caller implements [`Call`]: how an attempt is made, and how a wait is recorded and announced.
//!
//! Invariants: a wait is recorded, then announced, then begun; the result of an attempt is reported to its gate once; a
//! request that waits holds no permit; every wait ends when the caller wants something else.
//! Not here: the rules (see the kernel), one attempt (see `provider` and the gateway), events and log lines.

mod admit;
mod driver;
mod wait;

pub use crate::permits::Permit;
pub(crate) use admit::deadline_passed;
pub use driver::{AccountEffect, Driver};
pub(crate) use wait::maybe;

use crate::BoxFuture;
use crate::accounts::Accounts;
use crate::strategy::Aborted;
use admit::Stopped;
use futures_util::FutureExt;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Effects, Event, Outcome, RetryEnded, RetryScheduled, step};
use outlast_kernel::decision::{Remedy, Target as SwitchTarget};
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind};
use outlast_kernel::verdict::Cause;
use std::collections::VecDeque;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

/// The target of an attempt, as far as its gate is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateTarget<'t> {
    /// The name of the provider.
    pub provider: &'t str,
    /// Tells the provider from others with the same name.
    pub address: &'t str,
    /// The model.
    pub model: &'t str,
    /// The account, if none of [`Call::accounts`] is used.
    pub account: String,
}

/// A wish of the caller that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Make the attempt at once.
    RetryNow,
    /// End the wait for a retry, with the error that it follows.
    AbortRetry,
    /// End everything.
    Abort,
    /// The configuration has changed: choose the target again.
    Reconsider,
    /// The caller has ended the call itself.
    Ended(Ended),
}

/// The caller has ended the call itself, and knows how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// The reason for a wait at which no attempt failed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The gate: other requests fail, or are before this one.
    Gate,
    /// All permits of the account are taken.
    Permit,
}

/// A wait that begins.
#[derive(Clone, Copy, Debug)]
pub enum Wait<'a> {
    /// For a retry.
    Retry(&'a RetryScheduled),
    /// Before an attempt.
    Hold(HoldReason),
}

/// Something that listeners learn from the driver.
#[derive(Clone, Copy, Debug)]
pub enum Announcement<'a> {
    /// A retry is scheduled. It has no delay if another account is asked.
    Retry(&'a RetryScheduled),
    /// A wait before an attempt begins, or the expected end of a wait has moved.
    Hold {
        /// The expected time of the attempt.
        until: Timestamp,
        /// The reason for the wait.
        reason: HoldReason,
        /// The cause of the last failure at the gate.
        cause: Option<Cause>,
    },
    /// A chain of retries has ended.
    Ended(&'a RetryEnded),
}

/// One caller of the driver. All futures that it returns must be safe to drop. By default it has neither gate nor accounts,
/// and neither records nor tells anything.
pub trait Call<'c>: Send {
    /// Returns the state of its attempts.
    fn driver(&mut self) -> &mut Driver;

    /// Returns the target of the next attempt; `None` if it has no gate.
    fn target(&self) -> Option<GateTarget<'_>> {
        None
    }

    /// Returns the accounts of the target, if it has any.
    fn accounts(&self) -> Option<Accounts> {
        None
    }

    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Waits until that time.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'c, ()>;

    /// Sleeps until the time of a retry.
    fn sleep_for_retry(&self, at: Timestamp) -> BoxFuture<'c, Result<(), Aborted>> {
        Box::pin(self.sleep_until(at).map(Ok))
    }

    /// Prepares an attempt. Returns the effects if none may be made.
    fn prepare(&mut self) -> BoxFuture<'_, Result<Option<Effects>, Ended>> {
        Box::pin(ready(Ok(None)))
    }

    /// An account was chosen.
    fn account_chosen(&mut self, _is_new: bool) {}

    /// Makes one attempt, and returns the effects of its end. Calls [`Driver::accepted`] when the provider begins to answer.
    fn attempt(&mut self) -> BoxFuture<'_, Result<Effects, Ended>>;

    /// Handles a failure that the driver has found, and returns its effects.
    fn on_failure(&mut self, failure: Failure) -> BoxFuture<'_, Result<Effects, Ended>>;

    /// Performs an effect that is not the driver's.
    fn perform(&mut self, _effect: Effect) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(ready(Ok(Effects::new())))
    }

    /// Continues with another account; `name` is that of the old one, if it is not to be asked again.
    fn account_left(&mut self, _name: Option<String>) {}

    /// Records a wait before it begins.
    fn record_wait<'s>(&'s mut self, _wait: Wait<'s>) -> BoxFuture<'s, Result<(), Ended>> {
        Box::pin(ready(Ok(())))
    }

    /// Records that the wait for a retry has ended.
    fn record_wait_end(&mut self) {}

    /// Tells listeners.
    fn announce(&mut self, _announcement: Announcement<'_>) {}

    /// Polls `work` while it looks after its caller. Returns `None` when the work is done.
    fn watch<'s>(&'s mut self, work: Work<'s>) -> BoxFuture<'s, Option<Interrupt>>;

    /// Returns the time at which a call that is held since `since` leaves its target for another.
    fn leave_target_at(&self, _since: Timestamp) -> Option<Timestamp> {
        None
    }

    /// Leaves the target, whose gate holds the call until that time, for another.
    fn leave_target(&mut self, _until: Timestamp, _cause: Option<Cause>) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// Something that happens while the caller is looked after.
pub type Work<'s> = Pin<&'s mut (dyn Future<Output = ()> + Send + 's)>;

/// Carries effects out until the call is over.
pub fn run<'a, 'c>(
    call: &'a mut dyn Call<'c>,
    effects: Effects,
) -> impl Future<Output = Result<Outcome, Ended>> + Send + use<'a, 'c> {
    // The effects themselves would take their room in every call that waits.
    let mut todo = VecDeque::from_iter(effects);
    async move {
        let outcome = carry_out(call, &mut todo).await;
        call.driver().finish();
        outcome
    }
}

async fn carry_out<'c>(
    call: &mut dyn Call<'c>,
    todo: &mut VecDeque<Effect>,
) -> Result<Outcome, Ended> {
    loop {
        // The reducer always ends in `Settle`; should it not, the call still ends.
        let Some(effect) = todo.pop_front() else {
            return Ok(Outcome::Aborted);
        };
        let next = match effect {
            Effect::Settle(outcome) => return Ok(outcome),
            Effect::Call => make_attempt(call).await?,
            Effect::AnnounceRetry(retry) => match todo.pop_front_if(is_sleep) {
                Some(_) => wait_for_retry(call, &retry).await?,
                None => {
                    call.announce(Announcement::Retry(&retry));
                    Effects::new()
                }
            },
            Effect::AnnounceEnd(end) => {
                call.announce(Announcement::Ended(&end));
                Effects::new()
            }
            Effect::Apply(Remedy::Switch(SwitchTarget::Account)) => {
                let left = call.driver().leave_account();
                call.account_left(left);
                step(call.driver().state_mut(), Event::RemedyDone)
            }
            // Dropping the attempt or the timer has done it already.
            Effect::CancelCall | Effect::CancelSleep | Effect::SleepUntil(_) => Effects::new(),
            effect => call.perform(effect).await?,
        };
        todo.extend(next);
    }
}

const fn is_sleep(effect: &mut Effect) -> bool {
    matches!(effect, Effect::SleepUntil(_))
}

async fn make_attempt<'c>(call: &mut dyn Call<'c>) -> Result<Effects, Ended> {
    if let Some(effects) = call.prepare().await? {
        return Ok(effects);
    }
    match admit::admit(call).await {
        Ok(()) => {}
        Err(Stopped::Ended(ended)) => return Err(ended),
        Err(Stopped::Instead(effects)) => return Ok(*effects),
    }
    call.driver().begin();
    let effects = call.attempt().await?;
    call.driver().end_attempt();
    Ok(effects)
}

/// Waits for a retry; the retry may also be admitted before its own time.
async fn wait_for_retry<'c>(
    call: &mut dyn Call<'c>,
    retry: &RetryScheduled,
) -> Result<Effects, Ended> {
    if !call.driver().take_resumed() {
        call.record_wait(Wait::Retry(retry)).await?;
    }
    call.announce(Announcement::Retry(retry));
    let event = wait::for_retry(call, retry).await?;
    let effects = step(call.driver().state_mut(), event);
    call.record_wait_end();
    Ok(effects)
}

/// The failure of a call for which no account has a usable key.
pub(crate) fn no_usable_key(provider: &str, problem: &str, now: Timestamp) -> Failure {
    let message = format!("no usable API key: {problem}");
    Failure::thrown(provider, &message, now).with_io(IoKind::Misconfigured)
}

/// Returns the classification of a failure, as seen at `now`: a stated wait is announced as it was stated.
pub fn classify(failure: Failure, now: Timestamp) -> Arc<ClassifiedFailure> {
    ClassifiedFailure::new(Failure { at: now, ..failure })
}
