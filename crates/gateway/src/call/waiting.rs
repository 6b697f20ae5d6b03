//! The record of a wait, and resuming where an earlier sending of the request stopped.
//!
//! Invariants: a wait is recorded before it begins; a request that waits keeps no buffer that it does not need. Not here: the
//! wait itself (see the engine's attempt driver).

use super::{Call, EndReason, FailureState};
use crate::body_store::Body;
use crate::holds::{Identity, Progress, RequestSummary};
use crate::inbound_request::compact_headers;
use crate::observe::log::EventKind;
use crate::observe::metrics::GaugeGuard;
use bytes::Bytes;
use outlast_engine::attempt::{Driver, Wait};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effects, State, Wait as RecordedWait};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::{Cause, Scope, Verdict};

/// Maximum number of bytes that are kept of an error response while its request waits.
const MAX_KEPT_ERROR_BYTES: usize = 4 << 10;

// --- Resuming ---

impl Call {
    /// Returns whether an earlier sending of the request may have left a hold.
    pub(super) fn may_resume(&self) -> bool {
        self.shared.holds.has_abandoned() && self.request.route.is_retried()
    }

    /// Resumes where an earlier sending of the same request stopped; returns the effects if that was in a wait.
    pub(super) async fn resume(&mut self) -> Option<Effects> {
        let identity = self.identity().await?;
        let holds = &self.shared.holds;
        let (hold, progress) = holds.resume(&identity, self.hold_summary())?;
        self.hold = Some(hold);
        let now = self.shared.now();
        self.failure_state = FailureState {
            failing_since: Some(progress.since),
            attempts: progress.attempts,
            resent: progress.resent,
            waited: now.since(progress.since),
            last_cause: progress.cause,
            ..FailureState::default()
        };
        self.gauge_guards
            .push(GaugeGuard::new(&self.shared.metrics.held, 1));
        self.emit(EventKind::Resumed {
            attempts: progress.attempts,
            resent: progress.resent,
            since: progress.since,
        });
        let rules = *self.driver.state().rules();
        let state = State::new(rules, progress.prompt).with_chain(progress.chain);
        let driver = Driver::new(state, Some(self.shared.shared_state.clone()));
        self.driver = driver.resumed(Some(progress.since), Vec::new());
        let until = progress.wake.filter(|wake| *wake > now)?;
        let cause = progress.cause.unwrap_or(Cause::ServerError);
        let failure = Failure::thrown(self.provider(), cause.phrase(), now);
        let failure = failure.with_verdict(Verdict::new(cause, Scope::Provider));
        let wait = RecordedWait {
            since: now,
            until,
            failure: ClassifiedFailure::new(failure),
        };
        self.failure_state.waiting_since = Some(now);
        self.release_buffers().await;
        Some(self.driver.resume_wait(wait, now))
    }

    /// Returns the identity of the request, by the parts that the client repeats in a resend.
    async fn identity(&self) -> Option<Identity> {
        let body = self.request.body.bytes().await.ok()?;
        Some(self.request.identity(&body))
    }
}

// --- Recording ---

impl Call {
    /// Records a wait, and frees the buffers that it does not need.
    pub(super) async fn begin_wait(&mut self, wait: Wait<'_>) -> Result<(), EndReason> {
        let now = self.shared.now();
        self.failure_state.failing_since.get_or_insert(now);
        self.failure_state.waiting_since.get_or_insert(now);
        self.begin_hold().await?;
        self.trim_error_response();
        self.release_buffers().await;
        let wake = match wait {
            Wait::Retry(retry) => Some(retry.at),
            Wait::Hold(_) => None,
        };
        if let Some(hold) = &self.hold {
            hold.begin_wait(self.progress(wake), wake);
        }
        Ok(())
    }

    /// The wait is over, if there is one.
    pub(super) fn end_wait(&mut self) {
        if let Some(since) = self.failure_state.waiting_since.take() {
            self.failure_state.waited += self.shared.now().since(since);
        }
    }

    /// Registers the hold of a request that waits for the first time.
    async fn begin_hold(&mut self) -> Result<(), EndReason> {
        if self.hold.is_some() {
            return Ok(());
        }
        let holds = &self.shared.holds;
        if holds.waiting_count() >= self.shared.limits.max_waiting {
            return Err(EndReason::TooManyWaiting);
        }
        let Some(identity) = self.identity().await else {
            return Err(EndReason::TooManyWaiting);
        };
        self.hold = Some(holds.begin(identity, self.hold_summary(), self.progress(None)));
        self.gauge_guards
            .push(GaugeGuard::new(&self.shared.metrics.held, 1));
        Ok(())
    }

    /// Keeps no connection to the provider for the rest of an error that is too long.
    fn trim_error_response(&mut self) {
        if let Some(response) = &mut self.failure_state.error_response {
            response.rest = None;
            // Pieces of a larger buffer would keep all of it.
            let kept = response.body.len().min(MAX_KEPT_ERROR_BYTES);
            response.body = Bytes::copy_from_slice(&response.body[..kept]);
            response.headers = compact_headers(&response.headers);
        }
    }

    /// Frees the buffers that a wait does not need.
    async fn release_buffers(&mut self) {
        self.request.pack_headers();
        let body = std::mem::replace(&mut self.request.body, Body::Memory(Bytes::new()));
        let was_stored = matches!(body, Body::File(_));
        self.request.body = self.shared.body_store.store(body).await;
        if let (Body::File(_), false) = (&self.request.body, was_stored) {
            let spooled = GaugeGuard::new(&self.shared.metrics.spooled, self.request.body.len());
            self.gauge_guards.push(spooled);
        }
    }

    /// Returns the description of the request for people.
    fn hold_summary(&self) -> RequestSummary {
        let account = self.account_name();
        RequestSummary {
            id: self.request.id.as_str().into(),
            client: self.request.profile.name.into(),
            dialect: Some(self.request.dialect().name().into()),
            model: Some(self.request.model.clone()).filter(|model| !model.is_empty()),
            account: Some(
                account
                    .unwrap_or(&self.request.credential_fingerprint)
                    .into(),
            ),
            path: self.request.path().into(),
        }
    }

    /// Records that an attempt was made whose result its client did not wait for.
    pub(super) fn save_progress(&self) {
        if let Some(hold) = &self.hold {
            hold.update(self.progress(None), None);
        }
    }

    fn progress(&self, wake: Option<Timestamp>) -> Progress {
        let state = self.driver.state();
        Progress {
            chain: *state.chain(),
            prompt: state.prompt().clone(),
            since: self
                .failure_state
                .failing_since
                .unwrap_or(self.request.received_at),
            wake,
            attempts: self.failure_state.attempts,
            resent: self.failure_state.resent,
            cause: self.failure_state.last_cause,
        }
    }
}
