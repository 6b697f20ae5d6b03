//! Sessions: conversations that survive failures, and the process that owns them.
//!
//! The engine's turn performs every wait and retry; the session supplies its setup, records the results and lets clients
//! watch and steer. Invariants: failed attempts stay in the history and out of the conversation; one turn at a time; one
//! process at a time; a closed session makes no requests.
//! Not here: how a conversation is made smaller (see `compaction`), and the wire format of a message.
#![warn(missing_docs)]

mod compact;
pub mod compaction;
mod conversation;
mod copy;
pub mod event_log;
pub mod factory;
pub mod hooks;
pub mod process;
mod queue;
mod session_journal;
mod setup;
mod snapshot;
mod state;
pub mod tools;
pub mod transcript;
mod turns;

pub use compact::Compacted;
pub use conversation::{
    Accepted, AfterCompaction, Command, Conversation, Delivery, Epochs, EventStream, Options,
    PromptSettings, Rejected, Reply, RunOutcome, Started, Status,
};
pub use outlast_engine::inbox::QueueKind;
pub use queue::{DrainMode, Queued};
pub use session_journal::parse_entry;
pub use setup::{PromptRequest, Setup};
pub use snapshot::{GateHold, RetryStatus, Snapshot, Subscription, Update};
pub use state::{State, UnfinishedTurn};

use outlast_dialect::Message;
use outlast_engine::turn::Handle;
use outlast_engine::{Clock, token_estimate};
use outlast_kernel::event::{Body, Event, TurnStatus, VERSION};
use outlast_store::Journal;
use outlast_store::journal::NewSession;
use parking_lot::{Mutex, RwLock};
use queue::QueueState;
use session_journal::{SessionJournal, Storage};
use snapshot::EventHub;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An error of a session operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal refused the operation.
    #[error(transparent)]
    Store(#[from] outlast_store::Error),
    /// A turn is running.
    #[error("a turn is running; wait for its end or abort it")]
    Busy,
    /// The last turn is not settled.
    #[error("the last turn of session {session} is not finished; resume it first")]
    Unfinished {
        /// The session.
        session: String,
    },
    /// There is no turn to resume or retry.
    #[error("there is no turn to carry on in session {session}: the last one was answered")]
    NothingToResume {
        /// The session.
        session: String,
    },
    /// The session was closed.
    #[error("the session is closed; open it again to go on")]
    Closed,
    /// An addition to the session could not be written to the journal, and is not part of the session.
    #[error("it could not be written down: {why}")]
    NotWritten {
        /// The reason.
        why: String,
    },
    /// The conversation could not be made smaller.
    #[error("the conversation is as it was: {why}")]
    NotCompacted {
        /// The reason.
        why: String,
    },
    /// An entry cannot be read.
    #[error("entry {seq} of session {session} cannot be read: {error}")]
    Unreadable {
        /// The session.
        session: String,
        /// The number of the entry.
        seq: u64,
        /// The error of the decoder.
        error: serde_json::Error,
    },
}

/// A conversation with its settings and history.
pub struct Session {
    id: String,
    metadata: Mutex<Metadata>,
    clock: Arc<dyn Clock>,
    setup: RwLock<Arc<Setup>>,
    journal: SessionJournal,
    event_hub: Arc<EventHub>,
    auto_retry: AtomicBool,
    auto_compaction: AtomicBool,
    queue_state: Mutex<QueueState>,
    /// The handle of the running turn.
    active_run: Mutex<Option<Handle>>,
    /// Held during a compaction by hand: prompts that arrive meanwhile wait for it.
    compaction_lock: tokio::sync::Mutex<()>,
}

/// The attributes by which people recognise a session.
#[derive(Clone, Debug, Default)]
struct Metadata {
    directory: String,
    title: String,
}

impl Session {
    /// Creates a session that exists only in memory, as long as this value lives.
    pub fn in_memory(setup: Setup) -> Self {
        Self::in_memory_with_id(uuid::Uuid::now_v7().to_string(), setup)
    }

    /// Creates a session in memory with an id that the caller has already announced.
    pub fn in_memory_with_id(id: String, setup: Setup) -> Self {
        let home = Storage::Memory(Vec::new());
        let record = SessionJournal::new(home, State::default(), setup.clock.clone());
        Self::from_parts(id, Metadata::default(), setup, record)
    }

    /// Creates a session in the journal; `about` is its folder and its title.
    pub async fn create(
        journal: &Journal,
        about: (&str, &str),
        setup: Setup,
    ) -> Result<Self, Error> {
        let id = uuid::Uuid::now_v7().to_string();
        Self::create_with_id(journal, id, about.0, about.1, setup).await
    }

