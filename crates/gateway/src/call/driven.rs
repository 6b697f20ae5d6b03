//! A request as a caller of the engine's attempt driver: what a wait and the result of an attempt mean for the client, the
//! account and the log.
//!
//! Invariants: while the driver waits, the client is kept alive, and a client that disconnects ends the call at once; an
//! announcement of the driver reaches the log, the timeline and the hold; no credential of a failure reaches the log.

use super::attempt::{FailedAttempt, UpstreamResponse};
use super::{Call, EndReason, response_metadata};
use crate::clients::{HoldEnding, KeepAliveAction, KeepAliveSchedule};
use crate::holds::{Command, Hold};
use crate::observe::log::{EventKind, WaitReason};
use crate::server::response_writer::ResponseWriter;
use crate::shared::Shared;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use outlast_engine::accounts::Accounts;
use outlast_engine::attempt::{
    Announcement, Call as DrivenCall, Driver, Ended, GateTarget, HoldReason, Interrupt, Wait, Work,
};
use outlast_engine::{BoxFuture, RetryStrategy};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Effects, Event, step};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::Cause;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

const ATTEMPTS: HeaderName = HeaderName::from_static("x-outlast-attempts");
const WAITED: HeaderName = HeaderName::from_static("x-outlast-waited-ms");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-outlast-request-id");
const ACCOUNT: HeaderName = HeaderName::from_static("x-outlast-account");

impl DrivenCall<'static> for Call {
    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn target(&self) -> Option<GateTarget<'_>> {
        let upstream = self.upstreams.for_route(self.request.route);
        self.request.route.is_retried().then(|| GateTarget {
            provider: &upstream.name,
            address: &upstream.address,
            model: &self.request.model,
            account: (self.request).key_account(&upstream.name, &upstream.address),
        })
    }

    fn accounts(&self) -> Option<Accounts> {
        let accounts = &self.upstreams.for_route(self.request.route).accounts;
        let accounts = accounts.as_deref().cloned();
        accounts.filter(|_| self.request.route.is_retried())
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
        match self.watch_client(work).await {
            Ok(interrupt) => {
                if interrupt == Some(Interrupt::Reconsider) {
                    self.upstreams = self.shared.upstreams();
                }
                interrupt
            }
            Err(end) => Some(Interrupt::Ended(self.end_with(end))),
        }
    }

    async fn watch_client(&mut self, work: Work<'_>) -> Result<Option<Interrupt>, EndReason> {
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
                () = work => Ok(None),
                command = command(hold) => match command {
                    Command::RetryNow => Ok(Some(Interrupt::RetryNow)),
                    Command::Cancel => Err(EndReason::Cancelled),
                },
                () = shared.upstreams_changed(upstreams) => Ok(Some(Interrupt::Reconsider)),
                () = shared.stopping.cancelled() => Err(EndReason::Stopping),
            }
        });
        keeper.run(waiting).await?
    }

    /// Tells the client's schedule, the hold, the timeline and the log when the next attempt is expected. The log has one line
    /// for each reason: the times of thousands of requests move with every probe.
    fn announce_wait(&mut self, reason: WaitReason, cause: Option<Cause>, wake: Timestamp) {
        self.keepalive.set_retry_at(Some(wake));
        if let Some(hold) = &self.hold {
            hold.set_expected(wake);
        }
        let cause = cause.unwrap_or(Cause::Overloaded);
        let (attempt, wake) = (self.failure_state.attempts, Some(wake));
        let is_known = self.failure_state.logged_reason.replace(reason) == Some(reason);
        self.emit(match is_known {
            true => EventKind::WaitMoved {
                cause,
                attempt,
                wake,
            },
            false => EventKind::Waiting {
                cause,
                attempt,
                reason,
                wake,
            },
        });
    }
}

// --- The result of an attempt ---

impl Call {
    /// The provider has begun to answer: the trouble is over, and the response can be relayed.
    async fn on_success(&mut self, response: UpstreamResponse, began: Timestamp) {
        self.driver.accepted();
        let upstream = self.upstreams.for_route(self.request.route);
        if let (Some(accounts), Some(account)) = (&upstream.accounts, self.driver.account()) {
            let model = &self.request.model;
            accounts.record_success(&account.name, model, began).await;
        }
        self.discard_hold();
        self.gauge_guards.clear();
        self.permit = self.driver.take_permit();
        self.upstream_response = Some(Box::new(response));
    }

    /// Logs a failed attempt and decides about it.
    async fn on_failed_attempt(&mut self, failed: Box<FailedAttempt>) -> Effects {
        let FailedAttempt {
            failure,
            error_response,
        } = *self.scrub_secrets(failed);
        let now = self.shared.now();
        let failure = self.driver.failed(failure, now);
        let status = error_response.as_ref();
        let status = status.map(|response| response.status.as_u16());
        self.failure_state.error_response = error_response.map(Box::new);
        // The moment of the decision, so that waits are shown as they were decided.
        self.emit_at(
            failure.failure.at,
            EventKind::AttemptFailed {
                cause: failure.verdict.cause,
                attempt: self.failure_state.attempts,
                status,
                account: self.account_name(),
                message: &failure.failure.message,
            },
        );
        self.decide(failure, now).await
    }

