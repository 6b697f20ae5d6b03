//! `outlast policy` from the user's view.

use crate::support::Outlast;
use serde_json::Value;

fn show(arguments: &[&str]) -> String {
    let ran = Outlast::new().run(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

#[test]
fn the_list_names_every_policy() {
    insta::assert_snapshot!(show(&["policy", "list"]));
}

#[test]
fn a_policy_shows_every_delay_and_when_it_gives_up() {
    for name in ["overnight", "session", "none", "conservative"] {
        insta::assert_snapshot!(format!("policy_{name}"), show(&["policy", "show", name]));
    }
}

#[test]
fn policy_delays_match_documentation() {
    let json = |name: &str| {
        serde_json::from_str::<Value>(&show(&["policy", "show", name, "--json"])).unwrap()
    };
    let table: [(&str, &[u64]); 6] = [
        ("none", &[]),
        ("standard", &[1_000, 2_000]),
        ("aggressive", &[200, 400, 800, 1_600]),
        ("patient", &[5_000, 15_000]),
        ("conservative", &[500]),
        ("session", &[2_000, 4_000, 8_000]),
    ];
    for (name, delays) in table {
        let policy = json(name);
        assert_eq!(
            (&policy["name"], &policy["delays_ms"]),
            (&Value::from(name), &Value::from(delays))
        );
        assert_eq!(policy["total_ms"], delays.iter().sum::<u64>());
    }
    let overnight = json("overnight");
    assert_eq!(overnight["delays_ms"].as_array().unwrap().len(), 21);
    assert_eq!(overnight["total_ms"], 27_105_000);
    let gateway = json("gateway");
    assert_eq!(gateway["delays_ms"].as_array().unwrap().len(), 24);
    assert_eq!(gateway["total_ms"], 27_108_500);
    let list: Value = serde_json::from_str(&show(&["policy", "list", "--json"])).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 8);
}

#[test]
fn policy_plot_has_one_bar_per_retry() {
    let outlast = Outlast::new();
    for (name, bars) in [("overnight", 21), ("session", 3), ("none", 0)] {
        let ran = outlast.run(&["policy", "show", name, "--plot", "plot.svg"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let svg = std::fs::read_to_string(outlast.folder.path().join("plot.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("fill=\"#3B6EA5\"").count(), bars, "{name}");
    }
}

#[test]
fn unwritable_plot_path_is_an_error_with_path() {
    let ran = Outlast::new().run(&[
        "policy",
        "show",
        "session",
        "--plot",
        "no/such/folder/plot.svg",
    ]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("cannot write no/such/folder/plot.svg"),
        "{}",
        ran.stderr
    );
}
