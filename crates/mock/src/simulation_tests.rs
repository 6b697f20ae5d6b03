use super::*;
use outlast_kernel::policy::Policy;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn minutes(count: u32) -> Duration {
    MINUTE * count
}

fn ours() -> Strategy {
    Strategy::gated(Policy::named("overnight").unwrap())
}

fn overload() -> Scenario {
    Scenario {
        load: 200,
        length: minutes(20),
        ..Scenario::default()
    }
}

/// Returns the four variants of a scenario, by the provider's limits and responses.
fn variants(scenario: &Scenario) -> [Scenario; 4] {
    let tokens = Some(scenario.capacity * 10_000);
    [(None, false), (None, true), (tokens, false), (tokens, true)].map(
        |(tokens_per_second, retry_after)| Scenario {
            tokens_per_second,
            retry_after,
            ..scenario.clone()
        },
    )
}

/// Plays a scenario with the gate and asserts the guarantees that hold with a store.
fn assert_guarantees(scenario: &Scenario) -> Metrics {
    let numbers = run(scenario, &ours()).unwrap();
    println!("{scenario:?}: {numbers:?}");
    assert!(numbers.attempts_per_success <= 1.05);
    assert!(numbers.peak <= 1.2);
    assert!(numbers.fairness >= 0.99);
    assert_eq!(numbers.given_up, 0);
    if scenario.outage.is_some() {
        let seconds = 1.5 * numbers.blocked as f64 / f64::from(scenario.capacity) + 20.0;
        assert!(numbers.first_success.unwrap() <= 20_000);
        assert!(numbers.drained.unwrap() as f64 <= seconds * 1000.0);
    }
    if let Some(goodput) = numbers.goodput {
        assert!(goodput >= 0.97);
    }
    numbers
}

// --- with the gate ---

#[test]
fn gate_keeps_outage_calls_low_for_any_agent_count() {
    for agents in [500, 5000] {
        let scenario = Scenario {
            agents,
            ..Scenario::default()
        };
        for scenario in variants(&scenario.with_outage(minutes(30))) {
            let numbers = assert_guarantees(&scenario);
            assert!(numbers.attempts_in_outage <= 150);
            assert_eq!(numbers.blocked, agents as usize);
        }
    }
}

#[test]
fn guarantees_hold_for_short_and_long_outages() {
    for agents in [500, 5000] {
        for (outage, most) in [(minutes(1), 40), (minutes(240), 1000)] {
            let scenario = Scenario {
                agents,
                ..Scenario::default()
            };
            let numbers = assert_guarantees(&scenario.with_outage(outage));
            assert!(numbers.attempts_in_outage <= most);
        }
    }
}

#[test]
fn sustained_overload_uses_capacity_with_few_refusals() {
    for agents in [500, 5000] {
        let scenario = Scenario {
            agents,
            length: minutes(30),
            ..overload()
        };
        for scenario in variants(&scenario) {
            let numbers = assert_guarantees(&scenario);
            assert!(numbers.goodput.is_some());
        }
    }
}

#[test]
fn guarantees_hold_at_ten_times_the_capacity() {
    assert_guarantees(&Scenario {
        agents: 5000,
        capacity: 250,
        outage: Some(minutes(3)..minutes(5)),
        length: minutes(10),
        ..Scenario::default()
    });
}

#[test]
fn pace_follows_reduced_capacity_after_recovery() {
    for recovered_capacity_percent in [40, 80] {
        let scenario = Scenario {
            recovered_capacity_percent,
            ..Scenario::default()
        };
        let numbers = run(&scenario.with_outage(minutes(5)), &ours()).unwrap();
        println!("{numbers:?}");
        let capacity = 25.0 * f64::from(recovered_capacity_percent) / 100.0;
        let seconds = 1.5 * numbers.blocked as f64 / capacity + 20.0;
        assert!(numbers.drained.unwrap() as f64 <= seconds * 1000.0);
        assert!(numbers.attempts_per_success <= 1.05);
        assert!(numbers.peak <= 1.6);
        assert_eq!(
            numbers.goodput.is_some(),
            recovered_capacity_percent == 40,
            "less than is wanted"
        );
        assert!(numbers.goodput.is_none_or(|goodput| goodput >= 0.97));
    }
}

#[test]
fn dead_probe_blocks_others_only_for_its_lease() {
    let scenario = Scenario {
        dead_probes: 5,
        ..Scenario::default()
    };
    let numbers = assert_guarantees(&scenario.with_outage(minutes(30)));
    assert_eq!(numbers.blocked, 495);
    let lively = assert_guarantees(&Scenario::default().with_outage(minutes(30)));
    let fewer = lively.attempts_in_outage - numbers.attempts_in_outage;
    assert!(
        (10..=25).contains(&fewer),
        "five minutes without a probe: {fewer}"
    );
}

// --- without the gate ---

