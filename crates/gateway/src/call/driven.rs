//! A request as a caller of the engine's attempt driver.
//!
//! Invariants: while the driver waits, the client is kept alive, and a client that disconnects ends the call at once; an
//! announcement of the driver reaches the log, the timeline and the hold.

use super::keepalive::KeepAlive;
use super::{Call, EndReason, response_metadata};
use crate::holds::{Command, Hold};
use crate::observe::log::{EventKind, WaitReason};
use outlast_engine::BoxFuture;
use outlast_engine::accounts::Accounts;
use outlast_engine::attempt::{
    Announcement, Call as DrivenCall, Driver, Ended, GateTarget, HoldReason, Interrupt, Wait, Work,
};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Effects, Event, step};
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::Cause;
use std::pin::pin;

impl DrivenCall<'static> for Call {
    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn target(&self) -> Option<GateTarget> {
        let upstream = self.upstreams.for_route(self.request.route);
        self.request.route.is_retried().then(|| GateTarget {
            provider: upstream.name.clone(),
            address: upstream.address.clone(),
            model: self.request.model.to_string(),
            account: (self.request).key_account(&upstream.name, &upstream.address),
        })
    }

    fn accounts(&self) -> Option<Accounts> {
        let accounts = &self.upstreams.for_route(self.request.route).accounts;
        let accounts = accounts.as_deref().cloned();
        accounts.filter(|_| self.request.is_model_request())
    }

    fn now(&self) -> Timestamp {
        self.shared.now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(self.shared.timers.sleep_until(Some(at)))
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Option<Effects>, Ended>> {
        // A request that has waited for hours continues with the current settings.
        self.upstreams = self.shared.upstreams();
        Box::pin(std::future::ready(Ok(None)))
    }

    fn account_chosen(&mut self, is_new: bool) {
        if let (true, Some(account), Some(hold)) = (is_new, self.driver.account(), &self.hold) {
            hold.set_account(&account.name);
        }
    }

    fn attempt(&mut self) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async {
            let began = self.shared.now();
            // Bound to a name, so that the memory of its future is free for the code below.
            let result = self.send().await;
            match result {
                Ok(Ok(response)) => {
                    self.on_success(response, began).await;
                    Ok(step(self.driver.state_mut(), Event::Succeeded))
                }
                Ok(Err(failed)) => Ok(Box::pin(self.on_failed_attempt(failed)).await),
                Err(end) => {
                    self.save_progress();
                    Err(self.end_with(end))
                }
            }
        })
    }

    fn on_failure(&mut self, failure: Failure) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async { Ok(self.on_own_failure(failure).await) })
    }

    fn perform(&mut self, effect: Effect) -> BoxFuture<'_, Result<Effects, Ended>> {
        let effects = match effect {
            Effect::ReportError(failure, _) => {
                self.failure_state.hold_failure = Some(failure);
                Effects::new()
            }
            // There is no remedy but another account.
            Effect::Apply(_) => step(self.driver.state_mut(), Event::RemedyFailed),
            _ => Effects::new(),
        };
        Box::pin(std::future::ready(Ok(effects)))
    }

    fn record_wait<'s>(&'s mut self, wait: Wait<'s>) -> BoxFuture<'s, Result<(), Ended>> {
        Box::pin(async move {
            let begun = self.begin_wait(wait).await;
            begun.map_err(|end| self.end_with(end))
        })
    }

    fn announce(&mut self, announcement: Announcement<'_>) {
        match announcement {
            // Another account is asked at once.
            Announcement::Retry(retry) if retry.delay.is_zero() => {}
            Announcement::Retry(retry) => {
                let reason = match retry.is_stated() {
                    true => WaitReason::StatedTime,
                    false => WaitReason::Schedule,
                };
                let cause = retry.failure.verdict.cause;
                self.announce_wait(reason, Some(cause), retry.at);
            }
            Announcement::Hold {
                until,
                reason,
                cause,
            } => {
                let reason = match reason {
                    HoldReason::Gate => WaitReason::Gate,
                    HoldReason::Permit => WaitReason::Permit,
                };
                self.announce_wait(reason, self.failure_state.last_cause.or(cause), until);
            }
            Announcement::Ended(_) => {}
        }
    }

    fn watch<'s>(&'s mut self, work: Work<'s>) -> BoxFuture<'s, Option<Interrupt>> {
        Box::pin(self.keep_client_while(work))
    }
}

impl Call {
    /// Polls `work` while the client is kept alive.
    async fn keep_client_while(&mut self, work: Work<'_>) -> Option<Interrupt> {
        let end = match self.watch_client(work).await {
            Ok(WatchEnd::Done) => return None,
            Ok(WatchEnd::Command(Command::RetryNow)) => return Some(Interrupt::RetryNow),
            Ok(WatchEnd::UpstreamsChanged) => {
                self.upstreams = self.shared.upstreams();
                return Some(Interrupt::Reconsider);
            }
            Ok(WatchEnd::Command(Command::Cancel)) => EndReason::Cancelled,
            Ok(WatchEnd::Stopping) => {
                EndReason::SentBack(self.keepalive.hold_ending(self.shared.now()))
            }
            Err(end) => end,
        };
        Some(Interrupt::Ended(self.end_with(end)))
    }

    async fn watch_client(&mut self, work: Work<'_>) -> Result<WatchEnd, EndReason> {
        let shared = &*self.shared;
        let mut keeper = KeepAlive {
            metadata: response_metadata(&self.request.id, &self.failure_state, &self.driver),
            response: &mut self.response,
            schedule: &mut self.keepalive,
            is_streamed: self.request.is_streamed,
            shared,
        };
        let (hold, upstreams) = (self.hold.as_ref(), &self.upstreams);
        let waiting = pin!(async {
            tokio::select! {
                biased;
                () = work => WatchEnd::Done,
                command = command(hold) => WatchEnd::Command(command),
                () = shared.upstreams_changed(upstreams) => WatchEnd::UpstreamsChanged,
                () = shared.stopping.cancelled() => WatchEnd::Stopping,
            }
        });
        keeper.run(waiting).await.into_result()
    }

    /// Tells the client's schedule, the hold, the timeline and the log when the next attempt is expected. The log has one line
    /// for each reason: the times of thousands of requests move with every probe.
    fn announce_wait(&mut self, reason: WaitReason, cause: Option<Cause>, wake: Timestamp) {
        self.keepalive.set_retry_at(Some(wake));
        if let Some(hold) = &self.hold {
            hold.set_expected(wake);
        }
        let kind = EventKind::Waiting {
            cause: cause.unwrap_or(Cause::Overloaded),
            attempt: self.failure_state.attempts,
            reason,
            wake: Some(wake),
        };
        let is_known = self.failure_state.logged_reason.replace(reason) == Some(reason);
        match is_known {
            true => {
                (self.shared.request_log).record_event(self.log_entry, self.shared.now(), &kind)
            }
            false => self.log_event(kind),
        }
    }
}

/// The end of a time for which a client was kept alive.
enum WatchEnd {
    Done,
    Command(Command),
    UpstreamsChanged,
    Stopping,
}

async fn command(hold: Option<&Hold>) -> Command {
    match hold {
        Some(hold) => hold.command().await,
        None => std::future::pending().await,
    }
}

/// Returns the size of the future that looks after the client of a held request.
#[cfg(test)]
pub(super) fn held_future_size() -> usize {
    fn size<'c, 'w, Made: Future>(_: fn(&'c mut Call, Work<'w>) -> Made) -> usize {
        size_of::<Made>()
    }
    size(Call::keep_client_while)
}
