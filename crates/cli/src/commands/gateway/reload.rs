//! Reloads the settings of a running gateway: on SIGHUP, on request, and when a file changes.
//!
//! Invariant: invalid settings change nothing; the problem is reported and the old settings stay.

use super::start::check_not_itself;
use crate::commands::gateway::upstream_factory::UpstreamFactory;
use crate::config::{self, Settings, Warnings};
use outlast_engine::CancellationToken;
use outlast_gateway::Handle;
use outlast_gateway::observe::log::{Event, EventKind, Sink};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Interval at which the files are checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Watches the settings of a gateway and reloads them.
pub(super) struct SettingsWatcher {
    /// The overrides from the command line, which take precedence over all files.
    pub(super) flags: Vec<(&'static str, String)>,
    pub(super) files: Vec<PathBuf>,
    pub(super) address: SocketAddr,
    pub(super) handle: Handle,
    pub(super) upstream_factory: UpstreamFactory,
    pub(super) log: Arc<dyn Sink>,
}

impl SettingsWatcher {
    /// Starts to listen and to watch, and runs until the gateway ends.
    pub(super) fn watch(self, stop: CancellationToken) -> impl Future<Output = ()> + Send {
        let (hang_up, known) = (HangUp::new(), file_stamps(&self.files));
        self.run(stop, hang_up, known)
    }

    async fn run(mut self, stop: CancellationToken, mut hang_up: HangUp, mut known: FileStamps) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = hang_up.next() => {}
                () = self.handle.reload_requested() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    if file_stamps(&self.files) == known {
                        continue;
                    }
                }
            }
            // Stamped before the files are read: a change during the read is seen the next time.
            known = file_stamps(&self.files);
            let read = self.reload().await;
            let problem = read.err().map(|error| format!("{error:#}"));
            self.log.emit(&Event {
                at: self.upstream_factory.clock.now(),
                request: None,
                kind: EventKind::Reload {
                    problem: problem.as_deref(),
                },
            });
        }
    }

    async fn reload(&mut self) -> anyhow::Result<()> {
        let (settings, files): ([Settings; 2], _) =
            config::load_for_gateway(&self.flags, Warnings::Suppress)?;
        check_not_itself(&settings[0], self.address)?;
        let upstreams = self.upstream_factory.upstreams(&settings).await?;
        self.handle.reload(upstreams);
        self.files = files;
        Ok(())
    }
}

/// Modification time and size of each file; `None` for one that cannot be read.
type FileStamps = Vec<Option<(SystemTime, u64)>>;

fn file_stamps(files: &[PathBuf]) -> FileStamps {
    let one = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(one).collect()
}

#[cfg(unix)]
struct HangUp(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl HangUp {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self(signal(SignalKind::hangup()).ok())
    }

    async fn next(&mut self) {
        let came = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if came.is_none() {
            std::future::pending().await
        }
    }
}

#[cfg(not(unix))]
struct HangUp;

#[cfg(not(unix))]
impl HangUp {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
