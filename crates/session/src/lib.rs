//! A session: a conversation that outlives failures, and the process that leads it.
//!
//! The turn performs every wait and every retry; the session supplies what it needs, keeps what comes of it and lets
//! others watch and steer. Invariants: what failed stays in the history and out of the conversation; one turn at a time;
//! one process at a time; after its end nothing more is asked of it.
//! Not here: how a conversation is made smaller (see `compaction`), and what a message looks like on the wire.
#![warn(missing_docs)]

mod compact;
pub mod compaction;
mod copy;
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
pub use outlast_engine::inbox::QueueKind;
pub use queue::{DrainMode, Queued};
pub use session_journal::read;
pub use setup::{PromptRequest, Setup};
pub use snapshot::{GateHold, RetryStatus, Snapshot, Subscription};
pub use state::{State, UnfinishedTurn};

use outlast_dialect::Message;
use outlast_engine::turn::Handle;
use outlast_engine::{Clock, token_estimate};
use outlast_kernel::event::{Body, Event, TurnStatus, VERSION};
use outlast_store::Journal;
use outlast_store::journal::NewSession;
use queue::QueueState;
use session_journal::{SessionJournal, Storage};
use snapshot::EventHub;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Something that a session could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal refused.
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
    /// There is nothing to carry on.
    #[error("there is no turn to carry on in session {session}: the last one was answered")]
    NothingToDo {
        /// The session.
        session: String,
    },
    /// The session was closed.
    #[error("the session is closed; open it again to go on")]
    Closed,
    /// What was to be added to the session could not be written down, and is not part of it.
    #[error("it could not be written down: {why}")]
    NotWritten {
        /// Why.
        why: String,
    },
    /// The conversation could not be made smaller.
    #[error("the conversation is as it was: {why}")]
    NotCompacted {
        /// Why.
        why: String,
    },
    /// An entry cannot be read.
    #[error("entry {seq} of session {session} cannot be read: {error}")]
    Unreadable {
        /// The session.
        session: String,
        /// The entry.
        seq: u64,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

/// A conversation with its settings and history.
pub struct Session {
    id: String,
    about: Mutex<Metadata>,
    clock: Arc<dyn Clock>,
    setup: RwLock<Arc<Setup>>,
    record: SessionJournal,
    board: Arc<EventHub>,
    retries: AtomicBool,
    compactions: AtomicBool,
    queue: Mutex<QueueState>,
    /// How to reach the turn that is running.
    running: Mutex<Option<Handle>>,
    /// Held while the conversation is made smaller by hand: what is asked meanwhile waits.
    compacting: tokio::sync::Mutex<()>,
}

/// What a person knows a session by.
#[derive(Clone, Debug, Default)]
struct Metadata {
    directory: String,
    title: String,
}

impl Session {
    /// A session that lives as long as this value does.
    pub fn in_memory(setup: Setup) -> Self {
        Self::in_memory_with_id(uuid::Uuid::now_v7().to_string(), setup)
    }

    /// The same, with an id that the caller has told others.
    pub fn in_memory_with_id(id: String, setup: Setup) -> Self {
        let home = Storage::Memory(Vec::new());
        let record = SessionJournal::new(home, State::default(), setup.clock.clone());
        Self::with(id, Metadata::default(), setup, record)
    }

    /// A new session in the journal, which belongs to that folder and has that title.
    pub async fn begin(
        journal: &Journal,
        about: (&str, &str),
        setup: Setup,
    ) -> Result<Self, Error> {
        let id = uuid::Uuid::now_v7().to_string();
        Self::create_with_id(journal, id, about.0, about.1, setup).await
    }

    /// The same, with an id that the caller has written down before.
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
        let hold = journal.begin(new).await?;
        let home = Storage::Journal(journal.clone(), hold);
        let record = SessionJournal::new(home, State::default(), setup.clock.clone());
        Ok(Self::with(id, about, setup, record))
    }

    /// A session that is in the journal. It is taken from a process that died, never from one that lives.
    pub async fn open(journal: &Journal, id: &str, setup: Setup) -> Result<Self, Error> {
        let hold = journal.claim(id).await?;
        let (standing, about) = match known(journal, id).await {
            Ok(known) => known,
            Err(error) => {
                journal.release(hold).await?;
                return Err(error);
            }
        };
        let home = Storage::Journal(journal.clone(), hold);
        let record = SessionJournal::new(home, standing, setup.clock.clone());
        Ok(Self::with(id.to_owned(), about, setup, record))
    }

    fn with(id: String, about: Metadata, setup: Setup, record: SessionJournal) -> Self {
        let retries = setup.retry_enabled;
        let board = Arc::new(EventHub::default());
        let usage = record.look(|standing| standing.usage);
        board.change(|snapshot| {
            snapshot.auto_retry_enabled = retries;
            snapshot.model.clone_from(&setup.model);
            snapshot.usage = usage;
        });
        let session = Self {
            id,
            about: Mutex::new(about),
            clock: Arc::clone(&setup.clock),
            setup: RwLock::new(Arc::new(setup)),
            record,
            board,
            retries: AtomicBool::new(retries),
            compactions: AtomicBool::new(true),
            queue: Mutex::default(),
            running: Mutex::default(),
            compacting: tokio::sync::Mutex::default(),
        };
        session.mark_queue_announced();
        session
    }

    /// Ends what its tools keep running and gives the session back: another process may open it. One in which nothing has
    /// happened is not kept. A turn that runs must end first; after an error it is as it was, and can be closed again.
    pub async fn close(&self) -> Result<(), Error> {
        let _others_wait = self.compacting.lock().await;
        let running = match self.enter() {
            Err(Error::Closed) => return Ok(()),
            entered => entered?,
        };
        if let Some(tools) = &running.setup.tools {
            tools.close().await;
        }
        self.record.release().await
    }

    // --- What it is made of ---

    /// What it is made of.
    pub fn setup(&self) -> Arc<Setup> {
        let setup = self.setup.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&setup)
    }

    /// Makes it of something else, from the next turn on. Its clock stays, and whether failures are retried; tools that it
    /// does not have any more are the caller's to close.
    pub fn change_setup(&self, setup: Setup) {
        // No turn begins or ends meanwhile.
        let running = self.running();
        if running.is_none() {
            let model = setup.model.clone();
            self.board.change(|snapshot| snapshot.model = model);
        }
        let mut current = self.setup.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(setup);
    }

    /// Gives it another title.
    pub async fn rename(&self, title: &str) -> Result<(), Error> {
        self.record.rename(title).await?;
        let title = title.to_owned();
        self.lock_metadata().title.clone_from(&title);
        self.say(Body::Renamed { title });
        Ok(())
    }

    /// What it is about.
    pub fn title(&self) -> String {
        self.about().title
    }

    fn about(&self) -> Metadata {
        self.lock_metadata().clone()
    }

    fn lock_metadata(&self) -> std::sync::MutexGuard<'_, Metadata> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- Steering ---

    /// Ends what is running: the wait for a retry first, then the call or the tool.
    pub fn abort(&self) {
        if let Some(handle) = &*self.running() {
            handle.abort();
        }
    }

    /// Ends the wait for a retry; the turn then fails with the error that it waited out.
    pub fn abort_retry(&self) {
        if let Some(handle) = &*self.running() {
            handle.abort_retry();
        }
    }

    /// Ends the wait for a retry and tries at once.
    pub fn retry_now(&self) {
        if let Some(handle) = &*self.running() {
            handle.retry_now();
        }
    }

    /// Whether failures are retried from here on, also those of a turn that is running. It is this session's alone.
    pub fn set_auto_retry_enabled(&self, enabled: bool) {
        self.retries.store(enabled, Ordering::Relaxed);
        self.board
            .change(|snapshot| snapshot.auto_retry_enabled = enabled);
    }

    /// Whether the conversation is made smaller by itself, also in a turn that is running. By hand it always can be.
    pub fn set_auto_compaction_enabled(&self, enabled: bool) {
        self.compactions.store(enabled, Ordering::Relaxed);
    }

    // --- Watching ---

    /// Whether the conversation is made smaller by itself.
    pub fn auto_compaction_enabled(&self) -> bool {
        self.compactions.load(Ordering::Relaxed)
    }

    /// Whether a turn is running, or the conversation is being made smaller.
    pub fn is_running(&self) -> bool {
        self.running().is_some()
    }

    /// Whether failures are retried.
    pub fn auto_retry_enabled(&self) -> bool {
        self.retries.load(Ordering::Relaxed)
    }

    /// Whether a chain of retries is open: one is waited for or under way.
    pub fn is_retrying(&self) -> bool {
        self.snapshot().retry.is_some()
    }

    /// Where the session stands: the retry with its cause and its wake time, the usage, the number of the last event.
    pub fn snapshot(&self) -> Snapshot {
        self.board.snapshot()
    }

    /// Tells the listener of every event from here on, until the subscription is dropped.
    pub fn subscribe(&self, listener: impl FnMut(&Event) + Send + 'static) -> Subscription {
        self.board.subscribe(Box::new(listener))
    }

    /// Whether it is written down, and can be carried on by another process.
    pub const fn is_kept(&self) -> bool {
        self.record.is_kept()
    }

    /// The clock that it goes by.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The conversation as it would be sent: without what failed.
    pub fn messages(&self) -> Vec<Message> {
        self.record.look(|standing| standing.messages.clone())
    }

    /// How many tokens its next request has, about.
    pub fn tokens(&self) -> u64 {
        token_estimate::tokens(&self.setup().request(self.messages()))
    }

    /// How many messages it has.
    pub fn message_count(&self) -> usize {
        self.record.look(|standing| standing.messages.len())
    }

    /// How many turns it has, one that is not settled included.
    pub fn turn_count(&self) -> u64 {
        self.record.look(|standing| standing.turns)
    }

    /// How its last turn was settled.
    pub fn last_seal(&self) -> Option<TurnStatus> {
        self.record.look(|standing| standing.last_seal)
    }

    /// What is not settled, if anything.
    pub fn unfinished_turn(&self) -> Option<UnfinishedTurn> {
        self.record.look(|standing| standing.unfinished.clone())
    }

    /// Tells listeners of something that does not come from a turn.
    fn say(&self, body: Body) {
        self.board.post(self.event(body));
    }

    fn event(&self, body: Body) -> Event {
        Event {
            v: VERSION,
            // The board gives it its number.
            seq: 0,
            time: self.clock.now(),
            session_id: self.id.clone(),
            turn_id: self.snapshot().turn_id.unwrap_or_default(),
            attempt_id: None,
            body,
        }
    }
}

/// What the journal knows of a session.
async fn known(journal: &Journal, id: &str) -> Result<(State, Metadata), Error> {
    let summary = journal.summary(id).await?;
    let about = Metadata {
        directory: summary.directory,
        title: summary.title,
    };
    Ok((session_journal::standing(journal, id).await?, about))
}
