//! Builds hooks from settings, and waits for them when the process leaves a session.
//!
//! Invariant: that wait is bounded, and short once somebody wants the process to end.

use crate::config::Settings;
use crate::output::diagnostics;
use crate::platform::signals::{Signal, Signals};
use crate::print_diagnostic;
use outlast_kernel::text;
use outlast_session::hooks::{ExitReason, Hooks};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time limit for hooks when the work is done.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for hooks after a signal.
const FINISH_TIMEOUT_AFTER_SIGNAL: Duration = Duration::from_secs(1);

/// Returns the hooks of a session in the given folder. Must be called within a runtime.
pub(crate) fn session_hooks(settings: &Settings, folder: &Path) -> Hooks {
    // A folder that was removed has no name.
    let is_gone = folder.as_os_str().is_empty();
    let folder = if is_gone { Path::new("/") } else { folder };
    Hooks::new(
        settings.hooks.clone(),
        PathBuf::from(folder),
        settings.key_variables.clone(),
        Arc::new(report_problem),
    )
}

/// Returns the reason why the process leaves a session.
pub(crate) const fn exit_reason(signalled: Option<Signal>) -> ExitReason {
    match signalled {
        None => ExitReason::Ended,
        Some(Signal::Interrupt) => ExitReason::Interrupted,
        Some(Signal::HangUp) => ExitReason::HungUp,
        Some(Signal::Terminate) => ExitReason::Terminated,
    }
}

/// Waits for hooks to finish, for a bounded time. A signal ends the wait, unless one has come before.
pub(crate) async fn finish(hooks: &Hooks, signalled: Option<Signal>, mut signals: Signals) {
    if signalled.is_some() {
        return hooks.finish(FINISH_TIMEOUT_AFTER_SIGNAL).await;
    }
    tokio::select! {
        () = hooks.finish(FINISH_TIMEOUT) => {}
        _ = signals.next() => {}
    }
}

/// Reports a problem of a hook, in place of a countdown line.
fn report_problem(problem: &str) {
    if diagnostics::is_captured() {
        return print_diagnostic(&format!("warning: {problem}"));
    }
    let mut stderr = std::io::stderr();
    let clear = match stderr.is_terminal() {
        true => "\r\u{1b}[2K",
        false => "",
    };
    writeln!(stderr, "{clear}warning: {}", text::plain(problem)).ok();
}
