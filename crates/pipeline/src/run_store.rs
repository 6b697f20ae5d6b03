//! The folder in which runs are kept, for whoever looks at them: which run is meant, and what it is told.
//!
//! Invariants: looking makes nothing: where nothing was ever run there are no files, and a run that begins later is found.
//! A damaged file is an error that names it, and is left as it is. What cannot mean anything to a run is refused before
//! a letter is posted. Not here: carrying runs out (see `runner`).

pub mod mailbox;
mod run_requests;

pub use run_requests::RequestReceipt;

use super::history::{self, CurrentWait, RecordedEntry};
use super::state::{Phase, Run, StepState};
use super::status::{self, RunStatus};
use outlast_kernel::text;
use outlast_store::Journal;
use outlast_store::journal::Summary;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Runs, one journal each.
pub const RUNS: &str = "runs.db";
/// The sessions of their steps.
pub const STEPS: &str = "steps.db";
/// What steps have made.
pub const ARTIFACTS: &str = "artifacts";
/// Letters to runs.
pub const MAIL: &str = "mail";
/// Files of attempts under way.
pub const SCRATCH: &str = "scratch";

/// The most that is repeated of a name that was given, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// What was wanted of runs and could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No run is named.
    #[error("the name of a run is empty")]
    NoName,
    /// There is no such run.
    #[error("there is no run {run}")]
    NotFound {
        /// What was given.
        run: String,
    },
    /// More than one run is meant.
    #[error("{count} runs begin with `{prefix}`; give more of the name")]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// How many it fits.
        count: u64,
    },
    /// Nothing can be told to a run that is over.
    #[error("run {run} is over")]
    Over {
        /// The run.
        run: String,
    },
    /// Nothing is done about that step just now.
    #[error("step {step} is not under way")]
    NotUnderWay {
        /// The run.
        run: String,
        /// The step.
        step: String,
    },
    /// Nobody asks.
    #[error("{} asks nothing", match step { Some(step) => format!("step {step}"), None => "the run".to_owned() })]
    NothingAsked {
        /// The step; nothing when none was named.
        step: Option<String>,
    },
    /// It is not said which of them is answered.
    #[error("several steps ask; name one of: {}", steps.join(", "))]
    SeveralAsk {
        /// The steps that ask.
        steps: Vec<String>,
    },
    /// That is no answer.
    #[error("`{choice}` is no answer to {step}; there are: {}", shown(&choices.join(", "), MAX_CHOICES_BYTES))]
    UnknownChoice {
        /// The step.
        step: String,
        /// What was answered.
        choice: String,
        /// What can be: each a key, and after a colon what it means.
        choices: Vec<String>,
    },
    /// The run cannot be told.
    #[error(transparent)]
    Letter(#[from] mailbox::Error),
    /// A file of runs cannot be read.
    #[error("the runs in {path} cannot be read; nothing was changed: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
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
            Store::NoSuchSession { session: run } => Self::NotFound {
                run: shown(&run, MAX_NAME_BYTES),
            },
            Store::Ambiguous { prefix, count } => Self::Ambiguous {
                prefix: shown(&prefix, MAX_NAME_BYTES),
                count,
            },
            error => Self::History(error.into()),
        }
    }
}

/// The most that is said of what can be answered, in bytes.
const MAX_CHOICES_BYTES: usize = 400;

/// What was given or written, on one line and not too long.
fn shown(words: &str, most: usize) -> String {
    let words = text::bounded(words, most);
    let plain = text::plain(&words);
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ")
}

/// What is written down of runs.
#[derive(Debug)]
pub struct RunStore {
    folder: PathBuf,
    runs: Mutex<Option<Journal>>,
    steps: Mutex<Option<Journal>>,
}

impl RunStore {
    /// What is in that folder, now or later.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            runs: Mutex::default(),
            steps: Mutex::default(),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The runs; nothing where nothing was ever run.
    pub async fn runs(&self) -> Result<Option<Journal>, Error> {
        opened(&self.runs, self.folder.join(RUNS)).await
    }

    /// The sessions of their steps, if there are any.
    pub async fn steps(&self) -> Result<Option<Journal>, Error> {
        opened(&self.steps, self.folder.join(STEPS)).await
    }

    /// All runs, those in which something happened last first.
    pub async fn all(&self) -> Result<Vec<Summary>, Error> {
        match self.runs().await? {
            Some(runs) => Ok(runs.sessions().await?),
            None => Ok(Vec::new()),
        }
    }

    /// The run of that name, or the only one whose name begins so.
    pub async fn find(&self, name: &str) -> Result<Summary, Error> {
        // Every id begins with nothing: a variable that is not set would mean the only run that there is.
        if name.is_empty() {
            return Err(Error::NoName);
        }
        Ok(self.journal(name).await?.summary(name).await?)
    }

    /// How a run stands.
    pub async fn standing(&self, run: &Summary) -> Result<RunStatus, Error> {
        let runs = self.journal(&run.id).await?;
        Ok(status::standing(&runs, run).await?)
    }

    /// A run and its entries, without what the sessions of its steps have waited for.
    pub async fn read_without_waits(&self, id: &str) -> Result<(Run, Vec<RecordedEntry>), Error> {
        let runs = self.journal(id).await?;
        Ok(history::read(&runs, None, id).await?)
    }

    /// A run and its entries.
    pub async fn read(&self, id: &str) -> Result<(Run, Vec<RecordedEntry>), Error> {
        let (runs, steps) = (self.journal(id).await?, self.steps().await?);
        Ok(history::read(&runs, steps.as_ref(), id).await?)
    }

    /// The entries of a run that come after the one of that number.
    pub async fn read_after(&self, id: &str, after: u64) -> Result<Vec<RecordedEntry>, Error> {
        let runs = self.journal(id).await?;
        Ok(history::read_after(&runs, id, after).await?)
    }

    /// What the session of a step that is at work waits for.
    pub async fn waiting(&self, step: &StepState) -> Result<Option<CurrentWait>, Error> {
        let session = step.attempt().and_then(|attempt| attempt.session.as_ref());
        let Some(session) = session.filter(|_| step.phase == Phase::Working) else {
            return Ok(None);
        };
        match self.steps().await? {
            Some(steps) => Ok(history::waiting(&steps, session).await?),
            None => Ok(None),
        }
    }

    /// The file in which that run must be.
    async fn journal(&self, run: &str) -> Result<Journal, Error> {
        let run = || shown(run, MAX_NAME_BYTES);
        let runs = self.runs().await?;
        runs.ok_or_else(|| Error::NotFound { run: run() })
    }
}

/// A journal that is open, unless another file has taken the place of its own; else the one that is there.
async fn opened(open: &Mutex<Option<Journal>>, path: PathBuf) -> Result<Option<Journal>, Error> {
    let known = open.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(known) = known.filter(Journal::is_in_place) {
        return Ok(Some(known));
    }
    let place = path.clone();
    let found = tokio::task::spawn_blocking(move || Journal::open_existing(&place)).await;
    let found = found.unwrap_or(Err(outlast_store::Error::Gone));
    let found = found.map_err(|error| Error::Unreadable { path, error })?;
    open.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone_from(&found);
    Ok(found)
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