    /// Creates a session in the journal with an id that the caller has already recorded.
    pub async fn create_with_id(
        journal: &Journal,
        id: String,
        directory: &str,
        title: &str,
        setup: Setup,
    ) -> Result<Self, Error> {
        let about = Metadata {
            directory: directory.to_owned(),
            title: title.to_owned(),
        };
        let new = NewSession {
            id: id.clone(),
            directory: about.directory.clone(),
            title: about.title.clone(),
            now: setup.clock.now(),
        };
        let hold = journal.create(new).await?;
        let home = Storage::Journal(journal.clone(), hold);
        let record = SessionJournal::new(home, State::default(), setup.clock.clone());
        Ok(Self::from_parts(id, about, setup, record))
    }

    /// Opens a session of the journal. Takes it over from a process that died, never from one that lives.
    pub async fn open(journal: &Journal, id: &str, setup: Setup) -> Result<Self, Error> {
        let hold = journal.claim(id).await?;
        let (standing, about) = match load_session(journal, id).await {
            Ok(known) => known,
            Err(error) => {
                journal.release(hold).await?;
                return Err(error);
            }
        };
        let home = Storage::Journal(journal.clone(), hold);
        let record = SessionJournal::new(home, standing, setup.clock.clone());
        Ok(Self::from_parts(id.to_owned(), about, setup, record))
    }

    fn from_parts(id: String, about: Metadata, setup: Setup, journal: SessionJournal) -> Self {
        let retries = setup.retry_enabled;
        let event_hub = Arc::new(EventHub::default());
        let usage = journal.with_state(|standing| standing.usage);
        event_hub.update_snapshot(|snapshot| {
            snapshot.auto_retry_enabled = retries;
            snapshot.model.clone_from(&setup.model);
            snapshot.usage = usage;
        });
        let session = Self {
            id,
            metadata: Mutex::new(about),
            clock: Arc::clone(&setup.clock),
            setup: RwLock::new(Arc::new(setup)),
            journal,
            event_hub,
            auto_retry: AtomicBool::new(retries),
            auto_compaction: AtomicBool::new(true),
            queue_state: Mutex::default(),
            active_run: Mutex::default(),
            compaction_lock: tokio::sync::Mutex::default(),
        };
        session.mark_queue_announced();
        session
    }

    /// Stops the background processes of its tools and releases the session, so that another process may open it. A session
    /// without entries is removed. A running turn must end first; after an error nothing has changed, and `close` can be
    /// called again.
    pub async fn close(&self) -> Result<(), Error> {
        let _others_wait = self.compaction_lock.lock().await;
        let running = match self.acquire_run() {
            Err(Error::Closed) => return Ok(()),
            entered => entered?,
        };
        if let Some(tools) = &running.setup.tools {
            tools.close().await;
        }
        self.journal.release().await
    }

    /// Waits until all entries that the running turn has handed to the journal are on the disk.
    pub async fn flush(&self) -> Result<(), Error> {
        self.journal.flush().await
    }

    // --- Setup ---

    /// Returns the current setup.
    pub fn setup(&self) -> Arc<Setup> {
        let setup = self.setup.read();
        Arc::clone(&setup)
    }

    /// Replaces the setup, from the next turn on. The clock stays, and so does the retry switch; the caller closes the tools
    /// that are no longer part of the setup.
    pub fn change_setup(&self, setup: Setup) {
        // No turn begins or ends while this lock is held.
        let running = self.active_run.lock();
        if running.is_none() {
            let model = setup.model.clone();
            self.event_hub
                .update_snapshot(|snapshot| snapshot.model = model);
        }
        let mut current = self.setup.write();
        *current = Arc::new(setup);
    }

    /// Changes the title.
    pub async fn rename(&self, title: &str) -> Result<(), Error> {
        self.journal.rename(title).await?;
        let title = title.to_owned();
        self.metadata.lock().title.clone_from(&title);
        self.publish(Body::Renamed { title });
        Ok(())
    }

    /// Returns the title.
    pub fn title(&self) -> String {
        self.metadata().title
    }

    fn metadata(&self) -> Metadata {
        self.metadata.lock().clone()
    }

    // --- Steering ---

    /// Aborts the running turn: the wait for a retry first, then the call or the tool.
    pub fn abort(&self) {
        if let Some(handle) = &*self.active_run.lock() {
            handle.abort();
        }
    }

    /// Cancels the wait for a retry; the turn then fails with the error that caused the wait.
    pub fn abort_retry(&self) {
        if let Some(handle) = &*self.active_run.lock() {
            handle.abort_retry();
        }
    }

