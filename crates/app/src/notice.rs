//! What is said on stderr beside answers, and what of it stays when little is to be said (`--quiet`).
//!
//! What explains an exit code other than 0 stays, and so do warnings (something is not as it should be: not written down,
//! ignored, damaged) and questions. What tells how it goes, or that it went well, does not.

use outlast_kernel::text;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the lines begin with that tell of a session or a run as it goes on: a wait, a step, a tool, another model.
/// Failures (`✗`), what was cancelled (`■`), what was gone on without (`!`) and questions (`?`) are none of them.
const NEWS: [char; 9] = ['⚠', '●', '○', '▶', '✓', '↻', '→', '…', '–'];

/// Whether a line is drawn on the terminal that others take the place of.
static IS_DRAWN: Mutex<bool> = Mutex::new(false);

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// From here on only what matters is said.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Whether a line about a session or a run only tells how it goes.
pub(crate) fn is_news(line: &str) -> bool {
    line.trim_start().starts_with(NEWS)
}

/// Writes a line to stderr that matters: an error, a warning. When even that fails there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    clear_line();
    writeln!(std::io::stderr(), "{}", text::plain(line)).ok();
}

/// Writes a line to stderr that tells how it goes, unless little is to be said.
pub(crate) fn notice(line: &str) {
    if !is_quiet() {
        complain(line);
    }
}

/// Draws a line on the terminal, in place of the one that is drawn.
pub(crate) fn draw_line(line: &str) {
    let mut is_drawn = IS_DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr();
    let drawn = write!(stderr, "\r\u{1b}[2K{}", text::plain(line));
    drawn.and_then(|()| stderr.flush()).ok();
    *is_drawn = true;
}

/// Takes the line back, for others who write to the terminal.
pub(crate) fn clear_line() {
    let mut is_drawn = IS_DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_drawn) {
        let mut stderr = std::io::stderr();
        let cleared = write!(stderr, "\r\u{1b}[2K");
        cleared.and_then(|()| stderr.flush()).ok();
    }
}
