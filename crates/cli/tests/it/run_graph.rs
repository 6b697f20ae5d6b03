//! The order of the steps of a pipeline, their visits and inputs: needs, edges, loops, gates, and the effect of
//! failures.

use crate::run_driver::{Run, time};
use crate::support::Outlast;

#[test]
fn step_visits_are_limited_to_ten_or_configured_max() {
    for (said, of_step, visits) in [
        ("", "", 10),
        ("max_step_visits: 4\n", "", 4),
        ("max_step_visits: 4\n", ", max_visits: 2", 2),
    ] {
        let outlast = Outlast::new();
        let run = outlast.pipeline(&format!(
            "{said}steps:
  - {{id: a, command: echo x >> a{of_step}}}
  - {{id: b, needs: [a], command: \"true\", max_visits: 99, edges: [{{target: a}}]}}
"
        ));
        assert_eq!(outlast.notes("a").len(), visits, "{}", run.dump());
        assert_eq!((run.code, run.outcome()), (1, "failed"));
        let expected = format!("it was visited {visits} times, and may not be again (max_visits)");
        assert_eq!(run.reason("a"), expected);
    }
}

#[test]
fn edges_follow_their_conditions() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        r#"steps:
  - id: check
    command: "echo x >> checked; if [ $OUTLAST_VISIT -lt 3 ]; then echo '{\"verdict\": \"bad\"}'; else echo '{\"verdict\": \"good\", \"score\": 9}'; fi"
    edges:
      - {target: fix, condition: context.verdict=bad}
      - {target: done, condition: context.score!=3}
  - {id: fix, command: echo x >> fixed, edges: [{target: check}]}
  - {id: done, command: echo x >> done, edges: [{target: _complete}]}
  - {id: never, needs: [done], command: echo x >> never}
"#,
    );
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let counts = ["checked", "fixed", "done", "never"].map(|file| outlast.notes(file).len());
    assert_eq!(counts, [3, 2, 1, 0], "{}", run.dump());
}

#[test]
fn dependents_rerun_when_step_is_visited_again() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        r#"steps:
  - {id: write, command: "echo draft $OUTLAST_VISIT"}
  - {id: count, inputs: {text: write}, command: "cat $INPUT_TEXT_FILE >> counted"}
  - id: judge
    needs: [count]
    command: "if [ $OUTLAST_VISIT = 1 ]; then echo '{\"again\": true}'; else echo '{\"again\": false}'; fi"
    edges: [{target: write, condition: context.again=true}]
  - {id: publish, needs: [judge], command: echo x >> published}
"#,
    );
    assert_eq!(run.code, 0, "{}", run.dump());
    assert_eq!(outlast.notes("counted"), ["draft 1", "draft 2"]);
    assert_eq!(outlast.notes("published").len(), 1, "{}", run.dump());
}

#[test]
fn loop_ends_at_condition_or_max_iterations() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        r#"steps:
  - id: until
    loop:
      max_iterations: 5
      until: context.verdict=pass
      steps:
        - {id: draft, command: "echo x >> drafts; wc -l < drafts"}
        - {id: review, inputs: {draft: draft}, command: "if [ $INPUT_DRAFT -ge 3 ]; then echo '{\"verdict\": \"pass\"}'; else echo '{\"verdict\": \"fail\"}'; fi"}
  - id: tests
    loop:
      max_iterations: 4
      until: outcome=success
      steps:
        - {id: suite, command: "echo x >> suites; test $(wc -l < suites) -ge 3"}
  - id: counted
    loop: {max_iterations: 3, steps: [{id: count, command: echo x >> counts}]}
  - id: endless
    loop: {max_iterations: 2, until: outcome=failure, steps: [{id: fine, command: echo x >> fine}]}
    on_failure: continue
  - {id: after, needs: [until, tests, counted], command: echo x >> after}
