//! The circuit breaker of a run: repeating the same failure ends the step; different failures do
//! not.

use crate::run_driver::{FILE, signal};
use crate::support::Outlast;

const TRIPPED: &str = "the circuit breaker ended it: the same failure came";

#[test]
fn breaker_trips_on_same_failure_not_on_different_ones() {
    let run = Outlast::new().pipeline(
        r#"runtime: {circuit_breaker: {limit: 3}}
steps:
  - id: same      # Only the duration differs.
    command: "echo \"--- FAIL: TestA (0.0${OUTLAST_ATTEMPT}s)\"; exit 1"
    retry: {max_attempts: 10}
    on_failure: continue
  - id: others
    command: "echo \"--- FAIL: Test$((OUTLAST_ATTEMPT % 3)) (0.01s)\"; exit 1"
    retry: {max_attempts: 6}
    on_failure: continue
  - id: said
    prompt: Say something
    retry: {max_attempts: 10}
    contracts: [{type: regex, pattern: "^never$"}]
    on_failure: continue
"#,
    );
    let again = "tests_failed: again";
    let stop = "tests_failed: stop";
    assert_eq!(run.attempts("same"), [again, again, stop], "{}", run.dump());
    assert!(
        run.reason("same").contains(TRIPPED),
        "{}",
        run.reason("same")
    );
    assert_eq!(
        run.attempts("others"),
        [again, again, again, again, again, stop]
    );
    assert!(
        run.reason("others").contains("all 6 attempts are made"),
        "{}",
        run.reason("others")
    );
    assert_eq!(run.attempts("said").len(), 3);
    assert!(
        run.reason("said").contains(TRIPPED),
        "{}",
        run.reason("said")
    );
}

#[test]
fn failures_count_across_visits() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        r#"steps:
  - id: test
    command: "echo \"--- FAIL: TestA (0.0${OUTLAST_VISIT}s)\"; exit 1"
    retry: {policy: none}
    edges: [{target: fix, condition: outcome=failure}]
  - id: fix
    command: echo fixed >> fixed
    edges: [{target: test}]
"#,
    );
    assert_eq!((run.code, run.outcome()), (1, "failed"), "{}", run.dump());
    assert_eq!(run.of("test", "attempt_started").len(), 3, "{}", run.dump());
    assert!(
        run.reason("test").contains(TRIPPED),
        "{}",
        run.reason("test")
    );
}

#[test]
fn only_tracked_classes_count() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        r#"runtime: {circuit_breaker: {limit: 2, tracked_classes: [transient]}}
steps:
  - id: limited
    command: "echo 'HTTP 429' >&2; exit 1"
    retry: {max_attempts: 5}
    on_failure: continue
  - id: tests
    command: "echo '--- FAIL: TestA (0.01s)'; exit 1"
    retry: {max_attempts: 5}
    on_failure: continue
  - id: key
    command: "echo 'invalid API key' >&2; exit 1"
    max_visits: 4
    edges: [{target: fix, condition: outcome=failure}]
    on_failure: continue
  - id: fix
    command: "true"
    edges: [{target: key}]
"#,
    );
    assert_eq!(
        run.attempts("limited"),
        ["rate_limited: wait", "rate_limited: stop"],
        "{}",
        run.dump()
    );
    assert!(
        run.reason("limited").contains(TRIPPED),
        "{}",
        run.reason("limited")
    );
    assert_eq!(run.attempts("tests").len(), 5);
    assert_eq!(run.attempts("key").len(), 4);
    assert!(
        run.reason("key").contains("max_visits"),
        "{}",
        run.reason("key")
    );
}

#[test]
fn counts_survive_a_killed_process() {
    let outlast = Outlast::in_real_time();
    let mut child = outlast.begin(
        r#"steps:
  - id: test
    command: "if [ $OUTLAST_ATTEMPT = 3 ]; then test -e go || sleep 60; fi; echo \"--- FAIL: TestA (0.0${OUTLAST_ATTEMPT}s)\"; exit 1"
    retry: {max_attempts: 10}
"#,
    );
    let third = || outlast.written().of("test", "process_started").len() == 3;
    crate::mock_server::wait_for("third attempt", || {
        outlast.home().join("runs.db").exists() && third()
    });
    signal("-KILL", &child);
    child.wait().unwrap();
    outlast.write("go", "");
    let run = outlast.resume(&[]);
    assert_eq!(run.code, 1, "{}", run.dump());
    assert_eq!(
        run.attempts("test"),
        ["tests_failed: stop"],
        "{}",
        run.dump()
    );
    assert_eq!(run.of("test", "attempt_ended")[0]["attempt"], 3);
    assert!(
        run.reason("test").contains(TRIPPED),
        "{}",
        run.reason("test")
    );
}

#[test]
fn tracking_canceled_class_is_an_error_with_its_line() {
    let outlast = Outlast::new();
    outlast.write(
        FILE,
        "runtime:\n  circuit_breaker:\n    tracked_classes: [transient, canceled]\nsteps:\n  - {id: a, command: ls}\n",
    );
    let ran = outlast.run(&["run", FILE, "--check"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let expected = "pipeline.yaml:3:34: `canceled` cannot be among tracked_classes";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}
