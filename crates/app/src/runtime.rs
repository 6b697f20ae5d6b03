//! The threads that a turn runs on.
//!
//! Invariant: when this returns, no tool is left that runs on; what a signal interrupts is stopped before the process ends.

use std::time::Duration;

/// What is still looked up, connected or read from the terminal is of no use any more, and not waited for longer.
const LONGEST_END: Duration = Duration::from_millis(300);

/// Runs work to its end, and ends what it has left behind.
pub(crate) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // Tools run in tasks of their own, whose commands are killed when the tasks are gone.
    runtime.shutdown_timeout(LONGEST_END);
    result
}
