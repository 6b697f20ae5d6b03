//! `outlast simulate`: compares policies in a simulated outage, as a table, JSON and a picture.
//!
//! Not here: the simulation (see `outlast_mock::simulation`).

use crate::args::SimulateArguments;
use crate::commands::simulate_plot;
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use outlast_kernel::policy::Policy;
use outlast_kernel::time::{Span, millis};
use outlast_mock::simulation::{self, Error, Metrics, Scenario, Strategy};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// A strategy and its metrics.
pub(crate) struct StrategyResult {
    pub(crate) name: String,
    pub(crate) numbers: Metrics,
}

pub(crate) fn run(arguments: SimulateArguments) -> anyhow::Result<Exit> {
    let scenario = scenario(&arguments);
    let mut all = Vec::new();
    let strategies = strategies(&arguments.policy)?;
    let (count, working) = (strategies.len(), Spinner::start("simulating"));
    for strategy in strategies {
        let (number, name) = (all.len() + 1, &strategy.name);
        working.set_message(&format!("simulating {name}, {number} of {count}"));
        let numbers = simulation::run(&scenario, &strategy).map_err(|error| usage_error(&error))?;
        all.push(StrategyResult {
            name: strategy.name,
            numbers,
        });
    }
    if let Some(path) = arguments.plot {
        let svg = simulate_plot::svg(&scenario, &all).context("cannot draw the simulation")?;
        std::fs::write(&path, svg)
            .with_context(|| format!("--plot: cannot write {}", path.display()))?;
    }
    if arguments.json {
        print(&(serde_json::to_string_pretty(&as_json(&scenario, &all))? + "\n"))
    } else {
        print(&table(&scenario, &all))
    }
}

fn scenario(arguments: &SimulateArguments) -> Scenario {
    let scenario = Scenario {
        agents: arguments.agents,
        processes: arguments.processes,
        capacity: arguments.capacity,
        tokens_per_second: arguments.tokens_per_second,
        load: arguments.load,
        recovered_capacity_percent: arguments.comes_back_at,
        retry_after: arguments.retry_after,
        store_latency: arguments.store_latency,
        store_outage: arguments.store_down.clone(),
        dead_probes: arguments.dead_probes,
        seed: arguments.seed,
        ..Scenario::default()
    };
    let scenario = if arguments.outage.is_zero() {
        scenario
    } else {
        scenario.with_outage(arguments.outage)
    };
    Scenario {
        length: arguments.length.unwrap_or(scenario.length),
        ..scenario
    }
}

/// Returns the usual four strategies, and each requested policy with and without the gate.
fn strategies(policies: &[String]) -> Result<Vec<Strategy>, UsageError> {
    let unknown = |error: outlast_kernel::policy::Error| UsageError(format!("--policy: {error}"));
    let mut strategies = Strategy::standard_set().map_err(unknown)?;
    for name in policies {
        let policy = Policy::named(name).map_err(unknown)?;
        for strategy in [Strategy::gated(policy.clone()), Strategy::ungated(policy)] {
            if !strategies.contains(&strategy) {
                strategies.push(strategy);
            }
        }
    }
    Ok(strategies)
}

/// Converts an error of the simulation to a usage error that names the flag.
fn usage_error(error: &Error) -> UsageError {
    UsageError(match error {
        Error::OutsideRun { what, .. } => {
            let flag = if what.contains("store") {
                "--store-down"
            } else {
                "--outage"
            };
            format!("{flag}: {error}; --length makes the run longer")
        }
        Error::TooManyCalls { .. } => format!("--agents: {error}"),
        Error::OutOfRange { what, .. } if what.contains("tokens") => {
            format!("--tokens-per-second: {error}")
        }
        Error::OutOfRange { what, .. } if what.contains("store") => {
            format!("--store-latency: {error}")
        }
        _ => format!("--length: {error}"),
    })
}

// --- as text ---

