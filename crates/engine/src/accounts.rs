//! Several accounts of one provider: which one to ask with, and what to do when one is refused.
//!
//! Invariants: an account is known by its name, never by its place in a list; a key is fetched when it is needed and
//! never printed; what blocks an account is recorded for everyone before anything else is decided.
//! Not here: how long an account is blocked (see the kernel's `account`).

use crate::credential::Credential;
use crate::shared_state::SharedState;
use crate::{BoxFuture, Clock};
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Choice, choose, with_earliest_unblock};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::verdict::{Cause, Verdict};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a key comes from. Asked again after a key was refused: it may have been renewed.
pub trait KeySource: Send + Sync {
    /// The key as it is now, or why there is none; the reason must not show the key.
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>>;
}

/// One account.
#[derive(Clone)]
pub struct Account {
    /// Its name, unique among all accounts of all providers.
    pub name: String,
    /// Where its key comes from.
    pub source: Arc<dyn KeySource>,
    /// How many calls it may have under way at once, over all processes.
    pub max_in_flight: Option<u32>,
}

/// The accounts of one provider, in order of preference.
pub struct Accounts {
    list: Vec<Account>,
    knowledge: SharedState,
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<String, Credential>>,
    fetching: tokio::sync::Mutex<()>,
}

/// An account and its key.
#[derive(Clone, Debug)]
pub struct SelectedAccount {
    /// The account's name.
    pub name: String,
    /// Its key.
    pub credential: Credential,
}

/// How an account stands after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    /// The failure was not about it.
    AsBefore,
    /// Its key was refused, and it has another one now: it is worth another try.
    Renewed,
    /// It is not to be used for a while.
    Blocked(Block),
}

impl Accounts {
    /// These accounts, and what is known of them.
    pub fn new(list: Vec<Account>, knowledge: SharedState, clock: Arc<dyn Clock>) -> Self {
        Self {
            list,
            knowledge,
            clock,
            keys: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// The account to ask that model with: the one in use while it is free, else a free one, else the one that will be
    /// free first. Those that were left are taken only when there is no other, and one whose key cannot be had is
    /// passed over; the answer is why when none can be had.
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
            while let Some(name) = self.best(&names, in_use, model) {
                match self.key(&name).await {
                    Ok(credential) => return Ok(SelectedAccount { name, credential }),
                    Err(problem) => problems.push(format!("{name}: {problem}")),
                }
                names.retain(|other| *other != name);
            }
        }
        Err(problems.join("; "))
    }

    /// Their names, in order of preference.
    pub fn names(&self) -> Vec<&str> {
        self.list
            .iter()
            .map(|account| account.name.as_str())
            .collect()
    }

    fn best(&self, names: &[&str], in_use: Option<&str>, model: &str) -> Option<String> {
        let (blocks, now) = (self.knowledge.blocks(), self.clock.now());
        let choice = choose(names, in_use, |name| blocks.on(name, model, now))?;
        let (Choice::Free(name) | Choice::Blocked(name, _)) = choice;
        Some(name.to_owned())
    }

    /// Whether that account is blocked for that model.
    pub fn is_blocked(&self, name: &str, model: &str) -> bool {
        self.knowledge
            .blocks()
            .on(name, model, self.clock.now())
            .is_some()
    }

    /// Whether another account than this one, and than those that were left, is free for that model and has a key.
    pub async fn has_free_sibling(&self, name: &str, left: &[String], model: &str) -> bool {
        for other in self.names() {
            let is_new = other != name && !left.iter().any(|known| known == other);
            if is_new && !self.is_blocked(other, model) && self.key(other).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Whether there is more than one.
    pub fn has_multiple(&self) -> bool {
        self.list.len() > 1
    }

    /// How many calls that account may have under way.
    pub fn most_in_flight(&self, name: &str) -> Option<u32> {
        let account = self.list.iter().find(|account| account.name == name)?;
        account.max_in_flight
    }

    /// Takes note of what a failure says about an account, for everyone. A refused key is fetched again if it may be.
    pub async fn failed(
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
        let now = self.clock.now();
        let Some(block) = Block::of(&chosen.name, model, &judged.verdict, now) else {
            return AccountStatus::AsBefore;
        };
        self.knowledge.block(block.clone()).await;
        AccountStatus::Blocked(block)
    }

    /// A call with that account, begun then, was answered.
    pub async fn succeeded(&self, name: &str, model: &str, begun: Timestamp) {
        self.knowledge.heal(name, model, begun).await;
    }

    /// The verdict as it stands with all accounts in view: where every one is at its limit, the first to be free again
    /// is waited for.
    pub fn combined_verdict(&self, verdict: &Verdict, model: &str) -> Verdict {
        let (blocks, now) = (self.knowledge.blocks(), self.clock.now());
        match choose(&self.names(), None, |name| blocks.on(name, model, now)) {
            Some(Choice::Blocked(_, first))
                if verdict.cause == Cause::UsageLimit && first.cause == Cause::UsageLimit =>
            {
                with_earliest_unblock(verdict, first)
            }
            _ => verdict.clone(),
        }
    }

    async fn key(&self, name: &str) -> Result<Credential, String> {
        let known = lock(&self.keys).get(name).cloned();
        match known {
            Some(key) => Ok(key),
            None => self.fetch(name).await,
        }
    }

    async fn fetch(&self, name: &str) -> Result<Credential, String> {
        let Some(account) = self.list.iter().find(|account| account.name == name) else {
            return Err("there is no such account".to_owned());
        };
        let key = account.source.fetch().await?;
        lock(&self.keys).insert(name.to_owned(), key.clone());
        Ok(key)
    }

    /// Whether a refused key is another one now. Of many that ask at once, one fetches it.
    async fn refresh_key(&self, chosen: &SelectedAccount) -> bool {
        let _one = self.fetching.lock().await;
        let known = lock(&self.keys).get(&chosen.name).cloned();
        if known.is_some_and(|key| !key.is_same(&chosen.credential)) {
            return true;
        }
        match self.fetch(&chosen.name).await {
            Ok(key) => !key.is_same(&chosen.credential),
            Err(_) => false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
