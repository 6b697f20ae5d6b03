//! The commands that abort a turn, or end its waits.

use crate::CancellationToken;
use tokio::sync::mpsc;

/// A command to a turn that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Abort,
    AbortRetry,
    RetryNow,
}

/// The receiving end of the commands, for the turn.
#[derive(Debug)]
pub struct Control {
    abort: CancellationToken,
    commands: mpsc::UnboundedReceiver<Command>,
}

/// The sending end of the commands: cheap to clone, and without effect once the turn is over.
#[derive(Clone, Debug)]
pub struct Handle {
    abort: CancellationToken,
    commands: mpsc::UnboundedSender<Command>,
}

impl Control {
    /// Creates both ends for a turn that ends when `abort` is cancelled.
    pub fn new(abort: CancellationToken) -> (Self, Handle) {
        let (sender, commands) = mpsc::unbounded_channel();
        (
            Self {
                abort: abort.clone(),
                commands,
            },
            Handle {
                abort,
                commands: sender,
            },
        )
    }

    /// Returns the token that is cancelled when the turn is aborted.
    pub(super) fn token(&self) -> CancellationToken {
        self.abort.clone()
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.abort.is_cancelled()
    }

    /// Resolves when the turn is aborted. Discards the commands to a wait meanwhile: the turn does not wait.
    pub(super) async fn aborted(&mut self) {
        loop {
            tokio::select! {
                biased;
                () = self.abort.cancelled() => return,
                command = self.commands.recv() => if command.is_none() {
                    return self.abort.cancelled().await;
                },
            }
        }
    }

    /// Returns the next command.
    pub(super) async fn next_command(&mut self) -> Command {
        tokio::select! {
            biased;
            () = self.abort.cancelled() => Command::Abort,
            Some(command) = self.commands.recv() => command,
            else => Command::Abort,
        }
    }
}

impl Handle {
    /// Aborts the turn.
    pub fn abort(&self) {
        self.abort.cancel();
    }

    /// Ends the wait for a retry; the turn then fails with the error that it waited out.
    pub fn abort_retry(&self) {
        self.send(Command::AbortRetry);
    }

    /// Ends the wait and tries at once.
    pub fn retry_now(&self) {
        self.send(Command::RetryNow);
    }

    fn send(&self, command: Command) {
        // A turn that is over needs no command.
        self.commands.send(command).ok();
    }
}
