//! `outlast rpc`: a session that another program drives over stdin and stdout.
//!
//! Invariant: nothing but the protocol is written to stdout. When the client disconnects or a signal arrives, a running
//! turn is left to be resumed.

use crate::args::{RpcMode, SessionArguments};
use crate::factory::session::Attendance;
use crate::factory::session_host::SessionHost;
use crate::output::print;
use crate::platform::clock;
use crate::platform::exit::Exit;
use crate::platform::runtime;
use crate::platform::signals;
use crate::print_diagnostic;
use outlast_engine::{CancellationToken, Clock};
use outlast_serve::rpc::{Dialect, DisconnectReason, Server};
use outlast_session::factory::Host;
use std::sync::Arc;

pub(crate) fn run(mode: RpcMode, choice: &SessionArguments) -> anyhow::Result<Exit> {
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    runtime::run_with_stdin(async {
        let mut signals = signals::signals();
        let begun = async {
            let host = SessionHost::new(choice, clock, Attendance::Unattended).await?;
            let opened = host.open_first(choice).await?;
            anyhow::Ok((host, opened))
        };
        let (host, opened) = tokio::select! {
            begun = begun => begun?,
            signal = signals.next() => return Ok(Exit::Signalled(signal)),
        };
        let host = Arc::new(host);
        let server = Server {
            host: Arc::clone(&host) as Arc<dyn Host>,
            dialect: match mode {
                RpcMode::Rpc => Dialect::Pi,
                RpcMode::Native => Dialect::Native,
            },
            stop: CancellationToken::new(),
        };
        let stop = server.stop.clone();
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        let mut serving = Box::pin(server.serve(opened, input, output));
        let (ending, signal) = tokio::select! {
            ending = &mut serving => (ending, None),
            signal = signals.next() => {
                host.set_signal(signal);
                stop.cancel();
                (serving.await, Some(signal))
            }
        };
        host.finish(&signals).await;
        Ok(match (signal, ending) {
            (Some(signal), _) => Exit::Signalled(signal),
            (None, DisconnectReason::OutputClosed) => {
                print_diagnostic("error: nobody reads what is answered");
                Exit::Failed
            }
            (None, DisconnectReason::InputClosed | DisconnectReason::Stopped) => Exit::Success,
        })
    })
}

/// Prints the JSON Schema of the native events.
pub(crate) fn schema() -> anyhow::Result<Exit> {
    print(&outlast_serve::schema::text())
}
