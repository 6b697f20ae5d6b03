//! Rate limits, usage limits and stated times.

use super::*;

fn bucket(seed: u64, capacity: f64, large_share: f64, fault: (FaultKind, bool)) -> World {
    let mean_size = 1.0 + 7.0 * large_share;
    let provider = Provider {
        over_capacity: fault.0,
        states_retry: fault.1,
        ..Provider::streaming(fails(0.0, Fault::failure())).with_capacity(capacity * mean_size)
    };
    let count = capacity * 20.0;
    let cycle = count / (capacity * 2.0);
    let clients = Clients {
        pause: (cycle - 9.0).max(0.0),
        large_share,
        ..Clients::busy(usize::try_from(in_millis(count / 1000.0)).unwrap())
    };
    World::new(seed, &gate(), provider, clients, in_millis(cycle))
}

#[test]
fn rate_limit_at_twice_its_capacity_is_used_up_with_few_refusals() {
    for seed in seeds() {
        for (capacity, large_share, kind, states) in [
            (25.0, 0.0, FaultKind::Refusal, false),
            (25.0, 0.0, FaultKind::Refusal, true),
            (250.0, 0.0, FaultKind::Refusal, false),
            (25.0, 0.1, FaultKind::Refusal, false),
            (25.0, 0.1, FaultKind::Refusal, true),
            (25.0, 0.0, FaultKind::Failure, false),
        ] {
            uses_up_limit(seed, capacity, large_share, (kind, states));
        }
    }
}

fn uses_up_limit(seed: u64, capacity: f64, large_share: f64, fault: (FaultKind, bool)) {
    let (warm, length) = (MINUTE, 10 * MINUTE);
    let mut world = bucket(seed, capacity, large_share, fault);
    world.run(length);
    let all = within(&world, warm..length);
    let good = all.clone().filter(|it| it.result == CallResult::Served);
    let used: f64 = good.clone().map(|call| call.size).sum();
    let possible = capacity * (1.0 + 7.0 * large_share) * seconds(length - warm);
    let goodput = used / possible;
    let refused = 1.0 - number(good.count()) / number(all.count());
    let says = format!(
        "{capacity}/s, large {large_share}, {fault:?}: goodput {goodput:.3}, refused {refused:.3}"
    );
    println!("{says}");
    assert!(goodput >= 0.95 && refused <= 0.1, "{says}");
}

/// Refuses 2 % of all calls, at random, and states a time if there is one.
fn refuses(stated: Option<u64>) -> impl FnMut(FaultContext, &mut Rng) -> Treatment {
    move |context, rng| match rng.f64() < 0.02 {
        true => Treatment::Fail(Fault::refusal(stated.map(|after| context.now + after))),
        false => Treatment::Serve,
    }
}

/// Returns the longest wait of a request before its first call.
fn longest_queueing(world: &World) -> u64 {
    let waits = world.successes.iter().map(|it| it.first_call - it.arrived);
    waits.max().unwrap()
}

#[test]
fn random_refusals_bind_only_the_refused() {
    for (clients, spread, provider) in [
        (32, 25, quick as fn(_) -> Provider),
        (500, 5000, Provider::streaming as fn(_) -> Provider),
        (500, 5000, whole as fn(_) -> Provider),
    ] {
        let run = |strategy: &Strategy| {
            mean(seeds().map(|seed| {
                let (provider, clients) = (provider(refuses(Some(5000))), Clients::busy(clients));
                let mut world = World::new(seed, strategy, provider, clients, spread);
                world.run(2 * MINUTE);
                // By chance, refusals come in a run once in some hundred thousand calls.
                let queued = world
                    .successes
                    .iter()
                    .filter(|it| it.first_call > it.arrived);
                assert!(queued.count() * 100 <= world.successes.len(), "{seed}");
                partial(world, 20_000, 2 * MINUTE)
            }))
        };
        holds("2 % refusals", 0.02, &run(&gate()), &run(&ideal()));
    }
}

/// All calls of a burst are under way, and some refused, before the first of them can succeed.
#[test]
fn burst_with_random_refusals_is_not_paced() {
    for (seed, stated) in seeds().flat_map(|seed| [(seed, None), (seed, Some(5000))]) {
        for (name, strategy, earlier) in [
            ("one process", gate(), 0),
            ("one process, after slow traffic", gate(), MINUTE),
            ("50 processes", fleet(50, 10), 0),
        ] {
            for provider in [Provider::streaming as fn(_) -> Provider, whole] {
                let (provider, clients) = (provider(refuses(stated)), Clients::busy(0));
                let mut world = World::new(seed, &strategy, provider, clients, 25);
                (0..earlier)
                    .step_by(1000)
                    .for_each(|at| world.submit(at, 1));
                (0..1000).for_each(|at| world.submit(earlier + at / 20 + at / 500 * 5000, 0));
                world.run(earlier + MINUTE);
                let queued = longest_queueing(&world);
                println!("burst, {name}, {stated:?}: {queued} ms");
                assert_eq!(queued, 0, "{name}, {stated:?}");
            }
        }
    }
}

#[test]
fn usage_limit_stops_all_calls_of_the_account() {
    let reset = BEGIN + 5 * 60 * MINUTE;
    for (seed, strategy) in seeds().flat_map(|seed| [(seed, gate()), (seed, fleet(10, 10))]) {
        let (clients, spread) = agents(500, 25.0);
        let script = fails_during(BEGIN..reset, Fault::usage_limit(reset));
        let provider = Provider::streaming(script).with_capacity(25.0);
        let mut world = World::new(seed, &strategy, provider, clients, spread);
        let seen = recovery(&mut world, BEGIN..reset, 25.0);
        let last = within(&world, BEGIN..reset).last().unwrap().at - BEGIN;
        println!("usage limit: last call after {last} ms, {seen:?}");
        // Calls that went out before the first refusal was known, to other processes within a second.
        let in_flight = if world.processes.len() > 1 { 40 } else { 10 };
        assert!(
            seen.calls_during <= in_flight && last <= 1200,
            "{last} {seen:?}"
        );
        assert!(seen.left == 0 && seen.first <= 2000, "{seen:?}");
    }
}

#[test]
fn stated_time_of_everybody_stops_all_calls() {
    let end = BEGIN + MINUTE;
    for seed in seeds() {
        let (clients, spread) = agents(500, 25.0);
        let script = fails_during(BEGIN..end, Fault::refusal(Some(end)));
        let provider = Provider::streaming(script).with_capacity(25.0);
        let mut world = World::new(seed, &gate(), provider, clients, spread);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        let last = within(&world, BEGIN..end).last().unwrap().at - BEGIN;
        println!("Retry-After 60: last call after {last} ms, {seen:?}");
        assert!(seen.calls_during <= 20 && last <= 2000, "{last} {seen:?}");
    }
}
