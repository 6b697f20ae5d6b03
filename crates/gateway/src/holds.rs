//! Requests that are held, and those whose client has left: what each has spent outlives its connection and this process.
//!
//! A client that gave up sends its request again. It then takes up what its first connection had spent instead of starting
//! anew, so that its retries and ours do not multiply.
//!
//! Invariants: what a client has left is taken up once, and never while its connection is open; no request waits for the
//! file, and without it all goes on in memory, which is said once; nothing secret and no body is kept, only hashes.
//! Not here: when a request has to wait, and for how long (see `call`).

mod connection;
mod hold;
mod identity;
mod registry;
mod row;

pub use hold::{Command, Hold};
pub use identity::{Identity, IdentityBuilder, Parts};

use connection::Link;
use hold::Signal;
use outlast_engine::Clock;
use outlast_engine::shared_state::{Listener, is_shared};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::verdict::Cause;
use registry::{HeldRequest, HoldStatus, Key, Registry};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long what a client has left is kept for it, after it left or after the time at which it was told to come back.
pub const RESUME_WINDOW: Duration = Duration::from_secs(30 * 60);

/// What a request has spent, over all connections that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Of its chain of retries.
    pub chain: Chain,
    /// Of its whole budget.
    pub prompt: Prompt,
    /// When it failed first.
    pub since: Timestamp,
    /// When it is to be tried next.
    pub wake: Option<Timestamp>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often its client has sent it again.
    pub resent: u32,
    /// What went wrong last.
    pub cause: Option<Cause>,
}

/// What a person is told of a request; there is nothing secret in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestSummary {
    /// What it is known by.
    pub id: Box<str>,
    /// The name of its client.
    pub client: Box<str>,
    /// The dialect in which it asks.
    pub dialect: Option<Box<str>>,
    /// The model that it asks for.
    pub model: Option<Box<str>>,
    /// The name of the account with which it was tried last.
    pub account: Option<Box<str>>,
    /// What it asks of the provider.
    pub path: Box<str>,
    /// When its connection asked.
    pub begun: Timestamp,
}

/// A request as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldView {
    /// Which one it is.
    #[serde(flatten)]
    pub about: RequestSummary,
    /// When it failed first.
    pub since: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// How often its client has sent it again.
    pub resent: u32,
    /// What went wrong last.
    pub cause: Option<Cause>,
    /// When it is to be tried next.
    pub wake: Option<Timestamp>,
    /// When its client left; `None` while it waits.
    pub left: Option<Timestamp>,
}

/// All of them. Clones share them.
#[derive(Clone)]
pub struct Holds(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    listener: Listener,
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// How many wait to be taken up.
    left: AtomicUsize,
}

/// One lock for both: what is handed in to the file is in the order in which it happened.
struct State {
    known: Registry,
    link: Link,
}

impl Holds {
    /// Opens the file, if there is to be one. What an earlier process has left in it can be taken up.
    pub async fn open(file: Option<PathBuf>, clock: Arc<dyn Clock>, listener: Listener) -> Self {
        let link = match file {
            Some(_) => Link::Opening,
            None => Link::None,
        };
        let known = Registry::default();
        let holds = Self(Arc::new(Inner {
            clock,
            listener,
            path: file,
            state: Mutex::new(State { known, link }),
            left: AtomicUsize::new(0),
        }));
        connection::join(&holds.0).await;
        holds
    }

