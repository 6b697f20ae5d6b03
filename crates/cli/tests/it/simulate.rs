//! `outlast simulate` from the user's view.

use crate::support::{CommandResult, Outlast};
use serde_json::Value;

/// A small simulation that runs quickly.
const SMALL: &str = "simulate --agents 100 --capacity 10/s --outage 5m";

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
        "simulate --agents 50 --capacity 5 --length 12m --load 150 --call-time 5s --large 10% --retry-after --fail 2.5% \
         --fails-each 1 --poison 2 --outage 2m --comes-back-at 80 --usage-limit 1m --brownout 5m --flap 90s/10s \
         --dead-probes 1 --store-down 5m..6m30s --seed 7",
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(ran.stdout.lines().next().unwrap());
}

#[test]
fn same_seed_repeats_trace_and_other_seed_changes_it() {
    let traces = |seed: &str| -> Vec<String> {
        let json: Value = serde_json::from_str(&table(&format!("--json --seed {seed}"))).unwrap();
        assert_eq!(json["blackout"]["to_ms"], 420_000);
        let strategies = json["strategies"].as_array().unwrap();
        let trace = |strategy: &Value| strategy["trace"].as_str().unwrap().to_owned();
        strategies.iter().map(trace).collect()
    };
    let (first, again, other) = (traces("1"), traces("1"), traces("2"));
    assert_eq!(first, again);
    assert_eq!(first.len(), 5);
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
        "outlast: ",
        "SDK defaults: ",
        "full jitter: ",
        "circuit breaker: ",
        "ideal: ",
    ] {
        assert_eq!(svg.matches(name).count(), 1, "{name}");
    }
    assert_eq!(svg.matches("fill=\"#D85C4A\"").count(), 5, "the outage");
}

#[test]
fn any_other_fault_replaces_the_default_outage() {
    let headline = |flags: &str| {
        let ran = typed(&format!("simulate --agents 20 --capacity 2 {flags}"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{flags}");
        ran.stdout.lines().next().unwrap().to_owned()
    };
    assert!(headline("").contains("for 40m; an outage of 30m; seed 1"));
    assert!(headline("--outage 0").contains("for 10m; no fault; seed 1"));
    assert!(headline("--fail 2%").ends_with("for 10m; 2 % of the calls fail; seed 1"));
    assert!(headline("--load 200").ends_with("for 10m; seed 1"));
    let flapping = headline("--flap 20s/20s --outage 1m");
    assert!(flapping.contains("an outage of 1m; 20s of answers, 20s of failures in turns"));
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
            "the first one earlier, such as 5m..10m",
        ),
        (
            "--fail 200%",
            "'--fail <SHARE>': write a share such as 2% or 0.02",
        ),
        (
            "--flap 20s",
            "'--flap <UP/DOWN>': write two durations such as 20s/20s",
        ),
        (
            "--capacity 0/s",
            "'--capacity <N/s>': write calls per second, from 1/s to 5000/s",
        ),
        (
            "--length 20m",
            "--outage: the outage must end after it begins and before the run of 20m is over; --length makes",
        ),
        (
            "--store-down 5m..2h",
            "--store-down: the store's loss must end after it begins and before the run of 40m is over; --length",
        ),
        (
            "--policy eager",
            "--policy: there is no policy `eager`; there are none, standard",
        ),
        (
            "--agents 3 --capacity 1000",
            "--agents: 3 agents cannot make 800 calls a second; take more agents, or less load or capacity",
        ),
        (
            "--store-latency 1m",
            "--store-latency: the store's latency in ms must be between 0 and 10000, not 60000",
        ),
        (
            "--call-time 1h",
            "--call-time: the duration of a call in ms must be between 1 and 600000, not 3600000",
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
