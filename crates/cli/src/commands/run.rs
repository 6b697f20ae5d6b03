//! `outlast run`: runs a pipeline from its file, or resumes a run that was interrupted.
//!
//! Invariant: stdout carries the output of the last steps (or, with `--json`, the events) and nothing else. Errors in the
//! file are reported before anything is started.

mod watch;

use crate::args::RunArguments;
use crate::commands::runs::explain_error;
use crate::config;
use crate::factory::options::Options;
use crate::factory::run_host::RunHost;
use crate::factory::shared_state;
use crate::output::diagnostics::print_status;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals;
use crate::print_diagnostic;
use outlast_engine::Clock;
use outlast_kernel::policy::Policy;
use outlast_pipeline::definition::Pipeline;
use outlast_pipeline::entry::{Outcome, RunParameters};
use outlast_pipeline::host::{Host, RunResources};
use outlast_pipeline::run_store::mailbox::Mailbox;
use outlast_pipeline::run_store::{ARTIFACTS, MAIL, RUNS, SCRATCH, STEPS};
use outlast_pipeline::runner::Runner;
use outlast_pipeline::{file, history, inputs, plan};
use outlast_store::Journal;
use outlast_store::artifacts::Artifacts;
use outlast_store::journal::{Availability, SessionLock};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use watch::OutputMode;

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<Exit> {
    if arguments.schema {
        std::io::stdout().write_all(file::SCHEMA.as_bytes())?;
        return Ok(Exit::Success);
    }
    if arguments.detached {
        detach_from_terminal();
    }
    if let Some(name) = &arguments.resume {
        return execute(arguments, |files, host| Box::pin(resume(name, files, host)));
    }
    let path = arguments.file.as_deref().unwrap_or(Path::new("-"));
    let source = read_pipeline(path)?;
    let pipeline = match file::read(&source, path) {
        Ok(pipeline) => pipeline,
        Err(faults) => {
            print_diagnostic(&faults.to_string());
            return Ok(Exit::Usage);
        }
    };
    if arguments.check || arguments.plan {
        let says = match arguments.plan {
            true => plan::plan(&pipeline),
            false => format!(
                "{}: {} steps, nothing wrong\n",
                path.display(),
                pipeline.steps.len()
            ),
        };
        std::io::stdout().write_all(says.as_bytes())?;
        return Ok(Exit::Success);
    }
    let begun = RunParameters {
        name: pipeline.name.clone(),
        file: path
            .canonicalize()
            .unwrap_or(path.to_owned())
            .to_string_lossy()
            .into_owned(),
        folder: folder(arguments)?.to_string_lossy().into_owned(),
        source,
        inputs: run_inputs(&pipeline, &arguments.inputs)?,
        options: serde_json::to_value(typed_options(arguments))?,
    };
    execute(arguments, |files, host| {
        Box::pin(begin(pipeline, begun, files, host))
    })
}

/// Detaches from the terminal: the process that started us may end, and the terminal with it.
fn detach_from_terminal() {
    // `setsid` fails if the process leads its group; then it has its own session already.
    #[cfg(unix)]
    nix::unistd::setsid().ok();
}

/// Lists the unfinished runs, each with the command that resumes it: runs execute commands, so nothing else resumes them.
pub(crate) fn report_unfinished() -> anyhow::Result<()> {
    let Some(runs) = Journal::open_existing(&home::path()?.join(RUNS))? else {
        return Ok(());
    };
    let unfinished = runtime::run(async { Ok(runs.unfinished().await?) })?;
    let left = unfinished
        .iter()
        .filter(|run| run.availability != Availability::InUse);
    for run in left {
        let id = &run.id;
        print_status(&format!(
            "The run {id} is not finished: `outlast run --resume {id}` carries it on."
        ));
    }
    Ok(())
}

/// The clock, the typed options and the home folder for a run.
struct RunContext {
    clock: Arc<dyn Clock>,
    typed: Options,
    home: PathBuf,
}

type BeginFuture<'a> = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<Option<Runner>>> + 'a>>;

