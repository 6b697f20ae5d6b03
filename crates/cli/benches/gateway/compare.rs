//! Compares systems: each has a short slice of every round, so that other load on the machine affects all of them.
//!
//! Invariant: a ratio compares figures of the same round, and the median of all rounds counts.

use crate::answers::Dialect;
use crate::load::{Outcome, RequestKind};
use crate::systems::{Name, Setup, System};
use crate::table;
use crate::upstream::Upstream;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Number of connections for throughput.
const MANY: usize = 32;
/// Duration before the measurement, so that connections are open and pages are touched.
const WARM_UP: Duration = Duration::from_millis(150);

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) dialect: Dialect,
    pub(crate) kind: Kind,
}

/// The kind of request, its concurrency, and the kind of response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A whole answer, one request at a time: what a system adds to the time that a request takes.
    Alone,
    Whole,
    /// A stream that comes as fast as it can.
    Stream,
    /// A stream of which each frame comes by itself.
    Frames,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Alone, Self::Whole, Self::Stream, Self::Frames];
}

/// The figures of one slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    /// Milliseconds of a core for each request; `None` for the provider itself.
    pub(crate) cpu: Option<f64>,
    /// Share of its core that the system used.
    pub(crate) busy: f64,
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// The figures of a system in all rounds.
pub(crate) struct Row {
    pub(crate) name: Name,
    pub(crate) cells: Vec<(Cell, Vec<Figures>)>,
}

/// The duration of the measurement.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// Measures all systems; fails if Outlast exceeds a limit.
pub(crate) async fn compare(
    places: &Setup,
    upstream: &Upstream,
    names: &[Name],
    extent: Extent,
) -> Result<()> {
    let mut systems = Vec::new();
    for name in names {
        systems.push(System::start(*name, places).await?);
    }
    let mut rows: Vec<Row> = names.iter().map(|name| Row::new(*name)).collect();
    for round in 0..extent.rounds {
        eprintln!("round {} of {}", round + 1, extent.rounds);
        for at in 0..systems.len() {
            // The order rotates, so that no system always follows the same one.
            let at = (at + round) % systems.len();
            for (cell, figures) in &mut rows[at].cells {
                figures.push(measure(&systems[at], upstream, *cell, extent.slice).await?);
            }
        }
    }
    let broken = table::print(&rows);
    if !broken.is_empty() {
        bail!("Outlast costs more than it may: {}", broken.join("; "));
    }
    Ok(())
}

/// Puts one load on one system.
pub(crate) async fn one(
    places: &Setup,
    upstream: &Upstream,
    name: Name,
    cell: Cell,
    length: Duration,
) -> Result<()> {
    let system = System::start(name, places).await?;
    if let Some(process) = &system.process {
        println!("process {}", process.id());
    }
    let figures = measure(&system, upstream, cell, length).await?;
    println!("{figures:?}");
    Ok(())
}

impl Row {
    fn new(name: Name) -> Self {
        let dialects: &[Dialect] = match name.passes_through() {
            true => &Dialect::ALL,
            false => &[Dialect::Chat],
        };
        let cells = dialects.iter().flat_map(|dialect| {
            Kind::ALL.map(|kind| {
                let dialect = *dialect;
                (Cell { dialect, kind }, Vec::new())
            })
        });
        Self {
            name,
            cells: cells.collect(),
        }
    }
}

async fn measure(
    system: &System,
    upstream: &Upstream,
    cell: Cell,
    slice: Duration,
) -> Result<Figures> {
    let question = RequestKind {
        dialect: cell.dialect,
        is_streamed: matches!(cell.kind, Kind::Stream | Kind::Frames),
    };
    let connections = match cell.kind {
        Kind::Alone => 1,
        _ => MANY,
    };
    upstream.set_frame_by_frame(cell.kind == Kind::Frames);
    let run = |length| async move {
        let outcome = system.load(question, connections, length).run().await;
        outcome.with_context(|| format!("{}, {cell:?}", system.name.text()))
    };
    run(WARM_UP).await?;
    let cpu = || system.process.as_ref().map(|process| process.cpu());
    let before = cpu();
    let outcome = run(slice).await?;
    let used = cpu().zip(before).map(|(after, before)| after - before);
    Ok(Figures::of(&outcome, used))
}

impl Figures {
    fn of(outcome: &Outcome, used: Option<Duration>) -> Self {
        let used = used.map(|used| used.as_secs_f64());
        Self {
            requests: outcome.requests,
            cpu: used.map(|used| used * 1000.0 / outcome.requests as f64),
            busy: used.unwrap_or_default() / outcome.took.as_secs_f64(),
            per_second: outcome.per_second(),
            p50: outcome.latency(50),
            p99: outcome.latency(99),
        }
    }
}
