//! The fault messages of every kind of invalid file.

use super::faults_of;
use std::fmt::Write;

/// Lists of steps, each with a fault.
const STEPS: [&str; 79] = [
    // Names.
    "{id: a, command: x}, {id: a, command: y}",
    "{id: _complete, command: x}",
    "{id: inputs, command: x}",
    "{id: a/b, command: x}",
    "{command: x}",
    "{id: fetch, command: x}, {id: b, command: x, needs: [fetsh]}",
    "{id: fetch, command: x, needs: fetch}",
    "{id: a, command: x, needs: [1]}",
    "{id: fetch, command: x}, {id: b, command: x, inputs: {x: fetch.plan, y: fetsh, z: inputs.none, 'a b': fetch}}",
    "{id: a, command: x}, {id: b, command: x, inputs: {a-b: a, a_b: a, c: inputs.x?, d: .x}}",
    "{id: a, command: x, edges: [{target: b}, {condition: outcome=failure}, {target: a, condition: outcome=good}]}",
    "{id: a, command: x, on_failure: rework, rework_step: b}",
    "{id: a, gate: {type: approval, choices: [{key: y, target: b}]}}",
    // Cycles.
    "{id: a, command: x, needs: [a]}",
    "{id: a, command: x, needs: [b]}, {id: b, command: x, needs: [c]}, {id: c, command: x, inputs: {x: a}}",
    "{id: l, loop: {max_iterations: 2, steps: [{id: a, command: x, needs: [l]}]}}",
    "{id: l, needs: [b], loop: {max_iterations: 2, steps: [{id: a, command: x}]}}, {id: b, command: x, needs: [a]}",
    "{id: a, command: x, on_failure: rework, rework_step: b}, {id: b, command: x, on_failure: rework, rework_step: a}",
    "{id: a, command: x, on_failure: rework, rework_step: a}",
    // Work.
    "{id: a}",
    "{id: a, prompt: x, command: y}",
    "{id: a, agent: claude, prompt: x, gate: {type: approval}}",
    "{id: a, command: ''}",
    "{id: a, command: []}",
    "{id: a, command: {x: y}}",
    "{id: a, command: 'echo {{ x }}'}",
    "{id: a, command: [echo, '{{ x }}']}",
    "{id: a, command: x, tools: true, model: m}",
    "{id: a, prompt: ' '}",
    "{id: a, prompt: '{{ topik }} {{ topic }}', inputs: {topic: b}}, {id: b, command: x}",
    "{id: a, prompt: 'Write {{ x'}",
    "{id: a, prompt: 'a {{ \"{{\" }} {{}}'}",
    "{id: a, prompt: x, allow: [wirte, all], tools: maybe}",
    "{id: a, prompt: x, allow: [write], tools: false}",
    "{id: a, agent: claude}",
    "{id: a, agent: clude, prompt: x}",
    "{id: a, agent: {name: x}, prompt: x, system: y, allow: [outside]}",
    "{id: a, agent: {program: []}, prompt: x}",
    "{id: a, gate: {type: pr_merge}}",
    "{id: a, gate: {type: timer, message: x}}",
    "{id: a, gate: {type: approval, message: '{{ x }}', default: z, timeout: 0}}",
    "{id: a, gate: {type: approval, choices: [{key: y}, {key: y}, {label: x}, z]}, timeout: 5m}",
    "{id: a, loop: {steps: [], until: x}}",
    "{id: a, loop: {max_iterations: 0, steps: [{id: b}]}, retry: {policy: none}}",
    // Retries and failures.
    "{id: a, command: x, retry: {policy: agressive}}",
    "{id: a, command: x, retry: {max_attempts: 0}}",
    "{id: a, command: x, retry: {max_attempts: -1, backoff: stepped}}",
    "{id: a, command: x, retry: {base_delay: 1m}}",
    "{id: a, command: x, retry: {base_delay: 5s, max_delay: 2s}}",
    "{id: a, command: x, retry: {policy: none, max_attempts: 2}}",
    "{id: a, command: x, retry: {policy: overnight, base_delay: 5s}}",
    "{id: a, command: x, retry: aggressive}",
    "{id: a, command: x, once: true, retry: {policy: patient}}",
    "{id: a, command: x, retry: {on_failure: skip}, on_failure: fail}",
    "{id: a, command: x, on_failure: rework}",
    "{id: a, command: x, rework_step: b}, {id: b, command: x}",
    "{id: a, command: x, optional: true, on_failure: skip}",
    "{id: a, command: x, rework_only: true}",
    "{id: a, command: x, max_visits: 0}",
    // Paths and durations.
    "{id: a, command: x, directory: ../x}",
    "{id: a, command: x, outputs: [{name: o, path: /etc/passwd}, {name: output, path: x}, {name: p}]}",
    "{id: a, command: x, outputs: [{name: o, path: x}, {name: o, path: y}], output_artifacts: []}",
    "{id: a, command: x, env: {1A: x, B=: y, C: [z]}}",
    "{id: a, command: x, timeout: soon, timeout_minutes: 0}",
    "{id: a, command: x, timeout_minutes: 1.5}",
    // Contracts.
    "{id: a, command: x, contracts: [{}, {type: jsonschema}, x]}",
    "{id: a, command: x, contracts: [{type: json_schema}, {type: json_schema, schema: {}, schema_path: x}]}",
    "{id: a, command: x, contracts: [{type: json_schema, schema: {type: objekt}}]}",
    "{id: a, command: x, contracts: [{type: json_schema, schema: {$ref: 'https://example.com/s.json'}}]}",
    "{id: a, command: x, contracts: [{type: json_schema, schema: {$ref: 'file:///etc/passwd'}}]}",
    "{id: a, command: x, contracts: [{type: regex, pattern: '(a'}, {type: regex}]}",
    "{id: a, command: x, contracts: [{type: test_suite}, {type: test_suite, command: '{{ x }}'}]}",
    "{id: a, command: x, contracts: [{type: file_exists, path: ../x}, {type: non_empty, artifact: plan}]}",
    "{id: a, command: x, contracts: [{type: llm_judge, criteria: [], threshold: 80}, {type: llm_judge}]}",
    "{id: a, command: x, contracts: [{type: non_empty, must_pass: true, on_failure: warn, max_retries: 3}]}",
    "{id: a, command: x, contracts: [], handover: {contract: {type: non_empty}, compaction: x}}",
    // Files of other systems.
    "{id: a, persona: x, exec: {type: prompt}, memory: {}, workspace: {}}",
    "{id: a, comand: x, nedds: [], timout: 5}",
    "{id: a, command: x, foo: bar, description: x}",
];

