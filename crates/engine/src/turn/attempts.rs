//! A turn as a caller of the attempt driver: how it prepares a call, makes it, records a wait and tells listeners.

use super::Runner;
use super::control::Command;
use crate::accounts::Accounts;
use crate::attempt::{Announcement, Call, Driver, Ended, GateTarget, Interrupt, Wait, Work};
use crate::journal::Entry;
use crate::strategy::Aborted;
use crate::{BoxFuture, CancellationToken};
use futures_util::FutureExt;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Effects};
use outlast_kernel::decision::Remedies;
use outlast_kernel::event::Body;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::Cause;
use std::sync::Arc;

impl<'a> Call<'a> for Runner<'a> {
    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn target(&self) -> Option<GateTarget<'_>> {
        let provider = self.turn.provider;
        Some(GateTarget {
            provider: provider.name(),
            address: provider.endpoint(),
            model: &self.turn.request.model,
            account: String::new(),
        })
    }

    fn accounts(&self) -> Option<Accounts> {
        self.turn.accounts.cloned()
    }

    fn now(&self) -> Timestamp {
        self.turn.clock.now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'a, ()> {
        self.turn.clock.sleep_until(at)
    }

    fn sleep_for_retry(&self, at: Timestamp) -> BoxFuture<'a, Result<(), Aborted>> {
        let Some(retry) = self.turn.retry else {
            // A wait that an earlier process began, when there were retries.
            return Box::pin(self.turn.clock.sleep_until(at).map(Ok));
        };
        let delay = at.since(self.turn.clock.now());
        Box::pin(async move {
            let cancel = CancellationToken::new();
            let _cancel_on_drop = cancel.clone().drop_guard();
            retry.sleep(delay, &cancel).await
        })
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Option<Effects>, Ended>> {
        Box::pin(async { Ok(self.prepare_call().await) })
    }

    fn account_chosen(&mut self, is_new: bool) {
        if let (true, Some(account)) = (is_new, self.driver.account()) {
            let name = account.name.clone();
            self.emitter.emit(Body::Account { name });
        }
    }

    fn attempt(&mut self) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async { Ok(self.run_stream().await) })
    }

    fn on_failure(&mut self, failure: Failure) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async { Ok(self.handle_failure(failure).await) })
    }

    fn perform(&mut self, effect: Effect) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async {
            match effect {
                Effect::ReportError(failure, why) => self.report_failure(failure, why),
                Effect::Retract => self.retract(),
                Effect::KeepPartial => self.keep_partial(),
                Effect::Apply(remedy) => return Ok(self.apply_remedy(remedy).await),
                _ => {}
            }
            Ok(Effects::new())
        })
    }

    fn account_left(&mut self, name: Option<String>) {
        let spent = self.spent();
        self.journal_writer.record(Entry::Switched {
            left: name,
            model: None,
            spent,
        });
    }

    fn record_wait<'s>(&'s mut self, wait: Wait<'s>) -> BoxFuture<'s, Result<(), Ended>> {
        Box::pin(async move {
            // A hold needs no record: a turn that is resumed enters the queue again.
            if let Wait::Retry(retry) = wait {
                let spent = self.spent();
                self.journal_writer.record(Entry::WaitScheduled {
                    since: retry.decided_at,
                    until: retry.at,
                    cause: retry.failure.verdict.cause,
                    spent,
                });
                self.commit().await;
            }
            Ok(())
        })
    }

    fn record_wait_end(&mut self) {
        let spent = self.spent();
        self.journal_writer.record(Entry::WaitEnded { spent });
    }

    fn announce(&mut self, announcement: Announcement<'_>) {
        match announcement {
            Announcement::Retry(retry) => {
                self.emitter.emit_at(retry.decided_at, retry.clone().into());
            }
            Announcement::Hold { until, cause, .. } => {
                self.emitter.emit(Body::Held { until, cause });
            }
            Announcement::Ended(end) => self.emitter.emit(end.clone().into()),
        }
    }

    fn watch<'s>(&'s mut self, work: Work<'s>) -> BoxFuture<'s, Option<Interrupt>> {
        Box::pin(async move {
            // A turn that belongs to another process does not wait.
            if self.journal_writer.ownership_lost_reason().is_some()
                && self.driver.state().is_retrying()
            {
                return Some(Interrupt::AbortRetry);
            }
            tokio::select! {
                biased;
                command = self.turn.control.next_command() => Some(match command {
                    Command::Abort => Interrupt::Abort,
                    Command::AbortRetry => Interrupt::AbortRetry,
                    Command::RetryNow => Interrupt::RetryNow,
                }),
                () = work => None,
            }
        })
    }

    fn leave_target_at(&self, since: Timestamp) -> Option<Timestamp> {
        self.hold_switch_time(since)
    }

    fn leave_target(&mut self, until: Timestamp, cause: Option<Cause>) -> BoxFuture<'_, ()> {
        Box::pin(self.abandon_held_model(until, cause))
    }
}

impl Runner<'_> {
    /// The provider has begun to answer: the trouble of the call, and of its account, is over.
    pub(super) async fn record_acceptance(&mut self) {
        let Some(began) = self.unanswered_since.take() else {
            return;
        };
        self.driver.accepted();
        if let (Some(accounts), Some(account)) = (self.turn.accounts, self.driver.account()) {
            let model = &self.turn.request.model;
            accounts.record_success(&account.name, model, began).await;
        }
    }

    /// Records the meaning of a failure for the accounts. Returns it with all accounts considered, and whether another one
    /// can be asked.
    pub(super) async fn consider_accounts(
        &mut self,
        failure: Arc<ClassifiedFailure>,
    ) -> (Arc<ClassifiedFailure>, Remedies) {
        let (accounts, model) = (self.turn.accounts, &self.turn.request.model);
        let effect = self
            .driver
            .consider_accounts(failure, accounts, model)
            .await;
        let has_multiple = accounts.is_some_and(Accounts::has_multiple);
        // An account without a sibling is asked all the same, and its error says enough.
        if let Some(block) = effect.block.filter(|_| has_multiple) {
            self.emitter.emit(Body::AccountBlocked {
                name: block.account,
                cause: block.cause,
                until: block.until,
            });
        }
        (effect.failure, effect.remedies)
    }
}
