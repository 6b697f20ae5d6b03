//! Several accounts of one provider: which one to use, and the reaction to a refused one.
//!
//! Invariants: an account is identified by its name, never by its index in a list; a key is fetched when it is needed
//! and never printed; a block is recorded for all processes before anything else is decided.
//! Not here: how long an account is blocked (see the kernel's `account`).

use crate::credential::Credential;
use crate::shared_state::SharedState;
use crate::{BoxFuture, Clock};
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Choice, choose, with_earliest_unblock};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::verdict::Cause;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The source of an account's key. It is queried again after a key was refused, as the key may have been renewed.
pub trait KeySource: Send + Sync {
    /// Returns the current key, or the reason why there is none. The reason must not contain the key.
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>>;
}

/// One account of a provider.
#[derive(Clone)]
pub struct Account {
    /// The name, unique among all accounts of all providers.
    pub name: String,
    /// The source of the account's key.
    pub source: Arc<dyn KeySource>,
    /// The maximum number of concurrent calls over all processes; `None` means no limit.
    pub max_in_flight: Option<u32>,
}

/// The accounts of one provider, in order of preference. Clones share them.
#[derive(Clone)]
pub struct Accounts(Arc<Inner>);

struct Inner {
    list: Vec<Account>,
    shared_state: SharedState,
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<String, Credential>>,
    fetch_lock: tokio::sync::Mutex<()>,
}

/// An account and its key.
#[derive(Clone, Debug)]
pub struct SelectedAccount {
    /// The account's name.
    pub name: String,
    /// The account's key.
    pub credential: Credential,
}

/// The state of an account after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    /// The failure was not about the account.
    Unchanged,
    /// The key was refused and a new one was fetched: another attempt is worth making.
    Renewed,
    /// The account is blocked for a while.
    Blocked(Block),
}

