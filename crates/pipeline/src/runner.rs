//! Executes a run: writes the entries that are due, acts on them, and receives the reports.
//!
//! One task holds the run and is the only writer; attempts and waits are tasks that report to it. Invariant: nothing
//! begins before its entry is on the disk. If the journal cannot be written, everything stops, and the run can be
//! resumed.

pub(crate) mod budget;
mod events;
mod tasks;

use super::definition::{Pipeline, Work};
use super::entry::{Entry, RunParameters};
use super::graph::Graph;
use super::host::RunResources;
use super::state::{EndStatus, Phase, Run};
use super::step::{self, Job, RunContext};
use crate::graph::react::AttemptResult;
use crate::run_store::mailbox::RunRequest;
use crate::runner::budget::BudgetTracker;
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::event::Body;
use outlast_store::artifacts::Artifacts;
use outlast_store::journal::{NewSession, RawEntry, SessionLock};
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use tokio::sync::mpsc;

/// Interval at which the runner checks the mailbox for requests.
const REQUEST_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The error of executing a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal returned an error.
    #[error("the run cannot be written down")]
    Store(#[from] outlast_store::Error),
    /// A file of a step cannot be stored.
    #[error("the run cannot be written down: {why}")]
    NotRecorded {
        /// The file and the reason.
        why: String,
    },
    /// An entry cannot be serialized.
    #[error("the run cannot be written down")]
    Entry(#[from] serde_json::Error),
}

/// An event of a run for its listener.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// An entry was written.
    Entry {
        /// Its sequence number within the run.
        seq: u64,
        /// Its time.
        time: Timestamp,
        /// The entry.
        entry: &'a Entry,
    },
    /// An event of a step's session, without text deltas.
    SessionEvent {
        /// The step.
        step: &'a str,
        /// The time of the event.
        time: Timestamp,
        /// The event.
        body: &'a Body,
    },
}

