//! `outlast simulate`: compares ways to retry under simulated failure, as a table, JSON and a picture.
//!
//! Not here: the simulation (see `outlast_mock::simulation`).

use crate::args::SimulateArguments;
use crate::commands::plot;
use crate::output::spinner::Spinner;
use crate::output::{print, print_json};
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use outlast_kernel::policy::{self, Policy};
use outlast_kernel::time::{Span, millis};
use outlast_mock::simulation::{self, Error, Metrics, Scenario, Strategy};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The outage of a simulation without any fault.
const DEFAULT_OUTAGE: Duration = Duration::from_secs(30 * 60);

/// A strategy and its metrics.
pub(crate) struct StrategyResult {
    pub(crate) name: String,
    pub(crate) metrics: Metrics,
}

pub(crate) fn run(arguments: SimulateArguments) -> anyhow::Result<Exit> {
    let scenario = scenario(&arguments);
    let strategies = strategies(&scenario, &arguments.policy)?;
    let mut all = Vec::new();
    let (count, spinner) = (strategies.len(), Spinner::start("simulating"));
    for strategy in strategies {
        let (number, name) = (all.len() + 1, &strategy.name);
        spinner.set_message(&format!("simulating {name}, {number} of {count}"));
        let metrics = simulation::run(&scenario, &strategy).map_err(|error| usage_error(&error))?;
        all.push(StrategyResult {
            name: strategy.name,
            metrics,
        });
    }
    if let Some(path) = arguments.plot {
        let svg = plot::simulation(&scenario, &all).context("cannot draw the simulation")?;
        std::fs::write(&path, svg)
            .with_context(|| format!("--plot: cannot write {}", path.display()))?;
    }
    if arguments.json {
        print_json(&as_json(&scenario, &all))
    } else {
        print(&table(&scenario, &all))
    }
}

fn scenario(arguments: &SimulateArguments) -> Scenario {
    let scenario = Scenario {
        agents: arguments.agents,
        processes: arguments.processes,
        capacity: arguments.capacity,
        load: arguments.load,
        call_time: arguments.call_time,
        large_share: arguments.large,
        states_retry: arguments.retry_after,
        fail_share: arguments.fail,
        fails_each: arguments.fails_each,
        poison: arguments.poison,
        outage: arguments.outage.filter(|outage| !outage.is_zero()),
        recovered_capacity_percent: arguments.comes_back_at,
        usage_limit: arguments.usage_limit,
        brownout: arguments.brownout,
        flap: arguments.flap,
        store_latency: arguments.store_latency,
        store_outage: arguments.store_down.clone(),
        dead_probes: arguments.dead_probes,
        length: arguments.length,
        seed: arguments.seed,
    };
    match arguments.outage.is_none() && !scenario.has_fault() {
        true => scenario.with_outage(DEFAULT_OUTAGE),
        false => scenario,
    }
}

/// Returns the usual strategies, and each requested policy with and without the gate.
fn strategies(scenario: &Scenario, policies: &[String]) -> Result<Vec<Strategy>, UsageError> {
    let unknown = |error: policy::Error| UsageError(format!("--policy: {error}"));
    let mut strategies = scenario.strategies().map_err(unknown)?;
    for name in policies {
        let policy = Policy::named(name).map_err(unknown)?;
        for strategy in [scenario.gated(&policy), Strategy::alone(policy)] {
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
            let flag = match *what {
                "the store's loss" => "--store-down",
                "the usage limit" => "--usage-limit",
                "the brown-out" => "--brownout",
                _ => "--outage",
            };
            format!("{flag}: {error}; --length makes the run longer")
        }
        Error::TooManyCalls { .. } => format!("--agents: {error}"),
        Error::OutOfRange { what, .. } if what.contains("store") => {
            format!("--store-latency: {error}")
        }
        Error::OutOfRange { what, .. } if what.contains("call") => {
            format!("--call-time: {error}")
        }
        _ => format!("--length: {error}"),
    })
}

// --- Text ---

fn table(scenario: &Scenario, all: &[StrategyResult]) -> String {
    let width = all.iter().map(|played| played.name.len()).max();
    let width = width.unwrap_or(0);
    let mut text = format!(
        "{}\n\n{:width$}  of ideal  per success  median     99%  in outage   first  drained  refused   peak  given up\n",
        headline(scenario),
        "strategy"
    );
    let ideal = ideal_goodput(all);
    for StrategyResult { name, metrics } in all {
        let blackout = metrics.blackout;
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{name:width$}  {:>8}  {:>11.3}  {:>6}  {:>6}  {:>9}  {:>6}  {:>7}  {:>7}  {:>5.2}  {:>8}",
            ideal.map_or_else(dash, |ideal| percent(metrics.goodput / ideal)),
            metrics.calls_per_success,
            format_time(Some(metrics.median_wait)),
            format_time(Some(metrics.long_wait)),
            blackout.map_or_else(dash, |seen| seen.calls.to_string()),
            format_time(blackout.and_then(|seen| seen.first_success)),
            format_time(blackout.and_then(|seen| seen.drained)),
            percent(metrics.refused),
            metrics.peak,
            metrics.given_up,
        )
        .ok();
    }
    let rejoined = all.iter().filter_map(|it| it.metrics.rejoined_after).max();
    if let Some(rejoined) = rejoined {
        let rejoined = format_time(Some(rejoined));
        let line = format!("\nAll processes used the store again {rejoined} after its return.\n");
        text.push_str(&line);
    }
    text
}

