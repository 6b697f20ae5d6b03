use super::*;
use crate::definition::{
    Approval, CommandLine, Condition, Gate, OnFailure, Rule, Source, Step, Target, Work,
};
use outlast_kernel::breaker;
use outlast_kernel::budget::Cost;
use outlast_kernel::verdict::Class;
use std::num::NonZeroU32;
use std::time::Duration;

#[path = "file_tests/faults.rs"]
mod faults;
#[path = "file_tests/limits.rs"]
mod limits;
#[path = "file_tests/schema.rs"]
mod schema;

fn parse_valid(source: &str) -> Pipeline {
    read(source, Path::new("some/where/p.yaml")).unwrap_or_else(|faults| panic!("{faults}"))
}

fn faults_of(source: &str) -> String {
    match read(source, Path::new("p.yaml")) {
        Ok(_) => panic!("nothing is wrong with it"),
        Err(faults) => faults.to_string(),
    }
}

fn step<'a>(pipeline: &'a Pipeline, id: &str) -> &'a Step {
    pipeline
        .step(id)
        .unwrap_or_else(|| panic!("there is no {id}"))
}

fn needs<'a>(pipeline: &'a Pipeline, id: &str) -> Vec<&'a str> {
    step(pipeline, id)
        .needs
        .iter()
        .map(String::as_str)
        .collect()
}

#[test]
fn omitted_pipeline_settings_have_defaults() {
    let pipeline = parse_valid("steps: [{id: a, command: x}]");
    assert_eq!(pipeline.name, "p");
    let runtime = &pipeline.runtime;
    assert_eq!(runtime.max_concurrency.get(), 10);
    assert_eq!(runtime.stall_timeout, Some(Duration::from_secs(1800)));
    assert_eq!(runtime.circuit_breaker, breaker::Config::default());
    assert_eq!(runtime.budget, Default::default());
    let step = step(&pipeline, "a");
    assert_eq!(step.max_visits.get(), 10);
    assert_eq!(step.retry.policy.name, "standard");
    assert!(!step.retry.is_explicit && !step.once && !step.is_on_demand);
    assert_eq!(step.on_failure, OnFailure::Fail);
    assert_eq!(
        (step.timeout, step.directory.as_os_str()),
        (None, "".as_ref())
    );
}

#[test]
fn pipeline_wide_settings_are_read() {
    let pipeline = parse_valid(
        "max_step_visits: 3\n\
         runtime:\n  max_concurrency: 2\n  stall_timeout: 0\n  default_timeout_minutes: 30\n  \
         circuit_breaker: {limit: 5, tracked_classes: [transient]}\n  \
         budget: {time: 90m, tokens: 5}\n  cost: {budget_ceiling: 0.05}\n\
         steps:\n  - {id: a, command: x}\n  - {id: b, command: x, timeout: 5, max_visits: 7}\n  \
         - {id: c, gate: {type: timer, timeout: 1m}}\n",
    );
    let runtime = &pipeline.runtime;
    assert_eq!(
        (runtime.max_concurrency.get(), runtime.stall_timeout),
        (2, None)
    );
    let five = NonZeroU32::new(5).unwrap();
    assert_eq!(
        runtime.circuit_breaker,
        breaker::Config::new(five, &[Class::Transient]).unwrap()
    );
    assert_eq!(runtime.budget.time, Some(Duration::from_secs(5400)));
    assert_eq!(runtime.budget.cost, Some(Cost(50_000)));
    assert_eq!(runtime.budget.tokens, Some(5));
    let timeouts = ["a", "b", "c"].map(|id| step(&pipeline, id).timeout.map(|it| it.as_secs()));
    assert_eq!(timeouts, [Some(1800), Some(5), None]);
    let visits = ["a", "b"].map(|id| step(&pipeline, id).max_visits.get());
    assert_eq!(visits, [3, 7]);
}

