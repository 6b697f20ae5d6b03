//! A line that says what is being done, and for how long, when that takes longer than a moment.
//!
//! Only on a terminal, and not when little is to be said. Whatever else is said takes its place, and it is gone at the end.

use crate::output::diagnostics;
use crate::output::run_view::{cut, stderr_size};
use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is brought up to date, and how long nothing is said at first.
const TICK: Duration = Duration::from_secs(1);

/// Something that may take long, until it is dropped.
pub(crate) struct Spinner {
    shared: Arc<Shared>,
    painter: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    what: String,
    is_over: bool,
}

impl Spinner {
    pub(crate) fn on(what: &str) -> Self {
        let is_shown = std::io::stderr().is_terminal() && !diagnostics::is_quiet();
        let shared = Arc::<Shared>::default();
        let painted = Arc::clone(&shared);
        let working = Self {
            shared,
            painter: is_shown.then(|| std::thread::spawn(move || paint(&painted))),
        };
        working.now(what);
        working
    }

    /// For what is written to stdout as it is found: on a terminal, that is seen.
    pub(crate) fn start_for_stream(what: &str) -> Option<Self> {
        (!std::io::stdout().is_terminal()).then(|| Self::on(what))
    }

    /// What is being done from here on.
    pub(crate) fn now(&self, what: &str) {
        what.clone_into(&mut lock(&self.shared.state).what);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        lock(&self.shared.state).is_over = true;
        self.shared.over.notify_all();
        // One that panicked has said so.
        drop(self.painter.take().map(JoinHandle::join));
        diagnostics::clear_line();
    }
}

/// Says it, second by second, until it is over.
fn paint(shared: &Shared) {
    let mut state = lock(&shared.state);
    for seconds in 1_u64.. {
        let waited = shared
            .over
            .wait_timeout_while(state, TICK, |state| !state.is_over);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_over {
            return;
        }
        let (columns, _) = stderr_size();
        let line = format!("… {} ({seconds}s, Ctrl-C ends it)", state.what);
        diagnostics::draw_line(&cut(&line, columns));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
