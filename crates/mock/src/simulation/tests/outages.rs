//! Nothing works for some time, in one process.

use super::super::requests::id_of;
use super::*;

#[test]
fn hard_outage_costs_few_calls_and_drains_soon() {
    for (count, capacity, most) in [(500, 25.0, 150), (5000, 250.0, 160)] {
        for seed in seeds() {
            let end = BEGIN + 30 * MINUTE;
            let mut world = outage(seed, &gate(), count, capacity, end);
            let seen = recovery(&mut world, BEGIN..end, capacity);
            holds_after(&format!("{count} agents"), most, capacity, &seen);
            assert!(seen.peak <= 1.3, "{seen:?}");
        }
    }
}

#[test]
fn recovery_is_found_at_every_phase_of_the_probe_gap() {
    for (seed, phase) in seeds().flat_map(|seed| (0..10).map(move |phase| (seed, phase))) {
        let end = BEGIN + 30 * MINUTE + phase * 1800;
        let mut world = outage(seed, &gate(), 500, 25.0, end);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        holds_after(&format!("phase {phase}"), 150, 25.0, &seen);
        assert!(seen.peak <= 1.3, "{seen:?}");
    }
}

#[test]
fn held_requests_drain_at_an_unknown_pace() {
    for seed in seeds() {
        let (count, capacity, end) = (3000_u32, 200.0, MINUTE);
        let provider =
            Provider::streaming(fails_during(0..end, Fault::failure())).with_capacity(capacity);
        let clients = Clients {
            requests: Some(u64::from(count)),
            ..Clients::busy(usize::try_from(count).unwrap())
        };
        let mut world = World::new(seed, &gate(), provider, clients, 1000);
        let seen = recovery(&mut world, 0..end, capacity);
        println!("unknown pace: {seen:?}");
        assert_eq!((seen.blocked, seen.left), (3000, 0));
        assert!(
            seen.drained <= 42_000 && seen.per_success <= 1.07 && seen.peak <= 1.3,
            "{seen:?}"
        );
    }
}

#[test]
fn dead_probe_holder_costs_others_at_most_twenty_seconds() {
    let end = BEGIN + 30 * MINUTE;
    for seed in seeds() {
        let mut world = outage(seed, &gate(), 500, 25.0, end);
        world.run(BEGIN + MINUTE);
        world.dying_probes = 5;
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        println!("5 holders die: {seen:?}");
        assert!(seen.calls_during <= 150 && seen.first <= 20_000, "{seen:?}");

        // The first one who probes after the recovery dies as well.
        let mut world = outage(seed, &gate(), 500, 25.0, end);
        world.run(end);
        world.dying_probes = 1;
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        println!("the last holder dies: {seen:?}");
        assert!(seen.first <= 40_000 && seen.left == 0, "{seen:?}");
    }
}

impl World {
    /// Removes the requests that wait and arrived first, at most so many; returns their number.
    fn leave(&mut self, most: usize) -> usize {
        let mut left = 0;
        for id in 0..self.requests.len() {
            let request = &mut self.requests[id];
            if left < most && request.call.is_none() && !request.is_over {
                request.is_over = true;
                left += 1;
                let process = request.process;
                self.processes[process].view.queue.leave(id_of(id));
            }
        }
        left
    }
}

#[test]
fn requests_that_leave_the_queue_are_not_called() {
    for seed in seeds() {
        let end = BEGIN + 10 * MINUTE;
        let mut world = outage(seed, &gate(), 500, 25.0, end);
        world.run(BEGIN + 8 * MINUTE);
        assert_eq!(world.leave(300), 300);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        println!("300 leave: {seen:?}");
        assert!(seen.blocked <= 200 && seen.drained <= 35_000, "{seen:?}");
    }
}

#[test]
fn oldest_request_that_always_fails_does_not_hide_the_recovery() {
    let end = BEGIN + 10 * MINUTE;
    for seed in seeds() {
        let script = move |context: FaultContext, _: &mut Rng| match context.label > 0
            || (BEGIN..end).contains(&context.now)
        {
            true => Treatment::Fail(Fault::failure()),
            false => Treatment::Serve,
        };
        let provider = Provider::streaming(script).with_capacity(25.0);
        let (clients, spread) = agents(500, 25.0);
        let mut world = World::new(seed, &gate(), provider, clients, spread);
        world.submit(BEGIN - 1, 1);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        println!("oldest always fails: {seen:?}");
        assert!(seen.first <= 40_000 && seen.left == 0, "{seen:?}");
    }
}

#[test]
fn outage_of_refusals_costs_as_few_calls_as_one_of_failures() {
    let end = BEGIN + 30 * MINUTE;
    for seed in seeds() {
        let script = fails_during(BEGIN..end, Fault::refusal(None));
        let provider = Provider::streaming(script).with_capacity(25.0);
        let (clients, spread) = agents(500, 25.0);
        let mut world = World::new(seed, &gate(), provider, clients, spread);
        let seen = recovery(&mut world, BEGIN..end, 25.0);
        holds_after("outage of refusals", 150, 25.0, &seen);
    }
}
