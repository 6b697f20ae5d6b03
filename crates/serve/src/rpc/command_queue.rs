//! What has its place in an order: each command is begun when the one before it was, so that none overtakes another. What
//! takes long goes on beside the lane.

use super::command::{Caller, Command, StreamingBehavior};
use super::run::{RunRequest, RunStart};
use super::session_state::SessionState;
use super::state::queued_texts;
use crate::native::{Notice, WaitingView};
use crate::pi_rpc::bash_message;
use outlast_dialect::Message;
use outlast_engine::CancellationToken;
use outlast_session::Session;
use outlast_session::tools::shell;
use outlast_session::{Error, QueueKind};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// How often it is looked whether something that is ending has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How many commands of the client may run at the same time, and what else does.
const MAX_TASKS: usize = 256;
const TURN_RUNNING_ERROR: &str = "a turn is running";
pub(crate) const BUSY_ERROR: &str = "a turn is running; `streamingBehavior` says when this is to be said: \"steer\" or \"followUp\"";

/// A command, and what cancels it.
pub(super) struct QueuedCommand {
    pub(super) caller: Caller,
    pub(super) command: Command,
    pub(super) epoch: CancellationToken,
}

/// A command in the lane, and the place that it takes there.
pub(super) type QueueEntry = (QueuedCommand, Option<OwnedSemaphorePermit>);

/// What comes of a command: data, or nothing to tell, or why it is not done.
pub(super) type CommandResult = Result<Option<Value>, String>;

/// Begins what comes, in order. Whoever does not read the answers is asked to do so first.
pub(super) async fn process_commands(
    desk: Arc<SessionState>,
    mut waiting: mpsc::UnboundedReceiver<QueueEntry>,
) {
    while let Some((task, _place)) = waiting.recv().await {
        desk.outbox.wait_for_space().await;
        let Some(session) = desk.session() else {
            return;
        };
        desk.begin(session, task).await;
        desk.commands_begun.fetch_add(1, Ordering::Relaxed);
    }
}

impl SessionState {
    async fn begin(self: &Arc<Self>, session: Arc<Session>, task: QueuedCommand) {
        let QueuedCommand {
            caller,
            command,
            epoch,
        } = task;
        let answer = match command {
            Command::Prompt {
                input,
                streaming_behavior,
            } => {
                let message = input.into();
                return self
                    .prompt(caller, message, streaming_behavior, epoch)
                    .await;
            }
            Command::Resume => return self.resume(caller, epoch).await,
            Command::Compact {
                custom_instructions,
            } => {
                return self
                    .compact(session, caller, custom_instructions, epoch)
                    .await;
            }
            Command::Bash {
                command,
                exclude_from_context,
            } => return self.bash(session, caller, command, !exclude_from_context),
            Command::Steer(said) => {
                self.queue(&session, QueueKind::Steering, said.into(), &epoch)
                    .await
            }
            Command::FollowUp(said) => {
                self.queue(&session, QueueKind::FollowUp, said.into(), &epoch)
                    .await
            }
            Command::ClearQueue => self.clear_queue(&session).await,
            Command::GetState => Ok(Some(self.state(&session))),
            Command::Snapshot => self.snapshot(&session),
            Command::Follow(fields) => return self.follow_events(&caller, fields),
            command => match self.sessions(&session, command).await {
                Ok(answer) => answer,
                Err(command) => return self.reply_from_history(session, caller, command).await,
            },
        };
        self.reply_result(&caller, answer);
    }

    async fn prompt(
        self: &Arc<Self>,
        caller: Caller,
        message: Message,
        behavior: Option<StreamingBehavior>,
        epoch: CancellationToken,
    ) {
        let mut begin = RunRequest {
            start: RunStart::Prompt(message),
            caller: Some(caller),
        };
        loop {
            // What was aborted before it began begins nevertheless, and ends at once: it has a completion like others.
            while epoch.is_cancelled() && self.must_queue_prompt() && self.active_run().is_none() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if !self.must_queue_prompt() {
                match self.begin_run(begin, &epoch) {
                    None => return,
                    Some(handed_back) => begin = handed_back,
                }
            }
            match self.active_run() {
                // One that is ending is waited for: an abort and a prompt after it are one thing.
                Some(run) if run.stop.is_cancelled() => run.ended.cancelled().await,
                None if !self.must_queue_prompt() => {}
                _ => break,
            }
        }
        if let (Some(session), RunStart::Prompt(message), Some(caller)) =
            (self.session(), begin.start, begin.caller)
        {
            let answer = self.queue_prompt(&session, message, behavior, &epoch).await;
            self.reply_result(&caller, answer);
            self.begin_queued_prompts(&session, &epoch);
        }
    }

    /// Whether something has to be over before a prompt can have its turn: a compaction, or a turn that an earlier process
    /// left.
    fn must_queue_prompt(&self) -> bool {
        let session = self.session();
        let is_left = session.is_some_and(|session| session.unfinished_turn().is_some());
        is_left && self.active_run().is_none() || self.compactions.load(Ordering::Relaxed) > 0
    }

    /// Prompts that had to wait have their turn, after the one that was left; not when they, or what they waited for, were
    /// aborted.
    fn begin_queued_prompts(self: &Arc<Self>, session: &Session, epoch: &CancellationToken) {
        if epoch.is_cancelled() {
            return;
        }
        let is_left = session.unfinished_turn().is_some();
        let is_free = self.compactions.load(Ordering::Relaxed) == 0;
        let is_asked = self.queued_prompts.load(Ordering::Relaxed) > 0;
        if is_free && is_asked && self.active_run().is_none() {
            let start = if is_left {
                RunStart::Resume
            } else {
                RunStart::Queued
            };
            let begin = RunRequest {
                start,
                caller: None,
            };
            // A run that is under way by now says it, too.
            self.begin_run(begin, epoch);
        }
    }

