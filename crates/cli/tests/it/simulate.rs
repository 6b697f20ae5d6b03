//! `outlast simulate` from the user's view.

use crate::support::{CommandResult, Outlast};
use serde_json::Value;

/// A small simulation that runs quickly.
const SMALL: &str = "simulate --agents 100 --capacity 10 --outage 5m --length 20m";

fn typed(line: &str) -> CommandResult {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    Outlast::new().run(&arguments)
}

fn table(more: &str) -> String {
    let ran = typed(&format!("{SMALL} {more}"));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

#[test]
fn outage_simulation_prints_table() {
    insta::assert_snapshot!(table("--policy standard --policy overnight"));
}

#[test]
fn headline_lists_all_configured_faults() {
    let ran = typed(
        "simulate --agents 100 --capacity 10 --length 20m --outage 0 --load 200 --tokens-per-second 100000 \
         --retry-after --dead-probes 1 --store-down 5m..6m30s --seed 7",
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn same_seed_repeats_trace_and_other_seed_changes_it() {
    let traces = |seed: &str| -> Vec<String> {
        let json: Value = serde_json::from_str(&table(&format!("--json --seed {seed}"))).unwrap();
        assert_eq!(json["outage"]["to_ms"], 900_000);
        let strategies = json["strategies"].as_array().unwrap();
        let trace = |strategy: &Value| strategy["trace"].as_str().unwrap().to_owned();
        strategies.iter().map(trace).collect()
    };
    let (first, again, other) = (traces("1"), traces("1"), traces("2"));
    assert_eq!(first, again);
    assert_eq!(first.len(), 4);
    assert!(
        first
            .iter()
            .zip(&other)
            .all(|(first, other)| first != other)
    );
}

#[test]
fn plot_is_svg_with_panel_per_strategy() {
    let outlast = Outlast::new();
    let line = format!("{SMALL} --plot plot.svg");
    let ran = outlast.run(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let svg = std::fs::read_to_string(outlast.folder.path().join("plot.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for name in [
        "overnight + gate: ",
        "full jitter: ",
        "overnight alone: ",
        "SDK defaults: ",
    ] {
        assert_eq!(svg.matches(name).count(), 1, "{name}");
    }
    assert_eq!(svg.matches("fill=\"#D85C4A\"").count(), 4, "the outage");
}

#[test]
fn invalid_flag_is_named_with_valid_values() {
    let table = [
        ("--agents 0", "'--agents <N>': 0 is not in 1..=100000"),
        (
            "--outage soon",
            "'--outage <DURATION>': write a duration such as 90s, 30m or 1h30m",
        ),
        (
            "--store-down 5m",
            "'--store-down <FROM..TO>': write two times from the beginning",
        ),
        (
            "--store-down 6m..5m",
            "the first one earlier, such as 15m..20m",
        ),
        (
            "--length 20m",
            "--outage: the outage must end after it begins and before the run of 20m is over; --length makes",
        ),
        (
            "--store-down 5m..2h",
            "--store-down: the store's loss must end after it begins and before the run of 1h30m is over; --length",
        ),
        (
            "--tokens-per-second 9",
            "--tokens-per-second: the tokens a second must be between 250 and",
        ),
        (
            "--policy eager",
            "--policy: there is no policy `eager`; there are none, standard",
        ),
        (
            "--agents 3",
            "--agents: 3 agents cannot make 20 calls a second; take more agents, or less load or capacity",
        ),
        (
            "--store-latency 1m",
            "--store-latency: the store's latency in ms must be between 0 and 10000, not 60000",
        ),
        (
            "--outage 0 --length 60d",
            "--length: the length in seconds must be between 1 and 2592000, not 5184000",
        ),
    ];
    for (flags, expected) in table {
        let ran = typed(&format!("simulate {flags}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{flags}");
        assert!(ran.stderr.contains(expected), "{flags}: {}", ran.stderr);
    }
}