    /// Whether anything can be taken up at all; where nothing is wrong, no request need be known by its body.
    pub fn has_abandoned(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) > 0
    }

    /// Goes on with what this client has left, the oldest first. It is then held as that.
    pub fn take_up(&self, who: &Identity, about: RequestSummary) -> Option<(Hold, Progress)> {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        state.expire(now);
        self.0.count(&state);
        let key = state.known.find(who)?;
        let signal = Arc::new(Signal::default());
        let held = state.known.revive(key, Arc::clone(&signal))?;
        held.about = about;
        held.progress.resent = held.progress.resent.saturating_add(1);
        let progress = held.progress.clone();
        state.write(key, now);
        self.0.count(&state);
        drop(state);
        Some((Hold::new(self.clone(), key, signal), progress))
    }

    /// Holds a request that has to wait for the first time.
    pub fn begin(&self, who: Identity, about: RequestSummary, progress: Progress) -> Hold {
        connection::join_again(&self.0);
        let now = self.0.clock.now();
        let (key, signal) = (Key::new(), Arc::new(Signal::default()));
        let held = HeldRequest {
            who,
            about,
            progress,
            told: None,
            standing: HoldStatus::Live(Arc::clone(&signal)),
        };
        let mut state = self.0.lock();
        state.expire(now);
        state.known.insert(key, held);
        state.write(key, now);
        self.0.count(&state);
        drop(state);
        Hold::new(self.clone(), key, signal)
    }

    /// What there is: first those that wait, then those whose client has left, each the oldest first.
    pub fn status(&self) -> Vec<HoldView> {
        let mut state = self.0.lock();
        state.expire(self.0.clock.now());
        self.0.count(&state);
        let mut shown: Vec<HoldView> = state.known.iter().map(HeldRequest::show).collect();
        drop(state);
        shown.sort_by(|a, b| {
            let order = |shown: &HoldView| (shown.left.is_some(), shown.since);
            order(a)
                .cmp(&order(b))
                .then_with(|| a.about.id.cmp(&b.about.id))
        });
        shown
    }

    /// How many wait.
    pub fn live(&self) -> usize {
        self.0.lock().known.live()
    }

    /// Cuts the wait short of the one that is known by that; how many were told.
    ///
    /// Without a name that is done for all, but of those that wait for the same only one is told: should it be answered,
    /// the gate lets the others follow.
    pub fn retry_now(&self, id: Option<&str>) -> usize {
        let state = self.0.lock();
        let told = |held: &&HeldRequest| held.tell(Command::RetryNow);
        let all = state.known.iter();
        if let Some(id) = id {
            return all
                .filter(|held| *held.about.id == *id)
                .filter(told)
                .count();
        }
        let mut asked = HashSet::new();
        let mut count = 0;
        for held in all.filter(|held| matches!(held.standing, HoldStatus::Live(_))) {
            let about = &held.about;
            let is_alone = held.progress.cause.is_some_and(|cause| !is_shared(cause));
            let mut is_first = || asked.insert((&about.dialect, &about.account, &about.model));
            count += usize::from((is_alone || is_first()) && told(&held));
        }
        count
    }

    /// Gives up the one that is known by that: a wait ends, and what a client has left is forgotten. Whether there was one.
    pub fn cancel(&self, id: &str) -> bool {
        let mut state = self.0.lock();
        let mut left = Vec::new();
        let mut was_told = false;
        for (key, held) in state.known.entries() {
            if *held.about.id == *id {
                was_told |= held.tell(Command::Cancel);
                left.extend(matches!(held.standing, HoldStatus::Left { .. }).then_some(key));
            }
        }
        let is_known = was_told || !left.is_empty();
        left.into_iter().for_each(|key| state.forget(key));
        self.0.count(&state);
        is_known
    }

    /// Has everything written that is known so far, and lets go of the file.
    pub async fn close(&self) {
        let link = std::mem::take(&mut self.0.lock().link);
        if let Link::Joined(file) = link {
            file.close().await;
        }
    }
}

// --- what a hold does ---

impl Holds {
    fn update(&self, key: Key, change: impl FnOnce(&mut HeldRequest)) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        if let Some(held) = state.known.get_mut(key) {
            change(held);
            state.write(key, now);
        }
    }

    fn note(&self, key: Key, change: impl FnOnce(&mut RequestSummary)) {
        if let Some(held) = self.0.lock().known.get_mut(key) {
            change(&mut held.about);
        }
    }

    fn end(&self, key: Key) {
        self.0.lock().forget(key);
    }

    fn leave(&self, key: Key) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        state.known.leave(key, now);
        state.write(key, now);
        state.expire(now);
        self.0.count(&state);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: &State) {
        self.left.store(state.known.left(), Ordering::Relaxed);
    }
}

impl State {
    /// Hands in what is known of that one.
    fn write(&self, key: Key, now: Timestamp) {
        if let (Link::Joined(file), Some(held)) = (&self.link, self.known.get(key))
            && let Some(value) = row::write(held)
        {
            file.put(&key.to_string(), value, held.expires_at(now));
        }
    }

    fn forget(&mut self, key: Key) {
        self.known.remove(key);
        self.remove_row(&key.to_string());
    }

    fn remove_row(&self, key: &str) {
        if let Link::Joined(file) = &self.link {
            file.remove(key);
        }
    }

    /// Forgets those that nobody came back for.
    fn expire(&mut self, now: Timestamp) {
        while let Some(key) = self.known.expired(now) {
            self.forget(key);
        }
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
