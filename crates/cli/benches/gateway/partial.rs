//! Partial failure over real sockets: the gateway beside clients that retry on their own, in one run.
//!
//! Each case has a provider of its own and a gateway that knows nothing yet. It fails if a limit is exceeded; a limit is a
//! ratio of two systems in this run, a count of calls, or a number of seconds that the provider's rate alone explains.
//! Invariant: a client without its own complete response counts as lost.

mod cases;
mod fleet;
mod load;
mod provider;
mod scale;

use crate::process::Process;
use crate::systems::{self, Setup};
use anyhow::{Context, Result, bail};
use provider::Provider;
use scale::Scale;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The measurement of a case.
pub(super) struct Line {
    case: String,
    system: &'static str,
    measured: String,
    /// The limit, if the system has one here, and whether it holds.
    limit: Option<(String, bool)>,
}

/// The table of the measurement.
#[derive(Default)]
struct Table {
    misses: usize,
}

impl Table {
    fn add(&mut self, line: &Line) {
        let (limit, mark) = match &line.limit {
            Some((limit, true)) => (limit.as_str(), "ok"),
            Some((limit, false)) => (limit.as_str(), "MISSED"),
            None => ("", ""),
        };
        self.misses += usize::from(mark == "MISSED");
        let (case, system, measured) = (&line.case, line.system, &line.measured);
        println!("| {case:<44} | {system:<12} | {measured:<64} | {limit:<40} | {mark} |");
    }
}

/// Measures the cases whose name contains the text; all of them without one.
pub(crate) async fn partial(places: &Setup, wanted: Option<&str>) -> Result<()> {
    println!("| case | system | measured | limit | |");
    println!("|---|---|---|---|---|");
    let mut table = Table::default();
    for case in cases::Case::all() {
        let name = case.name();
        if wanted.is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let rig = Rig {
            places,
            folder: name.replace([' ', '%', ',', '/'], "-"),
        };
        for line in case.run(&rig).await.with_context(|| name.clone())? {
            table.add(&line);
        }
    }
    match table.misses {
        0 => Ok(()),
        misses => bail!("{misses} limits are exceeded"),
    }
}

/// Starts the systems of one case.
struct Rig<'a> {
    places: &'a Setup,
    folder: String,
}

/// A running gateway.
struct Gateway {
    address: SocketAddr,
    /// Ends with it.
    _process: Process,
}

impl Rig<'_> {
    fn places(&self, system: &str, upstream: SocketAddr) -> Result<Setup> {
        let folder = self.places.folder.join(format!("{}-{system}", self.folder));
        std::fs::create_dir_all(&folder)?;
        Ok(Setup {
            folder,
            peers: self.places.peers.clone(),
            outlast: self.places.outlast.clone(),
            upstream,
            core: None,
        })
    }

    async fn provider(
        &self,
        scale: Scale,
        latency: Duration,
    ) -> Result<(Arc<Provider>, SocketAddr)> {
        Ok(Provider::start(scale, latency).await?)
    }

    async fn gateway(&self, scale: Scale, upstream: SocketAddr) -> Result<Gateway> {
        let places = self.places("gateway", upstream)?;
        self.gateway_in(&places, scale, "gateway").await
    }

    async fn gateway_in(&self, places: &Setup, scale: Scale, name: &str) -> Result<Gateway> {
        let address = systems::free_address()?;
        let mut command = systems::outlast(places, &address.to_string());
        command.env("OUTLAST_TIME_SCALE", scale.0.to_string());
        let mut process = Process::start(command, &places.folder.join(format!("{name}.log")))?;
        for _ in 0..200 {
            if process.has_ended() {
                break;
            }
            if TcpStream::connect(address).await.is_ok() {
                return Ok(Gateway {
                    address,
                    _process: process,
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
        bail!(
            "the gateway does not start; see {}",
            places.folder.display()
        );
    }
}
