//! Drives a session: runs its turns, one at a time, in the order of the commands.
//!
//! ```text
//! any number of doors -> Conversation -> actor (one task) -> a turn at a time
//!                        EventLog <- events of the session      (readers have a cursor each)
//! ```
//!
//! A *run* is a prompt and everything that follows from it by itself: it ends when a turn has ended and nothing is queued, or
//! when a turn failed or was aborted. Invariants: one run at a time; every command is answered once, as long as the conversation
//! is open, and a command that starts a run is answered before the run's first input; a message that arrives while a run ends
//! is sent by that run or by the next one; an abort ends everything that was submitted before it and nothing after it.
//! Not here: the steps of a turn (see the engine's `turn`), opening a session, and how anything is shown.

mod actor;
mod command;

use crate::event_log::{EventLog, StaleCursor};
use crate::snapshot::Update;
use crate::{Compacted, Error, Queued, Session, Setup};
use actor::Actor;
pub use command::{Accepted, AfterCompaction, Command, Delivery, Rejected, Reply, Started};
use outlast_dialect::Message;
use outlast_engine::inbox::QueueKind;
use outlast_engine::turn::TurnOutcome;
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_kernel::budget::Limits;
use outlast_kernel::event::{Body, Event};
use parking_lot::Mutex;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// Maximum number of events that a stream copies at once.
const MAX_BATCH_EVENTS: usize = 128;

/// Drives one session. Clones drive the same one; when the last clone is dropped, a running turn is left to be resumed.
#[derive(Clone)]
pub struct Conversation {
    shared: Arc<Shared>,
    submissions: mpsc::UnboundedSender<Submission>,
}

/// The options of a conversation.
pub struct Options {
    /// Returns the settings of a prompt that begins now.
    pub settings: Box<dyn Fn() -> PromptSettings + Send + Sync>,
    /// While it is `true`, the turn is not driven on: a reader that must not miss anything is behind.
    pub hold: Option<watch::Receiver<bool>>,
    /// Whether a run sends the queued messages after its first turn.
    pub sends_queued: bool,
    /// The epochs, if several conversations share them.
    pub epochs: Epochs,
    /// The log of the session's events, if it outlives the conversation.
    pub log: Arc<EventLog>,
}

impl Options {
    /// Creates options with these settings for every prompt, and a log of its own.
    pub fn new(settings: impl Fn() -> PromptSettings + Send + Sync + 'static) -> Self {
        Self {
            settings: Box::new(settings),
            hold: None,
            sends_queued: true,
            epochs: Epochs::default(),
            log: Arc::default(),
        }
    }
}

/// The settings of a prompt.
#[derive(Clone, Debug, Default)]
pub struct PromptSettings {
    /// The limits of its turn.
    pub limits: Limits,
    /// Data that the front end needs to resume the turn after a restart.
    pub options: Value,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// The last turn that ended.
    pub turn: Option<Arc<TurnOutcome>>,
    /// Whether the run was aborted.
    pub aborted: bool,
    /// The reason for which a turn could not begin.
    pub error: Option<Arc<Error>>,
}

/// The status of a conversation.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Whether a run is active. Between the turns of a run it is, too.
    pub is_running: bool,
    /// Number of compactions by hand that run or wait.
    pub compactions: usize,
    /// Number of runs that have begun.
    pub runs_begun: u64,
    /// Number of runs whose end was announced.
    pub runs_ended: u64,
    /// The outcome of the last one.
    pub last_outcome: RunOutcome,
    /// Whether the conversation was closed.
    pub is_closed: bool,
}

impl Status {
    /// Returns whether nothing runs, nothing follows by itself, and everything was announced.
    pub const fn is_settled(&self) -> bool {
        self.is_closed || self.runs_begun == self.runs_ended && self.compactions == 0
    }
}

/// The periods between aborts. An abort ends an epoch: everything that was submitted in it. Clones share the epochs.
#[derive(Clone, Debug, Default)]
pub struct Epochs(Arc<Mutex<CancellationToken>>);

impl Epochs {
    /// Returns the current epoch, which the next abort cancels.
    pub fn current(&self) -> CancellationToken {
        self.0.lock().clone()
    }

    /// Ends the current epoch and begins the next one; returns the ended one.
    pub fn end(&self) -> CancellationToken {
        let ended = std::mem::take(&mut *self.0.lock());
        ended.cancel();
        ended
    }
}

struct Submission {
    command: Command,
    epoch: CancellationToken,
    /// Dropped when the command has begun.
    _begun: oneshot::Sender<()>,
}

/// The state that handles, actor and event listener share.
struct Shared {
    session: Arc<Session>,
    options: Options,
    status: watch::Sender<Status>,
    progress: Mutex<TurnProgress>,
    is_model_chosen: Mutex<bool>,
    /// Cancelled when the conversation is closed.
    stop: CancellationToken,
}

