//! Simulates every scenario by which the gate is judged, and prints the metrics as a table.
//!
//! `scripts/simulate-all` builds and runs it. It fails when Outlast misses a guaranteed metric.
#![expect(
    clippy::print_stdout,
    reason = "a program of its own: the table is its output"
)]

use outlast_mock::simulation::{Flap, Metrics, Scenario, run};
use std::process::ExitCode;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A scenario, its name, and the strategies: all, or Outlast and the ideal.
struct Case {
    name: &'static str,
    scenario: Scenario,
    is_compared: bool,
    guarantees: Guarantees,
}

/// The guaranteed metrics of Outlast.
#[derive(Clone, Copy)]
struct Guarantees {
    least_of_ideal: f64,
    most_per_success: f64,
    /// Calls in the outage.
    most_calls: usize,
    most_refused: f64,
    most_peak: f64,
}

const USUAL: Guarantees = Guarantees {
    least_of_ideal: 0.0,
    most_per_success: 1.1,
    most_calls: 150,
    most_refused: 0.1,
    most_peak: 1.3,
};

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

/// Simulates all cases; returns the number of metrics that Outlast missed.
fn play(cases: &[Case]) -> Result<usize, Box<dyn std::error::Error>> {
    println!(
        "| scenario | strategy | of ideal | per success | median | 99 % | in outage | first | drained | refused | peak | given up | |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut all_missed = 0;
    for case in cases {
        let strategies = case.scenario.strategies()?;
        let mut all = Vec::new();
        for strategy in &strategies {
            let is_needed = case.is_compared || ["outlast", "ideal"].contains(&&*strategy.name);
            if is_needed {
                all.push((&strategy.name, run(&case.scenario, strategy)?));
            }
        }
        let ideal = all.last().map_or(1.0, |(_, metrics)| metrics.goodput);
        for (index, (strategy, metrics)) in all.iter().enumerate() {
            if index > 0 && !case.is_compared {
                continue;
            }
            let missed = match index {
                0 => missed_guarantees(case, metrics, metrics.goodput / ideal),
                _ => Vec::new(),
            };
            all_missed += missed.len();
            let name = if index == 0 { case.name } else { "" };
            println!("{}", row([name, strategy], metrics, ideal, &missed));
        }
    }
    Ok(all_missed)
}

// --- The scenarios ---

fn cases() -> Vec<Case> {
    let mut cases = outages();
    cases.extend(store_faults());
    cases.extend(partial_failures());
    cases.extend(weather());
    cases.extend(limits());
    cases
}

fn compared(name: &'static str, scenario: Scenario, guarantees: Guarantees) -> Case {
    Case {
        name,
        scenario,
        is_compared: true,
        guarantees,
    }
}

fn single(name: &'static str, scenario: Scenario, guarantees: Guarantees) -> Case {
    Case {
        is_compared: false,
        ..compared(name, scenario, guarantees)
    }
}

fn half_an_hour() -> Scenario {
    Scenario::default().with_outage(30 * MINUTE)
}

const fn with_calls(most_calls: usize) -> Guarantees {
    Guarantees {
        most_calls,
        ..USUAL
    }
}

fn outages() -> Vec<Case> {
    let large = |processes| Scenario {
        agents: 5000,
        capacity: 250,
        processes,
        ..half_an_hour()
    };
    let alone = Scenario {
        store_latency: Duration::ZERO,
        ..large(1)
    };
    let recovering = Scenario {
        recovered_capacity_percent: 40,
        ..half_an_hour()
    };
    // Nothing tells that less is carried than before.
    let sudden = Guarantees {
        most_peak: 1.6,
        ..USUAL
    };
    let dying = Scenario {
        dead_probes: 5,
        ..half_an_hour()
    };
    let short = Scenario::default().with_outage(MINUTE);
    let long = Scenario::default().with_outage(240 * MINUTE);
    let fleet = "5000 agents at 250/s, 50 processes";
    vec![
        compared(
            "outage of 30 m, 500 agents",
            half_an_hour(),
            with_calls(150),
        ),
        compared("5000 agents at 250/s, one process", alone, with_calls(160)),
        single(fleet, large(50), with_calls(400)),
        compared("outage of 1 m", short, USUAL),
        single("outage of 4 h", long, with_calls(900)),
        single("comes back at 40 %", recovering, sudden),
        single("five die probing", dying, USUAL),
    ]
}

fn store_faults() -> Vec<Case> {
    let slow = Scenario {
        processes: 5,
        store_latency: Duration::from_millis(250),
        ..half_an_hour()
    };
    let lost = |from: u32, to: u32| Scenario {
        store_outage: Some(from * MINUTE..to * MINUTE),
        ..half_an_hour()
    };
    // Each of ten processes probes for itself.
    let without_store = Guarantees {
        most_calls: 10 * 150,
        most_per_success: 1.25,
        most_peak: 2.0,
        ..USUAL
    };
    vec![
        single("store takes 250 ms", slow, USUAL),
        single("no store for 5 m", lost(12, 17), without_store),
        single("no store at the end", lost(28, 35), without_store),
        single("no store in all of it", lost(1, 34), without_store),
    ]
}

fn partial_failures() -> Vec<Case> {
    let share = |fail_share: f64| Scenario {
        fail_share,
        capacity: 5000,
        load: 1,
        ..Scenario::default()
    };
    let short = Scenario {
        agents: 32,
        processes: 1,
        store_latency: Duration::ZERO,
        call_time: Duration::from_millis(50),
        load: 13,
        ..share(0.02)
    };
    let of = |fail_share: f64| Guarantees {
        least_of_ideal: 0.95,
        most_per_success: 1.1 / (1.0 - fail_share),
        ..USUAL
    };
    vec![
        compared("2 % of calls fail, 32 agents, 50 ms", short, of(0.02)),
        compared("2 % of calls fail", share(0.02), of(0.02)),
        compared("10 %", share(0.1), of(0.1)),
        compared("30 %", share(0.3), of(0.3)),
        compared("50 %", share(0.5), of(0.5)),
        compared("90 %", share(0.9), of(0.9)),
    ]
}

fn weather() -> Vec<Case> {
    let repeated = Scenario {
        fails_each: 3,
        ..Scenario::default()
    };
    // Four calls per success at 80 % of the capacity.
    let four_calls = Guarantees {
        least_of_ideal: 0.95,
        most_per_success: 4.4,
        most_peak: 5.0,
        ..USUAL
    };
    let poison = Scenario {
        poison: 2,
        ..Scenario::default()
    };
    let flapping = Scenario {
        flap: Some(Flap {
            up: MINUTE / 3,
            down: MINUTE / 3,
        }),
        ..Scenario::default()
    };
    let few_calls = Guarantees {
        most_per_success: 1.2,
        most_peak: 1.4,
        ..USUAL
    };
    let brownout = Scenario {
        brownout: Some(5 * MINUTE),
        ..Scenario::default()
    };
    let half_fails = Guarantees {
        least_of_ideal: 0.9,
        most_per_success: 1.3,
        most_peak: 2.0,
        ..USUAL
    };
    vec![
        compared("each request fails three times", repeated, four_calls),
        compared("two requests always fail", poison, USUAL),
        compared("20 s / 20 s in turns", flapping, few_calls),
        compared("brown-out of 5 m", brownout, half_fails),
    ]
}

fn limits() -> Vec<Case> {
    let overload = || Scenario {
        load: 200,
        ..Scenario::default()
    };
    // The first ten seconds, in which the pace is measured, count here.
    let used_up = Guarantees {
        least_of_ideal: 0.95,
        most_per_success: 1.2,
        ..USUAL
    };
    vec![
        compared("2 × the limit", overload(), used_up),
        compared(
            "2 × the limit, with Retry-After",
            Scenario {
                states_retry: true,
                ..overload()
            },
            used_up,
        ),
        compared(
            "2 × the limit, large calls refused first",
            Scenario {
                large_share: 0.1,
                ..overload()
            },
            Guarantees {
                most_peak: 1.8,
                ..used_up
            },
        ),
        single(
            "2 × the limit, 250/s",
            Scenario {
                agents: 5000,
                capacity: 250,
                ..overload()
            },
            used_up,
        ),
        compared(
            "usage limit of 5 h",
            Scenario {
                usage_limit: Some(300 * MINUTE),
                ..Scenario::default()
            },
            Guarantees {
                most_calls: 40,
                ..USUAL
            },
        ),
    ]
}

// --- The guarantees ---

/// Returns the guarantees that were not kept.
fn missed_guarantees(case: &Case, metrics: &Metrics, of_ideal: f64) -> Vec<&'static str> {
    let guarantees = case.guarantees;
    let capacity = f64::from(case.scenario.capacity);
    let capacity = capacity * f64::from(case.scenario.recovered_capacity_percent) / 100.0;
    let late = |time: Option<u64>, seconds: f64| {
        time.is_none_or(|time| Duration::from_millis(time).as_secs_f64() > seconds)
    };
    let mut checks = vec![
        ("of ideal", of_ideal < guarantees.least_of_ideal),
        (
            "per success",
            metrics.calls_per_success > guarantees.most_per_success,
        ),
        ("refused", metrics.refused > guarantees.most_refused),
        ("peak", metrics.peak > guarantees.most_peak),
        (
            "rejoined",
            case.scenario.store_outage.is_some() && late(metrics.rejoined_after, 10.0),
        ),
    ];
    if let Some(seen) = metrics.blackout {
        let blocked = f64::from(u32::try_from(seen.blocked).unwrap_or(u32::MAX));
        let drained = 1.5 * blocked / capacity + 20.0;
        checks.extend([
            ("in outage", seen.calls > guarantees.most_calls),
            ("first", late(seen.first_success, 20.0)),
            ("drained", late(seen.drained, drained)),
        ]);
    }
    let missed = checks.into_iter().filter(|(_, missed)| *missed);
    missed.map(|(name, _)| name).collect()
}

// --- The table ---

fn row(names: [&str; 2], metrics: &Metrics, ideal: f64, missed: &[&str]) -> String {
    let seconds = |time: u64| format!("{:.1} s", Duration::from_millis(time).as_secs_f64());
    let dash = || "–".to_owned();
    let seen = metrics.blackout;
    let remark = match (missed, metrics.rejoined_after) {
        ([], None) => String::new(),
        ([], Some(time)) => format!("rejoined {}", seconds(time)),
        (missed, _) => format!("MISSED {}", missed.join(", ")),
    };
    let cells = [
        names[0].to_owned(),
        names[1].to_owned(),
        format!("{:.3}", metrics.goodput / ideal),
        format!("{:.3}", metrics.calls_per_success),
        seconds(metrics.median_wait),
        seconds(metrics.long_wait),
        seen.map_or_else(dash, |seen| seen.calls.to_string()),
        seen.and_then(|seen| seen.first_success)
            .map_or_else(dash, seconds),
        seen.and_then(|seen| seen.drained)
            .map_or_else(dash, seconds),
        format!("{:.3}", metrics.refused),
        format!("{:.2}", metrics.peak),
        metrics.given_up.to_string(),
        remark,
    ];
    format!("| {} |", cells.join(" | "))
}
