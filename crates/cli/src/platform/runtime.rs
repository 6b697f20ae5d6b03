//! The threads that a turn runs on.
//!
//! Invariant: when this returns, no tool is left that runs on; what a signal interrupts is stopped before the process ends.

use std::time::Duration;

/// What is still looked up, connected or read from the terminal is of no use any more, and not waited for longer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);

/// Runs work to its end, and ends what it has left behind.
pub(crate) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_with_limit(work, SHUTDOWN_TIMEOUT)
}

/// The same, for work that reads stdin: that cannot be stopped, and is not waited for so long.
pub(crate) fn run_reading<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_with_limit(work, SHUTDOWN_TIMEOUT / 6)
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
        let _limit = survive_the_file_limit();
        work.await
    });
    // Tools run in tasks of their own, whose commands are killed when the tasks are dropped.
    runtime.shutdown_timeout(limit);
    // A busy machine may not get to that within the limit.
    #[cfg(unix)]
    outlast_session::tools::kill_all_commands();
    result
}

/// A file that may not grow any more is an error of the write; without somebody who listens it would end the process.
#[cfg(target_os = "linux")]
fn survive_the_file_limit() -> Option<tokio::signal::unix::Signal> {
    const SIGXFSZ: i32 = 25;
    let kind = tokio::signal::unix::SignalKind::from_raw(SIGXFSZ);
    tokio::signal::unix::signal(kind).ok()
}

#[cfg(not(target_os = "linux"))]
fn survive_the_file_limit() {}

/// Whoever waits or watches has a connection. As many as the system lets us have.
#[cfg(unix)]
pub(crate) fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_file_limit() {}

/// How many connections there is room for: whoever waits takes one descriptor, whoever is served two.
#[cfg(unix)]
pub(crate) fn most_connections() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    usize::try_from(files / 4 * 3).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
pub(crate) fn most_connections() -> usize {
    usize::MAX
}
