//! The state of one call over all of its attempts.

use super::{Call, classify};
use crate::accounts::{AccountStatus, Accounts, SelectedAccount};
use crate::admission::GateRequest;
use crate::permits::Permit;
use crate::shared_state::SharedState;
use outlast_kernel::Timestamp;
use outlast_kernel::account::Block;
use outlast_kernel::attempt::{Effects, Event, State, step};
use outlast_kernel::decision::Remedies;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::gate::gate_key;
use std::sync::Arc;
use std::time::Duration;

/// The state of one call over all of its attempts: the kernel's recovery, the request before its gate, the account and its
/// permit.
pub struct Driver {
    state: State,
    shared_state: Option<SharedState>,
    pub(super) request: Option<GateRequest>,
    account: Option<SelectedAccount>,
    accounts: TriedAccounts,
    pub(super) permit: Option<Permit>,
    /// The time at which the trouble of the call began, if an earlier process or connection met it.
    arrived: Option<Timestamp>,
    /// The time since which the call is held before an attempt.
    pub(super) held_since: Option<Timestamp>,
    pub(super) announced: Option<Announced>,
    /// Whether a person wants the next attempt at once, whatever the gate says.
    pub(super) skips_gate: bool,
    /// Whether the wait that comes next is recorded already.
    is_resumed: bool,
    /// Whether the attempt that failed last probed for all.
    was_probe: bool,
    last_failure: Option<Arc<ClassifiedFailure>>,
}

/// The expected time of the next attempt, as listeners know it.
#[derive(Clone, Copy)]
pub(super) struct Announced {
    pub(super) wake: Timestamp,
    pub(super) at: Timestamp,
}

/// The accounts that the call has tried since its last wait.
#[derive(Default)]
struct TriedAccounts {
    left: Vec<String>,
    /// Those whose key was fetched again.
    refreshed: Vec<String>,
    /// Whether the account in use has just got a new key.
    has_new_key: bool,
}

/// The meaning of a failure for the accounts.
pub struct AccountEffect {
    /// The failure, with the times of all accounts considered.
    pub failure: Arc<ClassifiedFailure>,
    /// The remedy of asking another account, if there is one.
    pub remedies: Remedies,
    /// The block of the account that failed.
    pub block: Option<Block>,
}

impl Driver {
    /// Creates the driver of a call with this recovery. Without shared state, the call has no gate.
    pub fn new(state: State, shared_state: Option<SharedState>) -> Self {
        Self {
            state,
            shared_state,
            request: None,
            account: None,
            accounts: TriedAccounts::default(),
            permit: None,
            arrived: None,
            held_since: None,
            announced: None,
            skips_gate: false,
            is_resumed: false,
            was_probe: false,
            last_failure: None,
        }
    }

    /// Resumes a call whose trouble began at that time, with the accounts that it has left.
    #[must_use]
    pub fn resumed(mut self, arrived: Option<Timestamp>, left_accounts: Vec<String>) -> Self {
        self.arrived = arrived;
        self.accounts.left = left_accounts;
        self
    }

    /// Resumes a wait that an earlier process began and recorded.
    pub fn resume_wait(&mut self, wait: outlast_kernel::attempt::Wait, now: Timestamp) -> Effects {
        self.is_resumed = true;
        self.arrived.get_or_insert(wait.since);
        self.last_failure = Some(Arc::clone(&wait.failure));
        self.state.resume(wait, now)
    }

    pub(super) const fn take_resumed(&mut self) -> bool {
        std::mem::replace(&mut self.is_resumed, false)
    }

    /// Returns the recovery.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the recovery.
    pub const fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Returns the state that all calls share.
    pub const fn shared_state(&self) -> Option<&SharedState> {
        self.shared_state.as_ref()
    }

    /// Returns the account in use.
    pub const fn account(&self) -> Option<&SelectedAccount> {
        self.account.as_ref()
    }

    /// Returns the last failure.
    pub const fn last_failure(&self) -> Option<&Arc<ClassifiedFailure>> {
        self.last_failure.as_ref()
    }
}

// --- Target ---

impl Driver {
    /// Enters the gate with that key; a request before another gate leaves it.
    pub(super) fn set_gate(&mut self, key: Option<String>, now: Timestamp) {
        let (Some(shared_state), Some(key)) = (&self.shared_state, key) else {
            self.request = None;
            return;
        };
        if self
            .request
            .as_ref()
            .is_some_and(|request| request.key() == key)
        {
            return;
        }
        let arrived = self.request.as_ref().map(GateRequest::arrived);
        let arrived = arrived.or(self.arrived).unwrap_or(now);
        self.request = Some(shared_state.request(&key, arrived));
    }

    /// Returns whether that is the key of another gate than the request is before.
    pub(super) fn is_other_gate(&self, key: Option<&str>) -> bool {
        key != self.request.as_ref().map(GateRequest::key)
    }

    pub(super) fn left_accounts(&self) -> Vec<String> {
        self.accounts.left.clone()
    }

    /// Uses an account; returns whether it is another than before.
    pub(super) fn use_account(&mut self, chosen: SelectedAccount) -> bool {
        let known = self.account.as_ref();
        let is_new = known.is_none_or(|known| known.name != chosen.name);
        if is_new {
            self.permit = None;
        }
        self.account = Some(chosen);
        is_new
    }