"#,
    );
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let counts =
        ["drafts", "suites", "counts", "fine", "after"].map(|file| outlast.notes(file).len());
    assert_eq!(counts, [3, 3, 3, 2, 1], "{}", run.dump());
    let outcomes =
        ["until", "tests", "counted", "endless"].map(|step| run.outcomes(step).last().copied());
    assert_eq!(
        outcomes,
        ["completed", "completed", "completed", "continued"].map(Some)
    );
    assert!(
        run.reason("endless").contains("within 2 iterations"),
        "{}",
        run.reason("endless")
    );
}

#[test]
fn on_failure_setting_decides_outcome_of_run() {
    let table = [
        ("", 1, "failed", "failed", "", 0),
        ("on_failure: fail", 1, "failed", "failed", "", 0),
        (
            "retry: {policy: none, on_failure: skip}",
            0,
            "completed",
            "skipped",
            "skipped",
            0,
        ),
        ("on_failure: skip", 0, "completed", "skipped", "skipped", 0),
        (
            "on_failure: continue",
            0,
            "completed",
            "continued",
            "completed",
            1,
        ),
        (
            "optional: true",
            0,
            "completed",
            "continued",
            "completed",
            1,
        ),
        (
            "on_failure: rework, rework_step: fix",
            0,
            "completed",
            "completed",
            "completed",
            1,
        ),
        (
            "retry: {on_failure: rework, rework_step: fix}",
            0,
            "completed",
            "completed",
            "completed",
            1,
        ),
    ];
    for (said, code, outcome, of_step, of_next, ran_next) in table {
        let outlast = Outlast::new();
        let field = if said.is_empty() {
            String::new()
        } else {
            format!(", {said}")
        };
        let is_reworked = usize::from(said.contains("rework"));
        let fix = [
            "",
            "  - {id: fix, rework_only: true, command: echo x >> fixed}\n",
        ][is_reworked];
        let run = outlast.pipeline(&format!(
            "steps:
  - {{id: a, command: \"echo 'permission denied' >&2; exit 1\"{field}}}
{fix}  - {{id: next, needs: [a], command: echo x >> next}}
"
        ));
        assert_eq!(
            (run.code, run.outcome()),
            (code, outcome),
            "{said}\n{}",
            run.dump()
        );
        assert_eq!(run.outcomes("a").last(), Some(&of_step), "{said}");
        assert_eq!(
            run.outcomes("next").last().copied().unwrap_or_default(),
            of_next,
            "{said}"
        );
        let counts = [outlast.notes("next").len(), outlast.notes("fixed").len()];
        assert_eq!(counts, [ran_next, is_reworked], "{said}");
    }
}

#[test]
fn rework_step_gets_failure_of_original_step() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        r#"steps:
  - {id: test, command: "echo '--- FAIL: TestA (0.01s)'; echo want 5; exit 1", retry: {policy: none}, on_failure: rework, rework_step: fix}
  - {id: fix, rework_only: true, prompt: Repair it}
  - {id: hopeless, needs: [test], command: "exit 3", on_failure: rework, rework_step: useless}
  - {id: useless, rework_only: true, command: "exit 4"}
"#,
    );
    let prompt = run.prompts("fix")[0];
    assert!(
        prompt.starts_with("Repair it") && prompt.contains("want 5"),
        "{prompt}"
    );
    assert_eq!(run.outcomes("test"), ["completed"]);
    assert_eq!(
        (run.code, run.outcomes("hopeless")),
        (1, vec!["failed"]),
        "{}",
        run.dump()
    );
}

#[test]
fn failed_run_starts_no_more_rework() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        "steps:
  - {id: quick, command: exit 3}
  - {id: slow, command: sleep 0.5; exit 4, on_failure: rework, rework_step: fix}
  - {id: fix, rework_only: true, command: echo x >> fixed}
",
    );
    assert_eq!((run.code, run.outcome()), (1, "failed"), "{}", run.dump());
    assert_eq!(outlast.notes("fixed").len(), 0);
}

