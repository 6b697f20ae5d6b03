//! The schema for editors agrees with the reader about every file.

use super::faults_of;
use crate::file::{SCHEMA, read, yaml};
use outlast_kernel::policy::Policy;
use serde_json::Value;
use std::path::Path;

/// Valid steps and files.
const GOOD: [&str; 26] = [
    "steps: [{id: a, command: x}]",
    "{name: n, description: d, provider: p, model: m, max_step_visits: 3, steps: [{id: a, prompt: x}]}",
    "{inputs: {a: , b: x, c: 1, d: {default: 2, description: e}}, steps: [{id: a, prompt: '{{ a }}'}]}",
    "{runtime: {max_concurrency: 1, stall_timeout: 1800s, timeout: 30m}, steps: [{id: a, command: x}]}",
    "{runtime: {circuit_breaker: {limit: 3, tracked_classes: [transient]}}, steps: [{id: a, command: x}]}",
    "{runtime: {budget: {time: 8h, cost: 5.00, tokens: 2}}, steps: [{id: a, command: x}]}",
    "{runtime: {cost: {budget_ceiling: 5}, default_timeout_minutes: 3}, steps: [{id: a, command: x}]}",
    "{runtime: {fallbacks: {claude: [codex], m: [n]}}, steps: [{id: a, command: x}]}",
    "steps: [{id: a, command: [go, test, 1]}, {id: b, command: x, needs: [a]}]",
    "steps: [{id: a, agent: claude, prompt: x, model: m, allow: [write, bash]}]",
    "steps: [{id: a, agent: {name: mine, program: [mine, '{prompt}']}, prompt: x}]",
    "steps: [{id: a, agent: {name: pi}, prompt: x}]",
    "steps: [{id: a, prompt: x, system: s, tools: true, allow: [outside, mcp]}]",
    "steps: [{id: a, gate: {type: timer, timeout: 10m}}]",
    "steps: [{id: a, gate: {type: approval, message: m, choices: [{key: y}, {key: 1, label: l, target: _complete, rejects: true}], default: y}}]",
    "steps: [{id: a, loop: {max_iterations: 2, until: outcome=success, steps: [{id: b, command: x}]}}]",
    "steps: [{id: a, command: x, inputs: {b: c.output?}}, {id: c, command: x, outputs: [{name: o, path: p/q}]}]",
    "steps: [{id: a, command: x, env: {A: 1, B_2: true}, directory: sub/folder}]",
    "steps: [{id: a, command: x, timeout: 1.5, max_visits: 2}, {id: b, command: x, timeout_minutes: 2}]",
    "steps: [{id: a, command: x, retry: {policy: overnight, max_attempts: 3}}]",
    "steps: [{id: a, command: x, retry: {backoff: fixed, base_delay: 1s, max_delay: 0}}]",
    "steps: [{id: a, command: x, on_failure: rework, rework_step: b}, {id: b, command: x, rework_only: true}]",
    "steps: [{id: a, command: x, edges: [{target: _complete, condition: context.a=b}, {target: a}]}]",
    "steps: [{id: a, command: x, contracts: [{type: json_schema, schema: {}}, {type: non_empty}, {type: regex, pattern: x, negated: true}]}]",
    "steps: [{id: a, command: x, contracts: [{type: llm_judge, criteria: [c], threshold: 0.5}, {type: file_exists, path: x, on_failure: warn}]}]",
    "steps: [{id: a, command: x, once: true, handover: {contract: {type: test_suite, command: [x], timeout: 5m, must_pass: false}}}]",
];

/// Invalid steps and files.
const BAD: [&str; 47] = [
    "{}",
    "[]",
    "steps: []",
    "steps: {a: b}",
    "{stepps: [], steps: [{id: a, command: x}]}",
    "{name: '', steps: [{id: a, command: x}]}",
    "{max_step_visits: 0, steps: [{id: a, command: x}]}",
    "{inputs: [a], steps: [{id: a, command: x}]}",
    "{inputs: {'a b': x}, steps: [{id: a, command: x}]}",
    "{runtime: {max_concurrency: 0}, steps: [{id: a, command: x}]}",
    "{runtime: {timeout: 0}, steps: [{id: a, command: x}]}",
    "{runtime: {timeout: 1m, default_timeout_minutes: 1}, steps: [{id: a, command: x}]}",
    "{runtime: {stall_timeout: long}, steps: [{id: a, command: x}]}",
    "{runtime: {circuit_breaker: {tracked_classes: [canceled]}}, steps: [{id: a, command: x}]}",
    "{runtime: {circuit_breaker: {limit: 1001}}, steps: [{id: a, command: x}]}",
    "{runtime: {budget: {cost: 0}}, steps: [{id: a, command: x}]}",
    "{runtime: {fallbacks: {a: b}}, steps: [{id: a, command: x}]}",
    "steps: [{id: a}]",
    "steps: [{command: x}]",
    "steps: [{id: 'a b', command: x}]",
    "steps: [{id: _complete, command: x}]",
    "steps: [{id: 1, command: x}]",
    "steps: [{id: a, command: x, prompt: y}]",
    "steps: [{id: a, command: ''}]",
    "steps: [{id: a, command: 'echo {{ x }}'}]",
    "steps: [{id: a, command: []}]",
    "steps: [{id: a, command: x, persona: y}]",
    "steps: [{id: a, command: x, model: y}]",
    "steps: [{id: a, agent: claude}]",
    "steps: [{id: a, agent: clod, prompt: x}]",
    "steps: [{id: a, agent: claude, prompt: x, allow: [mcp]}]",
    "steps: [{id: a, gate: {type: merge}}]",
    "steps: [{id: a, gate: {type: timer}}]",
    "steps: [{id: a, gate: {type: approval}, retry: {policy: none}}]",
    "steps: [{id: a, loop: {steps: [{id: b, command: x}]}}]",
    "steps: [{id: a, command: x, needs: [], dependencies: []}]",
    "steps: [{id: a, command: x, env: {1A: x}}]",
    "steps: [{id: a, command: x, directory: ../x}]",
    "steps: [{id: a, command: x, outputs: [{name: o, path: /x}]}]",
    "steps: [{id: a, command: x, outputs: [{name: output, path: x}]}]",
    "steps: [{id: a, command: x, retry: {policy: fast}}]",
    "steps: [{id: a, command: x, retry: {max_attempts: 0}}]",
    "steps: [{id: a, command: x, on_failure: explode}]",
    "steps: [{id: a, command: x, edges: [{target: a, condition: maybe}]}]",
    "steps: [{id: a, command: x, contracts: [{type: json_schema}]}]",
    "steps: [{id: a, command: x, contracts: [{type: llm_judge, criteria: [c], threshold: 80}]}]",
    "steps: [{id: a, command: x, contracts: [{type: non_empty, path: x}]}]",
];