/// The progress of the running turn, as its events tell it.
#[derive(Default)]
struct TurnProgress {
    /// Receives the acceptance of the prompt that begins the turn.
    acceptance: Option<Reply<Accepted>>,
    /// The number of the last event before the turn.
    starts_after: u64,
    /// Whether the turn is to end its wait as soon as it begins.
    retries_at_start: bool,
    /// Whether the turn has announced its end; the session is free a moment later.
    is_sealed: bool,
}

impl Conversation {
    /// Begins to drive a session. Must be called within a runtime.
    pub fn start(session: Arc<Session>, options: Options) -> Self {
        let shared = Arc::new(Shared {
            session,
            options,
            status: watch::Sender::default(),
            progress: Mutex::default(),
            is_model_chosen: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let (submissions, received) = mpsc::unbounded_channel();
        tokio::spawn(Actor::new(Arc::clone(&shared), received).run());
        Self {
            shared,
            submissions,
        }
    }

    /// Returns the session.
    pub fn session(&self) -> &Arc<Session> {
        &self.shared.session
    }

    // --- Commands, in the order of these calls ---

    /// Submits a prompt. The reply comes when the message is in the journal: as the start of a run, or queued.
    pub fn prompt(
        &self,
        message: Message,
        delivery: Delivery,
    ) -> impl Future<Output = Result<Accepted, Rejected>> + Send + use<> {
        self.request(move |reply| Command::Prompt(message, delivery, reply))
    }

    /// Queues a message. In an idle session it waits for the next prompt.
    pub fn enqueue(
        &self,
        kind: QueueKind,
        message: Message,
    ) -> impl Future<Output = Result<Accepted, Rejected>> + Send + use<> {
        self.request(move |reply| Command::Enqueue(kind, message, reply))
    }

    /// Continues the unfinished turn, sends what is queued, or retries the failed turn: the first that applies.
    pub fn resume(&self) -> impl Future<Output = Result<Accepted, Rejected>> + Send + use<> {
        self.request(Command::Resume)
    }

    /// Retries the last turn, which failed or was aborted.
    pub fn retry(&self) -> impl Future<Output = Result<Accepted, Rejected>> + Send + use<> {
        self.request(Command::Retry)
    }

    /// Compacts the conversation; `focus` is the topic that the summary should concentrate on.
    pub fn compact(
        &self,
        focus: Option<String>,
    ) -> impl Future<Output = Result<Compacted, Rejected>> + Send + use<> {
        self.request(move |reply| {
            let then = |result: Result<Compacted, Error>| {
                reply(result.map_err(Rejected::from));
                Box::pin(std::future::ready(())) as BoxFuture<'static, ()>
            };
            Command::Compact(focus, Box::new(then))
        })
    }

    /// Removes the queued messages and returns them.
    pub fn clear_queue(&self) -> impl Future<Output = Result<Queued, Rejected>> + Send + use<> {
        self.request(Command::ClearQueue)
    }

    /// Submits a command of an epoch. The future resolves when the command has begun, which may be long before its reply:
    /// whoever needs the order of commands of another kind waits for it.
    pub fn submit(
        &self,
        command: Command,
        epoch: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (begun, has_begun) = oneshot::channel();
        let submission = Submission {
            command,
            epoch,
            _begun: begun,
        };
        // After the conversation has closed, the command is dropped, and with it its reply.
        self.submissions.send(submission).ok();
        async move { drop(has_begun.await) }
    }

    fn request<T: Send + 'static, C: FnOnce(Reply<T>) -> Command>(
        &self,
        command: C,
    ) -> impl Future<Output = Result<T, Rejected>> + Send + use<T, C> {
        self.request_in(command, self.epoch())
    }

    fn request_in<T: Send + 'static, C: FnOnce(Reply<T>) -> Command>(
        &self,
        command: C,
        epoch: CancellationToken,
    ) -> impl Future<Output = Result<T, Rejected>> + Send + use<T, C> {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(move |result| drop(sender.send(result)));
        drop(self.submit(command(reply), epoch));
        async move { receiver.await.unwrap_or(Err(Rejected::Closed)) }
    }

    // --- Commands that act at once ---

