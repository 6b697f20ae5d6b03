//! The mock provider as an HTTP server: versions 1.1 and 2, without TLS.
//!
//! Invariants: every wait uses the clock; the part of a request that is read is bounded; nothing outlives a stop by
//! more than the grace period. Not here: the bytes that are sent (see `plan`).

mod connection;
mod control;
mod request_handler;

use crate::background_responses::BackgroundResponses;
use crate::log::Log;
use crate::script::{self, Script};
use crate::script_registry::ScriptRegistry;
use connection::serve_connection;
use outlast_engine::{CancellationToken, Clock};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The time that open responses have to end when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// The delay after a failed accept, when the machine has no room for a connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The script to use when neither the request nor its model names one.
    pub script: Script,
    /// The scripts of individual models.
    pub models: Vec<(String, Script)>,
    /// Host names that may access the control endpoints, beside `localhost` and any IP address.
    pub hosts: Vec<String>,
}

impl Options {
    /// Returns the options for a server with this default script.
    pub fn new(script: Script) -> Self {
        Self {
            script,
            models: Vec::new(),
            hosts: Vec::new(),
        }
    }

    /// Adds a script as written: `MODEL=SCRIPT` for one model, or a script for all others. A text that begins with the
    /// name of a fault is a script, even if it contains an equals sign.
    pub fn with_argument(mut self, written: &str) -> Result<Self, script::Error> {
        match written.split_once('=') {
            Some((model, script)) if !script::starts_with_fault_name(written) => {
                let model = model.trim().to_owned();
                self.models.push((model, script.trim().parse()?));
            }
            _ => self.script = written.parse()?,
        }
        Ok(self)
    }
}

/// The server cannot listen on the address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another, port 0 takes any that is free")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A server that listens but does not yet respond.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// The state that all connections share.
struct Shared {
    clock: Arc<dyn Clock>,
    scripts: Mutex<ScriptRegistry>,
    background_responses: Mutex<BackgroundResponses>,
    log: Log,
    hosts: Vec<String>,
}

impl Server {
    /// Listens on the address. All waits and times use the clock.
    pub async fn bind(
        address: SocketAddr,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut book = ScriptRegistry::new(options.script);
        for (model, script) in options.models {
            book.assign_to_model(model, script);
        }
        let shared = Shared {
            clock,
            scripts: Mutex::new(book),
            background_responses: Mutex::default(),
            log: Log::default(),
            hosts: options.hosts,
        };
        Ok(Self {
            listener,
            address,
            shared: Arc::new(shared),
        })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until it is stopped. Open responses then have a moment to end.
    pub async fn serve(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(
                        stream,
                        Arc::clone(&self.shared),
                        stop.clone(),
                    ));
                }
                // The machine has no room for a connection; it may have some a moment later.
                Err(_) => crate::playback::wait(&*self.shared.clock, ACCEPT_RETRY_DELAY).await,
            }
        }
        drop(self.listener);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        tokio::select! {
            () = all_ended => {}
            () = crate::playback::wait(&*self.shared.clock, SHUTDOWN_GRACE) => {}
        }
        connections.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(written: &[&str]) -> (String, Vec<(String, String)>) {
        let mut options = Options::new("ok".parse().unwrap());
        for one in written {
            options = options.with_argument(one).unwrap();
        }
        let models = options.models.into_iter();
        let models = models.map(|(model, script)| (model, script.text().to_owned()));
        (options.script.text().to_owned(), models.collect())
    }

    #[test]
    fn argument_sets_script_for_one_model_or_default() {
        type Row = (
            &'static [&'static str],
            &'static str,
            &'static [(&'static str, &'static str)],
        );
        let table: [Row; 5] = [
            (&[], "ok", &[]),
            (&["error:500,times=2"], "error:500,times=2", &[]),
            (&["gpt-5=overloaded:2"], "ok", &[("gpt-5", "overloaded:2")]),
            (
                &["llama3:8b=error:500,times=2", "stall"],
                "stall",
                &[("llama3:8b", "error:500,times=2")],
            ),
            (
                &["a = overloaded", "b=ok"],
                "ok",
                &[("a", "overloaded"), ("b", "ok")],
            ),
        ];
        for (written, script, models) in table {
            let own = |(model, script): &(&str, &str)| ((*model).to_owned(), (*script).to_owned());
            let expected = (script.to_owned(), models.iter().map(own).collect());
            assert_eq!(told(written), expected, "{written:?}");
        }
    }

    #[test]
    fn invalid_script_argument_is_an_error() {
        for written in ["overlaoded", "gpt-5=overlaoded", "gpt-5=", "error:999", ""] {
            let options = Options::new("ok".parse().unwrap());
            assert!(options.with_argument(written).is_err(), "{written}");
        }
    }
}