fn json(source: &str) -> Value {
    serde_saphyr::from_str_with_options(source, yaml::options()).unwrap()
}

/// The fields that the reader lists when it finds an unknown one.
fn known_fields(source: &str) -> Vec<String> {
    let faults = faults_of(source);
    let (_, list) = faults.split_once("there are ").unwrap();
    let mut names: Vec<_> = list.split(", ").map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn the_schema_and_the_reader_agree() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    let schema = jsonschema::validator_for(&schema).unwrap();
    for (sources, is_good) in [(&GOOD[..], true), (&BAD[..], false)] {
        for source in sources {
            let value = json(source);
            let read = read(source, Path::new("p.yaml"));
            let said = read.as_ref().err().map(ToString::to_string);
            assert_eq!(read.is_ok(), is_good, "{source}: {said:?}");
            let said: Vec<_> = schema
                .iter_errors(&value)
                .map(|it| it.to_string())
                .collect();
            assert_eq!(schema.is_valid(&value), is_good, "{source}: {said:?}");
        }
    }
}

#[test]
fn example_pipelines_are_valid() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for example in std::fs::read_dir(folder).unwrap() {
        let file = example.unwrap().path().join("pipeline.yaml");
        if !file.exists() {
            continue;
        }
        let source = std::fs::read_to_string(&file).unwrap();
        read(&source, &file).unwrap_or_else(|faults| panic!("{faults}"));
        let value = json(&source);
        let said: Vec<_> = schema
            .iter_errors(&value)
            .map(|it| it.to_string())
            .collect();
        assert_eq!(said, [""; 0], "{}", file.display());
        seen += 1;
    }
    assert!(seen >= 3, "{seen}");
}

#[test]
fn schema_names_match_reader_names() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let in_step = |field: &str| format!("steps: [{{id: a, command: x, {field}}}]");
    let names_at = |pointer: &str| -> Vec<String> {
        let properties = schema.pointer(pointer).and_then(Value::as_object);
        let mut names: Vec<_> = properties.unwrap().keys().cloned().collect();
        names.sort();
        names
    };
    let table = [
        ("/properties", "???: x".to_owned()),
        ("/$defs/runtime/properties", "runtime: {???: x}".to_owned()),
        ("/$defs/step/properties", "steps: [{???: x}]".to_owned()),
        ("/$defs/retry/properties", in_step("retry: {???: x}")),
        ("/$defs/loop/properties", in_step("loop: {???: x}")),
        ("/$defs/gate/oneOf/0/properties", in_step("gate: {???: x}")),
    ];
    for (pointer, source) in table {
        assert_eq!(names_at(pointer), known_fields(&source), "{pointer}");
    }
    let policies = schema.pointer("/$defs/retry/properties/policy/enum");
    assert_eq!(policies, Some(&Policy::NAMES.as_slice().into()));
    // Each type of contract has the fields that are not refused as meaningless there.
    let contracts = schema.pointer("/$defs/contract/oneOf").unwrap();
    let all = known_fields(&in_step("contracts: [{???: x}]"));
    for contract in contracts.as_array().unwrap() {
        let kind = &contract["properties"]["type"]["const"];
        let mut known = all.clone();
        known.retain(|name| {
            let value = match name.as_str() {
                "type" | "on_failure" | "must_pass" => return true,
                "schema" => "{}",
                "criteria" => "[x]",
                "negated" => "true",
                "threshold" | "timeout" => "1",
                _ => "x",
            };
            let source = in_step(&format!("contracts: [{{type: {kind}, {name}: {value}}}]"));
            let meaningless = format!("`{name}` has no meaning here");
            let faults = read(&source, Path::new("p.yaml")).err();
            faults.is_none_or(|faults| !faults.to_string().contains(&meaningless))
        });
        let mut names: Vec<_> = contract["properties"].as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, known.iter().collect::<Vec<_>>(), "{kind}");
    }
}