    /// Goes on without the account in use; returns its name if it is not to be asked again. An account that has just got a
    /// new key is asked again.
    pub(super) fn leave_account(&mut self) -> Option<String> {
        let account = self.account.as_ref();
        let left = account.filter(|_| !self.accounts.has_new_key);
        let left = left.map(|account| account.name.clone());
        self.accounts.left.extend(left.clone());
        left
    }

    /// Forgets the accounts of a target that is left.
    pub fn forget_accounts(&mut self) {
        self.account = None;
        self.accounts = TriedAccounts::default();
        (self.held_since, self.announced) = (None, None);
        self.was_probe = false;
    }

    /// After a wait, every account is worth another look.
    pub(super) fn forget_tried_accounts(&mut self) {
        self.accounts = TriedAccounts::default();
    }

    /// Returns whether the account in use is blocked while another one is free.
    pub(super) fn has_better_account(&self, accounts: &Accounts, model: &str) -> bool {
        let Some(account) = &self.account else {
            return false;
        };
        accounts.is_blocked(&account.name, model)
            && !(accounts.unblocked_siblings(&account.name, &self.accounts.left, model)).is_empty()
    }
}

// --- Attempts ---

impl Driver {
    pub(super) fn begin(&mut self) {
        (self.held_since, self.announced) = (None, None);
        if let Some(request) = &mut self.request {
            request.begin();
        }
    }

    /// Takes the permit of an attempt that succeeded, so that it is held until the response has ended.
    pub const fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// The attempt is over. One without a result for its gate counts as given up.
    pub(super) fn end_attempt(&mut self) {
        self.permit = None;
        if let Some(request) = &mut self.request {
            request.end_call();
        }
    }

    /// The provider has begun to answer: the trouble of the call is over.
    pub fn accepted(&mut self) {
        self.arrived = None;
        step(&mut self.state, Event::Accepted);
        if let Some(request) = &mut self.request {
            request.succeeded();
        }
    }

    /// Reports a failed attempt to its gate, and returns the classified failure.
    pub fn failed(&mut self, failure: Failure, now: Timestamp) -> Arc<ClassifiedFailure> {
        let failure = classify(failure, now);
        self.was_probe = false;
        if let Some(request) = &mut self.request {
            self.was_probe = request.is_probe_for_all();
            request.failed(&failure.verdict);
        }
        self.permit = None;
        failure
    }

    /// Records the meaning of a failure for the accounts.
    pub async fn consider_accounts(
        &mut self,
        failure: Arc<ClassifiedFailure>,
        accounts: Option<&Accounts>,
        model: &str,
    ) -> AccountEffect {
        let (Some(accounts), Some(account)) = (accounts, &self.account) else {
            return AccountEffect {
                failure,
                remedies: Remedies::NONE,
                block: None,
            };
        };
        let tried = &mut self.accounts;
        let may_refresh = !tried.refreshed.contains(&account.name);
        let status = accounts
            .record_failure(account, model, &failure, may_refresh)
            .await;
        tried.has_new_key = status == AccountStatus::Renewed;
        if tried.has_new_key {
            tried.refreshed.push(account.name.clone());
        }
        let mut remedies = Remedies::NONE;
        remedies.switch.account = tried.has_new_key
            || accounts
                .has_free_sibling(&account.name, &tried.left, model)
                .await;
        AccountEffect {
            failure: accounts.with_earliest_reset(failure, model),
            remedies,
            block: match status {
                AccountStatus::Blocked(block) => Some(block),
                AccountStatus::Unchanged | AccountStatus::Renewed => None,
            },
        }
    }

    /// Lets the kernel decide about a failure, with the caller's `own` delay at a position in its schedule. While others
    /// succeed, the delay may be that of a quick retry.
    pub fn decide(
        &mut self,
        failure: Arc<ClassifiedFailure>,
        remedies: Remedies,
        own: impl FnOnce(u32) -> Option<Duration>,
        now: Timestamp,
    ) -> Effects {
        self.last_failure = Some(Arc::clone(&failure));
        if std::mem::take(&mut self.was_probe) {
            let event = Event::ProbeFailed {
                failure,
                remedies,
                now,
            };
            return step(&mut self.state, event);
        }
        let request = self
            .request
            .as_mut()
            .filter(|_| self.state.rules().quick_retries);
        let quick = request.and_then(|request| request.quick_delay(fastrand::f64()));
        self.state.fail(failure, remedies, quick, own, now)
    }

    /// The call is over: its request leaves the queue.
    pub(super) fn finish(&mut self) {
        (self.request, self.permit, self.arrived) = (None, None, None);
        (self.held_since, self.announced) = (None, None);
        (self.skips_gate, self.is_resumed) = (false, false);
        self.last_failure = None;
    }
}

/// Returns the key of the gate of the call's target, with the account in use.
pub(super) fn current_gate_key(call: &mut dyn Call<'_>) -> Option<String> {
    let in_use = call.driver().account().map(|account| account.name.clone());
    let target = call.target()?;
    let account = in_use.as_ref().unwrap_or(&target.account);
    Some(gate_key(
        target.provider,
        target.address,
        account,
        target.model,
    ))
}

/// Returns the name of the provider for failures that the driver finds.
pub(super) fn provider_name(call: &dyn Call<'_>) -> String {
    call.target()
        .map_or(String::new(), |target| target.provider.to_owned())
}
