//! `outlast gateway`: serves until a signal ends it, and reloads the settings on SIGHUP, on request, and when a file
//! changes.
//!
//! Invariant: invalid settings change nothing; the problem is reported and the old settings stay.

use super::agents::GatewayEndpoint;
use super::log::{self, Traces};
use super::registry;
use super::start::{Audience, UpstreamFactory, check_not_itself, start};
use crate::args::GatewayServeArguments;
use crate::config::{self, GatewaySettings, Settings, Upstream, Warnings, duration, url};
use crate::factory::provider;
use crate::output::print;
use crate::platform::clock;
use crate::platform::exit::Exit;
use crate::platform::runtime;
use crate::platform::signals;
use crate::print_diagnostic;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use outlast_dialect::Dialect;
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::Handle;
use outlast_gateway::observe::log::{Event, EventKind, Sink};
use outlast_kernel::text;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Interval at which the files are checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The time limit at shutdown for open lookups and connections: their results are of no use any more.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);

pub(super) fn run(arguments: &GatewayServeArguments) -> anyhow::Result<Exit> {
    let (settings, files) = config::load_for_gateway(&arguments.overrides(), Warnings::Print)?;
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    if !settings[0].gateway.is_local() {
        print_diagnostic(
            "warning: other machines can reach this gateway; keys and prompts come to it unencrypted",
        );
    }
    runtime::raise_file_limit();
    let threads = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let served = threads.block_on(serve(arguments, settings, files, clock));
    threads.shutdown_timeout(SHUTDOWN_TIMEOUT);
    served
}

async fn serve(
    arguments: &GatewayServeArguments,
    settings: [Settings; 2],
    files: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Exit> {
    let mut signals = signals::signals_without_hang_up();
    let (log, traces) = Traces::attach(log::sink(arguments.log)?, &settings[0])?;
    let started = start(&settings, Audience::Everyone, clock, log.clone()).await?;
    let keeper = SettingsWatcher {
        flags: arguments.overrides(),
        files,
        address: started.running.address,
        handle: started.handle,
        upstream_factory: started.upstream_factory,
        log,
    };
    tokio::spawn(keeper.watch(started.stop.clone()));
    // The reader of this line may change the settings at once.
    print(&greeting(started.running.address, &settings[0].gateway))?;
    let mut serving = started.serving;
    tokio::select! {
        _ = signals.next() => started.stop.cancel(),
        ended = &mut serving => return ended.map(|()| Exit::Failed).map_err(Into::into),
    }
    serving.await?;
    traces.end().await;
    Ok(Exit::Success)
}

/// Returns the text that a gateway prints when it starts to serve, one short screen. Its first line is for programs.
fn greeting(address: SocketAddr, settings: &GatewaySettings) -> String {
    let url = registry::url(address);
    let base = GatewayEndpoint::new(&url, &settings.openai);
    let to = |upstream: &Upstream, dialect| match upstream {
        Upstream::ProviderDefault => provider::default_base_url(dialect).to_owned(),
        Upstream::Url(text) => url::without_credentials(&url::without_query(text)),
        Upstream::Scripted(script) => format!("the scripted provider ({script})"),
    };
    let keys = match settings.use_accounts {
        true => "stored accounts",
        false => "the client's own",
    };
    let screen = format!(
        "listening on http://{address}\n\n  \
         Messages                    -> {anthropic}\n  \
         Chat Completions, Responses -> {openai}\n  \
         policy {policy}, keys: {keys}\n\n\
         Point an agent at it (`outlast gateway env claude|codex|opencode|aider|pi|openai` says more):\n  \
         export ANTHROPIC_BASE_URL={url}\n  \
         export OPENAI_BASE_URL={openai_url}\n\n\
         `outlast gateway status` shows what waits, `outlast gateway page` prints the address of a page that does, too.\n\
         Ctrl-C ends it when what is under way is done, after {drain} at most.\n",
        anthropic = to(&settings.anthropic, Dialect::Anthropic),
        openai = to(&settings.openai, Dialect::OpenaiChat),
        policy = settings.policy.name,
        url = base.url,
        openai_url = base.openai(),
        drain = duration::to_text(settings.limits.drain),
    );
    text::plain(&screen).into_owned()
}

// --- reloading the settings ---

/// Watches the settings of a gateway and reloads them.
struct SettingsWatcher {
    /// The overrides from the command line, which take precedence over all files.
    flags: Vec<(&'static str, String)>,
    files: Vec<PathBuf>,
    address: SocketAddr,
    handle: Handle,
    upstream_factory: UpstreamFactory,
    log: Arc<dyn Sink>,
}

impl SettingsWatcher {
    /// Starts to listen and to watch, and runs until the gateway ends.
    fn watch(self, stop: CancellationToken) -> impl Future<Output = ()> + Send {
        let known = file_stamps(&self.files);
        self.run(stop, hang_ups(), known)
    }

    async fn run(
        mut self,
        stop: CancellationToken,
        mut hang_ups: BoxStream<'static, ()>,
        mut known: FileStamps,
    ) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = hang_ups.next() => {}
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

/// Returns the hang-up signals as a stream without end.
fn hang_ups() -> BoxStream<'static, ()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut hang_up) = signal(SignalKind::hangup()) {
            let signals = stream::poll_fn(move |context| hang_up.poll_recv(context));
            return signals.chain(stream::pending()).boxed();
        }
    }
    stream::pending().boxed()
}
