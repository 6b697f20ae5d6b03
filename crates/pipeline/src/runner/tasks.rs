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
    pub(super) halted: mpsc::UnboundedReceiver<String>,
    halt: mpsc::UnboundedSender<String>,
    steps: HashMap<String, Task>,
    /// The number of tasks started so far.
    count: u64,
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
        let (halt, halted) = mpsc::unbounded_channel();
        Self {
            clock,
            sender,
            reports,
            halted,
            halt,
            steps: HashMap::new(),
            count: 0,
        }
    }

    /// Returns whether the task is still the current one of its step.
    pub(super) fn is_under_way(&self, of: &TaskId) -> bool {
        let task = self.steps.get(&of.step);
        task.is_some_and(|task| task.number == of.number)
    }

    fn next(&mut self, step: &str) -> TaskId {
        self.count += 1;
        TaskId {
            step: step.to_owned(),
            number: self.count,
        }
    }

    pub(super) fn attempt(&mut self, step: &str, job: Job) {
        let (stop, retry_now) = (CancellationToken::new(), Arc::new(Notify::new()));
        let of = self.next(step);
        let (reports, number) = (self.sender.clone(), of.number);
        let live = AttemptControl {
            stop: stop.clone(),
            retry_now: Arc::clone(&retry_now),
            tell: teller(self.sender.clone(), of.clone()),
            halt: self.halt.clone(),
        };
        let work = async move {
            // A task of its own, so that a panic ends only the attempt.
            let work = AbortOnDropHandle::new(tokio::spawn(Box::pin(step::run(job, live))));
            let done = work
                .await
                .unwrap_or_else(|error| broken(&error.to_string()));
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

    pub(super) fn wait(&mut self, step: &str, until: Timestamp, over: fn() -> TaskReport) {
        let of = self.next(step);
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
    pub(super) fn forget(&mut self, step: &str) {
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
fn teller(
    reports: mpsc::Sender<(TaskId, TaskReport)>,
    of: TaskId,
) -> Arc<dyn Fn(step::AttemptEvent) + Send + Sync> {
    Arc::new(move |news| {
        let report = match news {
            step::AttemptEvent::Process(pid, born) => TaskReport::Process(pid, born),
            step::AttemptEvent::Session(time, body) => TaskReport::Live(time, Box::new(body)),
        };
        reports.try_send((of.clone(), report)).ok();
    })
}

fn broken(why: &str) -> AttemptResult {
    AttemptResult {
        made: Err(Problem::new(Cause::Internal, why)),
        usage: Usage::default(),
        cost: Cost::default(),
        warnings: Vec::new(),
    }
}
