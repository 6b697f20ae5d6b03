//! Held requests, and those whose client has left: their progress survives the connection and this process.
//!
//! When a client that gave up sends its request again, the request resumes with the earlier progress, so that the
//! client's retries and the gateway's do not multiply. Invariants: a hold is resumed once, and never while its
//! connection is open; no request waits for the file; without the file all goes on in memory, which is reported once;
//! only hashes are stored, no secret and no body. Not here: when and how long a request waits (see `call`).

mod connection;
mod identity;
mod registry;

pub use identity::{Identity, IdentityBuilder, Parts};

use crate::control::WaitingRequest;
use connection::RECONNECT_INTERVAL;
use outlast_engine::Clock;
use outlast_engine::shared_state::Listener;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::gate::concerns_others;
use outlast_kernel::verdict::Cause;
use outlast_store::Reconnecting;
use parking_lot::Mutex;
use registry::{HeldRequest, HoldStatus, Key, Registry, row_key};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The time for which an abandoned hold is kept, from the client's departure or the time at which it was told to
/// return.
pub const RESUME_WINDOW: Duration = Duration::from_secs(30 * 60);

/// The progress of a request, over all connections that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The spent part of its retry chain.
    pub chain: Chain,
    /// The spent part of its whole budget.
    pub prompt: Prompt,
    /// The time of the first failure.
    pub since: Timestamp,
    /// The time of the next attempt by the schedule of the request.
    pub wake: Option<Timestamp>,
    /// The number of attempts.
    pub attempts: u32,
    /// The number of times that its client has sent it again.
    pub resent: u32,
    /// The cause of the last failure.
    pub cause: Option<Cause>,
}

/// The description of a request that people see; it contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestSummary {
    /// The id.
    pub id: Box<str>,
    /// The name of its client.
    pub client: Box<str>,
    /// The dialect of the request.
    pub dialect: Option<Box<str>>,
    /// The requested model.
    pub model: Option<Box<str>>,
    /// The name of the account that the last attempt used.
    pub account: Option<Box<str>>,
    /// The path of the request.
    pub path: Box<str>,
}

/// All holds. Clones share them.
#[derive(Clone)]
pub struct Holds(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    file: Arc<HoldsFile>,
    state: Mutex<State>,
    /// The number of abandoned holds that can be resumed.
    abandoned_count: AtomicUsize,
}

/// One lock for both: writes are handed to the file in the order in which they happen.
struct State {
    registry: Registry,
    file: Arc<HoldsFile>,
}

type HoldsFile = Reconnecting<Arc<outlast_store::holds::Holds>>;

impl Holds {
    /// Opens the file, if one is configured. The holds that an earlier process left in it can be resumed.
    pub async fn open(file: Option<PathBuf>, clock: Arc<dyn Clock>, listener: Listener) -> Self {
        let file = Arc::new(Reconnecting::new(file, RECONNECT_INTERVAL, listener));
        let state = State {
            registry: Registry::default(),
            file: Arc::clone(&file),
        };
        let holds = Self(Arc::new(Inner {
            clock,
            file,
            state: Mutex::new(state),
            abandoned_count: AtomicUsize::new(0),
        }));
        connection::connect(&holds.0).await;
        holds
    }

    /// Returns whether any hold can be resumed; if not, no request needs to be identified by its body.
    pub fn has_abandoned(&self) -> bool {
        self.0.abandoned_count.load(Ordering::Relaxed) > 0
    }

    /// Resumes the hold that this client abandoned, the oldest first. The request is then held as that one.
    pub fn resume(&self, who: &Identity, about: RequestSummary) -> Option<(Hold, Progress)> {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        state.expire(now);
        self.0.update_abandoned_count(&state);
        let key = state.registry.find(who)?;
        let signal = Arc::new(Signal::default());
        let held = state.registry.revive(key, Arc::clone(&signal))?;
        held.summary = about;
        held.progress.resent = held.progress.resent.saturating_add(1);
        let progress = held.progress.clone();
        state.persist(key, now);
        self.0.update_abandoned_count(&state);
        drop(state);
        Some((Hold::new(self.clone(), key, signal), progress))
    }

