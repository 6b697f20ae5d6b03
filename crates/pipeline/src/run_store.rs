//! The folder in which runs are stored: finds a run by its name, reads it, and sends it requests.
//!
//! Invariants: reading creates no files; a folder without runs is empty, and a run that begins later is found. A
//! damaged file is an error that names it, and is left as it is. A request that has no meaning for its run is refused
//! before it is posted. Not here: executing runs (see `runner`).

pub mod mailbox;
mod run_requests;

pub use run_requests::RunRequestReceipt;

use super::history::{self, RecordedEntry};
use super::run_view::{self, RunRow, RunSnapshot, RunStatus, RunView, RunWait};
use super::state::{Phase, Run, StepState};
use outlast_kernel::text;
use outlast_store::Journal;
use outlast_store::journal::Summary;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// File name of the runs, one journal each.
pub const RUNS: &str = "runs.db";
/// File name of the sessions of their steps.
pub const STEPS: &str = "steps.db";
/// Folder name of the artifacts of steps.
pub const ARTIFACTS: &str = "artifacts";
/// Folder name of the requests to runs.
pub const MAIL: &str = "mail";
/// Folder name of the files of attempts under way.
pub const SCRATCH: &str = "scratch";

/// Maximum number of runs in one list.
pub const MAX_LISTED_RUNS: usize = 1000;
/// Maximum bytes of a given name to repeat in a message.
const MAX_NAME_BYTES: usize = 64;

/// The error of an operation on stored runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the run is empty.
    #[error("the name of a run is empty")]
    EmptyName,
    /// The run does not exist.
    #[error("there is no run {run}")]
    NotFound {
        /// The given name.
        run: String,
    },
    /// The prefix matches more than one run.
    #[error("{count} runs begin with `{prefix}`; give more of the name")]
    Ambiguous {
        /// The given prefix.
        prefix: String,
        /// The number of matching runs.
        count: u64,
    },
    /// The run is over and accepts no requests.
    #[error("run {run} is over")]
    RunEnded {
        /// The run.
        run: String,
    },
    /// The step is neither working nor waiting.
    #[error("step {step} is not under way")]
    StepNotActive {
        /// The run.
        run: String,
        /// The step.
        step: String,
    },
    /// No gate asks a question.
    #[error("{} asks nothing", match step { Some(step) => format!("step {step}"), None => "the run".to_owned() })]
    NoOpenQuestion {
        /// The step; `None` if the caller named none.
        step: Option<String>,
    },
    /// Several gates ask a question, and the caller named none.
    #[error("several steps ask; name one of: {}", steps.join(", "))]
    AmbiguousQuestion {
        /// The steps whose gates are open.
        steps: Vec<String>,
    },
    /// The answer is not one of the choices.
    #[error("`{choice}` is no answer to {step}; there are: {}", printable(&choices.join(", "), MAX_CHOICES_BYTES))]
    UnknownChoice {
        /// The step.
        step: String,
        /// The given answer.
        choice: String,
        /// The choices: each a key and, after a colon, its meaning.
        choices: Vec<String>,
    },
    /// The request could not be posted.
    #[error(transparent)]
    Request(#[from] mailbox::Error),
    /// A file of runs cannot be read.
    #[error("the runs in {path} cannot be read; nothing was changed: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: outlast_store::Error,
    },
    /// A run cannot be read.
    #[error(transparent)]
    History(#[from] history::Error),
}

impl From<outlast_store::Error> for Error {
    fn from(error: outlast_store::Error) -> Self {
        use outlast_store::Error as Store;
        match error {
            Store::NoSuchSession(run) => Self::NotFound {
                run: printable(&run, MAX_NAME_BYTES),
            },
            Store::Ambiguous { prefix, count } => Self::Ambiguous {
                prefix: printable(&prefix, MAX_NAME_BYTES),
                count,
            },
            error => Self::History(error.into()),
        }
    }
}

/// Maximum bytes of the choices in a message.
const MAX_CHOICES_BYTES: usize = 400;

/// Shortens the text to the given number of bytes, on one line.
fn printable(words: &str, most: usize) -> String {
    let words = text::bounded(words, most);
    let plain = text::plain(&words);
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ")
}

/// The stored runs of a folder.
#[derive(Debug)]
pub struct RunStore {
    folder: PathBuf,
    runs: Mutex<Option<Journal>>,
    steps: Mutex<Option<Journal>>,
}

