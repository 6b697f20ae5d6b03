//! What is said on stderr beside answers, and what of it stays when little is to be said (`--quiet`).
//!
//! What explains an exit code other than 0 stays, and so do warnings (something is not as it should be: not written down,
//! ignored, damaged) and questions. What tells how it goes, or that it went well, does not.
//! Invariant: nothing that was said is lost while a chat has the screen: what it has not shown by its end is written to
//! stderr then.

use outlast_kernel::text;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the lines begin with that tell of a session or a run as it goes on: a wait, a step, a tool, another model.
/// Failures (`✗`), what was cancelled (`■`), what was gone on without (`!`) and questions (`?`) are none of them.
const PROGRESS_MARKS: [char; 9] = ['⚠', '●', '○', '▶', '✓', '↻', '→', '…', '–'];

/// Whether a line is drawn on the terminal that others take the place of.
static IS_LINE_DRAWN: Mutex<bool> = Mutex::new(false);

static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// The chat that has the screen.
static CHAT_OUTPUT: Mutex<Option<UnboundedSender<String>>> = Mutex::new(None);

/// From here on only what matters is said.
pub(crate) fn set_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Whether a line about a session or a run only tells how it goes.
pub(crate) fn is_news(line: &str) -> bool {
    line.trim_start().starts_with(PROGRESS_MARKS)
}

/// Says a line that matters, an error or a warning, on stderr or to the chat that has the screen. When even that fails
/// there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    let line = text::plain(line);
    let taken = taken_by().as_ref().map(|chat| chat.send(line.to_string()));
    if !matches!(taken, Some(Ok(()))) {
        clear_line();
        // In one piece: whoever reads along sees the line with its end, and no other process writes between the two.
        std::io::stderr()
            .write_all(format!("{line}\n").as_bytes())
            .ok();
    }
}

/// Writes a line to stderr that tells how it goes, unless little is to be said.
pub(crate) fn notice(line: &str) {
    if !is_quiet() {
        complain(line);
    }
}

/// Draws a line on the terminal, in place of the one that is drawn.
pub(crate) fn draw_line(line: &str) {
    let mut is_drawn = IS_LINE_DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr();
    let drawn = write!(stderr, "\r\u{1b}[2K{}", text::plain(line));
    drawn.and_then(|()| stderr.flush()).ok();
    *is_drawn = true;
}

/// Takes the line back, for others who write to the terminal.
pub(crate) fn clear_line() {
    let mut is_drawn = IS_LINE_DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_drawn) {
        let mut stderr = std::io::stderr();
        let cleared = write!(stderr, "\r\u{1b}[2K");
        cleared.and_then(|()| stderr.flush()).ok();
    }
}

/// Whether a chat has the screen.
pub(crate) fn is_taken() -> bool {
    taken_by().is_some()
}

/// Has everything said on stderr again.
pub(crate) fn give_back() {
    *taken_by() = None;
}

/// Takes what is said from here on, until it is dropped.
pub(crate) fn take() -> Capture {
    let (sender, receiver) = unbounded_channel();
    *taken_by() = Some(sender);
    Capture(receiver)
}

pub(crate) struct Capture(UnboundedReceiver<String>);

impl Capture {
    /// The next line.
    pub(crate) async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        give_back();
        while let Ok(line) = self.0.try_recv() {
            complain(&line);
        }
    }
}

fn taken_by() -> MutexGuard<'static, Option<UnboundedSender<String>>> {
    CHAT_OUTPUT.lock().unwrap_or_else(PoisonError::into_inner)
}