    /// A prompt while a run is under way. During a wait, when nothing is being written, it is simply the next one.
    async fn queue_prompt(
        self: &Arc<Self>,
        session: &Session,
        message: Message,
        behavior: Option<StreamingBehavior>,
        epoch: &CancellationToken,
    ) -> CommandResult {
        let place = match behavior {
            Some(StreamingBehavior::Steer) => QueueKind::Steering,
            Some(StreamingBehavior::FollowUp) => QueueKind::FollowUp,
            None if self.is_waiting(session) || self.must_queue_prompt() => QueueKind::FollowUp,
            None => return Err(BUSY_ERROR.to_owned()),
        };
        let queued = self.queue(session, place, message, epoch).await?;
        if behavior.is_none() {
            self.queued_prompts.fetch_add(1, Ordering::SeqCst);
            if epoch.is_cancelled() {
                self.queued_prompts.store(0, Ordering::SeqCst);
            }
        }
        Ok(queued)
    }

    async fn queue(
        self: &Arc<Self>,
        session: &Session,
        place: QueueKind,
        message: Message,
        epoch: &CancellationToken,
    ) -> CommandResult {
        let was_running = self.active_run().is_some();
        let queued = session.enqueue(place, message).await;
        queued.map_err(|error| error.to_string())?;
        if was_running {
            self.run_missed_messages(epoch);
        }
        Ok(Some(json!({ "disposition": "queued" })))
    }

    async fn clear_queue(&self, session: &Session) -> CommandResult {
        let taken = session.clear_queue().await;
        let taken = taken.map_err(|error| error.to_string())?;
        self.queued_prompts.store(0, Ordering::Relaxed);
        let WaitingView {
            steering,
            follow_up,
        } = queued_texts(&taken);
        Ok(Some(json!({ "steering": steering, "followUp": follow_up })))
    }

    async fn resume(self: &Arc<Self>, caller: Caller, epoch: CancellationToken) {
        while let Some(run) = self.active_run() {
            if !run.stop.is_cancelled() {
                return self.reply(caller.error(TURN_RUNNING_ERROR));
            }
            run.ended.cancelled().await;
        }
        let begin = RunRequest {
            start: RunStart::Resume,
            caller: Some(caller),
        };
        let handed_back = self.begin_run(begin, &epoch);
        if let Some(caller) = handed_back.and_then(|begin| begin.caller) {
            self.reply(caller.error(TURN_RUNNING_ERROR));
        }
    }

    async fn compact(
        self: &Arc<Self>,
        session: Arc<Session>,
        caller: Caller,
        focus: Option<String>,
        epoch: CancellationToken,
    ) {
        while let Some(run) = self.active_run().filter(|run| run.stop.is_cancelled()) {
            run.ended.cancelled().await;
        }
        self.compactions.fetch_add(1, Ordering::Relaxed);
        let desk = Arc::clone(self);
        let mut work = Box::pin(async move {
            let abort = epoch.child_token();
            let limits = desk.host.limits();
            let compacted = session
                .compact_cancellable(abort, focus.as_deref(), limits)
                .await;
            let answer = match compacted {
                Ok(compacted) => Ok(Some(desk.compaction(&session, &compacted).await)),
                Err(error) => Err(error.to_string()),
            };
            desk.compactions.fetch_sub(1, Ordering::Relaxed);
            desk.reply_result(&caller, answer);
            desk.begin_queued_prompts(&session, &epoch);
        });
        // It has begun before the next command does.
        if futures_util::poll!(&mut work).is_pending() {
            self.tasks.spawn(work);
        }
    }

    /// Runs a command of the client, who may do what it likes; the model is told what came of it unless it is not to know.
    fn bash(
        self: &Arc<Self>,
        session: Arc<Session>,
        caller: Caller,
        command: String,
        is_told: bool,
    ) {
        if self.tasks.len() > MAX_TASKS {
            return self.reply(caller.error("too many commands are under way"));
        }
        let (desk, cancel) = (Arc::clone(self), self.shells());
        let shell = self.host.shell_command(&command);
        self.tasks.spawn(async move {
            let mut say = |piece: &str| {
                // Its beginning and its end come with the reply.
                if desk.outbox.is_full() {
                    return;
                }
                let update = Notice::BashExecutionUpdate {
                    id: caller.id().cloned(),
                    delta: piece.to_owned(),
                };
                desk.reply(to_raw_value(&update).unwrap_or_default());
            };
            let ended = match shell::run(shell, cancel, &mut say).await {
                Ok(ended) => ended,
                Err(error) => return desk.reply(caller.error(&error.to_string())),
            };
            let told = match is_told {
                true => {
                    session
                        .add_note(Message::user(bash_message::format_message(
                            &command, &ended,
                        )))
                        .await
                }
                false => Ok(()),
            };
            match told {
                // Nobody is asked anything there any more.
                Ok(()) | Err(Error::Closed) => {}
                Err(error) => desk
                    .host
                    .warn(&format!("the model is not told of it: {error}")),
            }
            let mut data = json!({
                "output": ended.output, "cancelled": ended.cancelled, "truncated": ended.truncated,
            });
            if let Some(code) = ended.exit_code {
                data["exitCode"] = code.into();
            }
            desk.reply(caller.data(data));
        });
    }
}
