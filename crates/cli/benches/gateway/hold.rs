//! Holds ten thousand requests: their cost, and their outcome when the provider is back.
//!
//! Before the outage the provider carries its normal load, so that its pace is known; then it is down, all clients send
//! their requests, and for a minute nothing happens but waiting; then it is up again and serves a fixed number a
//! second. Invariant: a client without its own response counts as lost, and one lost client fails the measurement.

use crate::answers::Dialect;
use crate::clients::{self, Client};
use crate::outage::Provider;
use crate::process::{Memory, Process};
use crate::report::Report;
use crate::systems::{self, Setup};
use anyhow::{Context, Result, bail};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Number of clients that send their request at the same time.
const SENDING: usize = 128;
/// Time until all work after a request's arrival is done.
const SETTLE: Duration = Duration::from_secs(10);
/// Time to wait for the last responses, as a multiple of the limit, to measure how late they are.
const PATIENCE: u32 = 3;
/// Interval at which the process is sampled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The number of held requests, and the durations.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) clients: usize,
    /// For each dialect.
    pub(crate) per_second: u32,
    pub(crate) usual: Duration,
    pub(crate) waiting: Duration,
}

/// Holds, recovers and reports; fails if a limit is exceeded.
pub(crate) async fn hold(places: &Setup, provider: &Provider, extent: Extent) -> Result<()> {
    let address = systems::free_address()?;
    let command = systems::outlast(places, &address.to_string());
    let log = places.folder.join("outlast.log");
    let mut process = Process::start(command, &log)?;
    ready(&mut process, address).await?;
    let mut report = Report::new(extent, process.memory());
    clients::usual_load(address, extent)
        .await
        .context("before the outage")?;

    provider.set_down(true);
    let began = Instant::now();
    let mut clients = send_all(address, extent.clients).await?;
    eprintln!("{} sent in {:.1?}", extent.clients, began.elapsed());
    sleep(SETTLE).await;
    (report.most, report.cpu) = look(&process, extent.waiting).await;
    report.calls_in_outage = calls(provider, began);

    let up = Instant::now();
    provider.set_down(false);
    let limit = report.drain_limit() * PATIENCE;
    report.lost = match timeout(limit, clients::losses(&mut clients)).await {
        Ok(lost) => lost,
        Err(_) => vec![format!("{} clients without an answer", clients.len())],
    };
    report.drained = up.elapsed();
    report.peak_memory = process.peak();
    report.arrived = Dialect::ALL.map(|dialect| provider.since(up, dialect));
    report.judge()
}

fn calls(provider: &Provider, since: Instant) -> usize {
    let calls = Dialect::ALL.map(|dialect| provider.since(since, dialect).calls);
    calls.iter().sum()
}

/// Waits until the address accepts connections.
async fn ready(process: &mut Process, address: SocketAddr) -> Result<()> {
    for _ in 0..100 {
        if process.has_ended() {
            bail!("the gateway has ended");
        }
        if TcpStream::connect(address).await.is_ok() {
            sleep(SETTLE / 10).await;
            return Ok(());
        }
        sleep(SETTLE / 100).await;
    }
    bail!("the gateway does not listen")
}

async fn send_all(address: SocketAddr, count: usize) -> Result<JoinSet<io::Result<()>>> {
    let (sent, room) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Semaphore::new(SENDING)),
    );
    let mut clients = JoinSet::new();
    for number in 0..count {
        let client = Client { number, address };
        clients.spawn(client.ask(Arc::clone(&room), Arc::clone(&sent)));
    }
    while sent.load(Ordering::Relaxed) < count {
        if let Some(Ok(Err(error))) = clients.try_join_next() {
            return Err(error).context("a request ended while others were sent");
        }
        sleep(POLL_INTERVAL / 10).await;
    }
    Ok(clients)
}

/// Returns the maximum memory and the share of a core used during an idle period.
async fn look(process: &Process, length: Duration) -> (Memory, f64) {
    let mut most = Memory::default();
    let (begun, before) = (Instant::now(), process.cpu());
    while begun.elapsed() < length {
        let memory = process.memory();
        if memory.resident > most.resident {
            most = memory;
        }
        sleep(POLL_INTERVAL).await;
    }
    let used = process.cpu() - before;
    (most, used.as_secs_f64() / begun.elapsed().as_secs_f64())
}
