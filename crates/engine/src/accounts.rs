//! Several accounts of one provider: which one to ask with, and what to do when one is refused.
//!
//! Invariants: an account is known by its name, never by its place in a list; a key is fetched when it is needed and
//! never printed; what blocks an account is recorded for everyone before anything else is decided.
//! Not here: how long an account is blocked (see the kernel's `account`).

use crate::credential::Credential;
use crate::knowledge::Knowledge;
use crate::{BoxFuture, Clock};
use outlast_kernel::account::{Block, Choice, choose, with_first_free};
use outlast_kernel::failure::Judged;
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
    knowledge: Knowledge,
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<String, Credential>>,
}

/// An account and its key.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The account's name.
    pub name: String,
    /// Its key.
    pub credential: Credential,
}

impl Accounts {
    /// These accounts, and what is known of them.
    pub fn new(list: Vec<Account>, knowledge: Knowledge, clock: Arc<dyn Clock>) -> Self {
        Self {
            list,
            knowledge,
            clock,
            keys: Mutex::default(),
        }
    }

    /// The account to ask that model with: the one in use while it is free, else a free one, else the one that will be
    /// free first. An account whose key cannot be had is passed over; the answer is why when none can.
    pub async fn choose(&self, in_use: Option<&str>, model: &str) -> Result<Chosen, String> {
        let mut names: Vec<&str> = self
            .list
            .iter()
            .map(|account| account.name.as_str())
            .collect();
        let mut problems = Vec::new();
        while let Some(name) = self.best(&names, in_use, model) {
            match self.key(&name).await {
                Ok(credential) => return Ok(Chosen { name, credential }),
                Err(problem) => problems.push(format!("{name}: {problem}")),
            }
            names.retain(|other| *other != name);
        }
        Err(problems.join("; "))
    }

    fn best(&self, names: &[&str], in_use: Option<&str>, model: &str) -> Option<String> {
        let (blocks, now) = (self.knowledge.blocks(), self.clock.now());
        let choice = choose(names, in_use, |name| blocks.on(name, model, now))?;
        let (Choice::Free(name) | Choice::Blocked(name, _)) = choice;
        Some(name.to_owned())
    }

    /// Whether another account than this one is free for that model.
    pub fn has_free_sibling(&self, name: &str, model: &str) -> bool {
        let (blocks, now) = (self.knowledge.blocks(), self.clock.now());
        let is_free = |account: &Account| blocks.on(&account.name, model, now).is_none();
        let mut others = self.list.iter().filter(|account| account.name != name);
        others.any(is_free)
    }

    /// How many calls that account may have under way.
    pub fn most_in_flight(&self, name: &str) -> Option<u32> {
        let account = self.list.iter().find(|account| account.name == name)?;
        account.max_in_flight
    }

    /// Takes note of what a failure says about an account, for everyone. `true` when its key was renewed meanwhile: then
    /// the account is not blocked but worth another try.
    pub async fn failed(&self, chosen: &Chosen, model: &str, judged: &Judged) -> bool {
        if judged.verdict.cause == Cause::Auth && self.was_renewed(chosen).await {
            return true;
        }
        let now = self.clock.now();
        if let Some(block) = Block::of(&chosen.name, model, &judged.verdict, now) {
            self.knowledge.block(block).await;
        }
        false
    }

    /// A call with that account was answered.
    pub async fn succeeded(&self, name: &str, model: &str) {
        self.knowledge.heal(name, model).await;
    }

    /// The verdict as it stands with all accounts in view: where every one is blocked, the first of them is waited for.
    pub fn seen_together(&self, verdict: &Verdict, model: &str) -> Verdict {
        let (blocks, now) = (self.knowledge.blocks(), self.clock.now());
        let names: Vec<&str> = self
            .list
            .iter()
            .map(|account| account.name.as_str())
            .collect();
        match choose(&names, None, |name| blocks.on(name, model, now)) {
            Some(Choice::Blocked(_, first)) if verdict.cause == Cause::UsageLimit => {
                with_first_free(verdict, first)
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

    /// Fetches a refused key again; `true` when it is another one now.
    async fn was_renewed(&self, chosen: &Chosen) -> bool {
        match self.fetch(&chosen.name).await {
            Ok(key) => !key.is_same(&chosen.credential),
            Err(_) => false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
