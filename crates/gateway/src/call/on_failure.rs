//! The steps after an attempt: what its result means for the account and the client, and the decision about a failure.

use super::Call;
use crate::call::attempt::{FailedAttempt, UpstreamResponse};
use crate::observe::log::EventKind;
use bytes::Bytes;
use http::HeaderValue;
use outlast_engine::attempt::Call as _;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::Effects;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use std::sync::Arc;

impl Call {
    /// The provider has begun to answer: the trouble is over, and the response can be relayed.
    pub(super) async fn on_success(&mut self, response: UpstreamResponse, began: Timestamp) {
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
    pub(super) async fn on_failed_attempt(&mut self, failed: Box<FailedAttempt>) -> Effects {
        let FailedAttempt {
            failure,
            error_response,
        } = *self.scrub_secrets(failed);
        let now = self.shared.now();
        let failure = self.driver.failed(failure, now);
        let status = error_response.as_ref();
        let status = status.map(|response| response.status.as_u16());
        self.failure_state.error_response = error_response.map(Box::new);
        self.record_failed_attempt(&failure, status);
        self.decide(failure, now).await
    }

    /// Handles a failure that is not the provider's, such as the lack of a key.
    pub(super) async fn on_own_failure(&mut self, failure: Failure) -> Effects {
        let now = self.shared.now();
        let failure = self.driver.failed(failure, now);
        self.failure_state.error_response = None;
        self.decide(failure, now).await
    }

    fn record_failed_attempt(&self, failure: &ClassifiedFailure, status: Option<u16>) {
        let cause = failure.verdict.cause;
        let dialect = self.request.route.is_retried();
        let dialect = dialect.then(|| self.request.dialect());
        self.shared.metrics.attempt_failed(dialect, cause);
        // The moment of the decision, so that waits are shown as they were decided.
        self.log_event_at(
            failure.failure.at,
            EventKind::AttemptFailed {
                cause,
                attempt: self.failure_state.attempts,
                status,
                account: self.account_name(),
                message: &failure.failure.message,
            },
        );
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
        let remedies = effect.remedies();
        self.driver
            .decide(effect.failure, remedies, Some(&self.strategy), now)
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