/// Returns what the last of the usual strategies served.
fn ideal_goodput(all: &[StrategyResult]) -> Option<f64> {
    let ideal = all.iter().find(|played| played.name == "ideal")?;
    Some(ideal.metrics.goodput).filter(|goodput| *goodput > 0.0)
}

fn dash() -> String {
    "-".to_owned()
}

/// Describes the scenario in words.
fn headline(scenario: &Scenario) -> String {
    let mut parts = vec![format!(
        "{} agents want {} % of {} calls a second for {}",
        scenario.agents,
        scenario.load,
        scenario.capacity,
        Span(scenario.duration())
    )];
    parts.extend(call_facts(scenario));
    parts.extend(fault_facts(scenario));
    if !scenario.has_fault() {
        parts.push("no fault".to_owned());
    }
    if let Some(down) = &scenario.store_outage {
        let (from, to) = (Span(down.start), Span(down.end));
        parts.push(format!("no store from {from} to {to}"));
    }
    if scenario.dead_probes > 0 {
        let dead = scenario.dead_probes;
        parts.push(format!("agents that die while probing: {dead}"));
    }
    parts.push(format!("seed {}", scenario.seed));
    parts.join("; ")
}

fn call_facts(scenario: &Scenario) -> Vec<String> {
    let (time, large) = (scenario.call_time, scenario.large_share);
    let is_usual = time == Scenario::default().call_time;
    [
        (!is_usual).then(|| format!("calls of {}", Span(time))),
        (large > 0.0).then(|| format!("{} of them large", percent(large))),
        scenario
            .states_retry
            .then(|| "refusals state a time".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn fault_facts(scenario: &Scenario) -> Vec<String> {
    let (share, each, poison) = (scenario.fail_share, scenario.fails_each, scenario.poison);
    let after = scenario.recovered_capacity_percent;
    let lasting = |what: &str, length: Option<Duration>| {
        length.map(|length| format!("{what} of {}", Span(length)))
    };
    let flap = scenario.flap.map(|flap| {
        let (up, down) = (Span(flap.up), Span(flap.down));
        format!("{up} of answers, {down} of failures in turns")
    });
    [
        (share > 0.0).then(|| format!("{} of the calls fail", percent(share))),
        (each > 0).then(|| format!("the first calls of each request fail: {each}")),
        (poison > 0).then(|| format!("requests that always fail: {poison}")),
        lasting("an outage", scenario.outage),
        lasting("a usage limit", scenario.usage_limit),
        lasting("a brown-out", scenario.brownout),
        (after != 100).then(|| format!("then {after} % of the capacity")),
        flap,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn format_time(time: Option<u64>) -> String {
    time.map_or_else(dash, |time| Span(Duration::from_millis(time)).to_string())
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent >= 10.0 || percent == percent.round() {
        true => format!("{percent:.0} %"),
        false => format!("{percent:.1} %"),
    }
}

// --- JSON ---

fn as_json(scenario: &Scenario, all: &[StrategyResult]) -> Value {
    let range = |range: Option<std::ops::Range<Duration>>| {
        range.map(|range| json!({"from_ms": millis(range.start), "to_ms": millis(range.end)}))
    };
    let length = |length: Option<Duration>| length.map(millis);
    let flap = scenario.flap;
    let flap = flap.map(|flap| json!({"up_ms": millis(flap.up), "down_ms": millis(flap.down)}));
    let ideal = ideal_goodput(all);
    json!({
        "agents": scenario.agents,
        "processes": scenario.processes,
        "capacity": scenario.capacity,
        "load_percent": scenario.load,
        "call_time_ms": millis(scenario.call_time),
        "large": scenario.large_share,
        "retry_after": scenario.states_retry,
        "fail": scenario.fail_share,
        "fails_each": scenario.fails_each,
        "poison": scenario.poison,
        "outage_ms": length(scenario.outage),
        "comes_back_at_percent": scenario.recovered_capacity_percent,
        "usage_limit_ms": length(scenario.usage_limit),
        "brownout_ms": length(scenario.brownout),
        "flap": flap,
        "blackout": range(scenario.blackout()),
        "store_latency_ms": millis(scenario.store_latency),
        "store_down": range(scenario.store_outage.clone()),
        "dead_probes": scenario.dead_probes,
        "length_ms": millis(scenario.duration()),
        "seed": scenario.seed,
        "strategies": all.iter().map(|played| strategy_as_json(played, ideal)).collect::<Vec<_>>(),
    })
}

fn strategy_as_json(played: &StrategyResult, ideal: Option<f64>) -> Value {
    let metrics = &played.metrics;
    let blackout = metrics.blackout;
    json!({
        "name": played.name,
        "calls": metrics.calls,
        "successes": metrics.successes,
        "calls_per_success": metrics.calls_per_success,
        "goodput": metrics.goodput,
        "goodput_of_ideal": ideal.map(|ideal| metrics.goodput / ideal),
        "median_wait_ms": metrics.median_wait,
        "p99_wait_ms": metrics.long_wait,
        "calls_in_outage": blackout.map(|seen| seen.calls),
        "blocked": blackout.map(|seen| seen.blocked),
        "first_success_ms": blackout.and_then(|seen| seen.first_success),
        "drained_ms": blackout.and_then(|seen| seen.drained),
        "refused": metrics.refused,
        "peak": metrics.peak,
        "given_up": metrics.given_up,
        "gate_downs": metrics.downs,
        "rejoined_ms": metrics.rejoined_after,
        "trace": format!("{:016x}", metrics.trace),
    })
}
