//! The scripted provider as an HTTP server: versions 1.1 and 2, plain.
//!
//! Invariants: every wait is the clock's; what is read of a request is bounded; nothing outlives a stop by more than
//! its grace. Not here: what is sent (see `plan`).

mod connection;
mod control;
mod request_handler;

use crate::background_responses::BackgroundResponses;
use crate::log::Log;
use crate::script::{self, Script};
use crate::script_registry::ScriptRegistry;
use connection::connection;
use outlast_engine::{CancellationToken, Clock};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long answers may take to end when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How long a machine without room for a connection is left alone.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// What a server is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// What plays when neither the request nor its model names a script.
    pub script: Script,
    /// What plays for each of these models.
    pub models: Vec<(String, Script)>,
    /// Names by which the control endpoints may be reached, beside `localhost` and any number.
    pub hosts: Vec<String>,
}

impl Options {
    /// A server that plays that script when nothing else is asked for.
    pub fn new(script: Script) -> Self {
        Self {
            script,
            models: Vec::new(),
            hosts: Vec::new(),
        }
    }

    /// The same, and what is written: `MODEL=SCRIPT` for one model, or a script for all others. What begins with a fault is
    /// a script, even if it holds an equals sign.
    pub fn with(mut self, written: &str) -> Result<Self, script::Error> {
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

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another, port 0 takes any that is free")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A server that listens and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections have in common.
struct Shared {
    clock: Arc<dyn Clock>,
    book: Mutex<ScriptRegistry>,
    kept: Mutex<BackgroundResponses>,
    log: Log,
    hosts: Vec<String>,
}

impl Server {
    /// Listens at that address. Waits and times are the clock's.
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
            book.give(model, script);
        }
        let shared = Shared {
            clock,
            book: Mutex::new(book),
            kept: Mutex::default(),
            log: Log::default(),
            hosts: options.hosts,
        };
        Ok(Self {
            listener,
            address,
            shared: Arc::new(shared),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is stopped. Answers that are under way then have a moment to end.
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
                    connections.spawn(connection(stream, Arc::clone(&self.shared), stop.clone()));
                }
                // The machine has no room for it; a moment later it may.
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
            options = options.with(one).unwrap();
        }
        let models = options.models.into_iter();
        let models = models.map(|(model, script)| (model, script.text().to_owned()));
        (options.script.text().to_owned(), models.collect())
    }

    #[test]
    fn a_script_is_for_one_model_or_for_all_others() {
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
    fn a_script_that_cannot_be_read_is_an_error() {
        for written in ["overlaoded", "gpt-5=overlaoded", "gpt-5=", "error:999", ""] {
            let options = Options::new("ok".parse().unwrap());
            assert!(options.with(written).is_err(), "{written}");
        }
    }
}
