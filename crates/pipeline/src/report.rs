//! Reports a run as a document for other people: the steps, their outcomes, the failures and their handling.
//!
//! Pure: the same run at the same moment gives the same document. Invariants: text from outside cannot pass for a part
//! of the document; a document is bounded and states its omissions; it runs no code and loads nothing. Not here:
//! reading a run (see `history`).

mod failures;
mod markdown;
mod measure;
mod page;
mod summary;
mod timeline;

use super::run_view;
use super::state::{Run, StepState};
use outlast_kernel::Timestamp;
use summary::Summary;
use timeline::Timeline;

/// Returns the report of a run as Markdown.
pub fn markdown(run: &Run, id: &str, now: Timestamp) -> String {
    let whole = FullRun::new(run);
    markdown::document(&Summary::new(&whole, id, now), &Timeline::new(&whole, now))
}

/// Returns the report of a run as a self-contained HTML page.
pub fn html(run: &Run, id: &str, now: Timestamp) -> String {
    let whole = FullRun::new(run);
    page::document(&Summary::new(&whole, id, now), &Timeline::new(&whole, now))
}

/// A run with all steps of its pipeline, including those without entries.
struct FullRun {
    run: Run,
    /// The steps, in the order of the pipeline's file.
    order: Vec<String>,
}

impl FullRun {
    fn new(run: &Run) -> Self {
        let mut run = run.clone();
        // Without the pipeline the report has fewer facts, but no wrong ones.
        let steps = run_view::parse_pipeline(&run).map_or_else(Vec::new, |pipeline| pipeline.steps);
        let order: Vec<String> = steps.into_iter().map(|step| step.id).collect();
        for step in &order {
            run.steps.entry(step.clone()).or_default();
        }
        Self { run, order }
    }

    fn steps_by_start(&self) -> Vec<(&String, &StepState)> {
        run_view::steps_by_start(&self.run, &self.order)
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