/// The text before the steps.
const HEADS: [&str; 13] = [
    "nmae: x",
    "kind: WavePipeline",
    "name: 1",
    "inputs: {a b: x, c: [1], d: {defualt: x}}",
    "inputs: [a]",
    "max_step_visits: many",
    "runtime: 5",
    "runtime: {max_concurency: 1, max_concurrency: 0, stall_timeout: 5x}",
    "runtime: {circuit_breaker: {limit: 0, tracked_classes: [canceled, cancelled, transcient]}}",
    "runtime: {circuit_breaker: {limit: 2000}}",
    "runtime: {budget: {time: 0, cost: -1, tokens: 1.5}}",
    "runtime: {budget: {cost: 1}, cost: {budget_ceiling: 0.00, enabled: true}}",
    "runtime: {fallbacks: {claude: [clodex], m: n}, timeout: 1m, default_timeout_minutes: 5}",
];

#[test]
fn faults_report_position_and_correction() {
    let mut said = String::new();
    for steps in STEPS {
        let source = format!("steps: [{steps}]");
        writeln!(said, "{source}\n{}\n", faults_of(&source)).unwrap();
    }
    for head in HEADS {
        let source = format!("{head}\nsteps: [{{id: a, command: x}}]");
        writeln!(said, "{head}\n{}\n", faults_of(&source)).unwrap();
    }
    insta::assert_snapshot!(said);
}

#[test]
fn all_faults_are_reported_at_once() {
    let source = "steps:\n  - id: a\n    comand: x\n  - id: b\n    command: 'echo {{ x }}'\n    needs: [c]\n";
    assert_eq!(
        faults_of(source),
        "p.yaml:3:5: a step has no `comand`; did you mean `command`?\n\
         p.yaml:5:14: a command is never filled in; name it under `inputs` and write \"$INPUT_NAME\", or read the \
         file \"$INPUT_NAME_FILE\"\n\
         p.yaml:6:13: there is no step `c`"
    );
}

#[test]
fn template_name_fault_points_to_its_own_line() {
    let source = "steps:\n  - id: a\n    prompt: |\n      Write about\n\n      é {{ topik }}, and\n      {{ topik }} again.\n";
    for newline in ["\n", "\r\n", "\r"] {
        assert_eq!(
            faults_of(&source.replace('\n', newline)),
            "p.yaml:6:9: there is no input `topik`; name it under `inputs` of the step or of the pipeline"
        );
    }
}

#[test]
fn fault_repeated_by_alias_is_reported_once() {
    let source = "steps:\n  - {id: a, command: x, retry: &r {polcy: none}}\n  - {id: b, command: x, retry: *r}\n";
    assert_eq!(
        faults_of(source),
        "p.yaml:2:36: `retry` has no `polcy`; did you mean `policy`?"
    );
}
