//! Runs of pipelines, as whoever asks over the network is told of them.
//!
//! [`Runs`] is what is asked, [`StartRun`] who begins a run. Invariants: looking makes no files; what is told is bounded, and
//! has nothing in it that a terminal would obey. Not here: HTTP, and what of an error becomes which status.

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

/// The most runs that are told of at once.
pub const MAX_RUNS: usize = 1000;

/// The runs that are kept in a folder.
#[derive(Debug)]
pub struct Runs {
    home: RunStore,
}

impl Runs {
    /// Those in that folder, now or later.
    pub fn new(folder: &Path) -> Self {
        Self {
            home: RunStore::new(folder),
        }
    }

    /// Runs, those in which something happened last first; so many at most, and never more than [`MAX_RUNS`].
    pub async fn list(&self, limit: usize) -> Result<Vec<RunRow>, Error> {
        let all = self.home.all().await?;
        let mut rows = Vec::new();
        for run in all.into_iter().take(limit.min(MAX_RUNS)) {
            let state = self.home.standing(&run).await?;
            rows.push(RunRow::new(run, state));
        }
        Ok(rows)
    }

    /// The run of that id, or the only one whose id begins so.
    pub async fn show(&self, id: &str) -> Result<RunView, Error> {
        // In this order: what a process has written before it left is then read.
        let summary = self.home.find(id).await?;
        let state = self.home.standing(&summary).await?;
        let (run, entries) = self.home.read_without_waits(&summary.id).await?;
        let mut waits = BTreeMap::new();
        for (id, step) in &run.steps {
            if let Some(waiting) = self.home.waiting(step).await? {
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
        // The pipeline's file may be long.
        let shown = tokio::task::spawn_blocking(move || seen.view()).await;
        shown.map_err(|_| Error::from(outlast_store::Error::Gone))
    }

    /// Has a run try again at once what it waits to try again: that step, or all that wait.
    pub async fn retry_now(&self, id: &str, step: Option<&str>) -> Result<RunRequestView, Error> {
        Ok(self.home.retry_now(id, step).await?.into())
    }

    /// Ends a run.
    pub async fn cancel(&self, id: &str) -> Result<RunRequestView, Error> {
        Ok(self.home.cancel(id).await?.into())
    }

    /// Answers what a run asks: at that step, or at the only one that asks; with that choice, or the first one.
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