impl RunStore {
    /// Opens the store of a folder; its files may appear later.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            runs: Mutex::default(),
            steps: Mutex::default(),
        }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the journal of the runs, or `None` if nothing was ever run.
    pub async fn runs(&self) -> Result<Option<Journal>, Error> {
        open_current(&self.runs, self.folder.join(RUNS)).await
    }

    /// Returns the journal of the sessions of steps, if there is one.
    pub async fn steps(&self) -> Result<Option<Journal>, Error> {
        open_current(&self.steps, self.folder.join(STEPS)).await
    }

    /// Returns all runs, the most recently changed first.
    pub async fn all(&self) -> Result<Vec<Summary>, Error> {
        match self.runs().await? {
            Some(runs) => Ok(runs.sessions().await?),
            None => Ok(Vec::new()),
        }
    }

    /// Finds the run of the given name, or the only run whose id begins with it.
    pub async fn find(&self, name: &str) -> Result<Summary, Error> {
        // Every id begins with the empty string: an unset variable would select the only run.
        if name.is_empty() {
            return Err(Error::EmptyName);
        }
        Ok(self.journal(name).await?.summary(name).await?)
    }

    /// Returns the status of a run.
    pub async fn status(&self, run: &Summary) -> Result<RunStatus, Error> {
        let runs = self.journal(&run.id).await?;
        Ok(run_view::run_status(&runs, run).await?)
    }

    /// Lists runs, the most recently changed first: at most `limit`, and never more than [`MAX_LISTED_RUNS`].
    pub async fn list(&self, limit: usize) -> Result<Vec<RunRow>, Error> {
        let mut rows = Vec::new();
        for run in self
            .all()
            .await?
            .into_iter()
            .take(limit.min(MAX_LISTED_RUNS))
        {
            let state = self.status(&run).await?;
            rows.push(RunRow::new(run, state));
        }
        Ok(rows)
    }

    /// Returns what is recorded of the run with that id, or of the only one whose id begins with it.
    pub async fn snapshot(&self, name: &str) -> Result<RunSnapshot, Error> {
        // The status is read before the entries, so that everything that a process wrote before it exited is included.
        let summary = self.find(name).await?;
        let state = self.status(&summary).await?;
        let (run, entries) = self.read_without_waits(&summary.id).await?;
        let mut waits = BTreeMap::new();
        for (id, step) in &run.steps {
            if let Some(wait) = self.current_wait(step).await? {
                waits.insert(id.clone(), wait);
            }
        }
        Ok(RunSnapshot {
            summary,
            state,
            run,
            entries,
            waits,
        })
    }

    /// Returns the view of the run with that id, or of the only one whose id begins with it.
    pub async fn view(&self, name: &str) -> Result<RunView, Error> {
        let snapshot = self.snapshot(name).await?;
        // Off the async threads: the pipeline's file may be long.
        let view = tokio::task::spawn_blocking(move || snapshot.view()).await;
        view.map_err(|_| Error::from(outlast_store::Error::Closed))
    }

    /// Reads a run and its entries, without the waits of its steps' sessions.
    pub async fn read_without_waits(&self, id: &str) -> Result<(Run, Vec<RecordedEntry>), Error> {
        let runs = self.journal(id).await?;
        Ok(history::read(&runs, None, id).await?)
    }

    /// Reads a run and its entries.
    pub async fn read(&self, id: &str) -> Result<(Run, Vec<RecordedEntry>), Error> {
        let (runs, steps) = (self.journal(id).await?, self.steps().await?);
        Ok(history::read(&runs, steps.as_ref(), id).await?)
    }

    /// Reads the entries of a run after the given sequence number.
    pub async fn read_after(&self, id: &str, after: u64) -> Result<Vec<RecordedEntry>, Error> {
        let runs = self.journal(id).await?;
        Ok(history::read_after(&runs, id, after).await?)
    }

    /// Returns the current wait of the session of a working step.
    pub async fn current_wait(&self, step: &StepState) -> Result<Option<RunWait>, Error> {
        let session = step.attempt().and_then(|attempt| attempt.session.as_ref());
        let Some(session) = session.filter(|_| step.phase == Phase::Working) else {
            return Ok(None);
        };
        match self.steps().await? {
            Some(steps) => Ok(history::current_wait(&steps, session).await?),
            None => Ok(None),
        }
    }

    /// Returns the journal that must contain the given run.
    async fn journal(&self, run: &str) -> Result<Journal, Error> {
        let run = || printable(run, MAX_NAME_BYTES);
        let runs = self.runs().await?;
        runs.ok_or_else(|| Error::NotFound { run: run() })
    }
}

/// Returns the open journal, or opens the one at the path if another file has replaced it.
async fn open_current(
    open: &Mutex<Option<Journal>>,
    path: PathBuf,
) -> Result<Option<Journal>, Error> {
    let known = open.lock().clone();
    if let Some(known) = known.filter(Journal::is_in_place) {
        return Ok(Some(known));
    }
    let place = path.clone();
    let found = tokio::task::spawn_blocking(move || Journal::open_existing(&place)).await;
    let found = found.unwrap_or(Err(outlast_store::Error::Closed));
    let found = found.map_err(|error| Error::Unreadable { path, error })?;
    open.lock().clone_from(&found);
    Ok(found)
}

#[cfg(test)]
#[path = "run_store_tests.rs"]
mod tests;
