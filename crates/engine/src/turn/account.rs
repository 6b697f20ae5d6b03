//! A turn and the accounts that it may ask with.

use super::Runner;
use super::gate::TurnGate;
use crate::accounts::AccountStatus;
use crate::journal::Entry;
use outlast_kernel::attempt::Wait;
use outlast_kernel::decision::Remedies;
use outlast_kernel::event::Body;
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind};
use outlast_kernel::policy::Switches;
use std::sync::Arc;

impl Runner<'_> {
    /// Chooses the account of the next call, and the gate that belongs to it.
    pub(super) async fn choose_account(&mut self) -> Result<(), String> {
        let model = &self.turn.request.model;
        if let Some(accounts) = self.turn.accounts {
            let in_use = self.account.as_ref().map(|account| account.name.as_str());
            let chosen = accounts
                .choose(in_use, &self.abandoned_accounts, model)
                .await?;
            if self
                .account
                .as_ref()
                .is_none_or(|account| account.name != chosen.name)
            {
                let name = chosen.name.clone();
                self.emitter.emit(Body::Account { name });
            }
            self.account = Some(chosen);
        }
        let Some(knowledge) = self.turn.shared_state else {
            return Ok(());
        };
        let account = self.account.as_ref().map_or("", |account| &account.name);
        let provider = self.turn.provider;
        let key = format!(
            "{}@{}/{account}/{model}",
            provider.name(),
            provider.endpoint()
        );
        if !self.gate.as_ref().is_some_and(|gate| gate.has_key(&key)) {
            if let Some(mut gate) = self.gate.take() {
                gate.leave_queue().await;
            }
            let gate = TurnGate::new(knowledge, self.turn.clock, key, &self.turn.ids.turn);
            self.gate = Some(gate.with_deadline(self.turn.budget.deadline()));
        }
        Ok(())
    }

    /// A wait that is taken up stands in line where others wait for the same.
    pub(super) async fn rejoin_queue(&mut self, wait: &Wait) {
        let abort = self.turn.control.token();
        let chosen = tokio::select! {
            biased;
            // A key may take long to come; the wait itself notices the abort.
            () = abort.cancelled() => return,
            chosen = self.choose_account() => chosen,
        };
        // Whoever has no key now may have one when the wait is over.
        if chosen.is_ok()
            && let Some(gate) = &mut self.gate
        {
            gate.rejoin_queue(wait).await;
        }
    }

    /// Goes on without the account in use, unless it has just got a new key.
    pub(super) fn abandon_account(&mut self) {
        let account = self.account.as_ref().filter(|_| !self.has_new_key);
        let left = account.map(|account| account.name.clone());
        self.abandoned_accounts.extend(left.clone());
        let spent = self.spent();
        self.journal_writer.record(Entry::Switched {
            left,
            model: None,
            spent,
        });
    }

    /// Whether the account in use is blocked while another is free.
    pub(super) async fn has_better_account(&mut self) -> bool {
        let (Some(accounts), Some(account)) = (self.turn.accounts, &self.account) else {
            return false;
        };
        let model = &self.turn.request.model;
        accounts.is_blocked(&account.name, model)
            && accounts
                .has_free_sibling(&account.name, &self.abandoned_accounts, model)
                .await
    }

    /// The provider has begun to answer: whatever was held against it or the account is over.
    pub(super) async fn record_acceptance(&mut self) {
        let Some(begun) = self.unanswered_since.take() else {
            return;
        };
        if let Some(gate) = &mut self.gate {
            gate.report_success().await;
        }
        if let (Some(accounts), Some(account)) = (self.turn.accounts, &self.account) {
            accounts
                .record_success(&account.name, &self.turn.request.model, begun)
                .await;
        }
    }

    /// A failure with all accounts in view, and whether another one could be asked. What it says about this one is
    /// recorded before anything is decided.
    pub(super) async fn consider_accounts(
        &mut self,
        judged: Arc<ClassifiedFailure>,
    ) -> (Arc<ClassifiedFailure>, Remedies) {
        let (Some(accounts), Some(account)) = (self.turn.accounts, &self.account) else {
            return (judged, Remedies::NONE);
        };
        let model = &self.turn.request.model;
        let may_refresh = !self.refreshed_accounts.contains(&account.name);
        let standing = accounts
            .record_failure(account, model, &judged, may_refresh)
            .await;
        let renewed = standing == AccountStatus::Renewed;
        let left = &self.abandoned_accounts;
        let another = renewed || accounts.has_free_sibling(&account.name, left, model).await;
        self.has_new_key = renewed;
        if renewed {
            self.refreshed_accounts.push(account.name.clone());
        }
        // One that has no sibling is asked all the same, and its error says enough.
        if let (AccountStatus::Blocked(block), true) = (standing, accounts.has_multiple()) {
            self.emitter.emit(Body::AccountBlocked {
                name: block.account,
                cause: block.cause,
                until: block.until,
            });
        }
        let remedies = Remedies {
            switch: Switches {
                account: another,
                ..Switches::NONE
            },
            ..Remedies::NONE
        };
        let verdict = accounts.combined_verdict(&judged.verdict, model);
        if verdict == judged.verdict {
            return (judged, remedies);
        }
        let failure = judged.failure.clone();
        (Arc::new(ClassifiedFailure { failure, verdict }), remedies)
    }

    /// No account has a key.
    pub(super) fn no_usable_key(&self, problem: &str) -> Failure {
        let message = format!("no key can be had: {problem}");
        let now = self.turn.clock.now();
        let failure = Failure::thrown(self.turn.provider.name(), &message, now);
        failure.with_io(IoKind::Misconfigured)
    }
}
