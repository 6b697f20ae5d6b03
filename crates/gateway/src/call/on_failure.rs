//! The steps after an attempt: reports its result to the shared state, and a failure to the kernel.

use crate::call::attempt::FailedAttempt;
use crate::call::{Call, EndReason};
use crate::inbound_request::detached;
use crate::observe::log::EventKind;
use bytes::Bytes;
use http::HeaderValue;
use outlast_engine::RetryStrategy;
use outlast_engine::accounts::AccountStatus;
use outlast_engine::admission::Ticket;
use outlast_engine::shared_state::is_shared;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Event, step};
use outlast_kernel::decision::{GiveUp, Remedies};
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind};
use outlast_kernel::policy::Switches;
use std::sync::Arc;

/// What is kept of an error while its request waits.
const MAX_KEPT_ERROR_BYTES: usize = 4 << 10;

impl Call {
    pub(crate) async fn accepted(&mut self, admission: Option<Ticket>, begun: Timestamp) {
        if let Some(admission) = admission {
            admission.accepted().await;
        } else if self.asked.route.is_retried() {
            // Whoever did not ask the gate has still shown that all is well.
            self.shared.desk.proved(&self.gate()).await;
        }
        let upstream = self.upstreams.of(self.asked.route);
        if let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) {
            let model = &self.asked.model;
            accounts.succeeded(&account.name, model, begun).await;
        }
        self.settle();
        self.counted.clear();
    }

    /// Takes note of a failure and lets the kernel decide; the answer is how the request ends, if it does.
    pub(crate) async fn failed(
        &mut self,
        failed: Box<FailedAttempt>,
        admission: Option<Ticket>,
    ) -> Option<EndReason> {
        self.seat = None;
        let now = self.shared.now();
        let failed = self.without_secrets(failed);
        let judged = ClassifiedFailure::new(Failure {
            at: now,
            ..failed.failure.clone()
        });
        self.note_failure(&failed, &judged);
        self.trouble.last = Some(failed);
        if let Some(admission) = admission {
            admission.failed(&judged).await;
        }
        let (judged, remedies) = self.with_accounts(judged).await;
        let own_delay = self.strategy.delay_for(self.state.chain().schedule_index());
        let mut effects = step(
            &mut self.state,
            Event::Failed {
                failure: judged,
                own_delay,
                remedies,
                now,
            },
        );
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::SleepUntil(at) => {
                    self.trim_error_response();
                    // After a wait, all of them are worth another look.
                    self.left.clear();
                    self.refreshed.clear();
                    self.trouble.failed = Some(now);
                    self.trouble.since.get_or_insert(now);
                    self.trouble.wake = Some(at);
                    return None;
                }
                Effect::Apply(_) => {
                    self.leave_account();
                    step(&mut self.state, Event::RemedyDone);
                    return None;
                }
                Effect::Report(_, why) => return Some(EndReason::Final(why)),
                _ => {}
            }
        }
        Some(EndReason::Final(GiveUp::NotRetryable))
    }

    /// Whoever waits keeps no connection to the provider for the end of an error that is too long.
    fn trim_error_response(&mut self) {
        let last = self.trouble.last.as_mut();
        if let Some(refusal) = last.and_then(|failed| failed.refusal.as_mut()) {
            refusal.rest = None;
            // Pieces of a larger buffer would keep all of it.
            let kept = refusal.body.len().min(MAX_KEPT_ERROR_BYTES);
            refusal.body = Bytes::copy_from_slice(&refusal.body[..kept]);
            refusal.headers = detached(&refusal.headers);
        }
    }

    /// Some providers send back what they were sent. What stands in the log is for others than the client, and the key of
    /// a stored account is for nobody.
    fn without_secrets(&self, mut failed: Box<FailedAttempt>) -> Box<FailedAttempt> {
        for credential in self.asked.credentials() {
            credential.scrub(&mut failed.failure);
        }
        if let Some(account) = &self.account {
            account.credential.scrub(&mut failed.failure);
            if let Some(refusal) = &mut failed.refusal {
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

    fn note_failure(&mut self, failed: &FailedAttempt, judged: &ClassifiedFailure) {
        let cause = judged.verdict.cause;
        self.trouble.cause = Some(cause);
        self.trouble.is_shared = is_shared(cause);
        let dialect = self.asked.route.is_retried().then(|| self.asked.dialect());
        self.shared.metrics.attempt_failed(dialect, cause);
        let status = failed
            .refusal
            .as_ref()
            .map(|refusal| refusal.status.as_u16());
        self.say(EventKind::AttemptFailed {
            cause,
            attempt: self.trouble.attempts,
            status,
            account: self.account.as_ref().map(|account| account.name.as_str()),
            message: &judged.failure.message,
        });
    }

    /// A failure with all accounts in view, and whether another one could be asked.
    async fn with_accounts(
        &mut self,
        judged: Arc<ClassifiedFailure>,
    ) -> (Arc<ClassifiedFailure>, Remedies) {
        let upstream = self.upstreams.of(self.asked.route);
        let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) else {
            return (judged, Remedies::NONE);
        };
        let model = &self.asked.model;
        let may_refresh = !self.refreshed.contains(&account.name);
        let standing = accounts.failed(account, model, &judged, may_refresh).await;
        let renewed = standing == AccountStatus::Renewed;
        if renewed {
            self.refreshed.push(account.name.clone());
        }
        let another = renewed
            || accounts
                .has_free_sibling(&account.name, &self.left, model)
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
    fn leave_account(&mut self) {
        let account = self.account.take();
        let left = account.filter(|account| self.refreshed.last() != Some(&account.name));
        self.left.extend(left.map(|account| account.name));
    }

    pub(crate) fn no_key(&self, problem: &str) -> FailedAttempt {
        let message = format!("no key can be had: {problem}");
        let name = &self.upstreams.of(self.asked.route).name;
        let failure = Failure::thrown(name, &message, self.shared.now());
        FailedAttempt {
            failure: failure.with_io(IoKind::Misconfigured),
            refusal: None,
        }
    }
}
