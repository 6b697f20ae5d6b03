//! One attempt of a step: does its work, collects its outputs and checks its contracts.
//!
//! Invariants: a stopped attempt ends soon and leaves no process behind; its outputs are stored before they count; its
//! problem tells whether a person, the watchdog, a timeout or a budget limit ended it. Not here: the decision about
//! retries (see `graph::react`).

mod agent;
mod artifacts;
mod command;
pub(crate) mod feedback;
pub(crate) mod input_files;
mod prompt;
pub(crate) mod watchdog;

use super::contract::{self, CheckContext};
use super::definition::{Contract, OUTPUT, Pipeline, Rule, Step, Work};
use super::entry::{Artifact, Problem};
use super::host::RunResources;
use super::state::{Attempt, Run};
use crate::graph::react::{AttemptResult, StepOutput};
use crate::process::orphans;
use crate::runner::budget::BudgetTracker;
use crate::step::watchdog::{WatchEvent, Watchdog};
use artifacts::InputValue;
pub(super) use artifacts::remove_scratch;
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::{Body, Usage};
use outlast_kernel::verdict::{Cause, Class};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// An attempt to execute.
pub(super) struct Job {
    run: String,
    pipeline: Arc<Pipeline>,
    step: Step,
    attempt: Attempt,
    visit: u32,
    /// The number of attempts in its session, this one included.
    session_attempts: u64,
    /// The feedback: the problem of the last attempt's result, or of the step that this one repairs.
    previous_problem: Option<Problem>,
    inputs: BTreeMap<String, InputValue>,
    folder: PathBuf,
    deadline: Option<Timestamp>,
    /// Whether an earlier process died during the attempt.
    is_resumed: bool,
    resources: RunResources,
    budget: Arc<BudgetTracker>,
}

/// The run of an attempt, and its resources.
pub(super) struct RunContext<'a> {
    pub(super) id: &'a str,
    pub(super) run: &'a Run,
    pub(super) pipeline: &'a Arc<Pipeline>,
    pub(super) means: RunResources,
    pub(super) spent: Arc<BudgetTracker>,
}

/// The controls of an attempt, shared with the runner.
pub(super) struct AttemptControl {
    pub(super) stop: CancellationToken,
    /// Ends the wait of the attempt's turn.
    pub(super) retry_now: Arc<Notify>,
    pub(super) notify: Arc<dyn Fn(AttemptEvent) + Send + Sync>,
    /// Receives the reason when our own files cannot be written.
    pub(super) halt_sender: mpsc::UnboundedSender<String>,
}

impl AttemptControl {
    /// Stops the run, which can be resumed, because we cannot store something: the step has not failed.
    async fn halt<T>(&self, why: impl ToString) -> T {
        // Without a receiver the run has already stopped.
        self.halt_sender.send(why.to_string()).ok();
        std::future::pending().await
    }

    /// Stops the run if our own files cannot be written; an invalid request of the step is the step's own problem.
    async fn or_halt<T>(&self, written: io::Result<T>) -> Result<T, Problem> {
        match written {
            Ok(written) => Ok(written),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(Problem::new(Cause::InvalidRequest, error.to_string()))
            }
            Err(error) => self.halt(format!("files for a step: {error}")).await,
        }
    }
}

/// A notification about an attempt under way.
pub(super) enum AttemptEvent {
    Process(u32, u64),
    Session(Timestamp, Body),
}

/// The result of the work, before its contracts are checked.
struct WorkResult {
    output: Result<Vec<u8>, Problem>,
    usage: Usage,
    cost: Cost,
}

impl From<Problem> for WorkResult {
    fn from(problem: Problem) -> Self {
        Self {
            output: Err(problem),
            usage: Usage::default(),
            cost: Cost::default(),
        }
    }
}

/// The watchdog and the stop signal of an attempt.
struct AttemptContext {
    watchdog: Arc<Watchdog>,
    /// Cancelled to end the attempt.
    stop: CancellationToken,
    control: AttemptControl,
}

impl Job {
    pub(super) fn new(context: RunContext<'_>, step: &Step, is_resumed: bool) -> Option<Self> {
        let RunContext {
            id,
            run,
            pipeline,
            means: resources,
            spent: budget,
        } = context;
        let state = run.steps.get(&step.id)?;
        let visit = state.visit()?;
        let attempt = visit.attempts.last()?.clone();
        let same = |other: &&Attempt| other.session == attempt.session;
        let turns = visit.attempts.iter().filter(same).count();
        let before = visit.attempts.iter().rev().nth(1);
        let before = before.and_then(|attempt| attempt.problem.as_ref());
        let before = before.filter(|problem| is_result_failure(problem));
        let reworked = state
            .rework_of
            .as_ref()
            .and_then(|other| run.steps.get(other));
        let reworked = reworked.and_then(|other| other.attempt()?.problem.as_ref());
        let time = pipeline.runtime.budget.time;
        Some(Self {
            run: id.to_owned(),
            visit: visit.number,
            session_attempts: u64::try_from(turns).unwrap_or(u64::MAX),
            previous_problem: before.or(reworked).cloned(),
            inputs: artifacts::resolve_inputs(step, run),
            folder: PathBuf::from(&run.parameters.folder),
            deadline: time.map(|time| run.last_started + time),
            pipeline: Arc::clone(pipeline),
            step: step.clone(),
            attempt,
            is_resumed,
            resources,
            budget,
        })
    }

    /// Returns the working directory of the step.
    fn directory(&self) -> PathBuf {
        self.folder.join(&self.step.directory)
    }

    /// Returns the maximum number of attempts.
    fn max_attempts(&self) -> u32 {
        let retries = self.step.retry.policy.retries();
        retries.map_or(u32::MAX, |retries| retries.saturating_add(1))
    }

