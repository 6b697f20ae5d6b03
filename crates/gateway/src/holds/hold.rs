//! One request that is held, as the one who answers it has it.

use super::registry::Key;
use super::{Holds, Progress};
use outlast_kernel::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

/// A request that is held. When this is dropped before it has ended, its client has left, or we have.
#[must_use = "a hold that is dropped is one whose client has left"]
pub struct Hold {
    holds: Holds,
    key: Key,
    signal: Arc<Signal>,
    has_ended: bool,
}

/// What a person wants of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// It is to be tried at once.
    RetryNow,
    /// It is not to be tried again.
    Cancel,
}

/// The way of a command to its request.
#[derive(Debug, Default)]
pub(super) struct Signal {
    command: AtomicU8,
    bell: Notify,
}

const NO_COMMAND: u8 = 0;
const RETRY_NOW: u8 = 1;
const CANCEL: u8 = 2;

impl Hold {
    pub(super) fn new(holds: Holds, key: Key, signal: Arc<Signal>) -> Self {
        Self {
            holds,
            key,
            signal,
            has_ended: false,
        }
    }

    /// A new wait begins. `told` is when its client was told to come back, if it was. It is written down soon.
    pub fn update(&self, progress: Progress, told: Option<Timestamp>) {
        self.signal.begin_wait();
        self.holds.update(self.key, |held| {
            held.progress = progress;
            held.told = told;
        });
    }

    /// It is tried with that account now.
    pub fn note(&self, account: &str) {
        self.holds
            .note(self.key, |about| about.account = Some(account.into()));
    }

    /// Waits until a person wants something of it.
    pub async fn command(&self) -> Command {
        self.signal.command().await
    }

    /// It was answered for good.
    pub fn ended(mut self) {
        self.has_ended = true;
        self.holds.end(self.key);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.has_ended {
            self.holds.leave(self.key);
        }
    }
}

impl Signal {
    pub(super) fn send(&self, command: Command) {
        let command = match command {
            Command::RetryNow => RETRY_NOW,
            Command::Cancel => CANCEL,
        };
        // Nothing takes a cancel back.
        self.command.fetch_max(command, Ordering::AcqRel);
        self.bell.notify_one();
    }

    /// What was to be hurried is over: the next wait was not meant.
    fn begin_wait(&self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let exchanged = (self.command).compare_exchange(RETRY_NOW, NO_COMMAND, success, failure);
        // Anything else stays.
        exchanged.ok();
    }

    async fn command(&self) -> Command {
        loop {
            match self.command.swap(NO_COMMAND, Ordering::AcqRel) {
                RETRY_NOW => return Command::RetryNow,
                CANCEL => return Command::Cancel,
                _ => self.bell.notified().await,
            }
        }
    }
}