    /// Handles a failure that is not the provider's, such as the lack of a key.
    async fn on_own_failure(&mut self, failure: Failure) -> Effects {
        let now = self.shared.now();
        let failure = self.driver.failed(failure, now);
        self.failure_state.error_response = None;
        self.decide(failure, now).await
    }

    /// Lets the kernel decide about a failure.
    async fn decide(&mut self, failure: Arc<ClassifiedFailure>, now: Timestamp) -> Effects {
        self.failure_state.last_cause = Some(failure.verdict.cause);
        self.failure_state.last_failure = Some(Arc::clone(&failure));
        let accounts = self.accounts();
        let model = &self.request.model;
        let effect = self
            .driver
            .consider_accounts(failure, accounts.as_ref(), model);
        let effect = effect.await;
        let own = |index| self.strategy.delay_for(index);
        self.driver
            .decide(effect.failure, effect.remedies, own, now)
    }

    /// Removes credentials from a failure. Some providers send back what they were sent: the log is for others than the
    /// client, and the key of a stored account is for nobody.
    fn scrub_secrets(&self, mut failed: Box<FailedAttempt>) -> Box<FailedAttempt> {
        for credential in self.request.credentials() {
            credential.scrub(&mut failed.failure);
        }
        let Some(account) = self.driver.account() else {
            return failed;
        };
        account.credential.scrub(&mut failed.failure);
        if let Some(response) = &mut failed.error_response {
            response.body = account.credential.scrubbed(&response.body);
            for value in response.headers.values_mut() {
                let bytes = Bytes::copy_from_slice(value.as_bytes());
                // A header stays valid without the key.
                if let Ok(clean) =
                    HeaderValue::from_maybe_shared(account.credential.scrubbed(&bytes))
                {
                    *value = clean;
                }
            }
        }
        failed
    }
}

// --- The client of a request that is under way ---

/// The attempts and waits of a request so far, for the headers of its response. The headers are made when they are sent:
/// most requests wait for long, or not at all.
#[derive(Clone, Copy)]
pub(crate) struct ResponseMetadata<'a> {
    pub(crate) id: &'a str,
    pub(crate) attempts: u32,
    pub(crate) waited: Duration,
    /// The name of the stored account that was used.
    pub(crate) account: Option<&'a str>,
}

impl ResponseMetadata<'_> {
    pub(crate) fn to_headers(self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(12);
        self.add_to(&mut headers);
        headers
    }

    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        let waited = outlast_kernel::time::millis(self.waited);
        headers.insert(ATTEMPTS, self.attempts.into());
        headers.insert(WAITED, waited.into());
        for (header, value) in [(REQUEST_ID, Some(self.id)), (ACCOUNT, self.account)] {
            // A name that no header can hold is left out.
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(header, value);
            }
        }
    }
}

/// A client that is kept alive.
pub(crate) struct KeepAlive<'a> {
    pub(crate) response: &'a mut ResponseWriter,
    pub(crate) schedule: &'a mut KeepAliveSchedule,
    /// For the head, if it has to be sent before there is a response.
    pub(crate) metadata: ResponseMetadata<'a>,
    pub(crate) is_streamed: bool,
    pub(crate) shared: &'a Shared,
}

impl KeepAlive<'_> {
    /// Keeps the client alive until the work is done. Fails if the client disconnects, or cannot be kept any longer. The work
    /// comes pinned: moved in here, it would take its room twice in every request that is held.
    pub(crate) async fn run<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, EndReason> {
        loop {
            let next = self.schedule.next_action().map(|(at, _)| at);
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(done),
                () = self.response.disconnected() => return Err(EndReason::ClientDisconnected),
                () = self.shared.timers.sleep_until(next) => {}
            }
            let Some(act) = self.schedule.take_due(self.shared.now()) else {
                continue;
            };
            match Box::pin(self.perform(act)).await {
                Ok(None) => {}
                Ok(Some(ending)) => return Err(EndReason::SentBack(ending)),
                Err(_) => return Err(EndReason::ClientDisconnected),
            }
        }
    }

    async fn perform(&mut self, act: KeepAliveAction) -> io::Result<Option<HoldEnding>> {
        match act {
            KeepAliveAction::SendInterim => {
                self.shared.emit(EventKind::InterimResponse);
                self.response.interim().await?;
            }
            KeepAliveAction::SendHeaders => {
                let headers = early_headers(self.metadata, self.is_streamed);
                self.response.head(StatusCode::OK, &headers, None);
                self.response.flush().await?;
            }
            KeepAliveAction::SendHeartbeat(bytes) => {
                self.shared.emit(EventKind::Heartbeat);
                self.response.data(&[Bytes::from_static(bytes)]).await?;
            }
            KeepAliveAction::EndHold(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }
}

/// Returns the headers of a response that is not known yet, except for its form.
fn early_headers(metadata: ResponseMetadata<'_>, is_streamed: bool) -> HeaderMap {
    let mut headers = metadata.to_headers();
    let form = match is_streamed {
        true => "text/event-stream; charset=utf-8",
        false => "application/json",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers
}

/// Waits for a command of a person; for ever, if the request is not held.
pub(super) async fn command(hold: Option<&Hold>) -> Command {
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
