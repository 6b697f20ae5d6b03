//! The steps after an attempt: reports its result to the shared state, and a failure to the kernel.

use crate::call::attempt::FailedAttempt;
use crate::call::{Call, EndReason};
use crate::inbound_request::compact_headers;
use crate::observe::log::EventKind;
use bytes::Bytes;
use http::HeaderValue;
use outlast_engine::RetryStrategy;
use outlast_engine::accounts::AccountStatus;
use outlast_engine::admission::Ticket;
use outlast_engine::shared_state::affects_other_callers;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Event, step};
use outlast_kernel::decision::{GiveUp, Remedies};
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind};
use outlast_kernel::policy::Switches;
use std::sync::Arc;

/// What is kept of an error while its request waits.
const MAX_KEPT_ERROR_BYTES: usize = 4 << 10;

impl Call {
    pub(crate) async fn on_success(&mut self, admission: Option<Ticket>, begun: Timestamp) {
        if let Some(admission) = admission {
            admission.report_success().await;
        } else if self.request.route.is_retried() {
            // Whoever did not ask the gate has still shown that all is well.
            self.shared.admission.report_success(&self.gate_key()).await;
        }
        let upstream = self.upstreams.for_route(self.request.route);
        if let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) {
            let model = &self.request.model;
            accounts.record_success(&account.name, model, begun).await;
        }
        self.discard_hold();
        self.gauge_guards.clear();
    }

    /// Takes note of a failure and lets the kernel decide; the answer is how the request ends, if it does.
    pub(crate) async fn on_failure(
        &mut self,
        failed: Box<FailedAttempt>,
        admission: Option<Ticket>,
    ) -> Option<EndReason> {
        self.permit = None;
        let now = self.shared.now();
        let failed = self.scrub_secrets(failed);
        let judged = ClassifiedFailure::new(Failure {
            at: now,
            ..failed.failure.clone()
        });
        self.record_failure(&failed, &judged);
        self.failure_state.last_failure = Some(failed);
        if let Some(admission) = admission {
            admission.report_failure(&judged).await;
        }
        let (judged, remedies) = self.judge_with_accounts(judged).await;
        let scheduled_delay = self.strategy.delay_for(self.state.chain().schedule_index());
        let mut effects = step(
            &mut self.state,
            Event::Failed {
                failure: judged,
                scheduled_delay,
                remedies,
                now,
            },
        );
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::SleepUntil(at) => {
                    self.trim_error_response();
                    // After a wait, all of them are worth another look.
                    self.excluded_accounts.clear();
                    self.refreshed_accounts.clear();
                    self.failure_state.last_failed_at = Some(now);
                    self.failure_state.failing_since.get_or_insert(now);
                    self.failure_state.retry_at = Some(at);
                    return None;
                }
                Effect::Apply(_) => {
                    self.exclude_account();
                    step(&mut self.state, Event::RemedyDone);
                    return None;
                }
                Effect::ReportError(_, why) => return Some(EndReason::GaveUp(why)),
                _ => {}
            }
        }
        Some(EndReason::GaveUp(GiveUp::NotRetryable))
    }

    /// Whoever waits keeps no connection to the provider for the end of an error that is too long.
    fn trim_error_response(&mut self) {
        let last = self.failure_state.last_failure.as_mut();
        if let Some(refusal) = last.and_then(|failed| failed.error_response.as_mut()) {
            refusal.rest = None;
            // Pieces of a larger buffer would keep all of it.
            let kept = refusal.body.len().min(MAX_KEPT_ERROR_BYTES);
            refusal.body = Bytes::copy_from_slice(&refusal.body[..kept]);
            refusal.headers = compact_headers(&refusal.headers);
        }
    }

    /// Some providers send back what they were sent. What stands in the log is for others than the client, and the key of
    /// a stored account is for nobody.
    fn scrub_secrets(&self, mut failed: Box<FailedAttempt>) -> Box<FailedAttempt> {
        for credential in self.request.credentials() {
            credential.scrub(&mut failed.failure);
        }
        if let Some(account) = &self.account {
            account.credential.scrub(&mut failed.failure);
            if let Some(refusal) = &mut failed.error_response {
                refusal.body = account.credential.scrubbed(&refusal.body);
                for value in refusal.headers.values_mut() {
                    let bytes = Bytes::copy_from_slice(value.as_bytes());
                    // What was a header without the key is one.
                    if let Ok(clean) =
                        HeaderValue::from_maybe_shared(account.credential.scrubbed(&bytes))
                    {
                        *value = clean;
                    }
                }
            }
        }
        failed
    }

    fn record_failure(&mut self, failed: &FailedAttempt, judged: &ClassifiedFailure) {
        let cause = judged.verdict.cause;
        self.failure_state.last_cause = Some(cause);
        self.failure_state.is_shared = affects_other_callers(cause);
        let dialect = self
            .request
            .route
            .is_retried()
            .then(|| self.request.dialect());
        self.shared.metrics.attempt_failed(dialect, cause);
        let status = failed
            .error_response
            .as_ref()
            .map(|refusal| refusal.status.as_u16());
        self.log_event(EventKind::AttemptFailed {
            cause,
            attempt: self.failure_state.attempts,
            status,
            account: self.account.as_ref().map(|account| account.name.as_str()),
            message: &judged.failure.message,
        });
    }

    /// A failure with all accounts in view, and whether another one could be asked.
    async fn judge_with_accounts(
        &mut self,
        judged: Arc<ClassifiedFailure>,
    ) -> (Arc<ClassifiedFailure>, Remedies) {
        let upstream = self.upstreams.for_route(self.request.route);
        let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) else {
            return (judged, Remedies::NONE);
        };
        let model = &self.request.model;
        let may_refresh = !self.refreshed_accounts.contains(&account.name);
        let standing = accounts
            .record_failure(account, model, &judged, may_refresh)
            .await;
        let renewed = standing == AccountStatus::Renewed;
        if renewed {
            self.refreshed_accounts.push(account.name.clone());
        }
        let another = renewed
            || accounts
                .has_free_sibling(&account.name, &self.excluded_accounts, model)
                .await;
        let switch = Switches {
            account: another,
            ..Switches::NONE
        };
        let remedies = Remedies {
            switch,
            ..Remedies::NONE
        };
        let verdict = accounts.combined_verdict(&judged.verdict, model);
        let failure = judged.failure.clone();
        (Arc::new(ClassifiedFailure { failure, verdict }), remedies)
    }

    /// Goes on without the account in use, unless it has just got a new key.
    fn exclude_account(&mut self) {
        let account = self.account.take();
        let left = account.filter(|account| self.refreshed_accounts.last() != Some(&account.name));
        self.excluded_accounts
            .extend(left.map(|account| account.name));
    }

    pub(crate) fn key_failure(&self, problem: &str) -> FailedAttempt {
        let message = format!("no key can be had: {problem}");
        let name = &self.upstreams.for_route(self.request.route).name;
        let failure = Failure::thrown(name, &message, self.shared.now());
        FailedAttempt {
            failure: failure.with_io(IoKind::Misconfigured),
            error_response: None,
        }
    }
}