    /// Ends everything that was submitted so far: the run with its waits, calls and tools, and compactions. Queued messages
    /// stay queued. The future resolves when it has ended; an unfinished turn is settled, too.
    pub fn abort(&self) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.shared.options.epochs.end();
        let aborted = self.request_in(Command::Abort, ended);
        async move { drop(aborted.await) }
    }

    /// Cancels the wait for a retry, if there is one: the turn fails with the error that caused the wait.
    pub fn abort_retry(&self) -> bool {
        let is_waiting = self.is_waiting();
        self.session().abort_retry();
        is_waiting
    }

    /// Ends the wait for a retry, if there is one, and retries at once.
    pub fn retry_now(&self) -> bool {
        let is_waiting = self.is_waiting();
        {
            // A resumed turn that is about to begin does not listen yet.
            let mut progress = self.shared.progress.lock();
            progress.retries_at_start = self.is_running() && !self.session().is_running();
        }
        self.session().retry_now();
        is_waiting
    }

    /// Replaces the setup because somebody has chosen a model: the next prompt asks it even if it is in a cooldown.
    pub fn choose_model(&self, setup: Setup) {
        self.session().change_setup(setup);
        self.mark_model_chosen();
    }

    /// Records that somebody has chosen the model of the current setup.
    pub fn mark_model_chosen(&self) {
        *self.shared.is_model_chosen.lock() = true;
    }

    // --- Watching ---

    /// Returns whether the turn waits for a retry or at the gate.
    pub fn is_waiting(&self) -> bool {
        self.shared.is_waiting()
    }

    /// Returns the status and its changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Returns whether a run is active.
    pub fn is_running(&self) -> bool {
        self.shared.status.borrow().is_running
    }

    /// Resolves with the outcome of the last run when nothing runs and nothing follows by itself.
    pub async fn settled(&self) -> RunOutcome {
        let mut status = self.status();
        let settled = status.wait_for(Status::is_settled).await;
        settled.map_or_else(|_| RunOutcome::default(), |it| it.last_outcome.clone())
    }

    /// Resolves when the run that is active at the time of this call has ended, at once if none is.
    pub fn run_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut status = self.status();
        let begun = status.borrow().runs_begun;
        async move {
            let is_over = |now: &Status| now.is_closed || now.runs_ended >= begun;
            drop(status.wait_for(is_over).await);
        }
    }

    /// Returns the epoch of commands that are submitted now.
    pub fn epoch(&self) -> CancellationToken {
        self.shared.options.epochs.current()
    }

    /// Returns the log of the events.
    pub fn log(&self) -> &Arc<EventLog> {
        &self.shared.options.log
    }

    /// Returns the events after that number of the log, or those from now on.
    pub fn events(&self, after: Option<u64>) -> EventStream {
        let log = Arc::clone(self.log());
        EventStream {
            newest: log.watch(),
            after: after.unwrap_or_else(|| log.newest()),
            log,
            status: self.status(),
            batch: Vec::new().into_iter(),
        }
    }

    // --- The end ---

    /// Stops driving the session. A running turn is left to be resumed by another process.
    pub async fn detach(&self) {
        self.shared.stop.cancel();
        let mut status = self.status();
        drop(status.wait_for(|status| status.is_closed).await);
    }

    /// Stops driving the session, and gives it back so that another process can open it. Compactions are ended; a running turn
    /// is left unfinished.
    pub async fn close(&self) -> Result<(), Error> {
        self.detach().await;
        self.session().close().await
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.session().id();
        f.debug_struct("Conversation")
            .field("session", &id)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn is_waiting(&self) -> bool {
        let snapshot = self.session.snapshot();
        let retry = snapshot.retry.and_then(|retry| retry.wake_at);
        retry.is_some() || snapshot.gate_hold.is_some()
    }

    /// Follows the turn by its events, and logs them.
    fn observe(&self, update: Update<'_>) {
        let Update::Event(event) = update else {
            return;
        };
        let log = &self.options.log;
        match &event.body {
            Body::Start { .. } => {
                let retries = {
                    let mut progress = self.progress.lock();
                    progress.starts_after = log.newest();
                    std::mem::take(&mut progress.retries_at_start)
                };
                if retries {
                    self.session.retry_now();
                }
                // The prompt's journal entry has the choice.
                *self.is_model_chosen.lock() = false;
            }
            Body::Input { .. } => self.accept(&event.turn_id),
            Body::Sealed { .. } => self.progress.lock().is_sealed = true,
            _ => {}
        }
        log.push(event, self.session.turn_count());
    }

    /// Replies that the prompt is in the journal: before its input is announced.
    fn accept(&self, turn_id: &str) {
        let (acceptance, after) = {
            let mut progress = self.progress.lock();
            (progress.acceptance.take(), progress.starts_after)
        };
        if let Some(reply) = acceptance {
            let turn_id = turn_id.to_owned();
            reply(Ok(Accepted::Started(Started { turn_id, after })));
        }
    }
}

/// The events of a conversation after a cursor.
pub struct EventStream {
    log: Arc<EventLog>,
    newest: watch::Receiver<u64>,
    after: u64,
    status: watch::Receiver<Status>,
    batch: std::vec::IntoIter<Event>,
}

impl EventStream {
    /// Returns the next event, or `None` when the conversation is closed. A reader that was too slow gets the gap as an error,
    /// and continues with new events. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Event, StaleCursor>> {
        loop {
            if let Some(event) = self.batch.next() {
                self.after = event.seq;
                return Some(Ok(event));
            }
            self.newest.mark_unchanged();
            let is_closed = self.status.borrow().is_closed;
            match self.log.since(self.after, MAX_BATCH_EVENTS) {
                Err(stale) => {
                    self.after = stale.newest;
                    return Some(Err(stale));
                }
                Ok(events) if !events.is_empty() => self.batch = events.into_iter(),
                Ok(_) if is_closed => return None,
                Ok(_) => tokio::select! {
                    // The log outlives its readers.
                    _ = self.newest.changed() => {}
                    _ = self.status.wait_for(|status| status.is_closed) => {}
                },
            }
        }
    }
}