#[test]
fn step_input_implies_need_unless_optional() {
    let pipeline = parse_valid(
        "inputs: {topic: x}\nsteps:\n  - {id: a, command: x}\n  - {id: b, command: x}\n  \
         - {id: c, command: x, outputs: [{name: plan.md, path: out/p}]}\n  \
         - id: d\n    dependencies: [b]\n    command: x\n    \
         inputs: {one: a?, two: b, three: c.plan.md, four: inputs.topic}\n",
    );
    assert_eq!(needs(&pipeline, "d"), ["b", "c"]);
    let inputs = &step(&pipeline, "d").inputs;
    let made = |step: &str, artifact: &str, optional| Source::Step {
        step: step.to_owned(),
        artifact: artifact.to_owned(),
        optional,
    };
    assert_eq!(inputs["one"], made("a", "output", true));
    assert_eq!(inputs["three"], made("c", "plan.md", false));
    let topic = "topic".to_owned();
    assert_eq!(inputs["four"], Source::Run { name: topic });
}

#[test]
fn scalars_are_kept_as_written() {
    let pipeline = parse_valid(
        "inputs: {version: 1.10, yes: on, none: , long: {default: 007, description: d}}\nsteps:\n  - id: a\n    \
         command: [make, -j, 08, true]\n    env: {A: 1.10, B: true, C: 'no'}\n",
    );
    let default = |name: &str| pipeline.inputs[name].default.as_deref();
    assert_eq!(
        ["version", "yes", "none", "long"].map(default),
        [Some("1.10"), Some("on"), None, Some("007")]
    );
    let step = step(&pipeline, "a");
    let words = ["make", "-j", "08", "true"].map(str::to_owned).to_vec();
    assert!(matches!(&step.work, Work::Command(CommandLine::Program(it)) if *it == words));
    let env: Vec<_> = step.env.values().map(String::as_str).collect();
    assert_eq!(env, ["1.10", "true", "no"]);
}

#[test]
fn loop_steps_are_pipeline_steps() {
    let pipeline = parse_valid(
        "steps:\n  - {id: first, command: x}\n  \
         - id: outer\n    needs: [first]\n    loop:\n      max_iterations: 4\n      steps:\n        \
           - {id: a, command: x}\n        \
           - id: inner\n          needs: [a]\n          loop:\n            max_iterations: 5\n            \
             until: context.ok!=no\n            steps: [{id: b, command: x}, {id: c, command: x, needs: [b]}]\n  \
         - {id: last, command: x, inputs: {it: c}}\n  - {id: end, command: x, needs: [outer]}\n",
    );
    let order: Vec<_> = pipeline.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(
        order,
        ["first", "outer", "a", "inner", "b", "c", "last", "end"]
    );
    let table = [
        ("outer", None, &["a", "inner"][..]),
        ("a", Some("outer"), &["first"]),
        ("inner", Some("outer"), &["b", "c"]),
        ("b", Some("inner"), &["a"]),
        ("c", Some("inner"), &["b"]),
        // A step inside of a loop is done when the loop is.
        ("last", None, &["outer"]),
        ("end", None, &["outer"]),
    ];
    for (id, part_of, need) in table {
        assert_eq!(step(&pipeline, id).parent_loop.as_deref(), part_of, "{id}");
        assert_eq!(needs(&pipeline, id), need, "{id}");
    }
    let visits =
        ["first", "outer", "a", "inner", "b"].map(|id| step(&pipeline, id).max_visits.get());
    assert_eq!(visits, [10, 10, 10, 20, 20]);
    let Work::Loop(inner) = &step(&pipeline, "inner").work else {
        panic!("no loop");
    };
    assert_eq!(inner.steps, ["b", "c"]);
    let until = Condition::Context {
        key: "ok".to_owned(),
        value: "no".to_owned(),
        negated: true,
    };
    assert_eq!(inner.until, Some(until));
}

