//! Run requests from other processes: answers, immediate retries, cancellations.

use crate::mock_server::wait_for;
use crate::run_driver::ended;
use crate::support::Outlast;

const GATES: &str = r#"steps:
  - {id: gate, gate: {type: approval, message: Publish it?}}
  - {id: publish, needs: [gate], command: echo x >> published}
  - id: way
    gate:
      type: approval
      message: Which way?
      choices: [{key: a, label: This way}, {key: b, label: That way, target: that}]
  - {id: that, command: echo x >> that}
"#;

#[test]
fn gate_is_approved_from_another_process() {
    let outlast = Outlast::in_real_time();
    let child = outlast.begin(GATES);
    outlast.wait_for_entry("gate", "gate_opened");
    outlast.wait_for_entry("way", "gate_opened");
    let id = outlast.written().id().to_owned();
    let approve =
        |arguments: &[&str]| outlast.run(&[&["runs", "approve", &id], arguments].concat());
    for (arguments, problem) in [
        (
            &[][..],
            "error: several steps ask; name one of: gate, way\n",
        ),
        (
            &["way", "--choice", "c"],
            "error: `c` is no answer to way; there are: a: This way, b: That way\n",
        ),
        (
            &["publish"],
            "error: step publish asks nothing; `outlast runs show` says what does\n",
        ),
    ] {
        let ran = approve(arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, problem));
    }
    for arguments in [&["gate"][..], &["way", "--choice", "b"]] {
        let ran = approve(arguments);
        assert_eq!((ran.code, ran.stderr), (0, format!("Told run {id}.\n")));
    }
    let run = ended(child);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    assert_eq!(run.of("gate", "gate_closed")[0]["choice"], "y");
    assert_eq!(
        (
            outlast.notes("published").len(),
            outlast.notes("that").len()
        ),
        (1, 1)
    );
    let ran = approve(&[]);
    assert_eq!(
        (ran.code, ran.stderr),
        (
            2,
            format!("error: run {id} is over; `outlast runs show {id}` says how it ended\n")
        )
    );
}

#[test]
fn rejected_gate_fails_run() {
    let outlast = Outlast::in_real_time();
    let child = outlast.begin(
        "steps:
  - {id: gate, gate: {type: approval, message: Publish it?}}
  - {id: publish, needs: [gate], command: echo x >> published}
",
    );
    outlast.wait_for_entry("gate", "gate_opened");
    let id = outlast.written().id().to_owned();
    let ran = outlast.run(&["runs", "approve", &id, "--choice", "n"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let run = ended(child);
    assert_eq!((run.code, run.outcome()), (1, "failed"), "{}", run.dump());
    assert!(outlast.notes("published").is_empty());
}

#[test]
fn retry_now_and_cancel_work_from_another_process() {
    let outlast = Outlast::in_real_time();
    let child = outlast.begin(
        r#"steps:
  - {id: command, command: "test $OUTLAST_ATTEMPT = 2 || { echo 'HTTP 429' >&2; exit 1; }", retry: {base_delay: 1h, max_delay: 1h}}
  - {id: prompt, needs: [command], prompt: hi, model: "overloaded:1", retry: {base_delay: 1h, max_delay: 1h}}
  - {id: gate, needs: [prompt], gate: {type: timer, timeout: 1h}}
"#,
    );
    outlast.wait_for_entry("command", "attempt_ended");
    let id = outlast.written().id().to_owned();
    let tell = |words: &[&str]| {
        let ran = outlast.run(&[&["runs"], words].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    tell(&["retry-now", &id, "command"]);
    outlast.wait_for_entry("prompt", "attempt_started");
    // The step begins to wait a moment later.
    wait_for("gate", || {
        tell(&["retry-now", &id]);
        !outlast.written().of("gate", "gate_opened").is_empty()
    });
    tell(&["cancel", &id]);
    let run = ended(child);
    assert_eq!(
        (run.code, run.outcome()),
        (130, "canceled"),
        "{}",
        run.dump()
    );
    assert_eq!(run.attempts("command"), ["rate_limited: wait", "finish"]);
    assert_eq!(
        (run.attempts("prompt"), run.waits_of_turns("prompt").len()),
        (vec!["finish".to_owned()], 1)
    );
}
