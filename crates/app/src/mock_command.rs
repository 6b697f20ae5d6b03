//! `outlast mock`: the scripted provider as a server, to rehearse an outage with.

use crate::cli::MockArguments;
use crate::exit::{Exit, Usage};
use crate::output::print;
use crate::{interrupt, settings};
use outlast_engine::CancellationToken;
use outlast_mock::{Options, Script, Server};
use std::sync::Arc;

pub(crate) fn run(arguments: &MockArguments) -> anyhow::Result<Exit> {
    let script: Script = arguments
        .script
        .parse()
        .map_err(|error: outlast_mock::Error| Usage(error.to_string()))?;
    let clock = Arc::new(settings::clock()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = Server::bind(arguments.listen, clock, Options::new(script)).await?;
        print(&format!("listening on http://{}\n", server.address()))?;
        let stop = CancellationToken::new();
        let mut signals = interrupt::signals();
        let stopping = stop.clone();
        tokio::spawn(async move {
            signals.next().await;
            stopping.cancel();
        });
        server.serve(stop).await;
        Ok(Exit::Success)
    })
}
