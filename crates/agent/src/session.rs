//! A session: a conversation that outlives failures, and the process that leads it.
//!
//! The turn performs every wait and every retry; the session supplies what it needs, keeps what comes of it and lets
//! others watch and steer. Invariants: a prompt returns when its last retry is over, not before; what failed stays in
//! the history and out of the conversation; one turn at a time; one process at a time.
//! Not here: how a conversation is made smaller (see `compaction`), and what a message looks like on the wire.

mod compact;
mod fold;
mod record;
mod setup;
mod status;

pub use compact::Compacted;
pub use fold::{Standing, Unfinished};
pub use record::read;
pub use setup::{Ask, Setup};
pub use status::{Held, Retry, Snapshot, Subscription};

use outlast_dialect::Message;
use outlast_engine::journal::Entry;
use outlast_engine::route::Route;
use outlast_engine::turn::{Control, Ended, Handle, Ids, Models, TakenUp, Turn};
use outlast_engine::{CancellationToken, Clock, run_turn};
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{Body, Event, Seal};
use outlast_kernel::fallback;
use outlast_store::Journal;
use outlast_store::journal::NewSession;
use record::Record;
use setup::Switchable;
use status::Board;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    setup: Setup,
    record: Record,
    board: Arc<Board>,
    retries: AtomicBool,
    /// The models that may be asked.
    routes: Vec<Route>,
    /// How to reach the turn that is running.
    running: Mutex<Option<Handle>>,
    /// Held while the conversation is made smaller by hand: what is asked meanwhile waits.
    compacting: tokio::sync::Mutex<()>,
}

impl Session {
    /// A session that lives as long as this value does.
    pub fn in_memory(setup: Setup) -> Self {
        let record = Record::in_memory(setup.clock.clone());
        Self::with(uuid::Uuid::now_v7().to_string(), setup, record)
    }

    /// A new session in the journal, which belongs to that folder and has that title.
    pub async fn begin(
        journal: &Journal,
        (directory, title): (&str, &str),
        setup: Setup,
    ) -> Result<Self, Error> {
        let id = uuid::Uuid::now_v7().to_string();
        let new = NewSession {
            id: id.clone(),
            directory: directory.to_owned(),
            title: title.to_owned(),
            now: setup.clock.now(),
        };
        let hold = journal.begin(new).await?;
        let kept = (journal.clone(), hold);
        let record = Record::kept(kept, Standing::default(), setup.clock.clone());
        Ok(Self::with(id, setup, record))
    }

    /// A session that is in the journal. It is taken from a process that died, never from one that lives.
    pub async fn open(journal: &Journal, id: &str, setup: Setup) -> Result<Self, Error> {
        let hold = journal.claim(id).await?;
        let standing = match record::standing(journal, id).await {
            Ok(standing) => standing,
            Err(error) => {
                journal.release(hold).await?;
                return Err(error);
            }
        };
        let kept = (journal.clone(), hold);
        let record = Record::kept(kept, standing, setup.clock.clone());
        Ok(Self::with(id.to_owned(), setup, record))
    }

