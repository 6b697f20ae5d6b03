//! A temporary line with the current action and its duration, after a delay.
//!
//! Only on a terminal and without `--quiet`. Other output replaces it, and it is removed at the end.

use crate::output::diagnostics;
use crate::output::run_view::{stderr_size, truncate};
use parking_lot::{Condvar, Mutex};
use std::io::IsTerminal;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The delay before the first line, and the interval of updates.
const TICK: Duration = Duration::from_secs(1);

/// A slow action; dropping it removes the line.
pub(crate) struct Spinner {
    shared: Arc<Shared>,
    painter: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    message: String,
    is_finished: bool,
}

impl Spinner {
    pub(crate) fn start(what: &str) -> Self {
        let is_shown = std::io::stderr().is_terminal() && !diagnostics::is_quiet();
        let shared = Arc::<Shared>::default();
        let painted = Arc::clone(&shared);
        let working = Self {
            shared,
            painter: is_shown.then(|| std::thread::spawn(move || paint(&painted))),
        };
        working.set_message(what);
        working
    }

    /// Starts a spinner for output that is streamed to stdout, unless stdout is a terminal, where the output itself is
    /// visible.
    pub(crate) fn start_for_stream(what: &str) -> Option<Self> {
        (!std::io::stdout().is_terminal()).then(|| Self::start(what))
    }

    /// Sets the current action.
    pub(crate) fn set_message(&self, what: &str) {
        what.clone_into(&mut self.shared.state.lock().message);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.shared.state.lock().is_finished = true;
        self.shared.finished.notify_all();
        // A panic of the thread has been reported already.
        drop(self.painter.take().map(JoinHandle::join));
        diagnostics::clear_line();
    }
}

/// Draws the line every second until the action is over.
fn paint(shared: &Shared) {
    let mut state = shared.state.lock();
    for seconds in 1_u64.. {
        shared
            .finished
            .wait_while_for(&mut state, |state| !state.is_finished, TICK);
        if state.is_finished {
            return;
        }
        let (columns, _) = stderr_size();
        let line = format!("… {} ({seconds}s, Ctrl-C ends it)", state.message);
        diagnostics::draw_line(&truncate(&line, columns));
    }
}
