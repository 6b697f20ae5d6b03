//! Carries a run out: writes down what is due, does it, and hears what came of it.
//!
//! One task holds the run and is the only one that writes; attempts and waits are tasks that report to it. Invariant:
//! nothing is begun before the entry that says so is on the disk. When it cannot be written down, everything stops, and
//! the run can be resumed.

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

/// How often letters are looked for.
const REQUEST_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Something that a run could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal refused.
    #[error("the run cannot be written down")]
    Store(#[from] outlast_store::Error),
    /// Something of a step cannot be kept.
    #[error("the run cannot be written down: {why}")]
    NotKept {
        /// What, and why.
        why: String,
    },
    /// An entry cannot be written.
    #[error("the run cannot be written down")]
    Entry(#[from] serde_json::Error),
}

/// What is told while a run goes on.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// Something that was written down.
    Entry {
        /// Its number within the run.
        seq: u64,
        /// When it happened.
        time: Timestamp,
        /// It.
        entry: &'a Entry,
    },
    /// Something that happened in the session of a step, pieces of text left out.
    Live {
        /// The step.
        step: &'a str,
        /// When.
        time: Timestamp,
        /// What.
        body: &'a Body,
    },
}

/// Is told what happens.
pub type EventListener<'a> = &'a mut (dyn FnMut(RunEvent<'_>) + Send);

/// What is heard of a step.
enum TaskReport {
    Process(u32, u64),
    Live(Timestamp, Box<Body>),
    Done(Box<AttemptResult>),
    WaitOver,
    /// Nobody answered in time, or the time has come.
    GateOver,
}

/// A run that this process carries out.
pub struct Runner {
    id: String,
    hold: SessionLock,
    means: RunResources,
    pipeline: Arc<Pipeline>,
    run: Run,
    graph: Graph,
    spent: Arc<BudgetTracker>,
    entries: u64,
    /// What is written down first.
    opening: Vec<Entry>,
    /// What was taken in and is not written down yet.
    unwritten: Vec<(Timestamp, Entry)>,
    /// Says when to look for letters.
    postman: tokio::time::Interval,
    letters: (
        mpsc::UnboundedSender<RunRequest>,
        mpsc::UnboundedReceiver<RunRequest>,
    ),
}

impl Runner {
    /// A new run.
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
        let hold = means.runs.begin(new).await?;
        let opening = vec![Entry::RunStarted(Box::new(begun))];
        Ok(Self::with(
            means,
            hold,
            pipeline,
            Run::default(),
            0,
            opening,
        ))
    }

    /// A run that another process left, or that has ended: what did not end well is tried anew. It is as so many entries have
    /// it, which were read when the run was ours.
    pub fn resume(
        means: RunResources,
        pipeline: Pipeline,
        hold: SessionLock,
        run: Run,
        entries: u64,
    ) -> Self {
        let opening = match &run.ended {
            None => Entry::RunResumed {},
            Some(_) => Entry::RunStarted(Box::new(run.begun.clone())),
        };
        Self::with(means, hold, pipeline, run, entries, vec![opening])
    }

    fn with(
        means: RunResources,
        hold: SessionLock,
        pipeline: Pipeline,
        run: Run,
        entries: u64,
        opening: Vec<Entry>,
    ) -> Self {
        let pipeline = Arc::new(pipeline);
        Self {
            id: hold.session().to_owned(),
            hold,
            graph: Graph::new(Arc::clone(&pipeline), &run),
            spent: Arc::new(BudgetTracker::new(pipeline.runtime.budget, &run)),
            postman: tokio::time::interval(REQUEST_POLL_INTERVAL),
            letters: mpsc::unbounded_channel(),
            pipeline,
            means,
            run,
            entries,
            opening,
            unwritten: Vec::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it stands.
    pub const fn state(&self) -> &Run {
        &self.run
    }

    /// What it is a run of.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Where letters can be handed in that need not go through the mailbox.
    pub fn letters(&self) -> mpsc::UnboundedSender<RunRequest> {
        self.letters.0.clone()
    }

    /// Carries it out until it has ended. When `stop` is cancelled it ends soon, as cancelled. When this is dropped, it is left
    /// to be resumed, and all of its processes are killed.
    pub async fn run(
        &mut self,
        stop: &CancellationToken,
        tell: EventListener<'_>,
    ) -> Result<EndStatus, Error> {
        let mut tasks = Tasks::new(Arc::clone(&self.means.clock));
        let opening = std::mem::take(&mut self.opening);
        self.take(opening);
        self.write(tell, &mut tasks).await?;
        // A run that is begun again has forgotten what was counted.
        self.graph = Graph::new(Arc::clone(&self.pipeline), &self.run);
        self.take_up(&mut tasks);
        loop {
            self.accept_due();
            self.write(tell, &mut tasks).await?;
            if let Some(ended) = self.run.ended.clone() {
                step::remove_scratch(self.means.scratch.join(&self.id)).await;
                return Ok(ended);
            }
            for heard in self.listen(stop, &mut tasks).await? {
                // One after the other: each is answered as things then stand.
                let follows = self.follows(heard, tell, &tasks);
                self.take(follows);
            }
        }
    }

    /// Everything that has become possible.
    fn accept_due(&mut self) {
        loop {
            let due = self.graph.due(&self.run, self.means.clock.now());
            if due.is_empty() {
                return;
            }
            self.take(due);
        }
    }

    /// Takes entries in. They count from here on, and nothing is done about them before they are written down.
    fn take(&mut self, entries: Vec<Entry>) {
        for mut entry in entries {
            self.assign_session(&mut entry);
            let time = self.means.clock.now();
            self.graph.apply(&mut self.run, time, &entry);
            self.unwritten.push((time, entry));
        }
    }

    /// Writes down what was taken in, all or nothing, and then does what it says.
    async fn write(&mut self, tell: EventListener<'_>, tasks: &mut Tasks) -> Result<(), Error> {
        let entries = std::mem::take(&mut self.unwritten);
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
        self.means.runs.append(&self.hold, lines).await?;
        for (time, entry) in &entries {
            self.entries += 1;
            tell(RunEvent::Entry {
                seq: self.entries,
                time: *time,
                entry,
            });
            self.act(entry, tasks);
        }
        Ok(())
    }

    /// A model that begins has a session of its own, which is found again by its name.
    fn assign_session(&self, entry: &mut Entry) {
        if let Entry::AttemptStarted { step, session, .. } = entry
            && let Some(Work::Prompt(_)) = self.graph.step(step).map(|step| &step.work)
        {
            session.get_or_insert_with(|| uuid::Uuid::now_v7().to_string());
        }
    }

    /// Does what an entry says, unless something else has happened to its step by now.
    fn act(&self, entry: &Entry, tasks: &mut Tasks) {
        let phase = |step: &str| self.run.phase(step);
        match entry {
            Entry::AttemptStarted { step, .. } if phase(step) == Phase::Working => {
                self.attempt(step, false, tasks);
            }
            Entry::AttemptEnded { step, .. } | Entry::GateOpened { step, .. } => {
                match phase(step) {
                    Phase::Waiting { until, .. } => {
                        tasks.wait(step, until, || TaskReport::WaitOver)
                    }
                    Phase::AtGate { until } => tasks.wait(step, until, || TaskReport::GateOver),
                    _ => {}
                }
            }
            Entry::StepEnded { step, .. } if !phase(step).is_active() => tasks.forget(step),
            _ => {}
        }
    }

    fn attempt(&self, step: &str, is_resumed: bool, tasks: &mut Tasks) {
        let Some(step) = self.graph.step(step) else {
            return;
        };
        let context = RunContext {
            id: &self.id,
            run: &self.run,
            pipeline: &self.pipeline,
            means: self.means.clone(),
            spent: Arc::clone(&self.spent),
        };
        if let Some(job) = Job::new(context, step, is_resumed) {
            tasks.attempt(&step.id, job);
        }
    }

    /// Goes on with what was under way: waits end at their time, attempts that were interrupted are made again.
    fn take_up(&self, tasks: &mut Tasks) {
        for (step, state) in &self.run.steps {
            match state.phase {
                Phase::Working => self.attempt(step, true, tasks),
                Phase::Waiting { until, .. } => tasks.wait(step, until, || TaskReport::WaitOver),
                Phase::AtGate { until } => tasks.wait(step, until, || TaskReport::GateOver),
                _ => {}
            }
        }
    }

    /// Whether its time was over then.
    pub fn is_past_deadline(&self, at: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| at >= deadline)
    }

    fn deadline(&self) -> Option<Timestamp> {
        let time = self.pipeline.runtime.budget.time?;
        Some(self.run.begun_last + time)
    }

    /// Lets go of the run: another process may take it up.
    pub async fn close(self) -> Result<(), Error> {
        Ok(self.means.runs.release(self.hold).await?)
    }

    /// Where what its steps have made is kept.
    pub fn artifacts(&self) -> &Artifacts {
        &self.means.artifacts
    }
}