#[test]
fn target_of_forward_edge_or_rework_is_on_demand() {
    let pipeline = parse_valid(
        "steps:\n  - {id: test, command: x, edges: [{target: fix, condition: outcome=failure}, {target: _complete}]}\n  \
         - {id: fix, command: x, edges: [{target: test}]}\n  \
         - {id: ask, gate: {type: approval, choices: [{key: a, target: tell}, {key: b, target: test}]}}\n  \
         - {id: tell, command: x}\n  \
         - {id: build, command: x, retry: {on_failure: rework, rework_step: repair}}\n  \
         - {id: repair, command: x}\n  - {id: spare, rework_only: true, command: x, edges: [{target: spare}]}\n",
    );
    let called = pipeline.steps.iter().filter(|step| step.is_on_demand);
    let called: Vec<_> = called.map(|step| step.id.as_str()).collect();
    assert_eq!(called, ["fix", "tell", "repair", "spare"]);
    let edges = &step(&pipeline, "test").edges;
    assert_eq!(edges[0].target, Target::Step("fix".to_owned()));
    assert_eq!(edges[0].condition, Condition::Failure);
    assert_eq!(edges[1].target, Target::Complete);
    assert_eq!(edges[1].condition, Condition::Always);
    let repair = "repair".to_owned();
    let on_failure = &step(&pipeline, "build").on_failure;
    assert_eq!(*on_failure, OnFailure::Rework { step: repair });
}

#[test]
fn retry_policy_is_a_name_with_overrides() {
    let pipeline = parse_valid(
        "steps:\n  - {id: a, command: x, retry: {policy: aggressive}}\n  \
         - {id: b, command: x, retry: {policy: standard, max_attempts: 5}}\n  \
         - {id: c, command: x, retry: {backoff: linear, base_delay: 2s, max_delay: 5s, max_attempts: 4}}\n  \
         - {id: d, command: x, once: true}\n  - {id: e, command: x, optional: true, retry: {policy: none}}\n",
    );
    let delays = |id: &str| {
        let delays = step(&pipeline, id).retry.policy.delays(10);
        delays.iter().map(Duration::as_millis).collect::<Vec<_>>()
    };
    assert_eq!(delays("a"), [200, 400, 800, 1600]);
    assert_eq!(delays("b"), [1000, 2000, 4000, 8000]);
    assert_eq!(delays("c"), [2000, 4000, 5000]);
    assert_eq!(delays("d"), [0_u128; 0]);
    assert_eq!(delays("e"), [0_u128; 0]);
    assert_eq!(step(&pipeline, "e").on_failure, OnFailure::Continue);
    let explicit = ["a", "b", "c", "d", "e"].map(|id| step(&pipeline, id).retry.is_explicit);
    assert_eq!(explicit, [true, true, true, false, true]);
}

#[test]
fn approval_gate_without_choices_offers_yes_and_no() {
    let pipeline = parse_valid(
        "steps: [{id: a, gate: {type: approval}}, \
         {id: b, gate: {type: approval, message: m, default: 2, timeout: 5m, choices: [{key: 1, label: One}, {key: 2}]}}]",
    );
    let approval = |id: &str| -> Approval {
        match &step(&pipeline, id).work {
            Work::Gate(Gate::Approval(approval)) => approval.clone(),
            other => panic!("{other:?}"),
        }
    };
    let usual = approval("a");
    let choices: Vec<_> = usual
        .choices
        .iter()
        .map(|it| (it.key.as_str(), it.is_rejection))
        .collect();
    assert_eq!(choices, [("y", false), ("n", true)]);
    assert_eq!((usual.timeout.as_secs(), usual.default), (86_400, None));
    let own = approval("b");
    let choices: Vec<_> = own
        .choices
        .iter()
        .map(|it| (it.key.as_str(), it.label.as_str()))
        .collect();
    assert_eq!(choices, [("1", "One"), ("2", "2")]);
    assert_eq!(own.default.as_deref(), Some("2"));
}

