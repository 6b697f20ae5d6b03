//! The arguments of the benchmark.

use crate::answers::Dialect;
use crate::compare::{self, Cell, Kind, compare};
use crate::hold::{self, hold};
use crate::outage::Provider;
use crate::partial::partial;
use crate::systems::{self, Name, Setup};
use crate::upstream::Upstream;
use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: Benchmark,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Systems beside each other.
    Compare(Compare),
    /// Many requests that wait.
    Hold(Hold),
    /// Clients whose calls fail now and then.
    Partial(Partial),
    /// One load on one system, for a profiler; its process id is said first.
    Load(OneLoad),
}

#[derive(Args)]
struct Compare {
    /// Which, by name; direct, nginx and outlast when none is given.
    names: Vec<String>,
    /// Where other gateways are installed.
    #[arg(long, default_value = "peers")]
    peers: PathBuf,
    /// The core for the system under test; without it, it may use any.
    #[arg(long)]
    core: Option<usize>,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    #[arg(long, default_value_t = 2000)]
    slice_ms: u64,
    /// The program under test, when it is not the one that was built with this.
    #[arg(long)]
    outlast: Option<PathBuf>,
}

#[derive(Args)]
struct OneLoad {
    #[arg(default_value = "outlast")]
    name: String,
    #[arg(long, value_enum, default_value = "whole")]
    kind: Kind,
    #[arg(long, value_enum, default_value = "chat")]
    dialect: Dialect,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long)]
    core: Option<usize>,
    #[arg(long)]
    outlast: Option<PathBuf>,
}

#[derive(Args)]
struct Partial {
    /// Measures only cases whose name contains this.
    case: Option<String>,
    #[arg(long)]
    outlast: Option<PathBuf>,
}

#[derive(Args)]
struct Hold {
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// Requests a second that the provider carries in each dialect.
    #[arg(long, default_value_t = 200)]
    capacity: u32,
    /// Seconds of usual load before the outage.
    #[arg(long, default_value_t = 25)]
    usual: u64,
    /// Seconds of waiting.
    #[arg(long, default_value_t = 60)]
    waiting: u64,
    #[arg(long)]
    outlast: Option<PathBuf>,
}

pub(crate) fn run() -> Result<()> {
    let asked = Arguments::parse();
    // One thread: the provider and the load share a core, and no time is lost in handing work over.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match asked.what {
            Benchmark::Compare(asked) => asked.run().await,
            Benchmark::Hold(asked) => asked.run().await,
            Benchmark::Partial(asked) => asked.run().await,
            Benchmark::Load(asked) => asked.run().await,
        }
    })
}

fn program(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_outlast")))
}

impl Compare {
    async fn run(self) -> Result<()> {
        let folder = TempDir::new()?;
        let (upstream, address) = Upstream::start().await?;
        let places = Setup {
            folder: folder.path().to_owned(),
            peers: self.peers,
            outlast: program(self.outlast),
            upstream: address,
            core: self.core,
        };
        let wanted = |name: &Name| match self.names.is_empty() {
            true => name.passes_through(),
            false => self.names.iter().any(|wanted| wanted == name.text()),
        };
        let names: Vec<Name> = Name::ALL.into_iter().filter(wanted).collect();
        let extent = compare::Extent {
            rounds: self.rounds,
            slice: Duration::from_millis(self.slice_ms),
        };
        let result = compare(&places, &upstream, &names, extent).await;
        keep(result, folder)
    }
}

impl OneLoad {
    async fn run(self) -> Result<()> {
        let folder = TempDir::new()?;
        let (upstream, address) = Upstream::start().await?;
        let places = Setup {
            folder: folder.path().to_owned(),
            peers: PathBuf::new(),
            outlast: program(self.outlast),
            upstream: address,
            core: self.core,
        };
        let named = |name: &Name| self.name == name.text();
        let name = Name::ALL.into_iter().find(named);
        let name = name.with_context(|| format!("there is no system `{}`", self.name))?;
        let cell = Cell {
            dialect: self.dialect,
            kind: self.kind,
        };
        let seconds = Duration::from_secs(self.seconds);
        compare::one(&places, &upstream, name, cell, seconds).await
    }
}

impl Hold {
    async fn run(self) -> Result<()> {
        let folder = TempDir::new()?;
        let (provider, address) = Provider::start(self.capacity).await?;
        let places = Setup {
            folder: folder.path().to_owned(),
            peers: PathBuf::new(),
            outlast: program(self.outlast),
            upstream: address,
            core: None,
        };
        let extent = hold::Extent {
            clients: self.clients,
            per_second: self.capacity,
            usual: Duration::from_secs(self.usual),
            waiting: Duration::from_secs(self.waiting),
        };
        let result = hold(&places, &provider, extent).await;
        keep(result, folder)
    }
}

impl Partial {
    async fn run(self) -> Result<()> {
        let folder = TempDir::new()?;
        let places = Setup {
            folder: folder.path().to_owned(),
            peers: PathBuf::new(),
            outlast: program(self.outlast),
            // Each case has a provider of its own.
            upstream: systems::free_address()?,
            core: None,
        };
        let result = partial(&places, self.case.as_deref()).await;
        keep(result, folder)
    }
}

/// Keeps the logs of the systems if the benchmark failed.
fn keep(result: Result<()>, folder: TempDir) -> Result<()> {
    if result.is_err() {
        eprintln!("logs are in {}", folder.keep().display());
    }
    result
}
