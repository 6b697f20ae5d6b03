//! Scenarios as `outlast simulate` plays them.

use crate::simulation::{Error, Flap, Metrics, Scenario, Strategy, run};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A scenario that is soon simulated.
fn small() -> Scenario {
    Scenario {
        agents: 100,
        capacity: 10,
        ..Scenario::default()
    }
}

/// Outlast, SDK defaults, full jitter, the circuit breaker and the ideal.
fn compare(scenario: &Scenario) -> [Metrics; 5] {
    let strategies = scenario.strategies().unwrap();
    let all = strategies
        .iter()
        .map(|strategy| run(scenario, strategy).unwrap());
    let all: [Metrics; 5] = all.collect::<Vec<_>>().try_into().unwrap();
    all
}

#[test]
fn outage_is_cheap_behind_the_gate_and_expensive_without() {
    let [outlast, sdk, jitter, breaker, ideal] = compare(&small().with_outage(10 * MINUTE));
    let calls = |metrics: &Metrics| metrics.blackout.unwrap().calls;
    assert!(calls(&outlast) < 100, "{outlast:?}");
    for other in [&sdk, &jitter, &ideal] {
        assert!(calls(other) > 20 * calls(&outlast), "{other:?}");
    }
    // A breaker is as cheap, and fails all requests meanwhile.
    assert!(breaker.given_up > 1000 && outlast.given_up == 0);
    assert!(sdk.given_up > 1000, "{sdk:?}");
}

#[test]
fn circuit_breaker_suffers_from_partial_failure_and_the_gate_does_not() {
    let scenario = Scenario {
        fail_share: 0.5,
        capacity: 1000,
        load: 1,
        ..small()
    };
    let [outlast, sdk, _, breaker, ideal] = compare(&scenario);
    assert!(outlast.goodput >= 0.95 * ideal.goodput, "{outlast:?}");
    assert!(breaker.goodput < 0.5 * ideal.goodput, "{breaker:?}");
    assert!(sdk.given_up > 100 && ideal.given_up == 0);
}

#[test]
fn every_fault_shows_in_the_metrics() {
    let healthy = Scenario {
        load: 20,
        ..small()
    };
    let healthy = run(&healthy, &Strategy::ideal()).unwrap();
    // Calls that are still under way at the end.
    assert!(healthy.calls_per_success < 1.01, "{healthy:?}");
    assert_eq!((healthy.refused, healthy.given_up), (0.0, 0));
    assert_eq!(healthy.blackout, None);
    let per_success = |scenario: Scenario| {
        let metrics = run(&scenario, &Strategy::ideal()).unwrap();
        metrics.calls_per_success
    };
    let repeated = per_success(Scenario {
        fails_each: 3,
        capacity: 100,
        load: 8,
        ..small()
    });
    assert!((3.9..4.3).contains(&repeated), "{repeated}");
    let flap = Flap {
        up: MINUTE / 3,
        down: MINUTE / 3,
    };
    let flapping = Scenario {
        flap: Some(flap),
        ..small()
    };
    assert_eq!(flapping.fault_periods().len(), 12);
    assert!(per_success(flapping) > 2.0);
    let brownout = Scenario {
        brownout: Some(5 * MINUTE),
        ..small()
    };
    assert!(per_success(brownout) > 1.1);
    let poison = Scenario {
        poison: 3,
        ..small()
    };
    assert!(per_success(poison) > 1.02);
    let limited = Scenario {
        load: 200,
        ..small()
    };
    let limited = run(&limited, &Strategy::ideal()).unwrap();
    assert!(limited.refused > 0.3, "{limited:?}");
}

#[test]
fn usage_limit_makes_no_calls_until_its_reset() {
    let scenario = Scenario {
        usage_limit: Some(30 * MINUTE),
        ..small()
    };
    let [outlast, ..] = compare(&scenario);
    let seen = outlast.blackout.unwrap();
    assert!(seen.calls <= 20, "{seen:?}");
    assert!(seen.first_success.unwrap() <= 2000, "{seen:?}");
}

#[test]
fn provider_that_comes_back_with_less_is_not_overrun() {
    for seed in 1..=3 {
        let scenario = Scenario {
            recovered_capacity_percent: 40,
            seed,
            ..Scenario::default().with_outage(5 * MINUTE)
        };
        let outlast = Strategy::outlast(10, 5).unwrap();
        let outlast = run(&scenario, &outlast).unwrap();
        let seen = outlast.blackout.unwrap();
        println!("comes back at 40 %: {} {seen:?}", outlast.peak);
        let bound = Duration::from_secs(20) + Duration::from_secs(500) * 3 / 20;
        assert!(u128::from(seen.drained.unwrap()) <= bound.as_millis());
        assert!(outlast.peak <= 1.6, "{}", outlast.peak);
    }
}

#[test]
fn trace_is_determined_by_the_seed() {
    let scenario = Scenario {
        store_outage: Some(3 * MINUTE..4 * MINUTE),
        fail_share: 0.1,
        ..small().with_outage(2 * MINUTE)
    };
    let other = Scenario {
        seed: 2,
        ..scenario.clone()
    };
    let (first, again, other) = (compare(&scenario), compare(&scenario), compare(&other));
    assert_eq!(first, again);
    assert_eq!(
        first[0].calls_over_time.iter().sum::<u32>() as usize,
        first[0].calls
    );
    for (first, other) in first.iter().zip(&other) {
        assert_ne!(first.trace, other.trace);
    }
}

#[test]
fn impossible_scenario_error_states_valid_values() {
    let table = [
        (
            Scenario {
                agents: 0,
                ..small()
            },
            "the number of agents must be between 1 and 100000, not 0",
        ),
        (
            Scenario {
                length: Some(20 * MINUTE),
                ..small().with_outage(30 * MINUTE)
            },
            "the outage must end after it begins and before the run of 20m is over",
        ),
        (
            Scenario {
                store_outage: Some(5 * MINUTE..5 * MINUTE),
                ..small()
            },
            "the store's loss must end after it begins and before the run of 10m is over",
        ),
        (
            Scenario {
                agents: 3,
                capacity: 1000,
                ..small()
            },
            "3 agents cannot make 800 calls a second; take more agents, or less load or capacity",
        ),
    ];
    for (scenario, expected) in table {
        let error: Error = run(&scenario, &Strategy::ideal()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