#[test]
fn prompt_uses_pipeline_model_unless_provider_differs() {
    let pipeline = parse_valid(
        "provider: one\nmodel: big\nruntime: {fallbacks: {big: [small], claude: [codex]}}\nsteps:\n  \
         - {id: a, prompt: x}\n  - {id: b, prompt: x, model: other}\n  - {id: c, prompt: x, provider: two}\n  \
         - {id: d, prompt: x, allow: [write]}\n  - {id: e, agent: claude, prompt: x}\n",
    );
    let asked = |id: &str| match &step(&pipeline, id).work {
        Work::Prompt(it) => (
            it.provider.clone().unwrap_or_default(),
            it.model.clone().unwrap_or_default(),
            it.fallbacks.len(),
            it.tools,
        ),
        other => panic!("{other:?}"),
    };
    let row = |provider: &str, model: &str, fallbacks, tools| {
        (provider.to_owned(), model.to_owned(), fallbacks, tools)
    };
    assert_eq!(asked("a"), row("one", "big", 1, false));
    assert_eq!(asked("b"), row("one", "other", 0, false));
    assert_eq!(asked("c"), row("two", "", 0, false));
    assert_eq!(asked("d"), row("one", "big", 1, true));
    let Work::Agent(agent) = &step(&pipeline, "e").work else {
        panic!("no agent");
    };
    assert_eq!(
        (agent.fallbacks.as_slice(), &agent.model),
        (&["codex".to_owned()][..], &None)
    );
}

#[test]
fn contracts_are_read_from_step_and_handover() {
    let pipeline = parse_valid(
        "steps:\n  - id: a\n    command: x\n    outputs: [{name: plan, path: p}]\n    contracts:\n      \
         - {type: json_schema, schema: {type: object}, artifact: plan}\n      \
         - {type: llm_judge, criteria: [a, b], threshold: 0.855, must_pass: false}\n  \
         - {id: b, command: x, handover: {contract: {type: non_empty, on_failure: warn}}}\n  \
         - {id: c, command: x, handover: {contracts: [{type: test_suite, command: y, timeout: 1m}]}}\n",
    );
    let a = &step(&pipeline, "a").contracts;
    assert_eq!(
        (a[0].artifact.as_str(), a[0].is_warning_only),
        ("plan", false)
    );
    assert!(matches!(&a[1].rule, Rule::Judge(judge) if judge.threshold_percent == 86));
    assert_eq!(
        (a[1].artifact.as_str(), a[1].is_warning_only),
        ("output", true)
    );
    assert!(step(&pipeline, "b").contracts[0].is_warning_only);
    let rule = &step(&pipeline, "c").contracts[0].rule;
    assert!(matches!(rule, Rule::TestSuite { timeout: Some(it), .. } if it.as_secs() == 60));
}

#[test]
fn schema_file_must_be_within_pipeline_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("good.json"), r#"{"type": "array"}"#).unwrap();
    std::fs::write(inside.join("bad.json"), r#"{"type": "#).unwrap();
    std::fs::write(inside.join("big.json"), " ".repeat(2 * MAX_FILE_BYTES)).unwrap();
    std::fs::write(folder.path().join("outside.json"), "{}").unwrap();
    std::os::unix::fs::symlink("../outside.json", inside.join("link.json")).unwrap();
    let read_with = |schema: &str| {
        let contract = format!("{{type: json_schema, schema_path: {schema}}}");
        let source = format!("steps: [{{id: a, command: x, contracts: [{contract}]}}]");
        read(&source, &inside.join("p.yaml"))
    };
    let pipeline = read_with("good.json").unwrap();
    let rule = &step(&pipeline, "a").contracts[0].rule;
    assert!(matches!(rule, Rule::JsonSchema { schema } if schema["type"] == "array"));
    let table = [
        ("link.json", "not within the folder"),
        ("../outside.json", "without `..`"),
        ("/etc/hosts", "without `..` and a leading `/`"),
        ("bad.json", "the schema is not JSON: EOF while parsing"),
        ("big.json", "a schema is a file of at most 1048576 bytes"),
        (".", "a schema is a file"),
        ("none.json", "the schema cannot be read: No such file"),
    ];
    for (schema, expected) in table {
        let faults = read_with(schema).unwrap_err().to_string();
        assert!(faults.contains(expected), "{schema}: {faults}");
    }
}
