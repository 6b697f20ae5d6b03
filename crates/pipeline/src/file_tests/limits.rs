//! Files that are too big, too deep, or not files at all.

use super::{faults_of, parse_valid};
use crate::file::{MAX_FILE_BYTES, MAX_STEPS, read};
use crate::plan::plan;
use proptest::prelude::*;
use std::fmt::Write;
use std::path::Path;

/// A pipeline with something in a place where everything may stand.
fn anywhere(yaml: &str) -> String {
    let head = "steps:\n- id: a\n  command: x\n  contracts:\n  - type: json_schema\n    schema:\n";
    let rows = yaml.lines().map(|line| format!("      {line}\n"));
    head.to_owned() + &rows.collect::<String>()
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut source = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        let row = [alias.as_str(); 9].join(", ");
        writeln!(source, "a{level}: &a{level} [{row}]").unwrap();
    }
    assert_eq!(
        faults_of(&anywhere(&source)),
        "p.yaml:12:21: aliases repeat too much here; write it out, or use fewer of them"
    );
    let wide = format!(
        "a: &a [{}]\nb: [{}]\n",
        "x, ".repeat(1000),
        "*a, ".repeat(1000)
    );
    let faults = faults_of(&anywhere(&wide));
    assert!(faults.contains("aliases repeat too much here"), "{faults}");
    let itself = faults_of(&anywhere("a: &a [*a]\n"));
    assert!(
        itself.contains("an anchor may not hold an alias of itself"),
        "{itself}"
    );
}

#[test]
fn anchor_can_be_aliased_by_a_thousand_steps() {
    let mut source = "steps:\n  - {id: s, command: x, retry: &r {policy: patient}}\n".to_owned();
    for step in 0..1000 {
        writeln!(source, "  - {{id: s{step}, command: x, retry: *r}}").unwrap();
    }
    let pipeline = parse_valid(&source);
    assert_eq!(pipeline.steps[1000].retry.policy.name, "patient");
    let merged = "steps:\n  - &s {id: a, command: x}\n  - {<<: *s, id: b}\n";
    assert_eq!(parse_valid(merged).steps.len(), 2);
}

#[test]
fn too_deep_nesting_is_refused_without_overflow() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let deep = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
        let faults = faults_of(&anywhere(&deep));
        assert!(
            faults.contains("32 deep") || faults.contains("not YAML"),
            "{faults}"
        );
    }
    let mut rows = String::new();
    for level in 0..200 {
        writeln!(rows, "{}a:", " ".repeat(level)).unwrap();
    }
    let faults = faults_of(&anywhere(&rows));
    assert!(faults.contains("32 deep"), "{faults}");
    // An alias counts as if its target were written out.
    let mut source = String::new();
    for level in 0..5 {
        let inside = if level == 0 {
            "x".to_owned()
        } else {
            format!("*a{}", level - 1)
        };
        writeln!(
            source,
            "a{level}: &a{level} {}{inside}{}",
            "[".repeat(30),
            "]".repeat(30)
        )
        .unwrap();
    }
    let faults = faults_of(&anywhere(&source));
    assert!(faults.contains("32 deep"), "{faults}");
}

#[test]
fn too_large_file_or_step_count_is_refused() {
    let big = faults_of(&format!("# {}", "x".repeat(MAX_FILE_BYTES)));
    assert_eq!(
        big,
        "p.yaml:1:1: a pipeline's file may have at most 1048576 bytes"
    );
    let steps = |count: usize| {
        let mut source = "steps:\n".to_owned();
        for step in 0..count {
            writeln!(source, " - {{id: s{step}, command: x}}").unwrap();
        }
        source
    };
    assert_eq!(parse_valid(&steps(MAX_STEPS)).steps.len(), MAX_STEPS);
    assert_eq!(
        faults_of(&steps(MAX_STEPS + 1)),
        "p.yaml:10002:4: a pipeline may have at most 10000 steps"
    );
    let halves = format!(
        "steps:\n{}{}",
        steps(6000).trim_start_matches("steps:\n"),
        " - id: l\n   loop:\n     max_iterations: 2\n     steps:\n"
    ) + &(0..6000)
        .map(|step| format!("      - {{id: t{step}, command: x}}\n"))
        .collect::<String>();
    assert!(faults_of(&halves).contains("a pipeline may have at most 10000 steps"));
}

