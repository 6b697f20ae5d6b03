//! The connection of one client: the session in use, and the commands that are under way.
//!
//! Invariants: urgent commands are handled at once; the others begin in order, each when the one before it has begun, and what
//! takes long goes on beside them.

use super::command::{Caller, Command, QueueMode, StreamingBehavior};
use super::{Dialect, MAX_QUEUED_KILOBYTES};
use crate::native::{NativeLog, WaitingView};
use crate::outbox::{Item, Outbox};
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_session::event_log::EventLog;
use outlast_session::factory::{Host, Model, OpenedSession};
use outlast_session::{
    Accepted, Command as SessionCommand, Compacted, Conversation, Delivery, DrainMode, Epochs,
    Error, Options, PromptSettings, QueueKind, Rejected, Reply, Session, Subscription, Update,
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;

/// Maximum number of replies from the whole history that are made at the same time.
const MAX_CONCURRENT_READS: usize = 2;
/// Time in which an abort is answered, even if something does not end.
pub(crate) const ABORT_REPLY_TIMEOUT: Duration = Duration::from_millis(240);
/// Time that the remaining tasks get to end with the connection.
const TASKS_TIMEOUT: Duration = Duration::from_millis(300);
const BUSY_ERROR: &str = "a turn is running; `streamingBehavior` says when this is to be said: \"steer\" or \"followUp\"";

/// The connection of one client.
pub(super) struct Connection {
    pub(super) host: Arc<dyn Host>,
    pub(super) outbox: Outbox,
    /// The events that the client follows, in the native dialect.
    pub(super) native_log: Option<NativeLog>,
    current: Mutex<Option<CurrentSession>>,
    /// The periods between aborts, over all sessions of the connection.
    pub(super) epochs: Epochs,
    /// Cancelled by the next abort of shell commands.
    shells: Mutex<CancellationToken>,
    /// Number of commands that have begun.
    pub(super) commands_begun: watch::Sender<u64>,
    /// The prompts that are not answered yet.
    pub(super) prompts: TaskTracker,
    pub(super) readers: Arc<Semaphore>,
    /// The size of the queued commands, in kilobytes.
    pub(super) queue_permits: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
}

/// The session in use.
struct CurrentSession {
    conversation: Conversation,
    model: Model,
    _subscription: Subscription,
}

/// A command with the epoch in which it was read.
pub(super) struct QueuedCommand {
    pub(super) caller: Caller,
    pub(super) command: Command,
    pub(super) epoch: CancellationToken,
}

/// A queued command, and its share of the queue.
pub(super) type QueueEntry = (QueuedCommand, Option<OwnedSemaphorePermit>);

/// The data of a reply, if there is any, or the error.
pub(super) type CommandResult = Result<Option<Value>, String>;

impl Connection {
    pub(super) fn new(host: Arc<dyn Host>, outbox: Outbox, dialect: Dialect) -> Self {
        Self {
            host,
            outbox,
            native_log: (dialect == Dialect::Native).then(NativeLog::default),
            current: Mutex::default(),
            epochs: Epochs::default(),
            shells: Mutex::default(),
            commands_begun: watch::Sender::default(),
            prompts: TaskTracker::new(),
            readers: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            queue_permits: Arc::new(Semaphore::new(MAX_QUEUED_KILOBYTES)),
            tasks: TaskTracker::new(),
        }
    }

    // --- The session in use ---

    /// Continues with another session; the switches stay as they are. Returns the session before it.
    pub(super) fn attach_session(&self, opened: OpenedSession) -> Option<Conversation> {
        let OpenedSession { session, model } = opened;
        let log = Arc::new(EventLog::after(session.snapshot().last_seq));
        if let Some(native) = &self.native_log {
            native.begin(Arc::clone(&log));
        }
        let host = Arc::clone(&self.host);
        let settings = move || PromptSettings {
            limits: host.limits(),
            options: host.resume_options(),
        };
        let options = Options {
            hold: Some(self.outbox.watch_full()),
            epochs: self.epochs.clone(),
            log,
            ..Options::new(settings)
        };
        let conversation = Conversation::start(Arc::clone(&session), options);
        // After the conversation's own: it replies to a prompt before the input is written.
        let current = CurrentSession {
            _subscription: session.subscribe_to_updates(self.listener()),
            conversation,
            model,
        };
        let mut place = self.current.lock();
        if let Some(before) = &*place {
            let before = before.conversation.session();
            session.set_auto_retry_enabled(before.auto_retry_enabled());
            session.set_auto_compaction_enabled(before.auto_compaction_enabled());
            session.set_steering_mode(before.steering_mode());
            session.set_follow_up_mode(before.follow_up_mode());
        }
        place.replace(current).map(|before| before.conversation)
    }

    /// Returns a listener that writes what the client follows.
    fn listener(&self) -> impl FnMut(Update<'_>) + Send + 'static {
        let (outbox, log) = (self.outbox.clone(), self.native_log.clone());
        move |update| {
            let write = |event: &_| outbox.send(Item::Event(Clone::clone(event)));
            match (update, &log) {
                (Update::RunEnded(outcome), _) => outbox.send(Item::RunEnded {
                    aborted: outcome.aborted,
                }),
                (Update::Event(event), Some(log)) => log.push(event, write),
                (Update::Event(event), None) => write(event),
            }
        }
    }

    /// Returns the conversation in use: there is one from the start.
    pub(super) fn conversation(&self) -> Option<Conversation> {
        let current = self.current.lock();
        current.as_ref().map(|current| current.conversation.clone())
    }

    pub(super) fn model(&self) -> Option<Model> {
        let current = self.current.lock();
        current.as_ref().map(|current| current.model.clone())
    }

    pub(super) fn set_model(&self, model: Model) {
        if let Some(current) = &mut *self.current.lock() {
            current.model = model;
        }
    }

    // --- Replies ---

    pub(super) fn reply_result(&self, caller: &Caller, result: CommandResult) {
        self.reply(match result {
            Ok(Some(data)) => caller.data(data),
            Ok(None) => caller.success(),
            Err(error) => caller.error(&error),
        });
    }

    pub(super) fn reply(&self, frame: Box<RawValue>) {
        self.outbox.send(Item::Reply(frame));
    }

    /// Returns the reply to a prompt. The connection waits for it before it closes.
    fn disposition(self: &Arc<Self>, caller: Caller) -> Reply<Accepted> {
        let (connection, unanswered) = (Arc::clone(self), self.prompts.token());
        Box::new(move |accepted| {
            let result = match accepted {
                Ok(Accepted::Started(_)) => Ok(Some(json!({ "disposition": "started" }))),
                Ok(Accepted::Queued) => Ok(Some(json!({ "disposition": "queued" }))),
                Err(Rejected::Busy) if caller.is_prompt() => Err(BUSY_ERROR.to_owned()),
                Err(error) => Err(error.to_string()),
            };
            connection.reply_result(&caller, result);
            drop(unanswered);
        })
    }

    // --- Urgent commands ---

    /// Handles a command that must not wait; returns any other one.
    pub(super) fn control(
        self: &Arc<Self>,
        caller: Caller,
        command: Command,
    ) -> Option<QueuedCommand> {
        let conversation = self.conversation()?;
        let session = conversation.session();
        match command {
            Command::Abort => {
                self.reply_after(caller, conversation.abort());
                return None;
            }
            Command::AbortRetry => {
                let ended = conversation.run_ended();
                if conversation.abort_retry() {
                    // The next request finds nothing running.
                    self.reply_after(caller, ended);
                    return None;
                }
            }
            Command::RetryNow => drop(conversation.retry_now()),
            Command::AbortBash => self.end_shells(),
            Command::SetAutoRetry { enabled } => session.set_auto_retry_enabled(enabled),
            Command::SetAutoCompaction { enabled } => session.set_auto_compaction_enabled(enabled),
            Command::SetSteeringMode { mode } => session.set_steering_mode(mode.into()),
            Command::SetFollowUpMode { mode } => session.set_follow_up_mode(mode.into()),
            command => {
                return Some(QueuedCommand {
                    caller,
                    command,
                    epoch: self.epochs.current(),
                });
            }
        }
        self.reply(caller.success());
        None
    }

    fn reply_after(
        self: &Arc<Self>,
        caller: Caller,
        end: impl Future<Output = ()> + Send + 'static,
    ) {
        let connection = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::time::timeout(ABORT_REPLY_TIMEOUT, end).await.ok();
            connection.reply(caller.success());
        });
    }

    // --- Commands in order ---

    /// Begins the queued commands in order. A client that does not read its replies is waited for first.
    pub(super) async fn process_commands(
        self: Arc<Self>,
        mut waiting: mpsc::UnboundedReceiver<QueueEntry>,
    ) {
        while let Some((command, _permit)) = waiting.recv().await {
            self.outbox.wait_for_space().await;
            let Some(conversation) = self.conversation() else {
                return;
            };
            self.begin(&conversation, command).await;
            self.commands_begun.send_modify(|begun| *begun += 1);
        }
    }

    async fn begin(self: &Arc<Self>, conversation: &Conversation, queued: QueuedCommand) {
        let QueuedCommand {
            caller,
            command,
            epoch,
        } = queued;
        let session = conversation.session();
        let command = match command {
            Command::Prompt {
                input,
                streaming_behavior,
            } => {
                let delivery = streaming_behavior.map_or(Delivery::IfIdle, Into::into);
                SessionCommand::Prompt(input.into(), delivery, self.disposition(caller))
            }
            Command::Steer(input) => {
                SessionCommand::Enqueue(QueueKind::Steering, input.into(), self.disposition(caller))
            }
            Command::FollowUp(input) => {
                SessionCommand::Enqueue(QueueKind::FollowUp, input.into(), self.disposition(caller))
            }
            Command::Resume => SessionCommand::Resume(self.disposition(caller)),
            Command::Compact {
                custom_instructions,
            } => self.compact(session, caller, custom_instructions),
            Command::ClearQueue => self.clear_queue(caller),
            Command::Bash {
                command,
                exclude_from_context,
            } => return self.bash(session, caller, command, !exclude_from_context),
            Command::GetState => {
                return self.reply_result(&caller, Ok(Some(self.state(conversation))));
            }
            Command::Snapshot => return self.reply_result(&caller, self.snapshot(session)),
            Command::Follow(fields) => return self.follow_events(&caller, fields),
            command => match self.sessions(conversation, command).await {
                Ok(result) => return self.reply_result(&caller, result),
                Err(command) => {
                    return self
                        .reply_from_history(Arc::clone(session), caller, command)
                        .await;
                }
            },
        };
        conversation.submit(command, epoch).await;
    }

    fn compact(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: Caller,
        focus: Option<String>,
    ) -> SessionCommand {
        let (connection, session) = (Arc::clone(self), Arc::clone(session));
        let then = move |compacted: Result<Compacted, Error>| {
            let reply = async move {
                let result = match compacted {
                    Ok(compacted) => Ok(Some(connection.compaction(&session, &compacted).await)),
                    Err(error) => Err(error.to_string()),
                };
                connection.reply_result(&caller, result);
            };
            Box::pin(reply) as BoxFuture<'static, ()>
        };
        SessionCommand::Compact(focus, Box::new(then))
    }

    fn clear_queue(self: &Arc<Self>, caller: Caller) -> SessionCommand {
        let connection = Arc::clone(self);
        SessionCommand::ClearQueue(Box::new(move |cleared| {
            let result = match cleared {
                Ok(cleared) => {
                    let WaitingView {
                        steering,
                        follow_up,
                    } = WaitingView::from(&cleared);
                    Ok(Some(json!({ "steering": steering, "followUp": follow_up })))
                }
                Err(error) => Err(error.to_string()),
            };
            connection.reply_result(&caller, result);
        }))
    }

    // --- The end ---

    /// Returns the token that is cancelled when the client's shell commands are to end.
    pub(super) fn shells(&self) -> CancellationToken {
        self.shells.lock().clone()
    }

    fn end_shells(&self) {
        std::mem::take(&mut *self.shells.lock()).cancel();
    }

    /// Stops serving. A running turn is left to be resumed; everything else is ended.
    pub(super) async fn shutdown(&self, limit: Duration) {
        self.end_shells();
        let Some(conversation) = self.conversation() else {
            return;
        };
        leave(&conversation, &*self.host, limit).await;
        self.tasks.close();
        let tasks = self.tasks.wait();
        tokio::time::timeout(TASKS_TIMEOUT, tasks).await.ok();
    }
}

/// Lets go of a session: leaves a running turn to be resumed, and otherwise closes the session.
pub(crate) async fn leave(conversation: &Conversation, host: &dyn Host, limit: Duration) {
    if conversation.is_running() {
        host.leave_session(conversation.session());
        conversation.detach().await;
    } else {
        let close = close(conversation, host);
        tokio::time::timeout(limit, close).await.ok();
    }
}

/// Closes a conversation in which nothing runs, and its session.
pub(super) async fn close(conversation: &Conversation, host: &dyn Host) {
    // Ends a compaction, which has changed nothing yet.
    conversation.detach().await;
    close_session(conversation.session(), host).await;
}

pub(super) async fn close_session(session: &Session, host: &dyn Host) {
    host.leave_session(session);
    if let Err(error) = session.close().await {
        let what = format!("session {} is not written down to its end", session.id());
        host.warn(&format!("{what}: {error}"));
    }
}

impl From<StreamingBehavior> for Delivery {
    fn from(behavior: StreamingBehavior) -> Self {
        match behavior {
            StreamingBehavior::Steer => Self::Steer,
            StreamingBehavior::FollowUp => Self::FollowUp,
        }
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