fn table(scenario: &Scenario, all: &[StrategyResult]) -> String {
    let width = all
        .iter()
        .map(|played| played.name.len())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "{}\n\n{:width$}  in outage  per success   first  drained  refused   peak  goodput  fairness   wasted  given up\n",
        headline(scenario),
        "strategy"
    );
    for StrategyResult { name, numbers } in all {
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{name:width$}  {:>9}  {:>11.4}  {:>6}  {:>7}  {:>7}  {:>5.2}  {:>7}  {:>8.4}  {:>7}  {:>8}",
            numbers.attempts_in_outage,
            numbers.attempts_per_success,
            format_time(numbers.first_success),
            format_time(numbers.drained),
            numbers.refused_after_recovery,
            numbers.peak,
            numbers.goodput.map_or("-".to_owned(), |goodput| format!("{goodput:.4}")),
            numbers.fairness,
            compact_number(numbers.wasted_tokens),
            numbers.given_up,
        )
        .ok();
    }
    let joined = all
        .iter()
        .filter_map(|played| played.numbers.rejoined_after);
    if let Some(joined) = joined.max() {
        let joined = format_time(Some(joined));
        write!(
            text,
            "\nEveryone was in line again {joined} after the store's return.\n"
        )
        .ok();
    }
    text
}

/// Describes the scenario in words.
fn headline(scenario: &Scenario) -> String {
    let capacity = match scenario.tokens_per_second {
        Some(tokens) => format!("{tokens} tokens ({} calls) a second", scenario.capacity),
        None => format!("{} calls a second", scenario.capacity),
    };
    let outage = match &scenario.outage {
        Some(outage) => format!("an outage of {}", Span(outage.end - outage.start)),
        None => "no outage".to_owned(),
    };
    let mut text = format!(
        "{} agents want {} % of {capacity} for {}; {outage}",
        scenario.agents,
        scenario.load,
        Span(scenario.length)
    );
    if scenario.outage.is_some() && scenario.recovered_capacity_percent != 100 {
        write!(
            text,
            ", then {} % of that",
            scenario.recovered_capacity_percent
        )
        .ok();
    }
    if scenario.retry_after {
        text.push_str("; refusals state a time");
    }
    if let Some(down) = &scenario.store_outage {
        write!(
            text,
            "; no store from {} to {}",
            Span(down.start),
            Span(down.end)
        )
        .ok();
    }
    if scenario.dead_probes > 0 {
        write!(
            text,
            "; agents that die while probing: {}",
            scenario.dead_probes
        )
        .ok();
    }
    write!(text, "; seed {}", scenario.seed).ok();
    text
}

fn format_time(time: Option<u64>) -> String {
    time.map_or("-".to_owned(), |time| {
        Span(Duration::from_millis(time)).to_string()
    })
}

/// Formats a large number in about three digits.
fn compact_number(number: u64) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
    match units.into_iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) => format!("{:.1}{unit}", number as f64 / size as f64),
        None => number.to_string(),
    }
}

// --- as JSON ---

fn as_json(scenario: &Scenario, all: &[StrategyResult]) -> Value {
    let range = |range: &Option<std::ops::Range<Duration>>| {
        range
            .as_ref()
            .map(|range| json!({"from_ms": millis(range.start), "to_ms": millis(range.end)}))
    };
    json!({
        "agents": scenario.agents,
        "processes": scenario.processes,
        "capacity": scenario.capacity,
        "tokens_per_second": scenario.tokens_per_second,
        "load_percent": scenario.load,
        "outage": range(&scenario.outage),
        "comes_back_at_percent": scenario.recovered_capacity_percent,
        "retry_after": scenario.retry_after,
        "store_latency_ms": millis(scenario.store_latency),
        "store_down": range(&scenario.store_outage),
        "dead_probes": scenario.dead_probes,
        "length_ms": millis(scenario.length),
        "seed": scenario.seed,
        "strategies": all.iter().map(strategy_as_json).collect::<Vec<_>>(),
    })
}

fn strategy_as_json(played: &StrategyResult) -> Value {
    let numbers = &played.numbers;
    json!({
        "name": played.name,
        "attempts": numbers.attempts,
        "successes": numbers.successes,
        "attempts_in_outage": numbers.attempts_in_outage,
        "attempts_per_success": numbers.attempts_per_success,
        "blocked": numbers.blocked,
        "first_success_ms": numbers.first_success,
        "drained_ms": numbers.drained,
        "refused_after_recovery": numbers.refused_after_recovery,
        "peak": numbers.peak,
        "goodput": numbers.goodput,
        "fairness": numbers.fairness,
        "wasted_tokens": numbers.wasted_tokens,
        "given_up": numbers.given_up,
        "joined_again_ms": numbers.rejoined_after,
        "trace": format!("{:016x}", numbers.trace),
    })
}