#[test]
fn gate_timeout_takes_default_or_fails() {
    let run = Outlast::new().pipeline(
        r#"steps:
  - {id: asked, gate: {type: approval, message: "Go on?", default: y, timeout: 20s}}
  - {id: on, needs: [asked], command: echo on}
  - {id: refused, gate: {type: approval, message: "Go on?", default: n, timeout: 20s}, on_failure: continue}
  - {id: unanswered, gate: {type: approval, message: "Go on?", timeout: 20s}, on_failure: continue}
  - {id: timer, gate: {type: timer, timeout: 10m}}
  - id: chosen
    gate:
      type: approval
      message: Which way?
      choices: [{key: a, label: This way}, {key: b, label: That way, target: that}]
      default: b
      timeout: 5s
  - {id: that, command: echo that}
"#,
    );
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let outcome = |step| run.outcomes(step).last().copied();
    let steps = [
        "asked",
        "on",
        "refused",
        "unanswered",
        "timer",
        "chosen",
        "that",
    ];
    let expected = [
        "completed",
        "completed",
        "continued",
        "continued",
        "completed",
        "completed",
        "completed",
    ];
    assert_eq!(steps.map(outcome), expected.map(Some), "{}", run.dump());
    assert!(
        run.reason("unanswered")
            .contains("nobody answered within 20s"),
        "{}",
        run.reason("unanswered")
    );
    let time = |kind: &str, field: &str| time(&run.of("timer", kind)[0][field]);
    let until = time("gate_opened", "until");
    assert!(time("gate_closed", "time") >= until, "{}", run.dump());
    // The delay of a busy machine before it records the opening is not part of the wait.
    let left = until.since(time("gate_opened", "time")).as_secs();
    assert!((1..=600).contains(&left), "{left}");
    assert_eq!(run.of("chosen", "gate_closed")[0]["choice"], "b");
}

#[test]
fn once_step_is_not_retried() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        "steps:
  - {id: pay, once: true, command: \"echo x >> paid; echo 'HTTP 429' >&2; exit 1\"}
",
    );
    assert_eq!(
        run.attempts("pay"),
        ["rate_limited: stop"],
        "{}",
        run.dump()
    );
    assert!(
        run.reason("pay").contains("it may be begun once only"),
        "{}",
        run.reason("pay")
    );
    assert_eq!(outlast.notes("paid").len(), 1);
}