#[test]
fn a_hundred_faults_are_shown_and_the_rest_counted() {
    let steps = |count: usize, command: &str| -> String {
        (0..count)
            .map(|step| format!("{{id: s{step}, command: {command}}}, "))
            .collect()
    };
    let faults = faults_of(&format!("steps: [{}]", steps(150, "'{{ x }}'")));
    assert_eq!(faults.lines().count(), 101);
    assert!(faults.ends_with("p.yaml: and 50 more"), "{faults}");
    // Repetitions by an alias are not part of the rest.
    let again = steps(120, "*x");
    let faults = faults_of(&format!(
        "steps: [{{id: x, command: &x '{{{{ x }}}}'}}, {again}]"
    ));
    assert_eq!(faults.lines().count(), 1, "{faults}");
    // Each of them takes long to find, and there are many.
    let names = (0..50_000).map(|name| format!("{{{{n{name}}}}}"));
    let prompt: String = names.collect();
    let faults = faults_of(&format!("steps: [{{id: a, prompt: \"{prompt}\"}}]"));
    assert_eq!(faults.lines().count(), 100);
}

#[test]
fn invalid_yaml_is_reported_with_position() {
    let table = [
        (
            "steps: [",
            "p.yaml:1:8: this is not YAML: unclosed bracket '['",
        ),
        ("name: b: c", "p.yaml:1:8: this is not YAML: "),
        ("name: a\nname: b\n", "p.yaml:2:1: `name` stands here twice"),
        (
            "",
            "p.yaml:1:1: the file is empty; expected a mapping with `steps`",
        ),
        (
            "--- {steps: []}\n--- {}\n",
            "p.yaml:2:1: one file is one pipeline",
        ),
        ("steps: *x", "p.yaml:1:8: this is not YAML: "),
    ];
    for (source, expected) in table {
        let faults = faults_of(source);
        assert!(faults.starts_with(expected), "{source:?}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}

#[test]
fn faults_contain_no_terminal_escapes() {
    for source in [
        "\"\\e[31mx\\n\": 1",
        "steps: [{id: \"\\e]0;t\\a\", command: x}]",
        "steps: [{id: a, command: x, on_failure: \"\\e]0;t\\a\"}]",
        "steps: [{id: a, command: x, needs: [\"\\e]0;t\\a\"]}]",
        "steps: [{id: a, command: x, once: \"\\e]0;t\\a\"}]",
    ] {
        let faults = faults_of(source);
        assert!(!faults.contains('\u{1b}'), "{faults:?}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}

/// Fragments for generated files.
const PIECES: [&str; 48] = [
    "steps",
    "id",
    "needs",
    "prompt",
    "command",
    "agent",
    "gate",
    "loop",
    "retry",
    "edges",
    "inputs",
    "outputs",
    "contracts",
    "type",
    "json_schema",
    "schema",
    "regex",
    "pattern",
    "target",
    "_complete",
    "condition",
    "outcome=failure",
    "policy",
    "none",
    "on_failure",
    "rework",
    "rework_step",
    "max_iterations",
    "runtime",
    "budget",
    "cost",
    "a",
    "b",
    "c",
    ": ",
    ": ",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "{{ a }}",
    "&x *x",
];

proptest! {
    #[test]
    fn reading_random_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(read(&text, Path::new("p.yaml")).is_ok() || !faults_of(&text).is_empty());
    }

    #[test]
    fn reading_random_yaml_pieces_never_panics(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..80)
    ) {
        let text = format!("steps:\n - id: a\n   command: b\n{}", pieces.concat());
        if let Ok(pipeline) = read(&text, Path::new("p.yaml")) {
            plan(&pipeline);
        }
    }

    #[test]
    fn random_needs_are_accepted_unless_cyclic(
        needs in proptest::collection::vec((0_usize..12, 0_usize..12), 0..30)
    ) {
        let mut source = "steps:\n".to_owned();
        for step in 0..12 {
            let own = needs.iter().filter(|(from, _)| *from == step);
            let own: Vec<_> = own.map(|(_, to)| format!("s{to}")).collect();
            writeln!(source, " - {{id: s{step}, command: x, needs: [{}]}}", own.join(", ")).unwrap();
        }
        // Remove steps without a remaining need, until nothing changes.
        let mut left: Vec<usize> = (0..12).collect();
        loop {
            let before = left.len();
            let kept = left.clone();
            left.retain(|step| needs.iter().any(|(from, to)| from == step && kept.contains(to)));
            if left.len() == before {
                break;
            }
        }
        match read(&source, Path::new("p.yaml")) {
            Ok(_) => prop_assert!(left.is_empty(), "{source}"),
            Err(faults) => {
                prop_assert!(!left.is_empty());
                prop_assert!(faults.list.iter().all(|fault| fault.message.contains("in a circle: ")));
            }
        }
    }
}
