//! Many processes share one gate.

use super::*;
use outlast_kernel::policy::Policy;

#[test]
fn fleet_shares_one_gate() {
    let end = BEGIN + 30 * MINUTE;
    for (count, capacity, most) in [(500, 25.0, 160), (5000, 250.0, 400)] {
        for (seed, latency) in seeds().flat_map(|seed| [(seed, 10), (seed, 250)]) {
            let mut world = outage(seed, &fleet(50, latency), count, capacity, end);
            let seen = recovery(&mut world, BEGIN..end, capacity);
            let name = format!("50 processes, {count} agents, store {latency} ms");
            holds_after(&name, most, capacity, &seen);
            assert!(seen.overtaking <= 8000 && seen.peak <= 1.3, "{seen:?}");
        }
    }
}

#[test]
fn fleet_has_the_goodput_of_ideal_under_partial_failure() {
    for share in [0.02, 0.3, 0.5, 0.9] {
        let run = |strategy: &Strategy| {
            mean(seeds().map(|seed| {
                let provider = Provider {
                    duration: Some(5000.0..15_000.0),
                    ..Provider::streaming(fails(share, Fault::failure()))
                };
                let world = World::new(seed, strategy, provider, Clients::busy(500), 5000);
                partial(world, 40_000, 5 * MINUTE)
            }))
        };
        let gate = run(&fleet(50, 10));
        holds("50 processes", share, &gate, &run(&ideal()));
        assert!(gate.downs <= 3, "{share}: {gate:?}");
    }
}

#[test]
fn slow_store_keeps_all_promises() {
    let end = BEGIN + 30 * MINUTE;
    for seed in seeds() {
        let mut world = outage(seed, &fleet(5, 250), 500, 25.0, end);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        holds_after("slow store", 150, 25.0, &seen);
        assert!(seen.peak <= 1.3, "{seen:?}");
    }
}

#[test]
fn processes_without_their_store_have_a_gate_each_and_rejoin() {
    let end = BEGIN + 30 * MINUTE;
    for seed in seeds() {
        for (name, gone) in [
            ("for 5 min", 720_000..1_020_000),
            ("for all of it", BEGIN - 1000..end + 60_000),
            ("at the end", 1_700_000..2_100_000),
        ] {
            let mut world = outage(seed, &fleet(5, 10), 500, 25.0, end);
            world.lose_store(gone);
            let seen = recovery(&mut world, BEGIN..end, 25.0);
            println!("no store {name}: {seen:?}");
            assert!(seen.calls_during <= 5 * 150 && seen.first <= 20_000);
            let bound = 1.5 * number(seen.blocked) / 25.0 + 20.0;
            assert!(seen.left == 0 && seconds(seen.drained) <= bound);
            assert!(seen.per_success <= 1.25);
            let rejoined = world.rejoined_after().unwrap();
            assert!(rejoined <= 10_000, "{name}: {rejoined}");
        }
    }
}

/// Sessions and gateways begin in an outage, each in a process of its own.
#[test]
fn sixty_processes_meet_one_outage_with_few_calls() {
    let policies = ["overnight", "gateway"].map(|name| Policy::named(name).unwrap());
    for (seed, spread) in seeds().flat_map(|seed| [0, 5000, 30_000].map(|spread| (seed, spread))) {
        let period = BEGIN..BEGIN + MINUTE;
        let provider = Provider::streaming(fails_during(period.clone(), Fault::failure()));
        let strategy = Strategy::gate(60, 10, &policies);
        let mut world = World::new(seed, &strategy, provider, Clients::busy(0), 0);
        let mut rng = Rng::with_seed(seed);
        (0..60).for_each(|_| world.submit(BEGIN + rng.u64(0..=spread), 0));
        let seen = recovery(&mut world, period, 25.0);
        println!("60 processes, begun within {spread} ms: {seen:?}");
        assert!(seen.calls_during <= 60 + 26, "{spread}: {seen:?}");
        assert!(seen.left == 0 && seen.first <= 20_000, "{spread}: {seen:?}");
    }
}

#[test]
fn few_sessions_follow_the_first_success() {
    for seed in seeds() {
        let policies = [Policy::named("overnight").unwrap()];
        let period = BEGIN..BEGIN + 30 * MINUTE;
        let provider = Provider::streaming(fails_during(period.clone(), Fault::failure()));
        let strategy = Strategy::gate(3, 10, &policies);
        let mut world = World::new(seed, &strategy, provider, Clients::busy(0), 0);
        // They are too few to take the gate down, and sleep for ten to fifteen minutes in the end.
        for minutes in [0, 4, 11] {
            world.submit(BEGIN + minutes * MINUTE, 0);
        }
        let seen = recovery(&mut world, period, 25.0);
        println!("three sessions: {seen:?}");
        assert!(seen.left == 0, "{seen:?}");
        assert!(seen.drained - seen.first <= 20_000, "{seen:?}");
    }
}

/// All of them are refused until a stated time, and then wake together.
#[test]
fn fleet_meets_a_small_unknown_pace_gently() {
    for (seed, latency) in seeds().flat_map(|seed| [10, 50].map(|latency| (seed, latency))) {
        let policies = [Policy::named("overnight").unwrap()];
        let period = BEGIN..BEGIN + MINUTE / 2;
        let fault = Fault::refusal(Some(period.end));
        let provider = Provider::streaming(fails_during(period.clone(), fault)).with_capacity(25.0);
        let strategy = Strategy::gate(10, latency, &policies);
        let mut world = World::new(seed, &strategy, provider, Clients::busy(0), 0);
        (0..200).for_each(|number| world.submit(BEGIN + number, 0));
        let seen = recovery(&mut world, period, 25.0);
        println!("unknown pace of a fleet, store {latency} ms: {seen:?}");
        assert!(seen.left == 0 && seen.drained <= 32_000, "{seen:?}");
        assert!(seen.per_success <= 1.15 && seen.peak <= 1.3, "{seen:?}");
    }
}

/// The provider has never answered, and states no time.
#[test]
fn fleet_that_is_only_refused_probes_at_once() {
    for seed in seeds() {
        let policies = [Policy::named("overnight").unwrap()];
        let period = BEGIN..BEGIN + MINUTE / 2;
        let provider = Provider::streaming(fails_during(period.clone(), Fault::refusal(None)));
        let strategy = Strategy::gate(10, 10, &policies);
        let provider = provider.with_capacity(25.0);
        let mut world = World::new(seed, &strategy, provider, Clients::busy(0), 0);
        (0..200).for_each(|number| world.submit(BEGIN + number / 20, 0));
        let seen = recovery(&mut world, period, 25.0);
        println!("only refused: {seen:?}");
        assert!(seen.calls_during <= 200 + 26, "{seen:?}");
        assert!(seen.left == 0 && seen.first <= 20_000, "{seen:?}");
    }
}
