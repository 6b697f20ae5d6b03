//! The six classes of failures, each decided from the real output of a step: retried, stopped, reworked or ignored.

use crate::run_driver::{ended, seconds, signal};
use crate::support::Outlast;
use std::fmt::Write as _;
use std::time::Duration;

/// The output of a failing command, its cause and class, and whether the step retries it by default.
const CLASSIFIED_OUTPUTS: [(&str, &str, &str, bool); 22] = [
    (
        "HTTP 429 Too Many Requests",
        "rate_limited",
        "transient",
        true,
    ),
    ("API 429", "rate_limited", "transient", true),
    ("error: request timed out", "timeout", "transient", true),
    (
        "rate limit: unauthorized burst",
        "rate_limited",
        "transient",
        true,
    ),
    (
        "rate limit exceeded while running npm test x",
        "rate_limited",
        "transient",
        true,
    ),
    (
        "connect ECONNREFUSED: connection refused",
        "network",
        "transient",
        true,
    ),
    ("503 Service Unavailable", "overloaded", "transient", true),
    (
        "HTTP 401: invalid x-api-key",
        "auth",
        "deterministic",
        false,
    ),
    ("invalid API key", "auth", "deterministic", false),
    ("insufficient_quota", "billing", "deterministic", false),
    ("ENOSPC", "misconfigured", "deterministic", false),
    (
        "ENOSPC: no space left on device",
        "misconfigured",
        "deterministic",
        false,
    ),
    (
        "credit balance is too low",
        "billing",
        "deterministic",
        false,
    ),
    ("model not found", "model_not_found", "deterministic", false),
    ("panic: nil pointer", "unknown", "deterministic", false),
    ("it did not work", "unknown", "deterministic", false),
    (
        "maximum context length is 128000",
        "context_overflow",
        "budget_exhausted",
        false,
    ),
    (
        "context window exceeded",
        "context_overflow",
        "budget_exhausted",
        false,
    ),
    (
        "prompt is too long",
        "context_overflow",
        "budget_exhausted",
        false,
    ),
    (
        "budget exceeded: 5.00 of 5.00 dollars",
        "ceiling_reached",
        "budget_exhausted",
        false,
    ),
    (
        "--- FAIL: TestA (0.03s)",
        "tests_failed",
        "test_failure",
        true,
    ),
    ("5 tests failed", "tests_failed", "test_failure", true),
];

#[test]
fn command_output_decides_failure_class_and_retries() {
    let mut file = "runtime: {circuit_breaker: {limit: 9}}\nsteps:\n".to_owned();
    for (number, (said, ..)) in CLASSIFIED_OUTPUTS.iter().enumerate() {
        writeln!(
            file,
            "  - {{id: s{number}, command: \"echo '{said}' >&2; exit 1\", on_failure: continue}}"
        )
        .unwrap();
    }
    let run = Outlast::new().pipeline(&file);
    for (number, (said, cause, class, is_retried)) in CLASSIFIED_OUTPUTS.iter().enumerate() {
        let step = format!("s{number}");
        let problem = run.problem(&step, 0);
        assert_eq!(
            (problem["cause"].as_str(), problem["class"].as_str()),
            (Some(*cause), Some(*class)),
            "{said}"
        );
        let attempts = if *is_retried { 3 } else { 1 };
        assert_eq!(
            run.attempts(&step).len(),
            attempts,
            "{said}: {:?}",
            run.attempts(&step)
        );
    }
}

#[test]
fn deterministic_failure_stops_despite_aggressive_policy() {
    let run = Outlast::new().pipeline(
        r#"steps:
  - {id: binary, command: no-such-binary, retry: {policy: aggressive}, on_failure: continue}
  - {id: program, command: [no-such-binary, --now], retry: {policy: aggressive}, on_failure: continue}
  - {id: key, prompt: hi, model: "error:401,times=9", retry: {policy: aggressive}, on_failure: continue}
  - {id: money, prompt: hi, model: "error:402,times=9", retry: {policy: aggressive}, on_failure: continue}
  - {id: model, command: "echo 'model not found' >&2; exit 1", retry: {policy: aggressive}, on_failure: continue}
  - {id: disk, command: "echo ENOSPC >&2; exit 1", retry: {policy: aggressive}, on_failure: continue}
  - {id: key-of-command, command: "echo 'HTTP 401: invalid x-api-key' >&2; exit 1", retry: {policy: aggressive}, on_failure: continue}
  - {id: quota, command: "echo insufficient_quota >&2; exit 1", retry: {policy: aggressive}, on_failure: continue}
"#,
    );
    for (step, cause) in [
        ("binary", "missing_binary"),
        ("program", "missing_binary"),
        ("key", "auth"),
        ("money", "billing"),
        ("model", "model_not_found"),
        ("disk", "misconfigured"),
        ("key-of-command", "auth"),
        ("quota", "billing"),
    ] {
        let expected = [format!("{cause}: stop")];
        assert_eq!(run.attempts(step), expected, "{step}\n{}", run.dump());
        assert_eq!(run.problem(step, 0)["class"], "deterministic");
        assert_eq!(run.waits_of_turns(step), seconds(&[]));
    }
}