fn execute<'a>(
    arguments: &'a RunArguments,
    begin: impl FnOnce(Files, RunContext) -> BeginFuture<'a>,
) -> anyhow::Result<Exit> {
    let policy = arguments.flags.policy.as_deref().map(Policy::named);
    policy
        .transpose()
        .map_err(|error| UsageError(error.to_string()))?;
    let door = RunContext {
        clock: Arc::new(clock::clock()?),
        typed: typed_options(arguments),
        home: home::prepare()?,
    };
    let files = Files::open(&door.home)?;
    let clock = Arc::clone(&door.clock);
    let telling = match (arguments.detached, arguments.json) {
        (true, _) => OutputMode::Id,
        (false, true) => OutputMode::Json,
        (false, false) => OutputMode::Human,
    };
    runtime::run(async {
        let signals = signals::signals();
        let Some(runner) = begin(files, door).await? else {
            return Ok(Exit::Success);
        };
        Box::pin(watch::watch(runner, telling, clock, signals)).await
    })
}

fn typed_options(arguments: &RunArguments) -> Options {
    let mut options = Options::from_settings([]);
    for (path, value) in arguments.flags.overrides() {
        options = options.overridden_by(&Options::from_settings([(path, Some(value))]));
    }
    if let Some(allow) = &arguments.allow {
        options.allow(allow);
    }
    options.base_url.clone_from(&arguments.base_url);
    options
}

/// Reads the text of a pipeline file.
pub(crate) fn read_pipeline(path: &Path) -> anyhow::Result<String> {
    use std::io::Read;
    let failed = |error| {
        UsageError(format!(
            "cannot read the pipeline {}: {error}",
            path.display()
        ))
    };
    let opened = std::fs::File::open(path).map_err(failed)?;
    let mut source = String::new();
    // The parser rejects a longer text.
    let most = file::MAX_FILE_BYTES as u64 + 1;
    opened
        .take(most)
        .read_to_string(&mut source)
        .map_err(failed)?;
    Ok(source)
}

fn folder(arguments: &RunArguments) -> anyhow::Result<PathBuf> {
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    let found = folder.canonicalize();
    found.map_err(|error| {
        UsageError(format!("there is no folder {}: {error}", folder.display())).into()
    })
}

/// Returns the inputs of the run: the typed ones, else the defaults of the pipeline.
fn run_inputs(
    pipeline: &Pipeline,
    typed: &[String],
) -> Result<BTreeMap<String, String>, UsageError> {
    let mut said = BTreeMap::new();
    for pair in typed {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(UsageError(format!("--input {pair}: expected NAME=VALUE")));
        };
        said.insert(name.to_owned(), value.to_owned());
    }
    inputs::resolve(pipeline, said).map_err(|error| match error {
        inputs::Error::Missing { name } => {
            UsageError(format!("the pipeline needs --input {name}=…"))
        }
        error => UsageError(error.to_string()),
    })
}

async fn begin(
    pipeline: Pipeline,
    begun: RunParameters,
    files: Files,
    door: RunContext,
) -> anyhow::Result<Option<Runner>> {
    let folder = PathBuf::from(&begun.folder);
    let pipeline = door.with_policy(pipeline)?;
    let means = door.means(files, folder, &pipeline).await?;
    Ok(Some(Runner::begin(means, pipeline, begun).await?))
}

