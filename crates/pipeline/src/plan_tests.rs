use super::*;
use crate::file;
use std::path::Path;

/// A pipeline with at least one element of each kind.
const WHOLE: &str = r#"
name: implement
description: Writes what is asked for, and has it reviewed.
inputs:
  topic: caching
  ticket:
provider: anthropic
model: claude-opus
runtime:
  max_concurrency: 4
  budget: {time: 8h, cost: 5.5, tokens: 2000000}
  fallbacks: {claude: [codex], claude-opus: [claude-haiku]}
steps:
  - id: fetch
    command: curl -sf "https://example.com/$INPUT_TOPIC"
    inputs: {topic: inputs.topic}
    retry: {policy: aggressive}
  - id: plan
    prompt: Plan {{ topic }} for {{ ticket }}
    outputs: [{name: outline, path: out/plan.md}]
    contracts:
      - {type: non_empty_file, path: out/plan.md}
      - {type: llm_judge, criteria: [short, clear], threshold: 0.8}
    timeout: 10m
  - id: write
    loop:
      max_iterations: 5
      until: context.verdict=pass
      steps:
        - id: draft
          agent: claude
          allow: [write]
          prompt: "{{ outline }} {{ page }} {{ said }}"
          inputs: {outline: plan.outline, page: fetch, said: judge?}
          contracts: [{type: test_suite, command: [cargo, test]}]
          on_failure: rework
          rework_step: fix
        - id: judge
          needs: [draft]
          prompt: Judge.
          contracts:
            - {type: json_schema, schema: {type: object}}
            - {type: regex, pattern: "^ok", negated: true, on_failure: warn}
    needs: [plan, fetch]
  - id: fix
    rework_only: true
    prompt: Repair it.
    allow: [write, bash]
  - id: ask
    needs: [write]
    gate:
      type: approval
      message: Publish it?
      choices: [{key: y, label: Publish}, {key: n, label: Stop, target: _complete}, {key: a, label: Again, target: plan}]
      default: n
      timeout: 1h
  - id: rest
    needs: [ask]
    gate: {type: timer, timeout: 10m}
  - id: publish
    needs: [rest]
    once: true
    command: ./publish
    edges: [{target: tell, condition: outcome=failure}, {target: _complete}]
  - id: tell
    agent: {name: mine, program: [mine, --ask, "{prompt}"]}
    prompt: It failed.
    optional: true
"#;

#[test]
fn plan_shows_parallel_steps_and_their_follow_ups() {
    let pipeline =
        file::read(WHOLE, Path::new("x.yaml")).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!(plan(&pipeline));
}

#[test]
fn file_text_in_plan_stays_on_one_line() {
    let long = "x".repeat(1000);
    let source = format!(
        "name: \"a\\nb \\e[31mred\"\nsteps:\n  - id: s\n    command: |\n      first\n      {long}\n"
    );
    let pipeline = file::read(&source, Path::new("x.yaml")).unwrap();
    let plan = plan(&pipeline);
    assert!(plan.starts_with("a b red: 1 step,"), "{plan}");
    assert!(plan.lines().all(|line| line.len() < 120), "{plan}");
    assert!(!plan.contains('\u{1b}'));
}

#[test]
fn thousand_chained_steps_make_thousand_layers() {
    let mut source = "steps:\n  - {id: s0, command: x}\n".to_owned();
    for step in 1..1000 {
        source += &format!("  - {{id: s{step}, command: x, needs: [s{}]}}\n", step - 1);
    }
    let pipeline = file::read(&source, Path::new("x.yaml")).unwrap();
    assert!(plan(&pipeline).contains("├ 1000\n│ s999 "));
}

#[test]
fn step_layer_follows_its_longest_path() {
    let source = "steps: [{id: a, command: x}, {id: b, command: x}, {id: c, command: x, needs: [b]}, \
                  {id: d, command: x, needs: [c, a]}]";
    let plan = plan(&file::read(source, Path::new("x.yaml")).unwrap());
    let lines: Vec<_> = plan.lines().collect();
    let at = |beginning: &str| lines.iter().position(|line| line.starts_with(beginning));
    assert_eq!(at("│ d "), at("├ 3").map(|line| line + 1), "{plan}");
}
