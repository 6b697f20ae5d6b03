//! Where runs are written down, and which one is meant.

use crate::exit::Usage;
use crate::home;
use crate::run_command::files::{RUNS, STEPS};
use anyhow::Context;
use outlast_agent::pipeline::history::{self, Written};
use outlast_agent::pipeline::state::Run;
use outlast_store::journal::Summary;
use outlast_store::{Error, Journal};
use std::path::{Path, PathBuf};

/// What was written down of runs.
pub(super) struct Home {
    pub(super) folder: PathBuf,
    pub(super) runs: Journal,
    /// The sessions of their steps, if there are any.
    pub(super) steps: Option<Journal>,
}

impl Home {
    /// What there is; nothing where nothing was ever run.
    pub(super) fn open() -> anyhow::Result<Option<Self>> {
        let folder = home::path()?;
        let Some(runs) = existing(&folder.join(RUNS))? else {
            return Ok(None);
        };
        let steps = existing(&folder.join(STEPS))?;
        Ok(Some(Self {
            folder,
            runs,
            steps,
        }))
    }

    /// The run of that name, or whose name begins so.
    pub(super) async fn find(&self, name: &str) -> anyhow::Result<Summary> {
        // Every id begins with nothing: a variable that is not set would mean the only run that there is.
        if name.is_empty() {
            return Err(
                Usage("the name of a run is empty; `outlast runs` lists them".to_owned()).into(),
            );
        }
        self.runs.summary(name).await.map_err(said)
    }

    /// The same; or the newest one, when none is named.
    pub(super) async fn find_or_newest(&self, name: Option<&str>) -> anyhow::Result<Summary> {
        if let Some(name) = name {
            return self.find(name).await;
        }
        let newest = self.runs.sessions().await?.into_iter().next();
        Ok(newest.ok_or_else(|| Usage(super::NO_RUN.to_owned()))?)
    }

    /// A run and its entries.
    pub(super) async fn read(&self, id: &str) -> anyhow::Result<(Run, Vec<Written>)> {
        Ok(history::read(&self.runs, self.steps.as_ref(), id).await?)
    }
}

/// Opens a journal that is there. A damaged one is an error: what it holds is what was asked for.
fn existing(file: &Path) -> anyhow::Result<Option<Journal>> {
    let damaged = || {
        format!(
            "the runs in {} cannot be read; nothing was changed",
            file.display()
        )
    };
    Journal::open_existing(file).with_context(damaged)
}

/// What the journal says, in the words of runs.
pub(crate) fn said(error: Error) -> anyhow::Error {
    match error {
        Error::NoSuchSession { session } => Usage(format!(
            "there is no run {session}; `outlast runs` lists them"
        ))
        .into(),
        Error::Ambiguous { prefix, count } => {
            let problem = format!("{count} runs begin with `{prefix}`; give more of the name");
            Usage(problem).into()
        }
        Error::InUse { session } => {
            let problem =
                format!("run {session} is at work; `outlast runs cancel {session}` ends it");
            Usage(problem).into()
        }
        error => error.into(),
    }
}
