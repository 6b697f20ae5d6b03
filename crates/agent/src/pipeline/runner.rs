//! Carries a run out: writes down what is due, does it, and hears what came of it.
//!
//! One task holds the run and is the only one that writes; attempts and waits are tasks that report to it. Invariant:
//! nothing is begun before the entry that says so is on the disk. When it cannot be written down, everything stops, and
//! the run can be resumed.

mod tasks;

use super::definition::{Pipeline, Step, Work};
use super::entry::{Begun, Entry, Next};
use super::graph::Graph;
use super::host::Means;
use super::mailbox::Letter;
use super::react::{self, Done, Now};
use super::spent::Spent;
use super::state::{Ended, Phase, Run};
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::event::Body;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;
use outlast_store::artifacts::Artifacts;
use outlast_store::journal::{Hold, Line, NewSession};
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use tokio::sync::mpsc;

/// How often letters are looked for.
const LOOK_FOR_LETTERS: Duration = Duration::from_millis(500);
/// How many are heard before what follows is written down.
const REPORTS_AT_ONCE: usize = 256;

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
pub enum Said<'a> {
    /// Something that was written down.
    Entry {
        /// Its number within the run.
        seq: u64,
        /// When it happened.
        time: Timestamp,
        /// It.
        entry: &'a Entry,
        /// Where the run stands with it.
        run: &'a Run,
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
pub type Tell<'a> = &'a mut (dyn FnMut(Said<'_>) + Send);

/// What is heard of a step.
enum Report {
    Process(u32, u64),
    Live(Timestamp, Box<Body>),
    Done(Box<Done>),
    WaitOver,
    /// Nobody answered in time, or the time has come.
    GateOver,
}

/// A run that this process carries out.
pub struct Runner {
    id: String,
    hold: Hold,
    means: Means,
    pipeline: Arc<Pipeline>,
    run: Run,
    graph: Graph,
    spent: Arc<Spent>,
    entries: u64,
    /// What is written down first.
    opening: Vec<Entry>,
    /// Says when to look for letters.
    postman: tokio::time::Interval,
    letters: (
        mpsc::UnboundedSender<Letter>,
        mpsc::UnboundedReceiver<Letter>,
    ),
}

impl Runner {
    /// A new run.
    pub async fn begin(means: Means, pipeline: Pipeline, begun: Begun) -> Result<Self, Error> {
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
            (Run::default(), 0, opening),
        ))
    }

    /// A run that another process left, or that has ended: what did not end well is tried anew. It is as so many entries have
    /// it, which were read when the run was ours.
    pub fn resume(
        means: Means,
        pipeline: Pipeline,
        hold: Hold,
        (run, entries): (Run, u64),
    ) -> Self {
        let opening = match &run.ended {
            None => Entry::RunResumed {},
            Some(_) => Entry::RunStarted(Box::new(run.begun.clone())),
        };
        Self::with(means, hold, pipeline, (run, entries, vec![opening]))
    }

    fn with(
        means: Means,
        hold: Hold,
        pipeline: Pipeline,
        (run, entries, opening): (Run, u64, Vec<Entry>),
    ) -> Self {
        let pipeline = Arc::new(pipeline);
        Self {
            id: hold.session().to_owned(),
            hold,
            graph: Graph::new(Arc::clone(&pipeline), &run),
            spent: Arc::new(Spent::new(pipeline.runtime.budget, &run)),
            postman: tokio::time::interval(LOOK_FOR_LETTERS),
            letters: mpsc::unbounded_channel(),
            pipeline,
            means,
            run,
            entries,
            opening,
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
    pub fn letters(&self) -> mpsc::UnboundedSender<Letter> {
        self.letters.0.clone()
    }

    /// Carries it out until it has ended. When `stop` is cancelled it ends soon, as cancelled. When this is dropped, it is left
    /// to be resumed, and all of its processes are killed.
    pub async fn run(&mut self, stop: &CancellationToken, tell: Tell<'_>) -> Result<Ended, Error> {
        let mut tasks = Tasks::new(Arc::clone(&self.means.clock));
        let opening = std::mem::take(&mut self.opening);
        self.commit(opening, tell, &mut tasks).await?;
        self.take_up(&mut tasks);
        loop {
            let now = self.means.clock.now();
            let due = self.graph.due(&self.run, now);
            let due = match (due.is_empty(), &self.run.ended) {
                (false, _) => due,
                (true, Some(ended)) => return Ok(ended.clone()),
                (true, None) => self.listen(stop, tell, &mut tasks).await?,
            };
            self.commit(due, tell, &mut tasks).await?;
        }
    }

    /// Writes entries down, all or none, and then has done what they say.
    async fn commit(
        &mut self,
        mut entries: Vec<Entry>,
        tell: Tell<'_>,
        tasks: &mut Tasks,
    ) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        entries
            .iter_mut()
            .for_each(|entry| self.name_session(entry));
        let time = self.means.clock.now();
        let turn = self.run.turn + u64::from(matches!(entries.first(), Some(Entry::RunStarted(_))));
        let mut lines = Vec::with_capacity(entries.len());
        for entry in &entries {
            lines.push(Line {
                turn,
                kind: entry.kind().to_owned(),
                time,
                body: serde_json::to_string(entry)?,
            });
        }
        self.means.runs.append(&self.hold, lines).await?;
        for entry in &entries {
            self.graph.apply(&mut self.run, time, entry);
            self.entries += 1;
            tell(Said::Entry {
                seq: self.entries,
                time,
                entry,
                run: &self.run,
            });
            self.act(entry, tasks);
        }
        Ok(())
    }

    /// A model that begins has a session of its own, which is found again by its name.
    fn name_session(&self, entry: &mut Entry) {
        if let Entry::AttemptStarted { step, session, .. } = entry
            && let Some(Work::Prompt(_)) = self.graph.step(step).map(|step| &step.work)
        {
            session.get_or_insert_with(|| uuid::Uuid::now_v7().to_string());
        }
    }

    /// Does what an entry says.
    fn act(&self, entry: &Entry, tasks: &mut Tasks) {
        match entry {
            Entry::AttemptStarted { step, .. } => self.attempt(step, false, tasks),
            Entry::AttemptEnded {
                step,
                next: Next::Wait { until, .. },
                ..
            } => tasks.wait(step, *until, || Report::WaitOver),
            Entry::GateOpened { step, until, .. } => {
                tasks.wait(step, *until, || Report::GateOver);
            }
            Entry::StepEnded { step, .. } => tasks.forget(step),
            _ => {}
        }
    }

    fn attempt(&self, step: &str, is_resumed: bool, tasks: &mut Tasks) {
        let Some(step) = self.graph.step(step) else {
            return;
        };
        let job = super::attempt::Job::new(
            (&self.id, &self.run),
            (&self.pipeline, step),
            (self.means.clone(), Arc::clone(&self.spent)),
            is_resumed,
        );
        if let Some(job) = job {
            tasks.attempt(&step.id, job);
        }
    }

    /// Goes on with what was under way: waits end at their time, attempts that were interrupted are made again.
    fn take_up(&self, tasks: &mut Tasks) {
        for (step, state) in &self.run.steps {
            match state.phase {
                Phase::Working => self.attempt(step, true, tasks),
                Phase::Waiting { until, .. } => tasks.wait(step, until, || Report::WaitOver),
                Phase::AtGate { until } => tasks.wait(step, until, || Report::GateOver),
                _ => {}
            }
        }
    }

    /// Waits until something is heard, and answers with what follows from it.
    async fn listen(
        &mut self,
        stop: &CancellationToken,
        tell: Tell<'_>,
        tasks: &mut Tasks,
    ) -> Result<Vec<Entry>, Error> {
        let is_canceled = self.graph.is_canceled();
        let deadline = self.deadline().filter(|_| !is_canceled);
        let over = self
            .means
            .clock
            .sleep_until(deadline.unwrap_or(Timestamp::LATEST));
        let mut heard = Vec::new();
        tokio::select! {
            biased;
            Some(why) = tasks.halted.recv() => return Err(Error::NotKept { why }),
            () = stop.cancelled(), if !is_canceled => return Ok(self.cancel("it was cancelled", tasks)),
            () = over, if deadline.is_some() => {
                let time = self.pipeline.runtime.budget.time.unwrap_or_default();
                return Ok(self.cancel(&format!("the run's time of {} is over", Span(time)), tasks));
            }
            _ = tasks.reports.recv_many(&mut heard, REPORTS_AT_ONCE) => {}
            letter = self.letters.1.recv() => {
                let follows = letter.map(|letter| self.letter(letter, tasks));
                return Ok(follows.unwrap_or_default());
            }
            _ = self.postman.tick() => {
                // What cannot be read says nothing.
                let letters = self.means.mailbox.take(&self.id).unwrap_or_default();
                let letters = letters.into_iter().flatten();
                return Ok(letters.flat_map(|letter| self.letter(letter, tasks)).collect());
            }
        }
        let heard = heard.into_iter();
        Ok(heard
            .flat_map(|(step, report)| self.heard(&step, report, tell))
            .collect())
    }

    /// Whether its time was over then.
    pub fn is_past_deadline(&self, at: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| at >= deadline)
    }

    fn deadline(&self) -> Option<Timestamp> {
        let time = self.pipeline.runtime.budget.time?;
        Some(self.run.begun_last + time)
    }

    fn heard(&mut self, name: &str, report: Report, tell: Tell<'_>) -> Vec<Entry> {
        let phase = self.run.phase(name);
        match report {
            Report::Live(time, body) => {
                tell(Said::Live {
                    step: name,
                    time,
                    body: &body,
                });
                Vec::new()
            }
            Report::Process(pid, born) => vec![Entry::ProcessStarted {
                step: name.to_owned(),
                pid,
                born,
            }],
            Report::Done(done) => self.done(name, *done),
            Report::WaitOver if matches!(phase, Phase::Waiting { .. }) => vec![Entry::WaitEnded {
                step: name.to_owned(),
            }],
            Report::GateOver if matches!(phase, Phase::AtGate { .. }) => {
                let step = self.graph.step(name);
                let answered = step.map(|step| react::answered(&self.graph, &self.run, step, None));
                answered.unwrap_or_default()
            }
            // It was answered or cut short meanwhile.
            Report::WaitOver | Report::GateOver => Vec::new(),
        }
    }

    fn done(&mut self, step: &str, mut done: Done) -> Vec<Entry> {
        let time = self.means.clock.now();
        let deadline = self.deadline();
        if let Err(problem) = &mut done.made
            && problem.cause == Cause::Interrupted
            && self.is_past_deadline(time)
        {
            problem.cause = Cause::DeadlinePassed;
        }
        let now = Now {
            time,
            deadline,
            entropy: uuid::Uuid::now_v7().as_u64_pair().1,
        };
        react::attempt_done(&mut self.graph, &self.run, (step, done), now)
    }

    fn letter(&mut self, letter: Letter, tasks: &mut Tasks) -> Vec<Entry> {
        match letter {
            Letter::Cancel {} => self.cancel("it was cancelled", tasks),
            Letter::RetryNow { step } => {
                let waits = |name: &String| matches!(self.run.phase(name), Phase::Waiting { .. });
                let steps = self.run.steps.keys();
                let steps = steps.filter(|name| step.as_ref().is_none_or(|wanted| wanted == *name));
                tasks.retry_now(step.as_deref());
                steps
                    .filter(|name| waits(name))
                    .map(|step| Entry::WaitEnded { step: step.clone() })
                    .collect()
            }
            Letter::Answer { step, choice } => self.answer(step.as_deref(), choice.as_deref()),
        }
    }

    fn answer(&self, step: Option<&str>, choice: Option<&str>) -> Vec<Entry> {
        let at_gate = |step: &&Step| matches!(self.run.phase(&step.id), Phase::AtGate { .. });
        let named = |wanted: &Step| step.is_none_or(|step| step == wanted.id);
        let mut steps = self.pipeline.steps.iter().filter(at_gate);
        let Some(step) = steps.find(|step| named(step)) else {
            return Vec::new();
        };
        match choice.or_else(|| react::first_choice(step)) {
            Some(key) if react::is_choice(step, key) => {
                react::answered(&self.graph, &self.run, step, Some(key))
            }
            _ => Vec::new(),
        }
    }

    /// Ends everything: attempts are told, all else is over at once.
    fn cancel(&mut self, why: &str, tasks: &mut Tasks) -> Vec<Entry> {
        self.graph.cancel(why);
        tasks.cancel();
        let waits = |step: &&Step| {
            let phase = self.run.phase(&step.id);
            phase.is_active() && phase != Phase::Working
        };
        let waiting = self.pipeline.steps.iter().filter(waits);
        waiting
            .map(|step| Graph::canceled(step, &self.run))
            .collect()
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
