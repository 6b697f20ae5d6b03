//! The async runtime, and the limits of the process for open files.
//!
//! Invariant: when `run` returns, no tool is still running; a tool that a signal interrupts is stopped before the process
//! ends.

use std::time::Duration;

/// The time limit at shutdown for open lookups, connections and reads from the terminal: their results are of no use.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);

/// Runs the work to its end, and stops the tasks that it has left behind.
pub(crate) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_with_limit(work, SHUTDOWN_TIMEOUT)
}

/// Runs work that reads stdin: such a read cannot be cancelled, so the shutdown limit is a sixth of the usual one.
pub(crate) fn run_with_stdin<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    run_with_limit(work, SHUTDOWN_TIMEOUT / 6)
}

/// Runs work that needs no other threads, and waits for nothing that it has left behind.
pub(crate) fn run_on_this_thread<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build()?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

fn run_with_limit<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    limit: Duration,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let _limit = ignore_file_size_signal();
        work.await
    });
    // Tools run in tasks of their own, whose commands are killed when the tasks are dropped.
    runtime.shutdown_timeout(limit);
    // A busy machine may not drop all tasks within the limit.
    #[cfg(unix)]
    outlast_session::tools::kill_all_commands();
    result
}

/// Makes a write to a file at its size limit fail with an error; without a listener the signal would end the process.
#[cfg(target_os = "linux")]
fn ignore_file_size_signal() -> Option<tokio::signal::unix::Signal> {
    const SIGXFSZ: i32 = 25;
    let kind = tokio::signal::unix::SignalKind::from_raw(SIGXFSZ);
    tokio::signal::unix::signal(kind).ok()
}

#[cfg(not(target_os = "linux"))]
fn ignore_file_size_signal() {}

/// Raises the limit for open files as far as the system allows: each held request and each viewer has a connection.
#[cfg(unix)]
pub(crate) fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_file_limit() {}

/// Returns the largest number of connections: a waiting one takes one descriptor, one in service takes two.
#[cfg(unix)]
pub(crate) fn max_connections() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    usize::try_from(files / 4 * 3).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
pub(crate) fn max_connections() -> usize {
    usize::MAX
}
