//! What is done the moment it is asked, whatever else is under way: stopping things, hurrying them, switches.

use super::command::{Caller, Command, QueueMode};
use super::command_queue::QueuedCommand;
use super::run::{RunRequest, RunStart};
use super::session_state::SessionState;
use outlast_session::DrainMode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An abort is answered by then, even if something does not end.
const ABORT_REPLY_TIMEOUT: Duration = Duration::from_millis(240);

impl SessionState {
    /// Does what is not to wait; what has its place in an order is handed back.
    pub(super) fn control(
        self: &Arc<Self>,
        caller: Caller,
        command: Command,
    ) -> Option<QueuedCommand> {
        let session = self.session()?;
        match command {
            Command::Abort => {
                self.abort();
                self.reply_when_run_ends(caller);
                return None;
            }
            // Whoever asks something next finds nothing running.
            Command::AbortRetry if self.is_waiting(&session) => {
                session.abort_retry();
                self.reply_when_run_ends(caller);
                return None;
            }
            Command::AbortRetry => session.abort_retry(),
            Command::RetryNow => session.retry_now(),
            Command::AbortBash => self.end_shells(),
            Command::SetAutoRetry { enabled } => session.set_auto_retry_enabled(enabled),
            Command::SetAutoCompaction { enabled } => session.set_auto_compaction_enabled(enabled),
            Command::SetSteeringMode { mode } => session.set_steering_mode(mode.into()),
            Command::SetFollowUpMode { mode } => session.set_follow_up_mode(mode.into()),
            command => {
                return Some(QueuedCommand {
                    caller,
                    command,
                    epoch: self.epoch(),
                });
            }
        }
        self.reply(caller.success());
        None
    }

    /// Ends what was asked before: the wait for a retry, the call, the tool, a compaction. What waits to be said goes on
    /// waiting.
    fn abort(self: &Arc<Self>) {
        // In this order: whatever ends may look at once whether a prompt waits for that.
        self.queued_prompts.store(0, Ordering::SeqCst);
        let epoch = self.end_epoch();
        let Some(session) = self.session() else {
            return;
        };
        session.abort();
        // What an earlier process left is taken up to be ended.
        if session.unfinished_turn().is_some() {
            let begin = RunRequest {
                start: RunStart::Resume,
                caller: None,
            };
            self.begin_run(begin, &epoch);
        }
    }

    fn reply_when_run_ends(self: &Arc<Self>, caller: Caller) {
        let run = self.active_run();
        let desk = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Some(run) = run {
                let over = run.ended.cancelled();
                tokio::time::timeout(ABORT_REPLY_TIMEOUT, over).await.ok();
            }
            desk.reply(caller.success());
        });
    }
}

impl From<QueueMode> for DrainMode {
    fn from(mode: QueueMode) -> Self {
        match mode {
            QueueMode::All => Self::All,
            QueueMode::OneAtATime => Self::OneAtATime,
        }
    }
}
