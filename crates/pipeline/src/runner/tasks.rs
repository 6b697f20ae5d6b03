//! The tasks beside the runner: attempts and waits, each of which reports its end.

use super::super::entry::Problem;
use super::super::step::{self, AttemptControl, Job};
use super::TaskReport;
use crate::graph::react::AttemptResult;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of queued reports.
const MAX_QUEUED_REPORTS: usize = 1024;

/// The tasks of a run; all end when this is dropped.
pub(super) struct Tasks {
    clock: Arc<dyn Clock>,
    sender: mpsc::Sender<(TaskId, TaskReport)>,
    /// The reports of the tasks.
    pub(super) reports: mpsc::Receiver<(TaskId, TaskReport)>,
    /// The reasons why our own files cannot be written.
    pub(super) halts: mpsc::UnboundedReceiver<String>,
    halt_sender: mpsc::UnboundedSender<String>,
    steps: HashMap<String, Task>,
    /// The number of tasks started so far.
    last_number: u64,
}

/// The identity of a task: its step and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskId {
    pub(super) step: String,
    number: u64,
}

struct Task {
    number: u64,
    stop: CancellationToken,
    retry_now: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl Tasks {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (sender, reports) = mpsc::channel(MAX_QUEUED_REPORTS);
        let (halt_sender, halts) = mpsc::unbounded_channel();
        Self {
            clock,
            sender,
            reports,
            halts,
            halt_sender,
            steps: HashMap::new(),
            last_number: 0,
        }
    }

    /// Returns whether the task is still the current one of its step.
    pub(super) fn is_current(&self, of: &TaskId) -> bool {
        let task = self.steps.get(&of.step);
        task.is_some_and(|task| task.number == of.number)
    }

    fn next_id(&mut self, step: &str) -> TaskId {
        self.last_number += 1;
        TaskId {
            step: step.to_owned(),
            number: self.last_number,
        }
    }

    pub(super) fn start_attempt(&mut self, step: &str, job: Job) {
        let (stop, retry_now) = (CancellationToken::new(), Arc::new(Notify::new()));
        let of = self.next_id(step);
        let (reports, number) = (self.sender.clone(), of.number);
        let live = AttemptControl {
            stop: stop.clone(),
            retry_now: Arc::clone(&retry_now),
            notify: event_forwarder(self.sender.clone(), of.clone()),
            halt_sender: self.halt_sender.clone(),
        };
        let work = async move {
            // A task of its own, so that a panic ends only the attempt.
            let work = AbortOnDropHandle::new(tokio::spawn(Box::pin(step::run(job, live))));
            let done = work
                .await
                .unwrap_or_else(|error| panicked_attempt(&error.to_string()));
            // There is no receiver after the run was dropped.
            reports
                .send((of, TaskReport::Done(Box::new(done))))
                .await
                .ok();
        };
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        let task = Task {
            number,
            stop,
            retry_now,
            _task: task,
        };
        self.steps.insert(step.to_owned(), task);
    }

    pub(super) fn start_wait(&mut self, step: &str, until: Timestamp, over: fn() -> TaskReport) {
        let of = self.next_id(step);
        let number = of.number;
        let (reports, sleep) = (self.sender.clone(), self.clock.sleep_until(until));
        let wait = async move {
            sleep.await;
            reports.send((of, over())).await.ok();
        };
        let task = Task {
            number,
            stop: CancellationToken::new(),
            retry_now: Arc::default(),
            _task: AbortOnDropHandle::new(tokio::spawn(wait)),
        };
        self.steps.insert(step.to_owned(), task);
    }

    /// Forgets the task of a step that has nothing more to do.
    pub(super) fn remove(&mut self, step: &str) {
        self.steps.remove(step);
    }

    /// Ends the waits of a step's turn, or of all, so that they retry at once.
    pub(super) fn retry_now(&self, step: Option<&str>) {
        let wanted = |name: &str| step.is_none_or(|step| step == name);
        for (_, task) in self.steps.iter().filter(|(name, _)| wanted(name)) {
            task.retry_now.notify_one();
        }
    }

    /// Tells all attempts to end.
    pub(super) fn cancel(&self) {
        for task in self.steps.values() {
            task.stop.cancel();
        }
    }
}

/// Returns a function that forwards an attempt's events. If the queue is full, events are dropped, which only affects
/// the display.
fn event_forwarder(
    reports: mpsc::Sender<(TaskId, TaskReport)>,
    of: TaskId,
) -> Arc<dyn Fn(step::AttemptEvent) + Send + Sync> {
    Arc::new(move |news| {
        let report = match news {
            step::AttemptEvent::Process(pid, born) => TaskReport::Process(pid, born),
            step::AttemptEvent::Session(time, body) => {
                TaskReport::SessionEvent(time, Box::new(body))
            }
        };
        reports.try_send((of.clone(), report)).ok();
    })
}

fn panicked_attempt(why: &str) -> AttemptResult {
    AttemptResult {
        output: Err(Problem::new(Cause::Internal, why)),
        usage: Usage::default(),
        cost: Cost::default(),
        warnings: Vec::new(),
    }
}
