//! Plays every scenario by which the gate is judged and prints the metrics as a table.
//!
//! `scripts/simulate-all` builds and runs it. It fails when the gate misses a guaranteed metric.
#![expect(
    clippy::print_stdout,
    reason = "a program of its own: the table is its output"
)]

use outlast_mock::simulation::{Error, Metrics, Scenario, Strategy, run};
use std::process::ExitCode;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A scenario, its name, and whether the gate is compared with the others.
struct Case {
    name: String,
    scenario: Scenario,
    compared: bool,
}

fn main() -> ExitCode {
    match play(&cases()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            println!("\n{missed} missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays all cases; returns the number of metrics that the gate missed.
fn play(cases: &[Case]) -> Result<usize, Box<dyn std::error::Error>> {
    println!(
        "| scenario | strategy | in outage | per success | first | drained | refused | peak | goodput | fairness | wasted | |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    let strategies = Strategy::standard_set()?;
    let mut all_missed = 0;
    for case in cases {
        let played = if case.compared { strategies.len() } else { 1 };
        for (index, strategy) in strategies.iter().take(played).enumerate() {
            let numbers =
                run(&case.scenario, strategy).map_err(|error: Error| error.to_string())?;
            let missed = if index == 0 {
                missed_targets(&case.scenario, &numbers)
            } else {
                Vec::new()
            };
            all_missed += missed.len();
            let name = if index == 0 { case.name.as_str() } else { "" };
            println!("{}", row(name, &strategy.name, &numbers, &missed));
        }
    }
    Ok(all_missed)
}

// --- the scenarios ---

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for agents in [500, 5000] {
        let base = Scenario {
            agents,
            ..Scenario::default()
        };
        cases.extend(fault_cases(&base, &format!("{agents} agents"), true));
    }
    for agents in [500, 5000] {
        let base = Scenario {
            agents,
            retry_after: true,
            ..Scenario::default()
        };
        cases.extend(fault_cases(&base, &format!("{agents}, retry-after"), false));
        let base = Scenario {
            tokens_per_second: Some(250_000),
            retry_after: false,
            ..base
        };
        cases.extend(fault_cases(&base, &format!("{agents}, tokens"), false));
    }
    let base = Scenario {
        agents: 5000,
        capacity: 250,
        ..Scenario::default()
    };
    cases.extend(fault_cases(&base, "5000 at 250 calls/s", false));
    for agents in [500, 5000] {
        let base = Scenario {
            agents,
            recovered_capacity_percent: 40,
            ..Scenario::default()
        };
        let name = format!("{agents}, 30 m, comes back at 40 %");
        cases.push(case(&name, base.with_outage(30 * MINUTE)));
    }
    let base = Scenario {
        dead_probes: 5,
        ..Scenario::default()
    };
    cases.push(case(
        "500, five die probing, 30 m",
        base.with_outage(30 * MINUTE),
    ));
    cases.extend(store_losses());
    cases
}

/// Returns three outages and an overload.
fn fault_cases(base: &Scenario, name: &str, compared: bool) -> Vec<Case> {
    let outages = [(1, "1 m"), (30, "30 m"), (240, "4 h")];
    let outages = outages.map(|(minutes, length)| Case {
        name: format!("{name}, {length}"),
        scenario: base.clone().with_outage(minutes * MINUTE),
        compared,
    });
    let overload = Case {
        name: format!("{name}, overload 2:1"),
        scenario: Scenario {
            load: 200,
            ..base.clone()
        },
        compared,
    };
    outages.into_iter().chain([overload]).collect()
}

fn store_losses() -> [Case; 4] {
    let outage = Scenario::default().with_outage(30 * MINUTE);
    let overload = Scenario {
        load: 200,
        ..Scenario::default()
    };
    let lost = |name: &str, scenario: &Scenario, from: u32, to: u32| {
        let store_outage = Some(from * MINUTE..to * MINUTE);
        case(
            name,
            Scenario {
                store_outage,
                ..scenario.clone()
            },
        )
    };
    [
        lost("500, 30 m, no store in all of it", &outage, 9, 41),
        lost("500, 30 m, no store for 5 m of it", &outage, 15, 20),
        lost("500, 30 m, no store at its end", &outage, 38, 42),
        lost("500, overload 2:1, no store for 10 m", &overload, 10, 20),
    ]
}

fn case(name: &str, scenario: Scenario) -> Case {
    Case {
        name: name.to_owned(),
        scenario,
        compared: false,
    }
}

// --- the guarantees ---

/// Returns the guarantees that were not kept.
fn missed_targets(scenario: &Scenario, numbers: &Metrics) -> Vec<&'static str> {
    let without_store = scenario.store_outage.is_some();
    let capacity = f64::from(scenario.capacity * scenario.recovered_capacity_percent) / 100.0;
    let drained = 1.5 * numbers.blocked as f64 / capacity + 20.0;
    let late = |time: Option<u64>, seconds: f64| {
        scenario.outage.is_some() && time.is_none_or(|time| time as f64 > seconds * 1000.0)
    };
    // Calls that were in flight before the first refusal of a faster provider was known.
    let leaked = scenario.capacity.saturating_sub(25) as usize / 4;
    let half_an_hour = scenario
        .outage
        .as_ref()
        .is_some_and(|outage| outage.end - outage.start == 30 * MINUTE);
    let always = [
        (
            "per success",
            numbers.attempts_per_success > if without_store { 1.25 } else { 1.05 },
        ),
        (
            "joined",
            without_store && numbers.rejoined_after.is_none_or(|time| time > 10_000),
        ),
    ];
    let with_store = [
        (
            "in outage",
            half_an_hour && numbers.attempts_in_outage > 150 + leaked,
        ),
        ("first", late(numbers.first_success, 20.0)),
        ("drained", late(numbers.drained, drained)),
        // A provider does not report that it came back with less capacity than before.
        (
            "peak",
            numbers.peak
                > if scenario.recovered_capacity_percent < 100 {
                    1.6
                } else {
                    1.2
                },
        ),
        (
            "goodput",
            numbers.goodput.is_some_and(|goodput| goodput < 0.97),
        ),
        ("fairness", numbers.fairness < 0.99),
    ];
    let with_store = with_store.into_iter().filter(|_| !without_store);
    let missed = always
        .into_iter()
        .chain(with_store)
        .filter(|(_, missed)| *missed);
    missed.map(|(name, _)| name).collect()
}

// --- the table ---

fn row(scenario: &str, strategy: &str, numbers: &Metrics, missed: &[&str]) -> String {
    let seconds = |time: Option<u64>| {
        time.map_or("–".to_owned(), |time| {
            format!("{:.1} s", time as f64 / 1000.0)
        })
    };
    let goodput = numbers
        .goodput
        .map_or("–".to_owned(), |goodput| format!("{goodput:.3}"));
    let remark = match (missed, numbers.rejoined_after) {
        ([], None) => String::new(),
        ([], Some(time)) => format!("joined {}", seconds(Some(time))),
        (missed, _) => format!("MISSED {}", missed.join(", ")),
    };
    let cells = [
        scenario.to_owned(),
        strategy.to_owned(),
        numbers.attempts_in_outage.to_string(),
        format!("{:.3}", numbers.attempts_per_success),
        seconds(numbers.first_success),
        seconds(numbers.drained),
        numbers.refused_after_recovery.to_string(),
        format!("{:.2}", numbers.peak),
        goodput,
        format!("{:.4}", numbers.fairness),
        format!("{:.1} M", numbers.wasted_tokens as f64 / 1e6),
        remark,
    ];
    format!("| {} |", cells.join(" | "))
}