/// Claims the named run, or an interrupted one; `None` if there is none. Retries for a second if it seems to be in use: a
/// command that was being started when its process was killed keeps that process's lock until it has become another
/// program.
async fn claim_run(name: &str, runs: &Journal) -> anyhow::Result<Option<SessionLock>> {
    const PAUSE: Duration = Duration::from_millis(50);
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        let left = match name {
            "" => runs.unfinished().await?,
            name => vec![
                runs.summary(name)
                    .await
                    .map_err(|error| explain_error(error.into()))?,
            ],
        };
        if left.is_empty() {
            return Ok(None);
        }
        for run in left {
            match runs.claim(&run.id).await {
                Err(outlast_store::Error::InUse { .. }) => {}
                claimed => return Ok(Some(claimed?)),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    match name {
        "" => Ok(None),
        name => Err(UsageError(format!(
            "run {name} is carried out by another process; `outlast runs show --watch` follows it"
        ))
        .into()),
    }
}

async fn resume(name: &str, files: Files, mut door: RunContext) -> anyhow::Result<Option<Runner>> {
    let Some(hold) = claim_run(name, &files.runs).await? else {
        print_status(
            "There is no run that was interrupted; `outlast runs` lists all, and `outlast run --resume RUN` tries again what failed.",
        );
        return Ok(None);
    };
    let id = hold.session().to_owned();
    let (run, entries) = history::read(&files.runs, None, &id).await?;
    if entries.is_empty() {
        files.runs.release_or_remove(hold).await?;
        return Err(UsageError(format!(
            "nothing had happened in run {id} yet; begin it anew"
        ))
        .into());
    }
    if run
        .ended
        .as_ref()
        .is_some_and(|ended| ended.outcome == Outcome::Completed)
    {
        files.runs.release(hold).await?;
        print_status(&format!("The run {id} has completed."));
        return Ok(None);
    }
    let folder = PathBuf::from(&run.parameters.folder);
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(UsageError(format!("its folder {folder} is gone; make it again")).into());
    }
    let earlier: Options =
        serde_json::from_value(run.parameters.options.clone()).unwrap_or_default();
    door.typed = earlier.overridden_by(&door.typed);
    let pipeline = file::read(&run.parameters.source, Path::new(&run.parameters.file));
    let pipeline = pipeline.map_err(|faults| {
        UsageError(format!(
            "the pipeline of the run cannot be read any more:\n{faults}"
        ))
    })?;
    let pipeline = door.with_policy(pipeline)?;
    let means = door.means(files, folder, &pipeline).await?;
    let count = entries.last().map_or(0, |(seq, ..)| *seq);
    Ok(Some(Runner::resume(means, pipeline, hold, run, count)))
}

impl RunContext {
    /// Sets the typed policy for steps that have no `retry`.
    fn with_policy(&self, mut pipeline: Pipeline) -> Result<Pipeline, UsageError> {
        let Some(name) = self.typed.get("retry.policy") else {
            return Ok(pipeline);
        };
        let policy = Policy::named(name).map_err(|error| UsageError(error.to_string()))?;
        for step in pipeline
            .steps
            .iter_mut()
            .filter(|step| !step.retry.is_explicit)
        {
            step.retry.policy = policy.clone();
        }
        Ok(pipeline)
    }

    async fn means(
        self,
        files: Files,
        folder: PathBuf,
        pipeline: &Pipeline,
    ) -> anyhow::Result<RunResources> {
        // Errors in the settings are reported before anything is started.
        let settings = config::load_in(Some(&folder), &self.typed.overrides())?;
        let host = RunHost {
            shared_state: shared_state::open(Some(self.home.clone()), &self.clock).await,
            clock: Arc::clone(&self.clock),
            typed: self.typed,
            hidden_variables: settings.key_variables,
            settings_cache: Mutex::default(),
            folder,
        };
        host.check(pipeline)?;
        Ok(files.means(Arc::new(host), self.clock))
    }
}

/// The files of pipeline runs in our folder.
struct Files {
    runs: Journal,
    sessions: Journal,
    artifacts: Artifacts,
    mailbox: Mailbox,
    scratch: PathBuf,
}

impl Files {
    fn open(home: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            runs: journal(home, RUNS)?,
            sessions: journal(home, STEPS)?,
            artifacts: Artifacts::open(&home.join(ARTIFACTS))?,
            mailbox: Mailbox::new(&home.join(MAIL)),
            scratch: home.join(SCRATCH),
        })
    }

    fn means(self, host: Arc<dyn Host>, clock: Arc<dyn Clock>) -> RunResources {
        RunResources {
            runs: self.runs,
            sessions: self.sessions,
            artifacts: Arc::new(self.artifacts),
            mailbox: Arc::new(self.mailbox),
            scratch: self.scratch,
            host,
            clock,
        }
    }
}

fn journal(home: &Path, name: &str) -> anyhow::Result<Journal> {
    let opened = Journal::open(&home.join(name))?;
    if let Some(aside) = opened.replaced {
        print_diagnostic(&format!(
            "warning: {name} is damaged; it is kept as {}, and a new file is begun",
            aside.display()
        ));
    }
    Ok(opened.journal)
}
