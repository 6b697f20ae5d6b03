//! A part of all calls fails.

use super::*;

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
        let run = |strategy: &Strategy| {
            mean((1..=seeds).map(|seed| {
                let provider = quick(fails(share, Fault::failure()));
                let world = World::new(seed, strategy, provider, Clients::busy(32), 25);
                partial(world, warm, length)
            }))
        };
        let gate = run(&gate());
        holds("32 x 50 ms", share, &gate, &run(&ideal()));
        assert!(gate.downs <= 2 || share > 0.8, "{share}: {gate:?}");
    }
}

#[test]
fn long_calls_have_the_goodput_of_ideal_at_any_share_of_failures() {
    for is_streamed in [true, false] {
        for share in [0.02, 0.1, 0.3, 0.5, 0.7, 0.9] {
            let run = |strategy: &Strategy| {
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
            let gate = run(&gate());
            holds("500 x 10 s", share, &gate, &run(&ideal()));
            assert!(gate.downs <= 2, "{share}: {gate:?}");
        }
    }
}

#[test]
fn two_thousand_requests_take_as_long_as_ideal() {
    for (share, seeds) in [(0.01, 3), (0.02, 3), (0.1, 40), (0.3, 200)] {
        let run = |strategy: &Strategy| {
            let runs = (1..=seeds).map(|seed| {
                let clients = Clients {
                    requests: Some(2000),
                    ..Clients::busy(32)
                };
                let provider = quick(fails(share, Fault::failure()));
                let mut world = World::new(seed, strategy, provider, clients, 25);
                world.run_while(60 * MINUTE, |world| world.successes.len() < 2000);
                (world.now, world.calls.len())
            });
            runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
        };
        let (gate, ideal) = (run(&gate()), run(&ideal()));
        println!("{share}: {gate:?} ms and calls, ideal {ideal:?}");
        assert!(gate.0 * 10 <= ideal.0 * 11, "{share}: {gate:?} {ideal:?}");
        let cost = number(gate.1) / 2000.0 / f64::from(u32::try_from(seeds).unwrap());
        assert!(cost <= 1.1 / (1.0 - share), "{share}: {cost}");
    }
}

#[test]
fn requests_that_always_fail_delay_nobody_else() {
    for seed in seeds() {
        for (count, interval, limit) in [
            (1, 50, 0),
            (2, 50, 0),
            (1, 30_000, 0),
            (2, 30_000, 0),
            (4, 30_000, 40_000),
        ] {
            let script = |context: FaultContext, _: &mut Rng| match context.label {
                0 => Treatment::Serve,
                _ => Treatment::Fail(Fault::failure()),
            };
            let mut world = World::new(seed, &gate(), quick(script), Clients::busy(0), 0);
            let healthy = (0..30 * MINUTE).step_by(interval);
            healthy.for_each(|at| world.submit(at, 0));
            (0..count).for_each(|_| world.submit(10_000 + seed * 7, 1));
            world.run(30 * MINUTE);
            let waits = world.successes.iter().map(|it| it.first_call - it.arrived);
            let longest = waits.max().unwrap();
            let says =
                format!("{count} fail, one call per {interval} ms: others wait {longest} ms");
            println!("{says}");
            assert!(longest <= limit, "{says}");
        }
    }
}

/// While all was well, five failures in a row prove an outage.
#[test]
fn request_that_always_fails_delays_nobody_after_health() {
    for seed in seeds() {
        for count in [1, 2] {
            let script = |context: FaultContext, _: &mut Rng| match context.label {
                0 => Treatment::Serve,
                _ => Treatment::Fail(Fault::failure()),
            };
            let mut world = World::new(seed, &gate(), quick(script), Clients::busy(0), 0);
            let healthy = (0..MINUTE).step_by(50);
            let rare = (MINUTE..30 * MINUTE).step_by(30_000);
            healthy.chain(rare).for_each(|at| world.submit(at, 0));
            (0..count).for_each(|_| world.submit(MINUTE + seed * 100, 1));
            world.run(30 * MINUTE);
            let waits = world.successes.iter().map(|it| it.first_call - it.arrived);
            let longest = waits.max().unwrap();
            println!("{count} fail after health: others wait {longest} ms");
            assert_eq!(longest, 0, "{count}");
        }
    }
}

#[test]
fn requests_that_fail_several_times_succeed_soon() {
    for (count, failures, limit) in [(20, 3, 10_000), (200, 3, 10_000), (20, 5, 60_000)] {
        for seed in seeds() {
            let script =
                move |context: FaultContext, _: &mut Rng| match context.earlier_calls < failures {
                    true => Treatment::Fail(Fault::failure()),
                    false => Treatment::Serve,
                };
            let clients = Clients {
                requests: Some(count),
                ..Clients::busy(usize::try_from(count).unwrap())
            };
            let mut world = World::new(seed, &gate(), quick(script), clients, 0);
            let all = usize::try_from(count).unwrap();
            world.run_while(60 * MINUTE, |world| world.successes.len() < all);
            println!("{count} requests fail {failures} times: {} ms", world.now);
            assert!(world.now <= limit, "{count} {failures}: {}", world.now);
        }
    }
}
