//! What goes on beside the run: attempts and waits, each a task that reports when it is over.

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

/// How many reports may wait.
const MAX_QUEUED_REPORTS: usize = 1024;

/// The tasks of a run; all end when this is dropped.
pub(super) struct Tasks {
    clock: Arc<dyn Clock>,
    sender: mpsc::Sender<(TaskId, TaskReport)>,
    /// What they report.
    pub(super) reports: mpsc::Receiver<(TaskId, TaskReport)>,
    /// Why something of ours cannot be written down.
    pub(super) halted: mpsc::UnboundedReceiver<String>,
    halt: mpsc::UnboundedSender<String>,
    steps: HashMap<String, Task>,
    /// How many there were.
    count: u64,
}

/// Which task of which step.
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

    /// Whether that task is still the one of its step.
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
            // A task of its own, so that its panic is its own.
            let work = AbortOnDropHandle::new(tokio::spawn(Box::pin(step::run(job, live))));
            let done = work
                .await
                .unwrap_or_else(|error| broken(&error.to_string()));
            // Nobody listens when the run is left.
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

    /// A step has nothing to do any more.
    pub(super) fn forget(&mut self, step: &str) {
        self.steps.remove(step);
    }

    /// Has the turns of a step, or of all, try at once what they wait for.
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

/// Passes on what happens in an attempt. What is only shown is left out when there is too much of it.
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
