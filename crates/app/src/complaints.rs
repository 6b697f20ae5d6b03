//! What is said on stderr, and where it goes while a chat has the screen.
//!
//! Invariant: nothing that was said is lost: what a chat has not taken by its end is written to stderr then.

use outlast_kernel::text;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

static TAKEN_BY: Mutex<Option<UnboundedSender<String>>> = Mutex::new(None);

/// Says a line on stderr, or to whoever has the screen. When even that fails there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    let line = text::plain(line);
    let taken = taken_by().as_ref().map(|chat| chat.send(line.to_string()));
    if !matches!(taken, Some(Ok(()))) {
        writeln!(std::io::stderr(), "{line}").ok();
    }
}

/// Has everything said on stderr from here on.
pub(crate) fn forget_takers() {
    *taken_by() = None;
}

/// Whether somebody has the screen.
pub(crate) fn are_taken() -> bool {
    taken_by().is_some()
}

/// Takes what is said from here on, until it is dropped.
pub(crate) fn take() -> Taken {
    let (sender, receiver) = unbounded_channel();
    *taken_by() = Some(sender);
    Taken(receiver)
}

pub(crate) struct Taken(UnboundedReceiver<String>);

impl Taken {
    /// The next line.
    pub(crate) async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *taken_by() = None;
        while let Ok(line) = self.0.try_recv() {
            complain(&line);
        }
    }
}

fn taken_by() -> MutexGuard<'static, Option<UnboundedSender<String>>> {
    TAKEN_BY.lock().unwrap_or_else(PoisonError::into_inner)
}
