//! One held request, as the call that answers it sees it.

use super::registry::Key;
use super::{Holds, Progress};
use outlast_kernel::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

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
pub(super) struct Signal {
    command: AtomicU8,
    notify: Notify,
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

    /// Records that a new wait begins, which is expected to end at that time. The write to the file follows soon.
    pub fn begin_wait(&self, progress: Progress, expected: Option<Timestamp>) {
        self.signal.begin_wait();
        self.update(progress, expected);
    }

    /// Records that the expected end of the wait has moved. It is not written: times move often, and whoever resumes the
    /// request asks the gate anew.
    pub fn set_expected(&self, end: Timestamp) {
        self.holds.set_return_at(self.key, end);
    }

    /// Records the progress. `told` is the time at which its client was told to come back, if it was.
    pub fn update(&self, progress: Progress, told: Option<Timestamp>) {
        self.holds.update(self.key, |held| {
            held.progress = progress;
            held.return_at = told;
        });
    }

    /// Records the account of the current attempt.
    pub fn set_account(&self, account: &str) {
        self.holds
            .update_summary(self.key, |about| about.account = Some(account.into()));
    }

    /// Waits for a command of a person.
    pub async fn command(&self) -> Command {
        self.signal.command().await
    }

    /// Ends the hold, because the request was answered for good.
    pub fn finish(mut self) {
        self.has_ended = true;
        self.holds.end(self.key);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.has_ended {
            self.holds.abandon(self.key);
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
