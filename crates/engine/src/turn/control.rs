//! How others stop or hurry a turn.

use crate::CancellationToken;
use tokio::sync::mpsc;

/// What was asked of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Abort,
    AbortRetry,
    RetryNow,
}

/// The turn's end of the line.
#[derive(Debug)]
pub struct Control {
    abort: CancellationToken,
    commands: mpsc::UnboundedReceiver<Command>,
}

/// The other end: cheap to clone, harmless once the turn is over.
#[derive(Clone, Debug)]
pub struct Handle {
    abort: CancellationToken,
    commands: mpsc::UnboundedSender<Command>,
}

impl Control {
    /// A line to a turn that ends when `abort` is cancelled.
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

    /// What is cancelled when the turn is to end.
    pub(super) fn token(&self) -> CancellationToken {
        self.abort.clone()
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.abort.is_cancelled()
    }

    /// Comes when the turn is to end. What was asked of a wait is forgotten meanwhile: there is no wait.
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

    /// The next thing that is asked of a wait.
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
    /// Ends the turn.
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