impl Accounts {
    /// Creates the accounts of a provider with the given shared state.
    pub fn new(list: Vec<Account>, shared_state: SharedState, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            list,
            shared_state,
            clock,
            keys: Mutex::default(),
            fetch_lock: tokio::sync::Mutex::default(),
        }))
    }

    /// Selects the account for a call to the given model: the one in use while it is free, else a free one, else the
    /// one that is free first.
    ///
    /// Accounts in `left` are selected only when there is no other, and an account without a usable key is skipped.
    /// Returns the reasons when no account has a usable key.
    pub async fn choose(
        &self,
        in_use: Option<&str>,
        left: &[String],
        model: &str,
    ) -> Result<SelectedAccount, String> {
        let is_left = |name: &&str| left.iter().any(|other| other == name);
        let (last, first): (Vec<&str>, Vec<&str>) = self.names().into_iter().partition(is_left);
        let mut problems = Vec::new();
        for mut names in [first, last] {
            while let Some(name) = self.best_account(&names, in_use, model) {
                match self.key(&name).await {
                    Ok(credential) => return Ok(SelectedAccount { name, credential }),
                    Err(problem) => problems.push(format!("{name}: {problem}")),
                }
                names.retain(|other| *other != name);
            }
        }
        Err(problems.join("; "))
    }

    /// Returns the account names, in order of preference.
    pub fn names(&self) -> Vec<&str> {
        self.0
            .list
            .iter()
            .map(|account| account.name.as_str())
            .collect()
    }

    fn best_account(&self, names: &[&str], in_use: Option<&str>, model: &str) -> Option<String> {
        let (blocks, now) = (self.0.shared_state.blocks(), self.0.clock.now());
        let choice = choose(names, in_use, |name| blocks.active_block(name, model, now))?;
        let (Choice::Free(name) | Choice::Blocked(name, _)) = choice;
        Some(name.to_owned())
    }

    /// Returns whether the account is blocked for the model.
    pub fn is_blocked(&self, name: &str, model: &str) -> bool {
        self.0
            .shared_state
            .blocks()
            .active_block(name, model, self.0.clock.now())
            .is_some()
    }

    /// Returns whether an account other than `name`, and not in `left`, is free for the model and has a usable key.
    pub async fn has_free_sibling(&self, name: &str, left: &[String], model: &str) -> bool {
        for other in self.unblocked_siblings(name, left, model) {
            if self.key(other).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Returns the accounts other than `name`, and not in `left`, that are not blocked for the model; their keys may not be
    /// usable.
    pub fn unblocked_siblings(&self, name: &str, left: &[String], model: &str) -> Vec<&str> {
        let mut others = self.names();
        others.retain(|other| *other != name && !left.iter().any(|known| known == other));
        others.retain(|other| !self.is_blocked(other, model));
        others
    }

    /// Returns whether there is more than one account.
    pub fn has_multiple(&self) -> bool {
        self.0.list.len() > 1
    }

    /// Returns the maximum number of concurrent calls of the account; `None` means no limit.
    pub fn max_in_flight(&self, name: &str) -> Option<u32> {
        let account = self.0.list.iter().find(|account| account.name == name)?;
        account.max_in_flight
    }

    /// Records for all processes what a failure says about an account. A refused key is fetched again if `may_refresh`
    /// is set.
    pub async fn record_failure(
        &self,
        chosen: &SelectedAccount,
        model: &str,
        judged: &ClassifiedFailure,
        may_refresh: bool,
    ) -> AccountStatus {
        let refused = judged.verdict.cause == Cause::Auth;
        if refused && may_refresh && self.refresh_key(chosen).await {
            return AccountStatus::Renewed;
        }
        let now = self.0.clock.now();
        let Some(block) = Block::from_verdict(&chosen.name, model, &judged.verdict, now) else {
            return AccountStatus::Unchanged;
        };
        self.0.shared_state.block(block.clone()).await;
        AccountStatus::Blocked(block)
    }

    /// Records that a call with the account, started at `begun`, succeeded.
    pub async fn record_success(&self, name: &str, model: &str, begun: Timestamp) {
        self.0.shared_state.record_success(name, model, begun).await;
    }

    /// Returns the failure with all accounts considered: when every account is at its usage limit, the wait is for the first
    /// one that is free again.
    pub fn with_earliest_reset(
        &self,
        failure: Arc<ClassifiedFailure>,
        model: &str,
    ) -> Arc<ClassifiedFailure> {
        let (blocks, now) = (self.0.shared_state.blocks(), self.0.clock.now());
        let block = |name: &str| blocks.active_block(name, model, now);
        let is_limit = |cause| cause == Cause::UsageLimit;
        match choose(&self.names(), None, block) {
            Some(Choice::Blocked(_, first))
                if is_limit(failure.verdict.cause) && is_limit(first.cause) =>
            {
                Arc::new(ClassifiedFailure {
                    verdict: with_earliest_unblock(&failure.verdict, first),
                    failure: failure.failure.clone(),
                })
            }
            _ => failure,
        }
    }

    async fn key(&self, name: &str) -> Result<Credential, String> {
        let known = self.0.keys.lock().get(name).cloned();
        match known {
            Some(key) => Ok(key),
            None => self.fetch(name).await,
        }
    }

    async fn fetch(&self, name: &str) -> Result<Credential, String> {
        let Some(account) = self.0.list.iter().find(|account| account.name == name) else {
            return Err("there is no such account".to_owned());
        };
        let key = account.source.fetch().await?;
        self.0.keys.lock().insert(name.to_owned(), key.clone());
        Ok(key)
    }

    /// Returns whether a refused key has been replaced. Of many concurrent callers, one fetches the new key.
    async fn refresh_key(&self, chosen: &SelectedAccount) -> bool {
        let _one = self.0.fetch_lock.lock().await;
        let known = self.0.keys.lock().get(&chosen.name).cloned();
        if known.is_some_and(|key| !key.is_same(&chosen.credential)) {
            return true;
        }
        match self.fetch(&chosen.name).await {
            Ok(key) => !key.is_same(&chosen.credential),
            Err(_) => false,
        }
    }
}