#[test]
fn max_concurrency_excludes_waiting_steps() {
    let run = Outlast::new().pipeline(
        "runtime: {max_concurrency: 2}
steps:
  - {id: a, command: \"test $OUTLAST_ATTEMPT = 2 || { echo 'HTTP 429' >&2; exit 1; }\", retry: {base_delay: 20m, max_delay: 20m}}
  - {id: b, command: sleep 0.1}
  - {id: c, command: sleep 0.1}
  - {id: d, command: sleep 0.1}
  - {id: e, needs: [b, c, d], command: sleep 0.1}
",
    );
    assert_eq!(run.code, 0, "{}", run.dump());
    let (mut working, mut most) = (0, 0);
    for line in &run.lines {
        match line["type"].as_str() {
            Some("attempt_started") => working += 1,
            Some("attempt_ended") => working -= 1,
            _ => {}
        }
        most = most.max(working);
    }
    assert_eq!((working, most), (0, 2), "{}", run.dump());
    let number = |step: &str, kind: &str| run.of(step, kind)[0]["seq"].as_u64();
    assert!(
        number("e", "attempt_started") < number("a", "wait_ended"),
        "{}",
        run.dump()
    );
}

const HOSTILE: &str = r#"$(touch pwned) `touch pwned` "; touch pwned; echo ' $HOME {{ topic }}"#;

#[test]
fn step_output_reaches_commands_without_shell_injection() {
    let outlast = Outlast::new();
    outlast.write("hostile", HOSTILE);
    let run = outlast.pipeline_with(
        r#"inputs: {topic: {default: none}, mood: calm}
steps:
  - id: make
    command: "cat hostile; mkdir out; echo '# Plan' > out/plan.md; head -c 100000 /dev/zero | tr '\\0' x > out/large"
    outputs: [{name: plan, path: out/plan.md}, {name: large, path: out/large}]
  - {id: failed, command: "exit 3", optional: true}
  - id: shell
    inputs: {text: make, plan: make.plan, large: make.large, missing: failed.output?, topic: inputs.topic}
    command: "printf %s \"$INPUT_TEXT\" > by-variable; cat $INPUT_TEXT_FILE > by-file; echo $INPUT_PLAN > plan; wc -c < $INPUT_LARGE_FILE > size; echo \"${INPUT_LARGE-unset} ${INPUT_MISSING-unset}.\" > absent; printf %s \"$INPUT_TOPIC\" > topic"
  - id: program
    inputs: {text: make}
    command: [printenv, INPUT_TEXT]
  - id: ask
    inputs: {text: make}
    prompt: "About {{ topic }}, {{ mood }}: {{ text }}"
"#,
        &["--input", &format!("topic={HOSTILE}")],
    );
    assert_eq!(run.code, 0, "{}", run.dump());
    let read = |file: &str| std::fs::read_to_string(outlast.folder.path().join(file)).unwrap();
    for file in ["by-variable", "by-file", "topic"] {
        assert_eq!(read(file), HOSTILE, "{file}");
    }
    assert_eq!(
        (
            read("plan").as_str(),
            read("size").trim(),
            read("absent").as_str()
        ),
        ("# Plan\n", "100000", "unset .\n")
    );
    assert_eq!(
        run.prompts("ask"),
        [format!("About {HOSTILE}, calm: {HOSTILE}")]
    );
    assert!(!outlast.folder.path().join("pwned").exists());
    assert_eq!(
        step_output(&outlast, &run, "program"),
        format!("{HOSTILE}\n")
    );
}

/// Returns the output of a step from the artifacts, found by its hash.
fn step_output(outlast: &Outlast, run: &Run, step: &str) -> String {
    let ended = run.of(step, "step_ended");
    let hash = ended[0]["artifacts"]["output"]["hash"].as_str().unwrap();
    let mut folders = vec![outlast.home().join("artifacts")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name: String = path
                .iter()
                .rev()
                .take(2)
                .map(|part| part.to_str().unwrap())
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            match path.is_dir() {
                true => folders.push(path),
                false if name.ends_with(hash) => return std::fs::read_to_string(path).unwrap(),
                false => {}
            }
        }
    }
    panic!("nothing is kept of {step}")
}

#[test]
fn step_output_and_errors_can_be_read_after_run() {
    let outlast = Outlast::new();
    outlast.write(
        "p.yaml",
        "steps:\n  - {id: made, command: \"echo hello; echo plan > plan.md\", outputs: [{name: plan, path: plan.md}]}\n  - {id: broken, command: \"echo it is broken >&2; exit 9\", on_failure: continue}\n",
    );
    let ran = outlast.run(&["run", "p.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let list = outlast.run(&["runs"]).stdout;
    let id = list.split_whitespace().next().unwrap();
    let said = |arguments: &[&str]| {
        let ran = outlast.run(&[&["runs", "output", id], arguments].concat());
        (ran.code, ran.stdout + &ran.stderr)
    };
    assert_eq!(said(&["made"]), (0, "hello\n".to_owned()));
    assert_eq!(said(&["made", "plan"]), (0, "plan\n".to_owned()));
    let (code, refused) = said(&["made", "paln"]);
    assert_eq!(code, 2);
    assert!(refused.contains("there are: output, plan"), "{refused}");
    let shown = outlast.run(&["runs", "show", "--step", "broken"]).stdout;
    assert!(shown.contains("it is broken"), "{shown}");
}

#[test]
fn contract_test_command_sees_step_inputs() {
    let outlast = Outlast::new();
    outlast.write(
        "p.yaml",
        "inputs: {wanted: hello}\nsteps:\n  - {id: a, command: echo hello, contracts: [{type: test_suite, command: 'test \"$INPUT_WANTED\" = hello'}]}\n",
    );
    let ran = outlast.run(&["run", "p.yaml"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "hello\n"),
        "{}",
        ran.stderr
    );
}