    /// Holds a request that has to wait for the first time.
    pub fn begin(&self, identity: Identity, summary: RequestSummary, progress: Progress) -> Hold {
        connection::reconnect_if_due(&self.0);
        let now = self.0.clock.now();
        let (key, signal) = (Key::now_v7(), Arc::new(Signal::default()));
        let held = HeldRequest {
            identity,
            summary,
            progress,
            return_at: None,
            status: HoldStatus::Waiting(Arc::clone(&signal)),
        };
        let mut state = self.0.state.lock();
        state.expire(now);
        state.registry.insert(key, held);
        state.persist(key, now);
        self.0.update_abandoned_count(&state);
        drop(state);
        Hold::new(self.clone(), key, signal)
    }

    /// Returns all holds: first the waiting ones, then those whose client has left, each the oldest first.
    pub fn list(&self) -> Vec<WaitingRequest> {
        let mut state = self.0.state.lock();
        state.expire(self.0.clock.now());
        self.0.update_abandoned_count(&state);
        let held = state.registry.iter().map(HeldRequest::to_view);
        let mut shown: Vec<WaitingRequest> = held.collect();
        drop(state);
        let order = |shown: &WaitingRequest| (shown.left.is_some(), shown.since);
        shown.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.id.cmp(&b.id)));
        shown
    }

    /// Returns the number of waiting requests.
    pub fn waiting_count(&self) -> usize {
        self.0.state.lock().registry.waiting_count()
    }

    /// Ends the wait of the request with that id; returns the number of requests that were told.
    ///
    /// Without an id it does so for all, but of the requests that wait for the same target only one is told: if it is
    /// answered, the gate lets the others follow.
    pub fn retry_now(&self, id: Option<&str>) -> usize {
        let state = self.0.state.lock();
        let told = |held: &&HeldRequest| held.send_command(Command::RetryNow);
        let all = state.registry.iter();
        if let Some(id) = id {
            return all
                .filter(|held| *held.summary.id == *id)
                .filter(told)
                .count();
        }
        let mut asked = HashSet::new();
        let mut count = 0;
        for held in all.filter(|held| matches!(held.status, HoldStatus::Waiting(_))) {
            let about = &held.summary;
            let is_alone = held
                .progress
                .cause
                .is_some_and(|cause| !concerns_others(cause));
            let mut is_first = || asked.insert((&about.dialect, &about.account, &about.model));
            count += usize::from((is_alone || is_first()) && told(&held));
        }
        count
    }

    /// Cancels the request with that id: its wait ends, and an abandoned hold is forgotten. Returns whether there was
    /// one.
    pub fn cancel(&self, id: &str) -> bool {
        let mut state = self.0.state.lock();
        let mut left = Vec::new();
        let mut was_told = false;
        for (key, held) in state.registry.entries() {
            if *held.summary.id == *id {
                was_told |= held.send_command(Command::Cancel);
                left.extend(matches!(held.status, HoldStatus::Abandoned { .. }).then_some(key));
            }
        }
        let is_known = was_told || !left.is_empty();
        left.into_iter().for_each(|key| state.forget(key));
        self.0.update_abandoned_count(&state);
        is_known
    }

    /// Writes all pending holds, and closes the file.
    pub async fn close(&self) {
        // Nobody uses the file while the state is locked.
        let file = {
            let _state = self.0.state.lock();
            self.0.file.close().and_then(Arc::into_inner)
        };
        if let Some(file) = file {
            file.close().await;
        }
    }
}

// --- one held request, as the call that answers it sees it ---

/// A held request. If it is dropped before it has ended, the client has left, or the gateway stops.
#[must_use = "a hold that is dropped is one whose client has left"]
pub struct Hold {
    holds: Holds,
    key: Key,
    signal: Arc<Signal>,
    has_ended: bool,
}

/// A command of a person to a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Try it at once.
    RetryNow,
    /// Do not try it again.
    Cancel,
}