    fn with(id: String, setup: Setup, record: Record) -> Self {
        let retries = setup.retry_enabled;
        let board = Arc::new(Board::default());
        let usage = record.look(|standing| standing.usage);
        board.change(|snapshot| {
            snapshot.auto_retry_enabled = retries;
            snapshot.model.clone_from(&setup.model);
            snapshot.usage = usage;
        });
        Self {
            id,
            routes: setup.routes(),
            setup,
            record,
            board,
            retries: AtomicBool::new(retries),
            running: Mutex::default(),
            compacting: tokio::sync::Mutex::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Handle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what its tools keep running and gives the session back: another process may open it.
    pub async fn close(self) -> Result<(), Error> {
        if let Some(tools) = &self.setup.tools {
            tools.close().await;
        }
        self.record.release().await
    }

    // --- What is asked of it ---

    /// Says something to the model, and returns when all that follows from it is over: steps, retries, waits.
    pub async fn prompt(&self, ask: Ask) -> Result<Ended, Error> {
        drop(self.compacting.lock().await);
        let running = self.enter()?;
        let (mut messages, turns, mut models) =
            self.record.look(|standing| match standing.unfinished {
                Some(_) => Err(self.unfinished()),
                None => Ok((
                    standing.messages.clone(),
                    standing.turns,
                    standing.models.clone(),
                )),
            })?;
        if ask.chosen {
            models.clear();
        }
        messages.extend(ask.message.clone());
        self.record.begin_turn(turns + 1);
        let (turn_id, budget) = (uuid::Uuid::now_v7().to_string(), Prompt::new(ask.limits));
        let entry = Entry::Prompt {
            turn_id: turn_id.clone(),
            message: ask.message,
            budget: budget.clone(),
            chosen: ask.chosen,
            options: ask.options,
        };
        let begun = Begun {
            messages,
            models,
            turn_id,
            budget,
            taken_up: TakenUp::default(),
            opening: vec![entry],
        };
        Ok(self.run(running, begun).await)
    }

    /// Carries the unfinished turn on, from where an earlier process left it.
    pub async fn resume(&self) -> Result<Ended, Error> {
        let running = self.enter()?;
        let found = self.record.look(|standing| {
            let unfinished = standing.unfinished.clone()?;
            let turn = (standing.turns, unfinished);
            Some((standing.messages.clone(), standing.models.clone(), turn))
        });
        let (messages, models, (turn, unfinished)) = found.ok_or_else(|| self.nothing_to_do())?;
        self.record.begin_turn(turn);
        let begun = Begun {
            messages,
            models,
            turn_id: unfinished.turn_id,
            budget: unfinished.budget,
            taken_up: unfinished.taken_up,
            opening: Vec::new(),
        };
        Ok(self.run(running, begun).await)
    }

    /// Tries the last turn again that failed or was cancelled. Nothing is said anew, and no tool runs again.
    pub async fn try_again(&self, ask: Ask) -> Result<Ended, Error> {
        let last_seal = self.record.look(|standing| standing.last_seal);
        if matches!(last_seal, None | Some(Seal::Completed)) {
            return Err(self.nothing_to_do());
        }
        let message = None;
        self.prompt(Ask { message, ..ask }).await
    }

    fn unfinished(&self) -> Error {
        let session = self.id.clone();
        Error::Unfinished { session }
    }

    fn nothing_to_do(&self) -> Error {
        let session = self.id.clone();
        Error::NothingToDo { session }
    }

    /// Makes sure that one turn runs at a time.
    fn enter(&self) -> Result<Running<'_>, Error> {
        let mut running = self.running();
        if running.is_some() {
            return Err(Error::Busy);
        }
        let abort = CancellationToken::new();
        let (control, handle) = Control::new(abort.clone());
        *running = Some(handle);
        Ok(Running {
            session: self,
            control: Some(control),
            abort,
        })
    }

    async fn run(&self, mut running: Running<'_>, begun: Begun) -> Ended {
        let setup = &self.setup;
        let request = setup.request(begun.messages);
        let attempts = begun.taken_up.attempts;
        self.board.change(|snapshot| snapshot.attempt = attempts);
        let retry = setup.retry.as_deref().map(|strategy| Switchable {
            strategy,
            on: &self.retries,
        });
        let turn = Turn {
            retry: retry.as_ref().map(|retry| retry as _),
            budget: begun.budget,
            price: setup.price,
            ids: Ids {
                session: self.id.clone(),
                turn: begun.turn_id,
                events: self.board.snapshot().events,
            },
            accounts: setup.accounts.as_deref(),
            knowledge: setup.knowledge.as_ref(),
            tools: setup.tools.as_deref(),
            traits: setup.traits,
            models: Some(Models {
                routes: &self.routes,
                rules: setup.fallback_rules.clone(),
                standing: begun.models,
            }),
            compaction: setup.compaction.as_deref(),
            after_content: setup.after_content,
            corrections: setup.corrections,
            journal: Some(&self.record),
            opening: begun.opening,
            taken_up: begun.taken_up,
            control: running.take_control(),
            ..Turn::new(&*setup.provider, request, &*setup.clock)
        };
        let mut sink = |event: Event| self.post(&event);
        run_turn(turn, &mut sink).await
    }

    /// The last event of a turn comes when all of it is folded.
    fn post(&self, event: &Event) {
        if matches!(event.body, Body::Sealed { .. }) {
            let usage = self.record.look(|standing| standing.usage);
            self.board.change(|snapshot| snapshot.usage = usage);
        }
        self.board.post(event);
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

    // --- Watching ---

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
        &*self.setup.clock
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The conversation as it would be sent: without what failed.
    pub fn messages(&self) -> Vec<Message> {
        self.record.look(|standing| standing.messages.clone())
    }

    /// What is not settled, if anything.
    pub fn unfinished_turn(&self) -> Option<Unfinished> {
        self.record.look(|standing| standing.unfinished.clone())
    }
}

/// What a turn begins with.
struct Begun {
    messages: Vec<Message>,
    models: fallback::Standing,
    turn_id: String,
    budget: Prompt,
    taken_up: TakenUp,
    opening: Vec<Entry>,
}

/// A turn that is running; the session is free again when this is gone.
struct Running<'a> {
    session: &'a Session,
    control: Option<Control>,
    /// Cancelled when it is to end.
    abort: CancellationToken,
}

impl Running<'_> {
    fn take_control(&mut self) -> Control {
        let fresh = || Control::new(CancellationToken::new()).0;
        self.control.take().unwrap_or_else(fresh)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.session.running() = None;
        // A turn that was dropped in the middle has said no end of its retry.
        self.session.board.change(|snapshot| {
            (snapshot.turn_id, snapshot.retry, snapshot.held) = (None, None, None);
            snapshot.is_compacting = false;
        });
    }
}
