//! Pipeline runs, as the HTTP API shows and controls them.
//!
//! [`Runs`] reads and controls runs, [`StartRun`] starts them. Invariants: reading creates no files; a view is bounded,
//! and contains no terminal escapes. Not here: HTTP, and the status that an error maps to.

mod run_snapshot;
mod start;
mod view;

pub use outlast_pipeline::run_store::Error;
pub use start::{NewRun, StartError, StartRun};
pub use view::{
    AttemptOutcome, AttemptView, ChoiceView, KindView, OutcomeView, PhaseView, QuestionView,
    RunRequestView, RunRow, RunView, StateView, StepView, WaitView,
};

use outlast_pipeline::run_store::RunStore;
use run_snapshot::RunSnapshot;
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of runs in one list.
pub const MAX_RUNS: usize = 1000;

/// The runs that are stored in a folder.
#[derive(Debug)]
pub struct Runs {
    home: RunStore,
}

impl Runs {
    /// Returns the runs of that folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self {
            home: RunStore::new(folder),
        }
    }

    /// Lists runs, the most recently changed first: at most `limit`, and never more than [`MAX_RUNS`].
    pub async fn list(&self, limit: usize) -> Result<Vec<RunRow>, Error> {
        let all = self.home.all().await?;
        let mut rows = Vec::new();
        for run in all.into_iter().take(limit.min(MAX_RUNS)) {
            let state = self.home.status(&run).await?;
            rows.push(RunRow::new(run, state));
        }
        Ok(rows)
    }

    /// Returns the run with that id, or the only one whose id begins with it.
    pub async fn show(&self, id: &str) -> Result<RunView, Error> {
        // The status is read before the entries, so that everything that a process wrote before it exited is included.
        let summary = self.home.find(id).await?;
        let state = self.home.status(&summary).await?;
        let (run, entries) = self.home.read_without_waits(&summary.id).await?;
        let mut waits = BTreeMap::new();
        for (id, step) in &run.steps {
            if let Some(waiting) = self.home.current_wait(step).await? {
                waits.insert(id.clone(), waiting);
            }
        }
        let seen = RunSnapshot {
            summary,
            state,
            run,
            entries,
            waits,
        };
        // Off the async threads: the pipeline's file may be long.
        let shown = tokio::task::spawn_blocking(move || seen.view()).await;
        shown.map_err(|_| Error::from(outlast_store::Error::Closed))
    }

    /// Makes a waiting run retry at once: the given step, or all steps that wait.
    pub async fn retry_now(&self, id: &str, step: Option<&str>) -> Result<RunRequestView, Error> {
        Ok(self.home.retry_now(id, step).await?.into())
    }

    /// Cancels a run.
    pub async fn cancel(&self, id: &str) -> Result<RunRequestView, Error> {
        Ok(self.home.cancel(id).await?.into())
    }

    /// Answers a run's question: at the given step, or at the only one that asks; with the given choice, or the first
    /// one.
    pub async fn answer(
        &self,
        id: &str,
        step: Option<&str>,
        choice: Option<&str>,
    ) -> Result<RunRequestView, Error> {
        Ok(self.home.answer(id, step, choice).await?.into())
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