    /// Ends the wait for a retry and retries at once.
    pub fn retry_now(&self) {
        if let Some(handle) = &*self.active_run.lock() {
            handle.retry_now();
        }
    }

    /// Switches retries on or off for this session only, also for a running turn.
    pub fn set_auto_retry_enabled(&self, enabled: bool) {
        self.auto_retry.store(enabled, Ordering::Relaxed);
        self.event_hub
            .update_snapshot(|snapshot| snapshot.auto_retry_enabled = enabled);
    }

    /// Switches automatic compaction on or off, also for a running turn. Compaction by hand is always possible.
    pub fn set_auto_compaction_enabled(&self, enabled: bool) {
        self.auto_compaction.store(enabled, Ordering::Relaxed);
    }

    // --- Watching ---

    /// Returns whether the conversation is compacted automatically.
    pub fn auto_compaction_enabled(&self) -> bool {
        self.auto_compaction.load(Ordering::Relaxed)
    }

    /// Returns whether a turn or a compaction is running.
    pub fn is_running(&self) -> bool {
        self.active_run.lock().is_some()
    }

    /// Returns whether failures are retried.
    pub fn auto_retry_enabled(&self) -> bool {
        self.auto_retry.load(Ordering::Relaxed)
    }

    /// Returns whether a chain of retries is open: a retry is waited for or under way.
    pub fn is_retrying(&self) -> bool {
        self.snapshot().retry.is_some()
    }

    /// Returns the current snapshot: the retry with its cause and its wake time, the usage, the number of the last event.
    pub fn snapshot(&self) -> Snapshot {
        self.event_hub.snapshot()
    }

    /// Calls the listener with every event from here on, until the subscription is dropped.
    pub fn subscribe(&self, mut listener: impl FnMut(&Event) + Send + 'static) -> Subscription {
        self.subscribe_to_updates(move |update| {
            if let Update::Event(event) = update {
                listener(event);
            }
        })
    }

    /// Calls the listener with every event and every end of a run from here on, until the subscription is dropped.
    pub fn subscribe_to_updates(
        &self,
        listener: impl FnMut(Update<'_>) + Send + 'static,
    ) -> Subscription {
        self.event_hub.subscribe(Box::new(listener))
    }

    /// Returns whether the session is in a journal, so that another process can resume it.
    pub const fn is_persistent(&self) -> bool {
        self.journal.is_persistent()
    }

    /// Returns the clock of the session.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns the session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the conversation as it would be sent: without failed attempts.
    pub fn messages(&self) -> Vec<Message> {
        self.journal
            .with_state(|standing| standing.messages.clone())
    }

    /// Returns the estimated number of tokens of the next request.
    pub fn estimated_tokens(&self) -> u64 {
        token_estimate::request_tokens(&self.setup().request(self.messages()))
    }

    /// Returns the number of messages in the conversation.
    pub fn message_count(&self) -> usize {
        self.journal.with_state(|standing| standing.messages.len())
    }

    /// Returns the number of turns, including one that is not settled.
    pub fn turn_count(&self) -> u64 {
        self.journal.with_state(|standing| standing.turns)
    }

    /// Returns the status with which the last turn was settled.
    pub fn last_seal(&self) -> Option<TurnStatus> {
        self.journal.with_state(|standing| standing.last_seal)
    }

    /// Returns the turn that is not settled, if there is one.
    pub fn unfinished_turn(&self) -> Option<UnfinishedTurn> {
        self.journal
            .with_state(|standing| standing.unfinished.clone())
    }

    /// Posts an event that does not come from a turn.
    fn publish(&self, body: Body) {
        self.event_hub.publish(self.event(body));
    }

    /// Tells listeners that a run has ended.
    fn publish_run_end(&self, outcome: RunOutcome) {
        self.event_hub.publish_run_end(outcome);
    }

    fn event(&self, body: Body) -> Event {
        Event {
            v: VERSION,
            // The event hub assigns the number.
            seq: 0,
            time: self.clock.now(),
            session_id: self.id.clone(),
            turn_id: self.snapshot().turn_id.unwrap_or_default(),
            attempt_id: None,
            body,
        }
    }
}

/// Reads the state and the metadata of a session from the journal.
async fn load_session(journal: &Journal, id: &str) -> Result<(State, Metadata), Error> {
    let summary = journal.summary(id).await?;
    let about = Metadata {
        directory: summary.directory,
        title: summary.title,
    };
    Ok((session_journal::load_state(journal, id).await?, about))
}
