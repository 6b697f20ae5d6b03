//! The fault messages of every kind of invalid file.

use super::faults_of;
use std::fmt::Write;

/// Lists of steps, each with a fault.
const STEPS: [&str; 109] = [
    // Names.
    "{id: a, command: x}, {id: a, command: y}",
    "{id: _complete, command: x}",
    "{id: inputs, command: x}",
    "{id: a/b, command: x}",
    "{command: x}",
    "{id: fetch, command: x}, {id: b, command: x, needs: [fetsh]}",
    "{id: fetch, command: x, needs: fetch}",
    "{id: a, command: x, needs: [1]}",
    "{id: fetch, command: x}, {id: b, command: x, inputs: {x: fetch.plan, y: fetsh, z: inputs.none}}",
    "{id: a, command: x, inputs: {'a b': a}}",
    "{id: a, command: x}, {id: b, command: x, inputs: {a-b: a, a_b: a}}",
    "{id: a, command: x, inputs: {c: inputs.x?}}",
    "{id: a, command: x, inputs: {d: .x}}",
    "{id: a, command: x, edges: [{target: b}]}",
    "{id: a, command: x, edges: [{condition: outcome=failure}]}",
    "{id: a, command: x, edges: [{target: a, condition: outcome=good}]}",
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
    "{id: a, prompt: x, allow: [wirte, all]}",
    "{id: a, prompt: x, tools: maybe}",
    "{id: a, prompt: x, allow: [write], tools: false}",
    "{id: a, agent: claude}",
    "{id: a, agent: clude, prompt: x}",
    "{id: a, agent: {name: x}, prompt: x, system: y, allow: [outside]}",
    "{id: a, agent: {program: []}, prompt: x}",
    "{id: a, agent: {name: b, program: []}, prompt: x}",
    "{id: a, gate: {type: pr_merge}}",
    "{id: a, gate: {type: timer, message: x}}",
    "{id: a, gate: {type: approval, message: '{{ x }}', default: z}}",
    "{id: a, gate: {type: approval, timeout: 0}}",
    "{id: a, gate: {type: approval, choices: [{key: y}, {key: y}]}, timeout: 5m}",
    "{id: a, gate: {type: approval, choices: [{label: x}]}}",
    "{id: a, gate: {type: approval, choices: [z]}}",
    "{id: a, loop: {steps: []}}",
    "{id: a, loop: {max_iterations: 1, steps: [], until: x}}",
    "{id: a, loop: {max_iterations: 0, steps: [{id: b}]}}",
    "{id: a, loop: {max_iterations: 1, steps: []}}",
    "{id: a, loop: {max_iterations: 1, steps: [{id: b}]}, retry: {policy: none}}",
    // Retries and failures.
    "{id: a, command: x, retry: {policy: agressive}}",
    "{id: a, command: x, retry: {max_attempts: 0}}",
    "{id: a, command: x, retry: {max_attempts: -1}}",
    "{id: a, command: x, retry: {backoff: stepped}}",
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
    "{id: a, command: x, outputs: [{name: o, path: /etc/passwd}]}",
    "{id: a, command: x, outputs: [{name: output, path: x}]}",
    "{id: a, command: x, outputs: [{name: p}]}",
    "{id: a, command: x, outputs: [{name: o, path: x}, {name: o, path: y}]}",
    "{id: a, command: x, outputs: [], output_artifacts: []}",
    "{id: a, command: x, env: {1A: x}}",
    "{id: a, command: x, env: {B=: y}}",
    "{id: a, command: x, env: {C: [z]}}",
    "{id: a, command: x, timeout: soon}",
    "{id: a, command: x, timeout: 5, timeout_minutes: 1}",
    "{id: a, command: x, timeout_minutes: 1.5}",
    // Contracts.
    "{id: a, command: x, contracts: [{}]}",
    "{id: a, command: x, contracts: [{type: jsonschema}]}",
    "{id: a, command: x, contracts: [x]}",
    "{id: a, command: x, contracts: [{type: non_empty, path: x}]}",
    "{id: a, command: x, contracts: [{type: json_schema}, {type: json_schema, schema: {}, schema_path: x}]}",
    "{id: a, command: x, contracts: [{type: json_schema, schema: {type: objekt}}]}",
    "{id: a, command: x, contracts: [{type: json_schema, schema: {$ref: 'https://example.com/s.json'}}]}",
    "{id: a, command: x, contracts: [{type: json_schema, schema: {$ref: 'file:///etc/passwd'}}]}",
    "{id: a, command: x, contracts: [{type: regex, pattern: '(a'}, {type: regex}]}",
    "{id: a, command: x, contracts: [{type: test_suite}, {type: test_suite, command: '{{ x }}'}]}",
    "{id: a, command: x, contracts: [{type: file_exists, path: ../x}]}",
    "{id: a, command: x, contracts: [{type: file_exists}, {type: non_empty, artifact: plan}]}",
    "{id: a, command: x, contracts: [{type: llm_judge, criteria: []}, {type: llm_judge}]}",
    "{id: a, command: x, contracts: [{type: llm_judge, threshold: 80}]}",
    "{id: a, command: x, contracts: [{type: non_empty, must_pass: true, on_failure: warn}]}",
    "{id: a, command: x, contracts: [{type: non_empty, max_retries: 3}]}",
    "{id: a, command: x, contracts: [], handover: {contract: {type: non_empty}, contracts: []}}",
    "{id: a, command: x, handover: {compaction: x}}",
    // Files of other systems.
    "{id: a, persona: x}",
    "{id: a, exec: {type: prompt}}",
    "{id: a, memory: {}}",
    "{id: a, comand: x}",
    "{id: a, command: x, foo: bar}",
    "{id: a, command: x, description: x}",
];

