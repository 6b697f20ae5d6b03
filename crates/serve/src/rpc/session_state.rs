//! Where everything comes together: the session in use, what runs in it, and who waits for an answer.

use super::command::Caller;
use super::command_queue::CommandResult;
use super::run::Run;
use super::{Dialect, MAX_QUEUED_KILOBYTES};
use crate::native::NativeLog;
use crate::outbox::{Item, Outbox};
use outlast_engine::CancellationToken;
use outlast_kernel::event::{Body, Event};
use outlast_session::Session;
use outlast_session::Subscription;
use outlast_session::factory::{Host, Model, OpenedSession};
use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// How many answers are made at the same time that need the whole history of a session.
const MAX_CONCURRENT_READS: usize = 2;

/// Commands that are told to end are gone by then.
const TASKS_TIMEOUT: Duration = Duration::from_millis(300);

pub(super) struct SessionState {
    pub(super) host: Arc<dyn Host>,
    pub(super) outbox: Outbox,
    /// The last events, in the native dialect.
    pub(super) log: Option<NativeLog>,
    current: Mutex<Option<CurrentSession>>,
    pub(super) run: Mutex<Option<Run>>,
    /// Cancelled by the next abort: whatever was asked before it.
    epoch: Mutex<CancellationToken>,
    /// Cancelled by the next abort of commands.
    shells: Mutex<CancellationToken>,
    /// Who waits for a prompt to be accepted.
    pending_acceptance: Arc<Mutex<Option<Caller>>>,
    /// How many prompts came during a wait and are to be said when the run is over.
    pub(super) queued_prompts: AtomicU32,
    /// How many commands were begun.
    pub(super) commands_begun: AtomicU64,
    /// Whether the last run ended with an answer.
    pub(super) last_run_succeeded: AtomicBool,
    /// Whether somebody has chosen the model that is asked next.
    pub(super) is_model_chosen: Arc<AtomicBool>,
    /// How many compactions are under way or wait for their turn.
    pub(super) compactions: AtomicU32,
    pub(super) readers: Arc<Semaphore>,
    /// What commands that wait for their turn take, in kilobytes.
    pub(super) queue_permits: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
}

/// The session in use.
struct CurrentSession {
    session: Arc<Session>,
    model: Model,
    _subscription: Subscription,
}

impl SessionState {
    pub(super) fn new(host: Arc<dyn Host>, outbox: Outbox, dialect: Dialect) -> Self {
        Self {
            host,
            outbox,
            log: (dialect == Dialect::Native).then(NativeLog::default),
            current: Mutex::default(),
            run: Mutex::default(),
            epoch: Mutex::default(),
            shells: Mutex::default(),
            pending_acceptance: Arc::default(),
            queued_prompts: AtomicU32::new(0),
            commands_begun: AtomicU64::new(0),
            last_run_succeeded: AtomicBool::new(false),
            is_model_chosen: Arc::default(),
            compactions: AtomicU32::new(0),
            readers: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            queue_permits: Arc::new(Semaphore::new(MAX_QUEUED_KILOBYTES)),
            tasks: TaskTracker::new(),
        }
    }

    // --- The session in use ---

    /// Goes on with another session. What was switched stays as it was switched.
    pub(super) fn attach_session(&self, opened: OpenedSession) -> Option<Arc<Session>> {
        let OpenedSession { session, model } = opened;
        if let Some(log) = &self.log {
            log.begin(session.id(), session.snapshot().last_seq);
        }
        let listener = self.listener();
        let current = CurrentSession {
            _subscription: session.subscribe(listener),
            session: Arc::clone(&session),
            model,
        };
        let mut place = self.current.lock();
        if let Some(before) = &*place {
            let before = &before.session;
            session.set_auto_retry_enabled(before.auto_retry_enabled());
            session.set_auto_compaction_enabled(before.auto_compaction_enabled());
            session.set_steering_mode(before.steering_mode());
            session.set_follow_up_mode(before.follow_up_mode());
        }
        place.replace(current).map(|before| before.session)
    }

    /// Hands events on; a prompt is accepted when it is written down, and that is said first.
    fn listener(&self) -> impl FnMut(&Event) + Send + 'static {
        let (outbox, log) = (self.outbox.clone(), self.log.clone());
        let (accepting, is_chosen) = (
            Arc::clone(&self.pending_acceptance),
            Arc::clone(&self.is_model_chosen),
        );
        move |event| {
            if matches!(event.body, Body::Start { .. }) {
                is_chosen.store(false, Ordering::Relaxed);
            }
            if matches!(event.body, Body::Input { .. })
                && let Some(caller) = accepting.lock().take()
            {
                let started = json!({ "disposition": "started" });
                outbox.send(Item::Reply(caller.data(started)));
            }
            let say = |event: &Event| outbox.send(Item::Event(event.clone()));
            match &log {
                Some(log) => log.push(event, say),
                None => say(event),
            }
        }
    }

    /// The session in use. There is one from the first moment on.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        let current = self.current.lock();
        current.as_ref().map(|current| Arc::clone(&current.session))
    }

    pub(super) fn model(&self) -> Option<Model> {
        let current = self.current.lock();
        current.as_ref().map(|current| current.model.clone())
    }

    pub(super) fn set_model(&self, model: Model) {
        if let Some(current) = &mut *self.current.lock() {
            current.model = model;
        }
        self.is_model_chosen.store(true, Ordering::Relaxed);
    }

    // --- Answers ---

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

    pub(super) fn expect_acceptance(&self, caller: Caller) {
        *self.pending_acceptance.lock() = Some(caller);
    }

    /// Comes when nobody waits for a prompt to be accepted.
    pub(super) async fn wait_until_accepted(&self) {
        while self.pending_acceptance.lock().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Who still waits for a prompt to be accepted.
    pub(super) fn take_pending_acceptance(&self) -> Option<Caller> {
        self.pending_acceptance.lock().take()
    }

    // --- What stops things ---

    /// What is cancelled when somebody wants everything to end that was asked up to now.
    pub(super) fn epoch(&self) -> CancellationToken {
        self.epoch.lock().clone()
    }

    /// Ends it, and begins the next; the answer is the one that is over.
    pub(super) fn end_epoch(&self) -> CancellationToken {
        let epoch = std::mem::take(&mut *self.epoch.lock());
        epoch.cancel();
        epoch
    }

    /// What is cancelled when the commands of the client are to end.
    pub(super) fn shells(&self) -> CancellationToken {
        self.shells.lock().clone()
    }

    pub(super) fn end_shells(&self) {
        std::mem::take(&mut *self.shells.lock()).cancel();
    }

    /// Stops serving. A turn that runs is left as it is; all else is ended.
    pub(super) async fn shutdown(&self, goodbye: Duration) {
        self.end_shells();
        let Some(session) = self.session() else {
            return;
        };
        let run = self.run.lock().take();
        match run {
            // To be resumed by another process.
            Some(run) => {
                self.host.leave_session(&session);
                run.detach().await;
            }
            None => {
                // A compaction, which has changed nothing yet.
                session.abort();
                let close = self.close(&session);
                tokio::time::timeout(goodbye, close).await.ok();
            }
        }
        self.tasks.close();
        let tasks = self.tasks.wait();
        tokio::time::timeout(TASKS_TIMEOUT, tasks).await.ok();
    }

    /// Lets go of a session in which nothing runs.
    pub(super) async fn close(&self, session: &Session) {
        self.host.leave_session(session);
        if let Err(error) = session.close().await {
            let what = format!("session {} is not written down to its end", session.id());
            self.host.warn(&format!("{what}: {error}"));
        }
    }
}
