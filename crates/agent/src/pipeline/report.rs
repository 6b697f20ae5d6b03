//! A run as a document that can be handed to a colleague: what ran, how it ended, what failed and what was done about it.
//!
//! Pure: the same run at the same moment gives the same document. Invariants: nothing that came from outside can pass for
//! a part of the document; a document is bounded, and what is left out is said; nothing in it runs or is fetched.
//! Not here: reading a run (see `history`).

mod account;
mod axis;
mod drawing;
mod measure;
mod page;
mod text;
mod timeline;
mod trouble;

use super::state::Run;
use account::Account;
use outlast_kernel::Timestamp;

/// The run of that id, as Markdown, with its timeline as a picture inside.
pub fn markdown(run: &Run, id: &str, now: Timestamp) -> String {
    text::document(&Account::of(run, id, now), &timeline_svg(run, id, now))
}

/// The same as one page for a browser, complete in itself.
pub fn html(run: &Run, id: &str, now: Timestamp) -> String {
    page::document(&Account::of(run, id, now), timeline::draw(run, id, now))
}

/// When its steps worked and waited, and how that ended, as a picture.
pub fn timeline_svg(run: &Run, id: &str, now: Timestamp) -> String {
    timeline::draw(run, id, now).finish()
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
