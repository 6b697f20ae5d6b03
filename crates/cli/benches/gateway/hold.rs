//! Ten thousand requests that wait: what they cost, and what becomes of them when the provider is back.
//!
//! Before the outage the provider carries its usual load, so that its pace is known; then it is down, all clients ask, and nothing
//! but waiting goes on for a minute; then it is up again and serves so many a second.
//! Invariant: whoever does not get the answer that is its own is lost, and one that is lost fails the measurement.

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

/// So many clients send their request at a time.
const SENDING: usize = 128;
/// Until everything that follows a request's arrival is done.
const SETTLE: Duration = Duration::from_secs(10);
/// The last answers are waited for so many times longer than they may take: to see how late they are.
const PATIENCE: u32 = 3;
/// How often the process is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How much is held, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) clients: usize,
    /// For each dialect.
    pub(crate) per_second: u32,
    pub(crate) usual: Duration,
    pub(crate) waiting: Duration,
}

/// Holds, recovers, reports; fails when a promise is broken.
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

/// Waits until something listens.
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

/// The most memory, and the part of a core that is used, while nothing happens.
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
