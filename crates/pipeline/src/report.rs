//! A run as a document that can be handed to a colleague: what ran, how it ended, what failed and what was done about it.
//!
//! Pure: the same run at the same moment gives the same document. Invariants: nothing that came from outside can pass for
//! a part of the document; a document is bounded, and what is left out is said; nothing in it runs or is fetched.
//! Not here: reading a run (see `history`).

mod axis;
mod drawing;
mod failures;
mod markdown;
mod measure;
mod page;
mod summary;
mod timeline;

use super::state::Run;
use super::status;
use outlast_kernel::Timestamp;
use summary::Summary;

/// The run of that id, as Markdown, with its timeline as a picture inside.
pub fn markdown(run: &Run, id: &str, now: Timestamp) -> String {
    let whole = FullRun::of(run);
    let picture = timeline::draw(&whole, id, now).finish();
    markdown::document(&Summary::of(&whole, id, now), &picture)
}

/// The same as one page for a browser, complete in itself.
pub fn html(run: &Run, id: &str, now: Timestamp) -> String {
    let whole = FullRun::of(run);
    let picture = timeline::draw(&whole, id, now);
    page::document(&Summary::of(&whole, id, now), picture)
}

/// When its steps worked and waited, and how that ended, as a picture.
pub fn timeline_svg(run: &Run, id: &str, now: Timestamp) -> String {
    timeline::draw(&FullRun::of(run), id, now).finish()
}

/// A run with those of its steps of which nothing was heard.
struct FullRun {
    run: Run,
    /// The steps, in the order of the pipeline's file.
    order: Vec<String>,
}

impl FullRun {
    fn of(run: &Run) -> Self {
        let mut run = run.clone();
        // Without it there is less to tell, and nothing wrong.
        let steps = status::pipeline(&run).map_or_else(Vec::new, |pipeline| pipeline.steps);
        let order: Vec<String> = steps.into_iter().map(|step| step.id).collect();
        for step in &order {
            run.steps.entry(step.clone()).or_default();
        }
        Self { run, order }
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
