//! The table of scenarios that the gate's rules have to hold, each by a ratio or a count.
//!
//! `ideal` is a client with the delays of an SDK that retries without end.

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

fn fleet(processes: usize, store_latency: u64) -> Strategy {
    Strategy::Gate {
        processes,
        store_latency,
    }
}

fn within(world: &World, period: Range<u64>) -> impl Iterator<Item = &LoggedCall> + Clone {
    let calls = world.calls.iter();
    calls.filter(move |call| period.contains(&call.at))
}

fn served(world: &World, period: Range<u64>) -> usize {
    let successes = world.successes.iter();
    successes.filter(|it| period.contains(&it.at)).count()
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
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

#[test]
fn short_calls_have_the_goodput_of_ideal_at_any_share_of_failures() {
    for (share, seeds, warm, length) in [
        (0.01, 3, 20_000, MINUTE),
        (0.02, 3, 20_000, MINUTE),
        (0.1, 3, 20_000, MINUTE),
        (0.3, 3, 20_000, 5 * MINUTE),
        (0.5, 3, 20_000, 5 * MINUTE),
        (0.7, 8, 2 * MINUTE, 15 * MINUTE),
        (0.9, 8, 2 * MINUTE, 15 * MINUTE),
    ] {
        let run = |strategy| {
            mean((1..=seeds).map(|seed| {
                let provider = quick(fails(share, Fault::failure()));
                let world = World::new(seed, strategy, provider, Clients::busy(32), 25);
                partial(world, warm, length)
            }))
        };
        let gate = run(Strategy::GATE);
        holds("32 x 50 ms", share, &gate, &run(Strategy::IDEAL));
        assert!(gate.downs <= 2 || share > 0.8, "{share}: {gate:?}");
    }
}

#[test]
fn long_calls_have_the_goodput_of_ideal_at_any_share_of_failures() {
    for is_streamed in [true, false] {
        for share in [0.02, 0.1, 0.3, 0.5, 0.7, 0.9] {
            let run = |strategy| {
                mean((1..=3).map(|seed| {
                    let script = fails(share, Fault::failure());
                    let provider = match is_streamed {
                        true => Provider {
                            duration: Some(5000.0..15_000.0),
                            ..Provider::streaming(script)
                        },
                        false => whole(script),
                    };
                    let clients = Clients::busy(500);
                    let world = World::new(seed, strategy, provider, clients, 5000);
                    partial(world, MINUTE, 5 * MINUTE)
                }))
            };
            let gate = run(Strategy::GATE);
            holds("500 x 10 s", share, &gate, &run(Strategy::IDEAL));
            assert!(gate.downs <= 2, "{share}: {gate:?}");
        }
    }
}

#[test]
fn two_thousand_requests_take_as_long_as_ideal() {
    for (share, seeds) in [(0.01, 3), (0.02, 3), (0.1, 8), (0.3, 24)] {
        let run = |strategy| {
            let runs = (1..=seeds).map(|seed| {
                let clients = Clients {
                    requests: Some(2000),
                    ..Clients::busy(32)
                };
                let provider = quick(fails(share, Fault::failure()));
                let mut world = World::new(seed, strategy, provider, clients, 25);
                world.run_while(60 * MINUTE, |world| world.successes.len() < 2000);
                (world.now(), world.calls.len())
            });
            runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
        };
        let (gate, ideal) = (run(Strategy::GATE), run(Strategy::IDEAL));
        println!("{share}: {gate:?} ms and calls, ideal {ideal:?}");
        assert!(gate.0 * 10 <= ideal.0 * 11, "{share}: {gate:?} {ideal:?}");
        let cost = number(gate.1) / 2000.0 / f64::from(u32::try_from(seeds).unwrap());
        assert!(cost <= 1.1 / (1.0 - share), "{share}: {cost}");
    }
}

#[test]
fn requests_that_always_fail_delay_nobody_else() {
    for (label, count, interval, limit) in [
        ("busy", 1, 50, 0),
        ("at one call in 30 s", 1, 30_000, 0),
        ("at one call in 30 s", 2, 30_000, 0),
        ("at one call in 30 s", 4, 30_000, 40_000),
    ] {
        let script = |context: FaultContext, _: &mut Rng| match context.label {
            0 => Treatment::Serve,
            _ => Treatment::Fail(Fault::failure()),
        };
        let mut world = World::new(1, Strategy::GATE, quick(script), Clients::busy(0), 0);
        let healthy = (0..30 * MINUTE).step_by(interval);
        healthy.for_each(|at| world.submit(at, 0));
        (0..count).for_each(|_| world.submit(10_000, 1));
        world.run(30 * MINUTE);
        let waits = world.successes.iter().map(|it| it.first_call - it.arrived);
        let longest = waits.max().unwrap();
        println!("{count} {label}: others wait {longest} ms");
        assert!(longest <= limit, "{count} {label}: {longest}");
    }
}

#[test]
fn requests_that_fail_several_times_succeed_soon() {
    for (count, failures, limit) in [(20, 3, 10_000), (200, 3, 20_000), (20, 5, 60_000)] {
        for seed in 1..=3 {
            let script =
                move |context: FaultContext, _: &mut Rng| match context.earlier_calls < failures {
                    true => Treatment::Fail(Fault::failure()),
                    false => Treatment::Serve,
                };
            let clients = Clients {
                requests: Some(count),
                ..Clients::busy(usize::try_from(count).unwrap())
            };
            let mut world = World::new(seed, Strategy::GATE, quick(script), clients, 0);
            let all = usize::try_from(count).unwrap();
            world.run_while(60 * MINUTE, |world| world.successes.len() < all);
            println!("{count} requests fail {failures} times: {} ms", world.now());
            assert!(world.now() <= limit, "{count} {failures}: {}", world.now());
        }
    }
}

// --- Outages ---

#[derive(Debug)]
struct Recovery {
    calls_during: usize,
    first: u64,
    blocked: usize,
    drained: u64,
    per_success: f64,
    peak: f64,
    overtaking: u64,
}

/// Returns the highest number of calls in five seconds, relative to the capacity.
fn peak(world: &World, period: Range<u64>, capacity: f64) -> f64 {
    let times: Vec<u64> = within(world, period).map(|call| call.at).collect();
    let (mut first, mut most) = (0, 0);
    for (last, at) in times.iter().enumerate() {
        while times[first] + 5000 <= *at {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    number(most) / 5.0 / capacity
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
        drained,
        per_success,
        peak: peak(world, window, capacity),
        overtaking: overtaking[overtaking.len() * 99 / 100],
    }
}

fn holds_after(name: &str, most_calls: usize, capacity: f64, seen: &Recovery) {
    println!("{name}: {seen:?}");
    assert!(seen.calls_during <= most_calls, "{name}: {seen:?}");
    assert!(seen.first <= 20_000, "{name}: {seen:?}");
    let bound = 1.5 * number(seen.blocked) / capacity + 20.0;
    assert!(seconds(seen.drained) <= bound, "{name}: {seen:?}");
    assert!(seen.per_success <= 1.1, "{name}: {seen:?}");
}

fn outage(seed: u64, strategy: Strategy, count: u32, capacity: f64, end: u64) -> World {
    let provider =
        Provider::streaming(fails_during(BEGIN..end, Fault::failure())).with_capacity(capacity);
    let (clients, spread) = agents(count, capacity);
    World::new(seed, strategy, provider, clients, spread)
}

#[test]
fn hard_outage_costs_few_calls_and_drains_soon() {
    for (count, capacity, most) in [(500, 25.0, 150), (5000, 250.0, 160)] {
        for seed in 1..=3 {
            let end = BEGIN + 30 * MINUTE;
            let mut world = outage(seed, Strategy::GATE, count, capacity, end);
            let seen = recovery(&mut world, BEGIN..end, capacity);
            holds_after(&format!("{count} agents"), most, capacity, &seen);
            assert!(seen.peak <= 1.3, "{seen:?}");
        }
    }
}

#[test]
fn recovery_is_found_at_every_phase_of_the_probe_gap() {
    for phase in 0..10 {
        let end = BEGIN + 30 * MINUTE + phase * 1800;
        let mut world = outage(1, Strategy::GATE, 500, 25.0, end);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        holds_after(&format!("phase {phase}"), 150, 25.0, &seen);
        assert!(seen.peak <= 1.3, "{seen:?}");
    }
}

#[test]
fn held_requests_drain_at_an_unknown_pace() {
    for seed in 1..=3 {
        let (count, capacity, end) = (3000_u32, 200.0, MINUTE);
        let provider =
            Provider::streaming(fails_during(0..end, Fault::failure())).with_capacity(capacity);
        let clients = Clients {
            requests: Some(u64::from(count)),
            ..Clients::busy(usize::try_from(count).unwrap())
        };
        let mut world = World::new(seed, Strategy::GATE, provider, clients, 1000);
        let seen = recovery(&mut world, 0..end, capacity);
        println!("{seen:?}");
        assert_eq!(seen.blocked, 3000);
        assert!(
            seen.drained <= 42_000 && seen.per_success <= 1.07,
            "{seen:?}"
        );
    }
}

#[test]
fn dead_probe_holders_and_leaving_requests_cost_little() {
    let end = BEGIN + 30 * MINUTE;
    let mut world = outage(1, Strategy::GATE, 500, 25.0, end);
    world.run(BEGIN + MINUTE);
    world.dying_probes = 5;
    let seen = recovery(&mut world, BEGIN..end, 25.0);
    println!("5 holders die: {seen:?}");
    assert!(seen.calls_during <= 150 && seen.first <= 20_000, "{seen:?}");

    let end = BEGIN + 10 * MINUTE;
    let mut world = outage(1, Strategy::GATE, 500, 25.0, end);
    world.run(BEGIN + 8 * MINUTE);
    assert_eq!(world.leave(300), 300);
    let seen = recovery(&mut world, BEGIN..end, 25.0);
    println!("300 leave: {seen:?}");
    assert!(seen.blocked <= 200 && seen.drained <= 35_000, "{seen:?}");
}

// --- Fleet ---

#[test]
fn fleet_shares_one_gate() {
    let end = BEGIN + 30 * MINUTE;
    for (count, capacity, most) in [(500, 25.0, 160), (5000, 250.0, 400)] {
        for latency in [10, 250] {
            let mut world = outage(1, fleet(50, latency), count, capacity, end);
            let seen = recovery(&mut world, BEGIN..end, capacity);
            let name = format!("50 processes, {count} agents, store {latency} ms");
            holds_after(&name, most, capacity, &seen);
            assert!(seen.overtaking <= 8000, "{seen:?}");
        }
    }
}

#[test]
fn fleet_has_the_goodput_of_ideal_under_partial_failure() {
    for share in [0.02, 0.3, 0.5, 0.9] {
        let run = |strategy| {
            mean((1..=2).map(|seed| {
                let provider = Provider {
                    duration: Some(5000.0..15_000.0),
                    ..Provider::streaming(fails(share, Fault::failure()))
                };
                let world = World::new(seed, strategy, provider, Clients::busy(500), 5000);
                partial(world, 40_000, 5 * MINUTE)
            }))
        };
        holds(
            "50 processes",
            share,
            &run(fleet(50, 10)),
            &run(Strategy::IDEAL),
        );
    }
}

#[test]
fn processes_without_their_store_have_a_gate_each() {
    let end = BEGIN + 30 * MINUTE;
    for (name, gone) in [
        ("for 5 min", 720_000..1_020_000),
        ("at the end", 1_700_000..2_100_000),
    ] {
        let mut world = outage(1, fleet(5, 10), 500, 25.0, end);
        world.lose_store(gone);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        holds_after(name, 5 * 150, 25.0, &seen);
    }
    let mut world = outage(1, fleet(5, 250), 500, 25.0, end);
    let seen = recovery(&mut world, BEGIN..end, 25.0);
    holds_after("slow store", 160, 25.0, &seen);
}

// --- Rate limits ---

fn bucket(strategy: Strategy, capacity: f64, big_share: f64, fault: (FaultKind, bool)) -> World {
    let mean_size = 1.0 + 7.0 * big_share;
    let provider = Provider {
        over_capacity: fault.0,
        states_retry: fault.1,
        ..Provider::streaming(fails(0.0, Fault::failure())).with_capacity(capacity * mean_size)
    };
    let count = capacity * 20.0;
    let cycle = count / (capacity * 2.0);
    let clients = Clients {
        pause: (cycle - 9.0).max(0.0),
        big_share,
        ..Clients::busy(usize::try_from(in_millis(count / 1000.0)).unwrap())
    };
    World::new(1, strategy, provider, clients, in_millis(cycle))
}

#[test]
fn rate_limit_at_twice_its_capacity_is_used_up_with_few_refusals() {
    let (warm, length) = (MINUTE, 10 * MINUTE);
    for (capacity, big_share, kind, states) in [
        (25.0, 0.0, FaultKind::Refusal, false),
        (25.0, 0.0, FaultKind::Refusal, true),
        (250.0, 0.0, FaultKind::Refusal, false),
        (25.0, 0.1, FaultKind::Refusal, false),
        (25.0, 0.1, FaultKind::Refusal, true),
        (25.0, 0.0, FaultKind::Failure, false),
    ] {
        let mut world = bucket(Strategy::GATE, capacity, big_share, (kind, states));
        world.run(length);
        let good = within(&world, warm..length).filter(|it| it.result == CallResult::Served);
        let used: f64 = good.clone().map(|call| call.size).sum();
        let all = capacity * (1.0 + 7.0 * big_share) * seconds(length - warm);
        let (goodput, refused) = (
            used / all,
            1.0 - number(good.count()) / number(within(&world, warm..length).count()),
        );
        let says = format!(
            "{capacity}/s, big {big_share}, {kind:?}, stated {states}: goodput {goodput:.3}, refused {refused:.3}"
        );
        println!("{says}");
        assert!(goodput >= 0.95 && refused <= 0.1, "{says}");
    }
}

#[test]
fn random_refusals_bind_only_the_refused() {
    let script = |seconds: u64| {
        move |context: FaultContext, rng: &mut Rng| match rng.f64() < 0.02 {
            true => Treatment::Fail(Fault::refusal(Some(context.now + seconds * 1000))),
            false => Treatment::Serve,
        }
    };
    for (clients, spread, provider) in [
        (32, 25, quick as fn(_) -> Provider),
        (500, 5000, Provider::streaming as fn(_) -> Provider),
    ] {
        let run = |strategy| {
            mean((1..=3).map(|seed| {
                let clients = Clients::busy(clients);
                let world = World::new(seed, strategy, provider(script(5)), clients, spread);
                partial(world, 20_000, 2 * MINUTE)
            }))
        };
        holds(
            "2 % refusals",
            0.02,
            &run(Strategy::GATE),
            &run(Strategy::IDEAL),
        );
    }
}

#[test]
fn stated_times_of_an_account_stop_all_calls() {
    let reset = BEGIN + 5 * 60 * MINUTE;
    let usage = Fault {
        binds_account: true,
        ..Fault::refusal(Some(reset))
    };
    let (clients, spread) = agents(500, 25.0);
    let provider = Provider::streaming(fails_during(BEGIN..reset, usage)).with_capacity(25.0);
    let mut world = World::new(1, Strategy::GATE, provider, clients, spread);
    world.run(reset + MINUTE);
    let during: Vec<u64> = within(&world, BEGIN..reset).map(|call| call.at).collect();
    println!("usage limit: {during:?}");
    assert!(
        during.len() <= 10 && during.last().unwrap() - BEGIN <= 1000,
        "{during:?}"
    );
    assert!(served(&world, reset..reset + MINUTE) > 0);
}

#[test]
fn stated_time_of_everybody_stops_all_calls() {
    let end = BEGIN + MINUTE;
    let (clients, spread) = agents(500, 25.0);
    let fault = Fault::refusal(Some(end));
    let provider = Provider::streaming(fails_during(BEGIN..end, fault)).with_capacity(25.0);
    let mut world = World::new(1, Strategy::GATE, provider, clients, spread);
    world.run(end + MINUTE);
    let during: Vec<u64> = within(&world, BEGIN..end).map(|call| call.at).collect();
    println!("Retry-After 60: {during:?}");
    assert!(
        during.len() <= 20 && during.last().unwrap() - BEGIN <= 2000,
        "{during:?}"
    );
}

// --- Weather ---

fn weather(
    strategy: Strategy,
    script: impl FnMut(FaultContext, &mut Rng) -> Treatment + 'static,
    length: u64,
) -> (f64, f64) {
    let (clients, spread) = agents(500, 25.0);
    let provider = Provider::streaming(script).with_capacity(25.0);
    let mut world = World::new(1, strategy, provider, clients, spread);
    world.run(length);
    let good = within(&world, MINUTE..length).filter(|it| it.result == CallResult::Served);
    (
        number(good.count()),
        number(within(&world, MINUTE..length).count()),
    )
}

#[test]
fn flapping_provider_is_used_while_it_works() {
    let script = |context: FaultContext, _: &mut Rng| match context.now > MINUTE
        && (context.now - MINUTE) % 40_000 >= 20_000
    {
        true => Treatment::Fail(Fault::failure()),
        false => Treatment::Serve,
    };
    let (good, calls) = weather(Strategy::GATE, script, 11 * MINUTE);
    println!("flapping: {good} of {calls}");
    assert!(good >= 5000.0 && calls / good <= 1.2, "{good} {calls}");
}

#[test]
fn growing_and_fading_failures_have_the_goodput_of_ideal() {
    let script = |context: FaultContext, rng: &mut Rng| {
        let minutes = seconds(context.now) / 60.0;
        let share = match minutes < 8.0 {
            true => ((minutes - 2.0) / 5.0).clamp(0.0, 1.0),
            false => (1.0 - (minutes - 8.0) / 5.0).clamp(0.0, 1.0),
        };
        match rng.f64() < share {
            true => Treatment::Fail(Fault::failure()),
            false => Treatment::Serve,
        }
    };
    let (good, calls) = weather(Strategy::GATE, script, 1_000_000);
    let (ideal, _) = weather(Strategy::IDEAL, script, 1_000_000);
    println!("ramp: {good} of {calls}, ideal {ideal}");
    assert!(good >= 0.95 * ideal, "{good} {ideal}");
}

#[test]
fn hanging_calls_do_not_hide_the_failing_ones() {
    let script = |context: FaultContext, rng: &mut Rng| {
        if !(BEGIN..12 * MINUTE).contains(&context.now) {
            return Treatment::Serve;
        }
        match rng.bool() {
            true => Treatment::FailAfter(MINUTE, Fault::failure()),
            false => Treatment::Fail(Fault::failure()),
        }
    };
    let (good, calls) = weather(Strategy::GATE, script, 15 * MINUTE);
    let (ideal, ideal_calls) = weather(Strategy::IDEAL, script, 15 * MINUTE);
    println!("hang: {good} of {calls}, ideal {ideal} of {ideal_calls}");
    assert!(
        good >= 0.95 * ideal && calls <= ideal_calls / 2.0,
        "{good} {calls}"
    );
}