/// The text before the steps.
const HEADS: [&str; 22] = [
    "nmae: x",
    "kind: WavePipeline",
    "name: 1",
    "inputs: {a b: x}",
    "inputs: {c: [1]}",
    "inputs: {d: {defualt: x}}",
    "inputs: [a]",
    "max_step_visits: many",
    "runtime: 5",
    "runtime: {max_concurency: 1}",
    "runtime: {max_concurrency: 0}",
    "runtime: {stall_timeout: 5x}",
    "runtime: {circuit_breaker: {tracked_classes: [cancelled]}}",
    "runtime: {circuit_breaker: {tracked_classes: [transcient]}}",
    "runtime: {circuit_breaker: {limit: 2000}}",
    "runtime: {budget: {time: 0}}",
    "runtime: {budget: {cost: -1}}",
    "runtime: {budget: {tokens: 1.5}}",
    "runtime: {budget: {cost: 1}, cost: {budget_ceiling: 2}}",
    "runtime: {cost: {enabled: true}}",
    "runtime: {fallbacks: {claude: [clodex]}, timeout: 1m, default_timeout_minutes: 5}",
    "runtime: {fallbacks: {m: n}}",
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
fn all_faults_are_reported_at_once_unless_the_shape_is_wrong() {
    let source = "steps:\n  - id: a\n    command: x\n    prompt: x\n  - id: b\n    command: 'echo {{ x }}'\n    needs: [c]\n";
    assert_eq!(
        faults_of(source),
        "p.yaml:4:13: a step does one thing, and this one has `command` and `prompt`\n\
         p.yaml:6:14: a command is never filled in; name it under `inputs` and write \"$INPUT_NAME\", or read the \
         file \"$INPUT_NAME_FILE\"\n\
         p.yaml:7:13: there is no step `c`"
    );
    assert_eq!(
        faults_of(&source.replace("prompt", "promt")),
        "p.yaml:4:5: unknown field `promt`; did you mean `prompt`?"
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
    let source = "steps:\n  - {id: a, command: x, retry: &r {policy: none, max_attempts: 2}}\n  - {id: b, command: x, retry: *r}\n";
    assert_eq!(
        faults_of(source),
        "p.yaml:2:64: policy `none` is one attempt; name another policy, or leave out `max_attempts`"
    );
}