#[test]
fn ungated_strategies_waste_calls_or_recover_late() {
    let scenario = Scenario::default().with_outage(minutes(30));
    let all: Vec<Metrics> = Strategy::standard_set()
        .unwrap()
        .iter()
        .map(|strategy| run(&scenario, strategy).unwrap())
        .collect();
    let [ours, full_jitter, stepped, sdk] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(full_jitter.attempts_in_outage > 200 * ours.attempts_in_outage);
    assert!(sdk.attempts_in_outage > 500 * ours.attempts_in_outage);
    assert!(stepped.attempts_in_outage > 20 * ours.attempts_in_outage);
    assert!(full_jitter.drained.unwrap() > ours.drained.unwrap());
    assert!(stepped.drained.unwrap() > 2 * ours.drained.unwrap());
    assert!(sdk.given_up > 10_000);
    assert_eq!(ours.given_up + full_jitter.given_up + stepped.given_up, 0);
    for other in [full_jitter, stepped, sdk] {
        assert!(other.wasted_tokens > 20 * ours.wasted_tokens);
    }
}

#[test]
fn ungated_strategies_are_often_refused_under_overload() {
    for strategy in &Strategy::standard_set().unwrap()[1..] {
        let numbers = run(&overload(), strategy).unwrap();
        assert!(numbers.attempts_per_success > 1.5, "{}", strategy.name);
    }
}

#[test]
fn policy_none_gives_up_on_every_failed_attempt() {
    let none = Policy::named("none").unwrap();
    let scenario = Scenario::default().with_outage(minutes(1));
    let numbers = run(&scenario, &Strategy::ungated(none)).unwrap();
    // Each of them made two or three attempts, thirty seconds apart.
    assert!((700..1500).contains(&numbers.given_up), "{numbers:?}");
    assert_eq!(numbers.attempts_in_outage, numbers.given_up as usize);
}

// --- without the store ---

#[test]
fn store_outage_costs_few_attempts_and_agents_rejoin() {
    let outage = Scenario::default().with_outage(minutes(30));
    let overload = Scenario {
        length: minutes(60),
        ..overload()
    };
    let table = [
        ("all the outage", &outage, 9..41),
        ("a part of the outage", &outage, 15..20),
        ("the recovery", &outage, 38..42),
        ("under overload", &overload, 10..20),
    ];
    for (case, scenario, down) in table {
        let scenario = Scenario {
            store_outage: Some(minutes(down.start)..minutes(down.end)),
            ..scenario.clone()
        };
        let numbers = run(&scenario, &ours()).unwrap();
        println!("{case}: {numbers:?}");
        assert!(numbers.attempts_per_success <= 1.25, "{case}");
        assert!(numbers.rejoined_after.unwrap() <= 10_000, "{case}");
        if scenario.outage.is_some() {
            let without = u64::from(down.end).saturating_sub(40) * 60_000;
            assert!(numbers.drained.unwrap() <= without + 50_000, "{case}");
        }
    }
}

// --- the simulation itself ---

#[test]
fn trace_is_determined_by_the_seed() {
    let scenario = Scenario {
        retry_after: true,
        store_outage: Some(minutes(12)..minutes(13)),
        ..Scenario::default().with_outage(minutes(5))
    };
    for strategy in Strategy::standard_set().unwrap() {
        let first = run(&scenario, &strategy).unwrap();
        assert_eq!(run(&scenario, &strategy).unwrap(), first);
        let other = Scenario {
            seed: 2,
            ..scenario.clone()
        };
        assert_ne!(run(&other, &strategy).unwrap().trace, first.trace);
    }
}

#[test]
fn normal_load_needs_no_retries() {
    let scenario = Scenario {
        load: 50,
        length: minutes(20),
        ..Scenario::default()
    };
    for strategy in Strategy::standard_set().unwrap() {
        let numbers = run(&scenario, &strategy).unwrap();
        assert_eq!(numbers.attempts, numbers.successes);
        // Half of 25 calls per second, for twenty minutes.
        assert!(numbers.successes.abs_diff(15_000) < 300, "{numbers:?}");
        let over_time: u32 = numbers.attempts_over_time.iter().sum();
        assert_eq!(over_time as usize, numbers.attempts);
        assert_eq!((numbers.first_success, numbers.drained), (None, None));
    }
}

#[test]
fn impossible_scenario_error_states_valid_values() {
    let table = [
        (
            Scenario {
                agents: 0,
                ..Scenario::default()
            },
            "the number of agents must be between 1 and 100000, not 0",
        ),
        (
            Scenario {
                tokens_per_second: Some(100),
                ..Scenario::default()
            },
            "the tokens a second must be between 250 and 4294967295, not 100",
        ),
        (
            Scenario {
                outage: Some(minutes(50)..minutes(70)),
                ..Scenario::default()
            },
            "the outage must end after it begins and before the run of 1h is over",
        ),
        (
            Scenario {
                store_outage: Some(minutes(5)..minutes(5)),
                ..Scenario::default()
            },
            "the store's loss must end after it begins and before the run of 1h is over",
        ),
        (
            Scenario {
                agents: 3,
                ..Scenario::default()
            },
            "3 agents cannot make 20 calls a second; take more agents, or less load or capacity",
        ),
    ];
    for (scenario, expected) in table {
        let error = run(&scenario, &ours()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
