//! Hooks: commands of the user's that are run when something happens in a session, with a line of JSON to read.
//!
//! Events are translated where they are heard, which never waits, and run by a worker for each hook, one after the other.
//! Invariants: no hook delays, fails or reorders a session; what waits for a slow one is bounded, and so is the wait for
//! all of them at the end; nothing that a hook prints reaches stdout; none finds a key in its environment.
//! Not here: what a hook reads (see `payload`) and how it is run (see `worker`).

mod payload;
mod worker;

use crate::{Session, Subscription};
use payload::{EventTranslator, Fields, Payload};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use worker::{QueuedEvent, Worker};

/// How many events may wait for a hook.
const MAX_QUEUED_EVENTS: usize = 64;

/// A command, and when it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// When it is run.
    pub on: Vec<HookEvent>,
    /// What is run, by a shell in the folder of the session.
    pub command: String,
    /// How long it may run; then it is killed with all that it started.
    pub timeout: Duration,
}

/// When a hook may be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookEvent {
    /// A retry will happen.
    AutoRetryStart,
    /// A chain of retries is over.
    AutoRetryEnd,
    /// A turn is over.
    TurnEnd,
    /// A tool begins to run.
    ToolStart,
    /// A tool call has a result; a call that was refused has one as well, and no start.
    ToolEnd,
    /// An account is set aside.
    AccountBlocked,
    /// The process leaves the session.
    SessionStopped,
}

impl HookEvent {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::AutoRetryStart,
        Self::AutoRetryEnd,
        Self::TurnEnd,
        Self::ToolStart,
        Self::ToolEnd,
        Self::AccountBlocked,
        Self::SessionStopped,
    ];

    /// Its name, which is the `type` of what a hook reads.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AutoRetryStart => "auto_retry_start",
            Self::AutoRetryEnd => "auto_retry_end",
            Self::TurnEnd => "turn_end",
            Self::ToolStart => "tool_start",
            Self::ToolEnd => "tool_end",
            Self::AccountBlocked => "account_blocked",
            Self::SessionStopped => "session_stopped",
        }
    }

    /// The one with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|moment| moment.as_str() == name)
    }
}

/// Why a process leaves a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// Its work is done.
    Ended,
    /// The system wants the process to end.
    Terminated,
    /// Nobody is there any more.
    HungUp,
    /// A person wants it to end.
    Interrupted,
}

/// Is told what is wrong with a hook, in a line that is safe to show.
pub type ProblemReporter = Arc<dyn Fn(&str) + Send + Sync>;

/// The hooks of a session, or of several in the same folder.
#[derive(Clone)]
pub struct Hooks(Arc<Shared>);

struct Shared {
    folder: String,
    lanes: Mutex<Vec<HookQueue>>,
    report: ProblemReporter,
}

/// A hook, what waits for it, and who runs it.
struct HookQueue {
    hook: Hook,
    waiting: Sender<QueuedEvent>,
    /// How many events were dropped since the last one that was not.
    dropped: AtomicU64,
    /// How many were dropped in all.
    lost: AtomicU64,
    worker: AbortOnDropHandle<()>,
}

impl Hooks {
    /// Hooks that run in that folder, without those variables of the environment. Must be called within a runtime.
    pub fn new(
        hooks: Vec<Hook>,
        folder: PathBuf,
        hidden_variables: Vec<String>,
        report: ProblemReporter,
    ) -> Self {
        let name = folder.to_string_lossy().into_owned();
        let place = Arc::new((folder, hidden_variables));
        let lane = |hook: Hook| {
            let (waiting, events) = mpsc::channel(MAX_QUEUED_EVENTS);
            let worker = Worker::new(hook.clone(), place.clone(), report.clone());
            HookQueue {
                hook,
                waiting,
                dropped: AtomicU64::new(0),
                lost: AtomicU64::new(0),
                worker: AbortOnDropHandle::new(tokio::spawn(worker.run(events))),
            }
        };
        let lanes = Mutex::new(hooks.into_iter().map(lane).collect());
        Self(Arc::new(Shared {
            folder: name,
            lanes,
            report,
        }))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.lanes().is_empty()
    }

    /// Runs the hooks on what happens in that session, until the subscription is dropped.
    pub fn listen(&self, session: &Session) -> Subscription {
        let mut translation = EventTranslator::of(session);
        let hooks = self.clone();
        session.subscribe(move |event| {
            if let Some((moment, fields)) = translation.take(event) {
                hooks.say(Payload::of(event, &hooks.0.folder, moment, fields));
            }
        })
    }

    /// Runs the hooks that want to know that the process leaves that session.
    pub fn stopped(&self, session: &Session, reason: ExitReason) {
        let snapshot = session.snapshot();
        self.say(Payload {
            moment: HookEvent::SessionStopped,
            session_id: session.id().to_owned(),
            turn_id: snapshot.turn_id,
            folder: self.0.folder.clone(),
            time: session.clock().now(),
            seq: snapshot.events,
            fields: Fields::SessionStopped { reason },
        });
    }

    /// Waits until everything that was said is run, but no longer than that; what still runs then is killed. Nothing is
    /// run afterwards.
    pub async fn finish(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let lanes = std::mem::take(&mut *self.0.lanes());
        // All of them at once: a worker ends when nothing more can come.
        let workers: Vec<_> = lanes
            .into_iter()
            .map(|lane| (lane.hook.command, lane.worker))
            .collect();
        for (command, worker) in workers {
            if timeout_at(until, worker).await.is_err() {
                let (name, limit) = (worker::name(&command), limit.as_secs_f32());
                (self.0.report)(&format!(
                    "hook `{name}` was stopped: it was not done {limit} s after the end"
                ));
            }
        }
    }

    fn say(&self, payload: Payload) {
        let payload = Arc::new(payload);
        for lane in self.0.lanes().iter() {
            if lane.hook.on.contains(&payload.moment) {
                self.queue(lane, &payload);
            }
        }
    }

    fn queue(&self, lane: &HookQueue, payload: &Arc<Payload>) {
        let dropped = lane.dropped.load(Ordering::Relaxed);
        let waiting = QueuedEvent {
            payload: payload.clone(),
            dropped,
        };
        if lane.waiting.try_send(waiting).is_ok() {
            lane.dropped.store(0, Ordering::Relaxed);
            return;
        }
        lane.dropped.store(dropped + 1, Ordering::Relaxed);
        if lane.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            let name = worker::name(&lane.hook.command);
            (self.0.report)(&format!(
                "hook `{name}` is too slow: {MAX_QUEUED_EVENTS} events wait for it, and it does not hear of new ones"
            ));
        }
    }
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, Vec<HookQueue>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
