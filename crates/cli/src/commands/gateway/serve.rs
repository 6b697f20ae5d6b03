//! `outlast gateway`: serves until a signal ends it.

use super::greeting::greeting;
use super::log;
use super::reload::SettingsWatcher;
use super::start::{Audience, start};
use super::traces::Traces;
use crate::args::GatewayServeArguments;
use crate::config::{self, Settings, Warnings};
use crate::output::print;
use crate::platform::clock;
use crate::platform::exit::Exit;
use crate::platform::runtime;
use crate::platform::signals;
use crate::print_diagnostic;
use outlast_engine::Clock;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
