//! Failures that come and go.

use super::*;

/// The successes and calls of a run, after its first minute.
#[derive(Debug)]
struct Weather {
    good: f64,
    calls: f64,
}

fn weather(
    seed: u64,
    strategy: &Strategy,
    script: impl FnMut(FaultContext, &mut Rng) -> Treatment + 'static,
    length: u64,
) -> Weather {
    let (clients, spread) = agents(500, 25.0);
    let provider = Provider::streaming(script).with_capacity(25.0);
    let mut world = World::new(seed, strategy, provider, clients, spread);
    world.run(length);
    let all = within(&world, MINUTE..length);
    let good = all.clone().filter(|it| it.result == CallResult::Served);
    Weather {
        good: number(good.count()),
        calls: number(all.count()),
    }
}

#[test]
fn flapping_provider_is_used_while_it_works() {
    let script = |context: FaultContext, _: &mut Rng| match context.now > MINUTE
        && (context.now - MINUTE) % 40_000 >= 20_000
    {
        true => Treatment::Fail(Fault::failure()),
        false => Treatment::Serve,
    };
    for seed in seeds() {
        let seen = weather(seed, &gate(), script, 11 * MINUTE);
        println!("flapping: {seen:?}");
        assert!(
            seen.good >= 5000.0 && seen.calls / seen.good <= 1.2,
            "{seen:?}"
        );
    }
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
    let (mut good, mut possible) = (0.0, 0.0);
    for seed in 1..=10 {
        let seen = weather(seed, &gate(), script, 1_000_000);
        let ideal = weather(seed, &ideal(), script, 1_000_000);
        println!(
            "ramp: {:.3}, {seen:?}, ideal {ideal:?}",
            seen.good / ideal.good
        );
        (good, possible) = (good + seen.good, possible + ideal.good);
    }
    assert!(good >= 0.95 * possible, "{good} {possible}");
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
    for seed in seeds() {
        let seen = weather(seed, &gate(), script, 15 * MINUTE);
        let ideal = weather(seed, &ideal(), script, 15 * MINUTE);
        println!("hang: {seen:?}, ideal {ideal:?}");
        assert!(
            seen.good >= 0.95 * ideal.good && seen.calls <= ideal.calls / 2.0,
            "{seen:?} {ideal:?}"
        );
    }
}

/// Half of the calls fail at once, the others are answered ten seconds later than usual.
#[test]
fn brown_out_has_the_goodput_of_ideal_in_a_fleet() {
    let script = |context: FaultContext, rng: &mut Rng| {
        if !(BEGIN..BEGIN + 5 * MINUTE).contains(&context.now) {
            return Treatment::Serve;
        }
        match rng.bool() {
            true => Treatment::Fail(Fault::failure()),
            false => Treatment::Late(10_000),
        }
    };
    let (mut good, mut possible) = (0.0, 0.0);
    for seed in seeds() {
        let seen = weather(seed, &fleet(10, 5), script, 10 * MINUTE);
        let ideal = weather(seed, &ideal(), script, 10 * MINUTE);
        println!("brown-out: {seen:?}, ideal {ideal:?}");
        (good, possible) = (good + seen.good, possible + ideal.good);
    }
    assert!(good >= 0.95 * possible, "{good} {possible}");
}
