//! `outlast mock`: runs the scripted provider as a server, to rehearse an outage.

use crate::args::MockArguments;
use crate::output::print;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::signals;
use outlast_engine::CancellationToken;
use outlast_mock::{Error, Options, Server};
use std::sync::Arc;

pub(crate) fn run(arguments: &MockArguments) -> anyhow::Result<Exit> {
    let options = options(&arguments.scripts).map_err(|error| UsageError(error.to_string()))?;
    let clock = Arc::new(clock::clock()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = Server::bind(arguments.listen, clock, options).await?;
        let stop = CancellationToken::new();
        // Listen first: a reader of the line may end the process at once.
        let mut signals = signals::signals();
        print(&format!("listening on http://{}\n", server.address()))?;
        let stopping = stop.clone();
        tokio::spawn(async move {
            signals.next().await;
            stopping.cancel();
        });
        if arguments.until_stdin_ends {
            stop_with_stdin(stop.clone());
        }
        server.serve(stop).await;
        Ok(Exit::Success)
    })
}

fn options(scripts: &[String]) -> Result<Options, Error> {
    let options = Options::new("ok".parse()?);
    let mut scripts = scripts.iter();
    scripts.try_fold(options, |options, written| options.with_argument(written))
}

/// Stops the server when stdin ends. A thread of its own: reading stdin cannot be cancelled, and must not keep the process
/// from ending.
fn stop_with_stdin(stop: CancellationToken) {
    std::thread::spawn(move || {
        // A read error counts as the end.
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).ok();
        stop.cancel();
    });
}
