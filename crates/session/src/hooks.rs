//! Hooks: the user's commands that run on session events, with one line of JSON on standard input.
//!
//! The listener translates events without blocking; one worker for each hook runs them in order. Invariants: no hook delays,
//! fails or reorders a session; its queue and the final wait for all hooks are bounded; no hook output reaches stdout; no hook
//! finds a key in its environment. Not here: the JSON (see `payload`) and running a command (see `worker`).

mod payload;
mod worker;

use crate::{Session, Subscription};
use parking_lot::Mutex;
use payload::{EventTranslator, Fields, Payload};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use worker::{QueuedEvent, Worker};

/// Maximum number of events in a hook's queue.
const MAX_QUEUED_EVENTS: usize = 64;

/// A command and the events that run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The events that run it.
    pub events: Vec<HookEvent>,
    /// The command line, run by a shell in the folder of the session.
    pub command: String,
    /// The time limit; then the command is killed with all that it started.
    pub timeout: Duration,
}

/// An event that can run a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookEvent {
    /// A retry is scheduled.
    AutoRetryStart,
    /// A chain of retries has ended.
    AutoRetryEnd,
    /// A turn has ended.
    TurnEnd,
    /// A tool begins to run.
    ToolStart,
    /// A tool call has a result; a call that was refused has one as well, and no start.
    ToolEnd,
    /// An account is blocked.
    AccountBlocked,
    /// The process leaves the session.
    SessionStopped,
}

impl HookEvent {
    /// All hook events.
    pub const ALL: [Self; 7] = [
        Self::AutoRetryStart,
        Self::AutoRetryEnd,
        Self::TurnEnd,
        Self::ToolStart,
        Self::ToolEnd,
        Self::AccountBlocked,
        Self::SessionStopped,
    ];

    /// Returns the event's name, which is the `type` in the JSON that a hook reads.
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

    /// Returns the event of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|moment| moment.as_str() == name)
    }
}

/// The reason why a process leaves a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The work is done.
    Ended,
    /// The system asked the process to end.
    Terminated,
    /// The terminal is gone.
    HungUp,
    /// The user interrupted the process.
    Interrupted,
}

/// Receives the problems of hooks, each as a line that is safe to show.
pub type ProblemReporter = Arc<dyn Fn(&str) + Send + Sync>;

/// The hooks of a session, or of several in the same folder.
#[derive(Clone)]
pub struct Hooks(Arc<Shared>);

struct Shared {
    folder: String,
    queues: Mutex<Vec<HookQueue>>,
    report: ProblemReporter,
}

/// A hook with its queue and its worker.
struct HookQueue {
    hook: Hook,
    sender: Sender<QueuedEvent>,
    /// Number of events dropped since the last one that was queued.
    dropped_since_last: AtomicU64,
    /// Number of events dropped in all.
    dropped_total: AtomicU64,
    worker: AbortOnDropHandle<()>,
}

impl Hooks {
    /// Creates hooks that run in that folder, without those environment variables. Must be called within a runtime.
    pub fn new(
        hooks: Vec<Hook>,
        folder: PathBuf,
        hidden_variables: Vec<String>,
        report: ProblemReporter,
    ) -> Self {
        let name = folder.to_string_lossy().into_owned();
        let place = Arc::new((folder, hidden_variables));
        let lane = |hook: Hook| {
            let (sender, events) = mpsc::channel(MAX_QUEUED_EVENTS);
            let worker = Worker::new(hook.clone(), place.clone(), report.clone());
            HookQueue {
                hook,
                sender,
                dropped_since_last: AtomicU64::new(0),
                dropped_total: AtomicU64::new(0),
                worker: AbortOnDropHandle::new(tokio::spawn(worker.run(events))),
            }
        };
        let queues = Mutex::new(hooks.into_iter().map(lane).collect());
        Self(Arc::new(Shared {
            folder: name,
            queues,
            report,
        }))
    }

    /// Returns whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        self.0.queues.lock().is_empty()
    }

    /// Runs the hooks on the events of that session, until the subscription is dropped.
    pub fn subscribe_to(&self, session: &Session) -> Subscription {
        let mut translation = EventTranslator::for_session(session);
        let hooks = self.clone();
        session.subscribe(move |event| {
            if let Some((moment, fields)) = translation.translate(event) {
                hooks.dispatch(Payload::from_event(event, &hooks.0.folder, moment, fields));
            }
        })
    }

    /// Runs the hooks for [`HookEvent::SessionStopped`] of that session.
    pub fn session_stopped(&self, session: &Session, reason: ExitReason) {
        let snapshot = session.snapshot();
        self.dispatch(Payload {
            event: HookEvent::SessionStopped,
            session_id: session.id().to_owned(),
            turn_id: snapshot.turn_id,
            folder: self.0.folder.clone(),
            time: session.clock().now(),
            seq: snapshot.last_seq,
            fields: Fields::SessionStopped { reason },
        });
    }

    /// Waits until all queued events are handled, at most for that long, and kills the commands that still run then. No hook
    /// runs afterwards.
    pub async fn finish(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let lanes = std::mem::take(&mut *self.0.queues.lock());
        // All queues at once: a worker ends when its queue is closed.
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

    fn dispatch(&self, payload: Payload) {
        let payload = Arc::new(payload);
        for lane in self.0.queues.lock().iter() {
            if lane.hook.events.contains(&payload.event) {
                self.enqueue(lane, &payload);
            }
        }
    }

    fn enqueue(&self, lane: &HookQueue, payload: &Arc<Payload>) {
        let dropped = lane.dropped_since_last.load(Ordering::Relaxed);
        let waiting = QueuedEvent {
            payload: payload.clone(),
            dropped,
        };
        if lane.sender.try_send(waiting).is_ok() {
            lane.dropped_since_last.store(0, Ordering::Relaxed);
            return;
        }
        lane.dropped_since_last
            .store(dropped + 1, Ordering::Relaxed);
        if lane.dropped_total.fetch_add(1, Ordering::Relaxed) == 0 {
            let name = worker::name(&lane.hook.command);
            (self.0.report)(&format!(
                "hook `{name}` is too slow: {MAX_QUEUED_EVENTS} events wait for it, and it does not hear of new ones"
            ));
        }
    }
}