/// The channel of a command to its request.
#[derive(Debug, Default)]
struct Signal {
    command: AtomicU8,
    notify: Notify,
}

const NO_COMMAND: u8 = 0;
const RETRY_NOW: u8 = 1;
const CANCEL: u8 = 2;

impl Hold {
    fn new(holds: Holds, key: Key, signal: Arc<Signal>) -> Self {
        Self {
            holds,
            key,
            signal,
            has_ended: false,
        }
    }

    /// Records that a new wait begins, which is expected to end at that time. The write to the file follows soon.
    pub fn begin_wait(&self, progress: Progress, expected: Option<Timestamp>) {
        self.signal.begin_wait();
        self.update(progress, expected);
    }

    /// Records that the expected end of the wait has moved. It is not written: times move often, and whoever resumes the
    /// request asks the gate anew.
    pub fn set_expected(&self, end: Timestamp) {
        let mut state = self.holds.0.state.lock();
        if let Some(held) = state.registry.get_mut(self.key) {
            held.return_at = Some(end);
        }
    }

    /// Records the progress. `told` is the time at which its client was told to come back, if it was.
    pub fn update(&self, progress: Progress, told: Option<Timestamp>) {
        let now = self.holds.0.clock.now();
        let mut state = self.holds.0.state.lock();
        if let Some(held) = state.registry.get_mut(self.key) {
            held.progress = progress;
            held.return_at = told;
            state.persist(self.key, now);
        }
    }

    /// Records the account of the current attempt.
    pub fn set_account(&self, account: &str) {
        let mut state = self.holds.0.state.lock();
        if let Some(held) = state.registry.get_mut(self.key) {
            held.summary.account = Some(account.into());
        }
    }

    /// Waits for a command of a person.
    pub async fn command(&self) -> Command {
        self.signal.command().await
    }

    /// Ends the hold, because the request was answered for good.
    pub fn finish(mut self) {
        self.has_ended = true;
        self.holds.0.state.lock().forget(self.key);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (key, holds) = (self.key, &self.holds.0);
        let now = holds.clock.now();
        let mut state = holds.state.lock();
        state.registry.abandon(key, now);
        state.persist(key, now);
        state.expire(now);
        holds.update_abandoned_count(&state);
    }
}

impl Signal {
    fn send(&self, command: Command) {
        let command = match command {
            Command::RetryNow => RETRY_NOW,
            Command::Cancel => CANCEL,
        };
        // Nothing takes a cancel back.
        self.command.fetch_max(command, Ordering::AcqRel);
        self.notify.notify_one();
    }

    /// Clears a retry-now command of the previous wait, which was not meant for the next one.
    fn begin_wait(&self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let exchanged = (self.command).compare_exchange(RETRY_NOW, NO_COMMAND, success, failure);
        // Any other command stays.
        exchanged.ok();
    }

    async fn command(&self) -> Command {
        loop {
            match self.command.swap(NO_COMMAND, Ordering::AcqRel) {
                RETRY_NOW => return Command::RetryNow,
                CANCEL => return Command::Cancel,
                _ => self.notify.notified().await,
            }
        }
    }
}

impl Inner {
    fn update_abandoned_count(&self, state: &State) {
        self.abandoned_count
            .store(state.registry.abandoned_count(), Ordering::Relaxed);
    }
}

impl State {
    /// Hands the current state of that hold to the file.
    fn persist(&self, key: Key, now: Timestamp) {
        if let (Some(file), Some(held)) = (self.file.file(), self.registry.get(key))
            && let Some(value) = held.encode()
        {
            file.put(&row_key(key), value, held.expires_at(now));
        }
    }

    fn forget(&mut self, key: Key) {
        self.registry.remove(key);
        self.remove_row(&row_key(key));
    }

    fn remove_row(&self, key: &str) {
        if let Some(file) = self.file.file() {
            file.remove(key);
        }
    }

    /// Removes expired holds, whose client did not come back.
    fn expire(&mut self, now: Timestamp) {
        while let Some(key) = self.registry.next_expired(now) {
            self.forget(key);
        }
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