    /// Returns the folder of the attempt's temporary files.
    fn scratch(&self) -> PathBuf {
        let name = format!("{}-{}-{}", self.step.id, self.visit, self.attempt.number);
        self.resources.scratch.join(&self.run).join(name)
    }
}

/// Returns whether the next attempt must produce a different result.
const fn is_result_failure(problem: &Problem) -> bool {
    matches!(problem.class, Class::ContractFailure | Class::TestFailure)
}

/// Executes the attempt.
pub(super) async fn run(job: Job, control: AttemptControl) -> AttemptResult {
    let runtime = &job.pipeline.runtime;
    let guard = Watchdog::new(
        Arc::clone(&job.resources.clock),
        runtime.stall_timeout,
        job.step.timeout,
    );
    let watched = AttemptContext {
        watchdog: Arc::new(guard),
        stop: control.stop.child_token(),
        control,
    };
    let mut cut: Option<Problem> = None;
    let mut done = {
        let mut work = Box::pin(perform_and_check(&job, &watched));
        loop {
            tokio::select! {
                done = &mut work => break done,
                problem = watched.watchdog.expired(), if cut.is_none() => cut = Some(problem),
                problem = job.budget.exceeded(), if cut.is_none() => cut = Some(problem),
            }
            watched.stop.cancel();
        }
    };
    if done.output.is_err() {
        let by_person = || Problem::new(Cause::Interrupted, "it was cancelled");
        let was_stopped = watched.control.stop.is_cancelled();
        match cut {
            _ if was_stopped => done.output = Err(by_person()),
            Some(problem) => done.output = Err(problem),
            None => {}
        }
    }
    // Tokens are counted while they are used.
    job.budget.add(Usage::default(), done.cost);
    remove_scratch(job.scratch()).await;
    done
}

async fn perform_and_check(job: &Job, watched: &AttemptContext) -> AttemptResult {
    let mut inputs = BTreeMap::new();
    let worked = match prepare(job).await {
        Err(problem) => problem.into(),
        Ok(given) => {
            inputs = given;
            work(job, &inputs, watched).await
        }
    };
    let mut done = AttemptResult {
        output: Ok(StepOutput::default()),
        usage: worked.usage,
        cost: worked.cost,
        warnings: Vec::new(),
    };
    done.output = match worked.output {
        Ok(output) => check_and_store(job, output, &inputs, watched, &mut done).await,
        Err(problem) => Err(problem),
    };
    done
}

async fn work(
    job: &Job,
    inputs: &BTreeMap<String, Vec<u8>>,
    watched: &AttemptContext,
) -> WorkResult {
    match &job.step.work {
        Work::Prompt(prompt) => prompt::run(job, prompt, inputs, watched).await,
        Work::Command(line) => command::run(job, line, inputs, watched).await,
        Work::Agent(agent) => agent::run(job, agent, inputs, watched).await,
        Work::Gate(_) | Work::Loop(_) => {
            Problem::new(Cause::Internal, "it has nothing to do").into()
        }
    }
}

/// Ends leftovers of an earlier process, and reads the inputs of the step.
async fn prepare(job: &Job) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    if let Some(problem) = job.budget.exceeded_problem() {
        return Err(problem);
    }
    if job.is_resumed {
        orphans::kill_orphans(job.attempt.process, &command::marker_variables(job)).await;
    }
    let is_ours = matches!(job.step.work, Work::Prompt(_));
    if job.is_resumed && job.step.once && !is_ours {
        let why = "it was interrupted, and may be begun once only";
        return Err(Problem::new(Cause::Unknown, why));
    }
    let directory = job.directory();
    if !directory.is_dir() {
        let why = format!("there is no folder {}", directory.display());
        return Err(Problem::new(Cause::Misconfigured, why));
    }
    artifacts::read_inputs(&job.inputs, &job.resources.artifacts).await
}

/// Collects, checks and stores the outputs of the work.
async fn check_and_store(
    job: &Job,
    output: Vec<u8>,
    inputs: &BTreeMap<String, Vec<u8>>,
    watched: &AttemptContext,
    done: &mut AttemptResult,
) -> Result<StepOutput, Problem> {
    let is_suite = |contract: &Contract| matches!(contract.rule, Rule::TestSuite { .. });
    let env = match job.step.contracts.iter().any(is_suite) {
        true => {
            watched
                .control
                .or_halt(command::variables(job, inputs))
                .await?
        }
        false => Vec::new(),
    };
    let mut found = artifacts::collect(&job.step, &job.directory(), &job.folder).await?;
    let context = artifacts::context(&output);
    found.insert(OUTPUT.to_owned(), output);
    watched
        .watchdog
        .record(WatchEvent::Progress("its work is done".to_owned()));
    let judging = prompt::ModelJudge::new(job, watched);
    let scene = CheckContext {
        step: &job.step,
        artifacts: &found,
        directory: &job.directory(),
        env: &env,
        hidden_variables: job.resources.host.hidden_variables(),
        judge_client: &judging,
        stop: &watched.stop,
        on_output: &|bytes| {
            let sign = command::last_printed_line(bytes);
            watched.watchdog.record(WatchEvent::Progress(sign));
        },
        clock: &*job.resources.clock,
    };
    let checked = contract::check(&scene).await;
    let (usage, cost) = judging.usage_and_cost();
    (done.usage, done.cost) = (
        done.usage.plus(usage),
        Cost(done.cost.0.saturating_add(cost.0)),
    );
    done.warnings = checked?.warnings;
    let artifacts: BTreeMap<String, Artifact> =
        match artifacts::store(found, &job.resources.artifacts).await {
            Ok(artifacts) => artifacts,
            Err(why) => watched.control.halt(why).await,
        };
    Ok(StepOutput { artifacts, context })
}
