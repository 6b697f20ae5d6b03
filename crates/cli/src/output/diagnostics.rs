//! Messages on stderr beside the completions, and the subset for `--quiet`.
//!
//! `--quiet` keeps the reasons for exit codes other than 0, warnings (not written to the journal, ignored, damaged) and
//! questions, and drops progress and success messages. Invariant: no message is lost while a chat owns the screen:
//! those that it has not shown by its end are written to stderr then.

use outlast_kernel::text;
use parking_lot::{Mutex, MutexGuard};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// First characters of progress lines of a session or a run: a wait, a step, a tool, another model. Failures (`✗`),
/// cancellations (`■`), omissions (`!`) and questions (`?`) are not progress.
const PROGRESS_MARKS: [char; 9] = ['⚠', '●', '○', '▶', '✓', '↻', '→', '…', '–'];

/// Whether a temporary line is drawn on the terminal.
static IS_LINE_DRAWN: Mutex<bool> = Mutex::new(false);

static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// The chat that owns the screen.
static CHAT_OUTPUT: Mutex<Option<UnboundedSender<String>>> = Mutex::new(None);

/// Suppresses progress messages from now on.
pub(crate) fn set_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Whether a line about a session or a run is only progress.
pub(crate) fn is_progress_line(line: &str) -> bool {
    line.trim_start().starts_with(PROGRESS_MARKS)
}

/// Writes an error or a warning to stderr, or to the chat that owns the screen. A failure to write is ignored.
pub(crate) fn print_diagnostic(line: &str) {
    let line = text::plain(line);
    let taken = chat_output()
        .as_ref()
        .map(|chat| chat.send(line.to_string()));
    if !matches!(taken, Some(Ok(()))) {
        clear_line();
        // One write, so that no other process writes between the line and its end.
        std::io::stderr()
            .write_all(format!("{line}\n").as_bytes())
            .ok();
    }
}

/// Writes a progress line to stderr, unless `--quiet` is set.
pub(crate) fn print_status(line: &str) {
    if !is_quiet() {
        print_diagnostic(line);
    }
}

/// Draws a temporary line on the terminal, in place of the previous one.
pub(crate) fn draw_line(line: &str) {
    let mut is_drawn = IS_LINE_DRAWN.lock();
    let mut stderr = std::io::stderr();
    let drawn = write!(stderr, "\r\u{1b}[2K{}", text::plain(line));
    drawn.and_then(|()| stderr.flush()).ok();
    *is_drawn = true;
}

/// Removes the temporary line before other output.
pub(crate) fn clear_line() {
    let mut is_drawn = IS_LINE_DRAWN.lock();
    if std::mem::take(&mut *is_drawn) {
        let mut stderr = std::io::stderr();
        let cleared = write!(stderr, "\r\u{1b}[2K");
        cleared.and_then(|()| stderr.flush()).ok();
    }
}

/// Whether a chat owns the screen.
pub(crate) fn is_captured() -> bool {
    chat_output().is_some()
}

/// Directs messages to stderr again.
pub(crate) fn release_capture() {
    *chat_output() = None;
}

/// Directs messages to the returned capture until it is dropped.
pub(crate) fn capture() -> Capture {
    let (sender, receiver) = unbounded_channel();
    *chat_output() = Some(sender);
    Capture(receiver)
}

pub(crate) struct Capture(UnboundedReceiver<String>);

impl Capture {
    /// Waits for the next message.
    pub(crate) async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        release_capture();
        while let Ok(line) = self.0.try_recv() {
            print_diagnostic(&line);
        }
    }
}

fn chat_output() -> MutexGuard<'static, Option<UnboundedSender<String>>> {
    CHAT_OUTPUT.lock()
}