/// A callback for the events of a run.
pub type EventListener<'a> = &'a mut (dyn FnMut(RunEvent<'_>) + Send);

/// A report about a step.
enum TaskReport {
    Process(u32, u64),
    SessionEvent(Timestamp, Box<Body>),
    Done(Box<AttemptResult>),
    WaitOver,
    /// The gate's timeout or timer has ended.
    GateOver,
}

/// A run that this process executes.
pub struct Runner {
    id: String,
    hold: SessionLock,
    resources: RunResources,
    pipeline: Arc<Pipeline>,
    run: Run,
    graph: Graph,
    budget: Arc<BudgetTracker>,
    entry_count: u64,
    /// The entries to write first.
    initial_entries: Vec<Entry>,
    /// Applied entries that are not written yet.
    pending_entries: Vec<(Timestamp, Entry)>,
    /// Ticks when the mailbox is to be checked.
    request_poll: tokio::time::Interval,
    requests: (
        mpsc::UnboundedSender<RunRequest>,
        mpsc::UnboundedReceiver<RunRequest>,
    ),
}

impl Runner {
    /// Begins a new run.
    pub async fn begin(
        means: RunResources,
        pipeline: Pipeline,
        begun: RunParameters,
    ) -> Result<Self, Error> {
        let id = uuid::Uuid::now_v7().to_string();
        let new = NewSession {
            id: id.clone(),
            directory: begun.folder.clone(),
            title: pipeline.name.clone(),
            now: means.clock.now(),
        };
        let hold = means.runs.create(new).await?;
        let opening = vec![Entry::RunStarted(Box::new(begun))];
        Ok(Self::from_parts(
            means,
            hold,
            pipeline,
            Run::default(),
            0,
            opening,
        ))
    }

    /// Resumes a run that an earlier process left, or restarts one that has ended: steps that did not succeed are
    /// retried. `run` is the state after `entries` entries, read while holding the session lock.
    pub fn resume(
        means: RunResources,
        pipeline: Pipeline,
        hold: SessionLock,
        run: Run,
        entries: u64,
    ) -> Self {
        let opening = match &run.ended {
            None => Entry::RunResumed {},
            Some(_) => Entry::RunStarted(Box::new(run.parameters.clone())),
        };
        Self::from_parts(means, hold, pipeline, run, entries, vec![opening])
    }

    fn from_parts(
        resources: RunResources,
        hold: SessionLock,
        pipeline: Pipeline,
        run: Run,
        entry_count: u64,
        initial_entries: Vec<Entry>,
    ) -> Self {
        let pipeline = Arc::new(pipeline);
        Self {
            id: hold.session().to_owned(),
            hold,
            graph: Graph::new(Arc::clone(&pipeline), &run),
            budget: Arc::new(BudgetTracker::new(pipeline.runtime.budget, &run)),
            request_poll: tokio::time::interval(REQUEST_POLL_INTERVAL),
            requests: mpsc::unbounded_channel(),
            pipeline,
            resources,
            run,
            entry_count,
            initial_entries,
            pending_entries: Vec::new(),
        }
    }

    /// Returns the id of the run.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the state of the run.
    pub const fn state(&self) -> &Run {
        &self.run
    }

    /// Returns the pipeline of the run.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns a sender for run requests that bypass the mailbox.
    pub fn request_sender(&self) -> mpsc::UnboundedSender<RunRequest> {
        self.requests.0.clone()
    }

    /// Executes the run until it has ended. If `stop` is cancelled, the run soon ends as cancelled. If this future is
    /// dropped, all processes of the run are killed, and it can be resumed.
    pub async fn run(
        &mut self,
        stop: &CancellationToken,
        tell: EventListener<'_>,
    ) -> Result<EndStatus, Error> {
        let mut tasks = Tasks::new(Arc::clone(&self.resources.clock));
        let opening = std::mem::take(&mut self.initial_entries);
        self.accept(opening);
        self.write_pending(tell, &mut tasks).await?;
        // A restarted run begins with new breaker counts.
        self.graph = Graph::new(Arc::clone(&self.pipeline), &self.run);
        self.resume_tasks(&mut tasks);
        loop {
            self.accept_due();
            self.write_pending(tell, &mut tasks).await?;
            if let Some(ended) = self.run.ended.clone() {
                step::remove_scratch(self.resources.scratch.join(&self.id)).await;
                return Ok(ended);
            }
            for heard in self.next_events(stop, &mut tasks).await? {
                // Handles events one by one, each with the state after the one before.
                let follows = self.handle(heard, tell, &tasks);
                self.accept(follows);
            }
        }
    }

    /// Applies all entries that are due.
    fn accept_due(&mut self) {
        loop {
            let due = self
                .graph
                .due_entries(&self.run, self.resources.clock.now());
            if due.is_empty() {
                return;
            }
            self.accept(due);
        }
    }

    /// Applies entries. They count from here on; the runner acts on them only after they are written.
    fn accept(&mut self, entries: Vec<Entry>) {
        for mut entry in entries {
            self.assign_session(&mut entry);
            let time = self.resources.clock.now();
            self.graph.apply(&mut self.run, time, &entry);
            self.pending_entries.push((time, entry));
        }
    }

    /// Writes the applied entries, all or nothing, and then acts on them.
    async fn write_pending(
        &mut self,
        tell: EventListener<'_>,
        tasks: &mut Tasks,
    ) -> Result<(), Error> {
        let entries = std::mem::take(&mut self.pending_entries);
        if entries.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::with_capacity(entries.len());
        for (time, entry) in &entries {
            lines.push(RawEntry {
                turn: self.run.turn,
                kind: entry.kind().to_owned(),
                time: *time,
                body: serde_json::to_string(entry)?,
            });
        }
        self.resources.runs.append(&self.hold, lines).await?;
        for (time, entry) in &entries {
            self.entry_count += 1;
            tell(RunEvent::Entry {
                seq: self.entry_count,
                time: *time,
                entry,
            });
            self.perform(entry, tasks);
        }
        Ok(())
    }

    /// Assigns a new session to the first attempt of a model; later attempts find the session by its name.
    fn assign_session(&self, entry: &mut Entry) {
        if let Entry::AttemptStarted { step, session, .. } = entry
            && let Some(Work::Prompt(_)) = self.graph.step(step).map(|step| &step.work)
        {
            session.get_or_insert_with(|| uuid::Uuid::now_v7().to_string());
        }
    }

    /// Acts on an entry, unless the state of its step has changed since.
    fn perform(&self, entry: &Entry, tasks: &mut Tasks) {
        let phase = |step: &str| self.run.phase(step);
        match entry {
            Entry::AttemptStarted { step, .. } if phase(step) == Phase::Working => {
                self.start_attempt(step, false, tasks);
            }
            Entry::AttemptEnded { step, .. } | Entry::GateOpened { step, .. } => {
                match phase(step) {
                    Phase::Waiting { until, .. } => {
                        tasks.start_wait(step, until, || TaskReport::WaitOver)
                    }
                    Phase::AtGate { until } => {
                        tasks.start_wait(step, until, || TaskReport::GateOver)
                    }
                    _ => {}
                }
            }
            Entry::StepEnded { step, .. } if !phase(step).is_active() => tasks.remove(step),
            _ => {}
        }
    }

    fn start_attempt(&self, step: &str, is_resumed: bool, tasks: &mut Tasks) {
        let Some(step) = self.graph.step(step) else {
            return;
        };
        let context = RunContext {
            id: &self.id,
            run: &self.run,
            pipeline: &self.pipeline,
            means: self.resources.clone(),
            spent: Arc::clone(&self.budget),
        };
        if let Some(job) = Job::new(context, step, is_resumed) {
            tasks.start_attempt(&step.id, job);
        }
    }

    /// Resumes the work that was under way: waits end at their time, and interrupted attempts are made again.
    fn resume_tasks(&self, tasks: &mut Tasks) {
        for (step, state) in &self.run.steps {
            match state.phase {
                Phase::Working => self.start_attempt(step, true, tasks),
                Phase::Waiting { until, .. } => {
                    tasks.start_wait(step, until, || TaskReport::WaitOver)
                }
                Phase::AtGate { until } => tasks.start_wait(step, until, || TaskReport::GateOver),
                _ => {}
            }
        }
    }

    /// Returns whether the run's time budget is exhausted at the given time.
    pub fn is_past_deadline(&self, at: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| at >= deadline)
    }

    fn deadline(&self) -> Option<Timestamp> {
        let time = self.pipeline.runtime.budget.time?;
        Some(self.run.last_started + time)
    }

    /// Releases the run, so that another process may resume it.
    pub async fn close(self) -> Result<(), Error> {
        Ok(self.resources.runs.release(self.hold).await?)
    }

    /// Returns the store of the steps' artifacts.
    pub fn artifacts(&self) -> &Artifacts {
        &self.resources.artifacts
    }
}