#[test]
fn context_overflow_falls_back_and_is_never_retried() {
    let outlast = Outlast::new();
    let windows =
        "[models.\"window:5\"]\ncontext_window = 5\n[models.ok]\ncontext_window = 90000\n";
    outlast.write("home/VERSION", "1\n");
    outlast.write("home/outlast.toml", windows);
    let run = outlast.pipeline(
        r#"runtime:
  fallbacks: {"window:5": ["ok"]}
steps:
  - {id: other, prompt: What is the meaning of all this?, model: "window:5", on_failure: continue}
  - {id: alone, prompt: What is the meaning of all this?, model: "window:6", retry: {policy: aggressive}, on_failure: continue}
"#,
    );
    assert_eq!(run.attempts("other"), ["finish"], "{}", run.dump());
    let switched = run.events("other", "model_switched");
    assert_eq!(switched[0]["to"], "ok");
    assert_eq!(run.attempts("alone"), ["context_overflow: stop"]);
    assert_eq!(run.problem("alone", 0)["class"], "budget_exhausted");
    assert_eq!(run.waits_of_turns("alone"), seconds(&[]));
}

#[test]
fn rework_prompt_contains_contract_violations() {
    let run = Outlast::new().pipeline(
        r#"steps:
  - id: write
    prompt: Say something
    contracts:
      - {type: regex, pattern: "not accepted"}
"#,
    );
    assert_eq!(
        run.attempts("write"),
        ["contract_broken: again", "finish"],
        "{}",
        run.dump()
    );
    assert_eq!(run.problem("write", 0)["class"], "contract_failure");
    let prompts = run.prompts("write");
    assert_eq!(prompts[0], "Say something");
    assert!(
        prompts[1].contains("is not accepted") && prompts[1].contains("attempt 2 of 3"),
        "{}",
        prompts[1]
    );
    let violation = run.problem("write", 0)["violations"][0].as_str().unwrap();
    assert!(
        prompts[1].contains(violation),
        "{violation}\n{}",
        prompts[1]
    );
}

#[test]
fn failing_test_output_reaches_next_attempt() {
    let outlast = Outlast::new();
    outlast.write(
        "test.sh",
        "test -e fixed || { echo '--- FAIL: TestAdd (0.01s)'; echo 'want 5, got 4'; exit 1; }",
    );
    let run = outlast.pipeline(
        r#"steps:
  - id: implement
    prompt: Add them up
    contracts:
      - {type: test_suite, command: "sh test.sh || { touch fixed; exit 1; }"}
  - id: command
    needs: [implement]
    command: "echo $OUTLAST_ATTEMPT >> tries; cat \"$OUTLAST_FEEDBACK_FILE\" > told 2> nothing || { echo '--- FAIL: TestMul (0.02s)'; echo 'want 6, got 9'; exit 1; }"
"#,
    );
    assert_eq!(
        run.attempts("implement"),
        ["tests_failed: again", "finish"],
        "{}",
        run.dump()
    );
    assert_eq!(run.problem("implement", 0)["class"], "test_failure");
    let prompts = run.prompts("implement");
    assert!(
        prompts[1].contains("The tests failed") && prompts[1].contains("want 5, got 4"),
        "{}",
        prompts[1]
    );
    // A command reads the same from a file.
    assert_eq!(run.attempts("command"), ["tests_failed: again", "finish"]);
    assert_eq!(outlast.notes("tries"), ["1", "2"]);
    assert!(outlast.notes("told").concat().contains("want 6, got 9"));
}

#[test]
fn rework_and_fix_rounds_share_the_attempts_of_the_policy() {
    let run = Outlast::new().pipeline(
        r#"runtime: {circuit_breaker: {limit: 9}}
steps:
  - id: never
    prompt: Say something
    retry: {max_attempts: 4}
    contracts: [{type: regex, pattern: "^never$"}]
    on_failure: continue
  - id: mixed
    command: "case $OUTLAST_ATTEMPT in 1) echo '429 rate limit' >&2;; 2) echo '--- FAIL: TestA';; 3) echo '429 rate limit' >&2;; *) echo '--- FAIL: TestB';; esac; exit 1"
    retry: {max_attempts: 4}
    on_failure: continue
  - id: warned
    command: echo hello
    contracts: [{type: regex, pattern: bye, on_failure: warn}]
"#,
    );
    let again = "contract_broken: again";
    assert_eq!(
        run.attempts("never"),
        [again, again, again, "contract_broken: stop"],
        "{}",
        run.dump()
    );
    assert_eq!(
        run.attempts("mixed"),
        [
            "rate_limited: wait",
            "tests_failed: again",
            "rate_limited: wait",
            "tests_failed: stop"
        ]
    );
    // A rework in between starts the schedule anew.
    assert_eq!(run.waits("mixed"), [Duration::from_secs(1); 2]);
    assert_eq!(run.attempts("warned"), ["finish"]);
    assert_eq!(
        run.of("warned", "attempt_ended")[0]["warnings"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn interrupted_run_is_canceled_and_can_be_resumed() {
    let outlast = Outlast::in_real_time();
    let child = outlast.begin(
        "steps:
  - {id: before, command: echo x >> before}
  - {id: works, needs: [before], command: 'test -e go || sleep 1000'}
  - {id: waits, command: \"test -e go || { echo '429 rate limit' >&2; exit 1; }\", retry: {base_delay: 1h, max_delay: 1h}}
",
    );
    outlast.wait_for_entry("works", "process_started");
    outlast.wait_for_entry("waits", "attempt_ended");
    signal("-INT", &child);
    let run = ended(child);
    assert_eq!(
        (run.code, run.outcome()),
        (130, "canceled"),
        "{}",
        run.dump()
    );
    assert_eq!(run.attempts("works"), ["interrupted: stop"]);
    for step in ["works", "waits"] {
        assert_eq!(run.outcomes(step), ["canceled"], "{step}");
    }
    outlast.write("go", "");
    let run = outlast.resume(&[run.id()]);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    assert_eq!(outlast.notes("before"), ["x"]);
}
