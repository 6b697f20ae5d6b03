//! The scenarios that the gate's rules have to hold, each by a ratio or a count.
//!
//! `ideal` is a client with the delays of an SDK that retries without end.

mod fleets;
mod limits;
mod outages;
mod partial;
mod scenarios;
mod weather;

use super::metrics::{self, number, peak};
use super::provider::{FaultContext, in_millis, seconds};
use super::{
    CallResult, Clients, Fault, FaultKind, LoggedCall, Provider, Strategy, Treatment, World,
};
use fastrand::Rng;
use std::ops::Range;

const MINUTE: u64 = 60_000;
/// Outages begin here, unless a scenario says otherwise.
const BEGIN: u64 = 120_000;

fn fails(share: f64, fault: Fault) -> impl FnMut(FaultContext, &mut Rng) -> Treatment {
    move |_, rng| match rng.f64() < share {
        true => Treatment::Fail(fault),
        false => Treatment::Serve,
    }
}

fn fails_during(
    period: Range<u64>,
    fault: Fault,
) -> impl FnMut(FaultContext, &mut Rng) -> Treatment {
    move |context, _| match period.contains(&context.now) {
        true => Treatment::Fail(fault),
        false => Treatment::Serve,
    }
}

/// A provider that answers and fails after 50 ms.
fn quick(script: impl FnMut(FaultContext, &mut Rng) -> Treatment + 'static) -> Provider {
    Provider {
        first_byte: 45.0..55.0,
        duration: None,
        failure: 45.0..55.0,
        ..Provider::streaming(script)
    }
}

fn whole(script: impl FnMut(FaultContext, &mut Rng) -> Treatment + 'static) -> Provider {
    Provider {
        first_byte: 5000.0..15_000.0,
        duration: None,
        ..Provider::streaming(script)
    }
}

/// Clients whose calls of 9 s on average load a capacity by 90 %.
fn agents(count: u32, capacity: f64) -> (Clients, u64) {
    let cycle = f64::from(count) / (capacity * 0.9);
    let clients = Clients {
        pause: (cycle - 9.0).max(0.0),
        ..Clients::busy(usize::try_from(count).unwrap())
    };
    (clients, in_millis(cycle))
}

/// The seeds of a scenario: three, or more on demand when it is built.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let more = option_env!("OUTLAST_SIMULATION_SEEDS");
    1..=more.map_or(3, |seeds| seeds.parse().unwrap())
}

fn fleet(processes: usize, store_latency: u64) -> Strategy {
    Strategy::outlast(processes, store_latency).unwrap()
}

fn gate() -> Strategy {
    fleet(1, 0)
}

fn ideal() -> Strategy {
    Strategy::ideal()
}

fn within(world: &World, period: Range<u64>) -> impl Iterator<Item = &LoggedCall> + Clone {
    let calls = world.calls.iter();
    calls.filter(move |call| period.contains(&call.at))
}

fn served(world: &World, period: Range<u64>) -> usize {
    let successes = world.successes.iter();
    successes.filter(|it| period.contains(&it.at)).count()
}

// --- Partial failure ---

/// Goodput relative to another run, calls per success, and the number of times that the gate went down.
#[derive(Debug, Default)]
struct Partial {
    successes: f64,
    calls: f64,
    downs: u32,
}

fn partial(mut world: World, warm: u64, length: u64) -> Partial {
    world.run(length);
    Partial {
        successes: number(served(&world, warm..length)),
        calls: number(within(&world, warm..length).count()),
        downs: world.gate().downs(),
    }
}

fn mean(runs: impl Iterator<Item = Partial>) -> Partial {
    runs.fold(Partial::default(), |sum, run| Partial {
        successes: sum.successes + run.successes,
        calls: sum.calls + run.calls,
        downs: sum.downs.max(run.downs),
    })
}

fn holds(name: &str, share: f64, gate: &Partial, ideal: &Partial) {
    let goodput = gate.successes / ideal.successes;
    let cost = gate.calls / gate.successes * (1.0 - share);
    let says = format!("{name}, {share}: goodput {goodput:.3}, cost {cost:.3}, {gate:?}");
    println!("{says}");
    assert!(goodput >= 0.95 && cost <= 1.1, "{says}");
}

// --- Outages ---

#[derive(Debug)]
struct Recovery {
    calls_during: usize,
    first: u64,
    blocked: usize,
    /// Requests that waited at the end, and still wait.
    left: usize,
    drained: u64,
    per_success: f64,
    peak: f64,
    overtaking: u64,
}

fn recovery(world: &mut World, outage: Range<u64>, capacity: f64) -> Recovery {
    world.run(outage.end + 400_000);
    let end = outage.end;
    let after: Vec<_> = world.successes.iter().filter(|it| it.at >= end).collect();
    let mut blocked: Vec<_> = after.iter().filter(|it| it.arrived < end).collect();
    let drained = blocked.last().map_or(0, |last| last.at - end);
    let window = end..end + drained.max(5000) + 5000;
    let good = within(world, window.clone()).filter(|it| it.result == CallResult::Served);
    let per_success = number(within(world, window.clone()).count()) / number(good.count());
    let mut newest = 0;
    let mut overtaking: Vec<u64> = Vec::new();
    blocked.sort_by_key(|it| it.at);
    for success in &blocked {
        newest = newest.max(success.arrived);
        overtaking.push(newest - success.arrived);
    }
    overtaking.sort_unstable();
    Recovery {
        calls_during: within(world, outage).count(),
        first: after.first().map_or(u64::MAX, |first| first.at - end),
        blocked: blocked.len(),
        left: world.unanswered(end),
        drained,
        per_success,
        peak: peak(metrics::within(&world.calls, &window)) / capacity,
        overtaking: overtaking[overtaking.len() * 99 / 100],
    }
}

fn holds_after(name: &str, most_calls: usize, capacity: f64, seen: &Recovery) {
    println!("{name}: {seen:?}");
    assert!(seen.calls_during <= most_calls, "{name}: {seen:?}");
    assert!(seen.first <= 20_000, "{name}: {seen:?}");
    let bound = 1.5 * number(seen.blocked) / capacity + 20.0;
    assert!(seconds(seen.drained) <= bound, "{name}: {seen:?}");
    assert!(
        seen.left == 0 && seen.per_success <= 1.1,
        "{name}: {seen:?}"
    );
}

fn outage(seed: u64, strategy: &Strategy, count: u32, capacity: f64, end: u64) -> World {
    let provider =
        Provider::streaming(fails_during(BEGIN..end, Fault::failure())).with_capacity(capacity);
    let (clients, spread) = agents(count, capacity);
    World::new(seed, strategy, provider, clients, spread)
}
