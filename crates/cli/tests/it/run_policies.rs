//! The named policies of steps and their overrides: the exact waits.

use crate::run_driver::{Run, seconds};
use crate::support::Outlast;
use std::fmt::Write as _;
use std::time::Duration;

/// Returns retry settings with the waits that follow from them.
fn table() -> Vec<(&'static str, Vec<Duration>)> {
    vec![
        ("{policy: none}", seconds(&[])),
        ("{policy: standard}", seconds(&[1., 2.])),
        ("{policy: aggressive}", seconds(&[0.2, 0.4, 0.8, 1.6])),
        ("{policy: patient}", seconds(&[5., 15.])),
        (
            "{policy: standard, max_attempts: 5}",
            seconds(&[1., 2., 4., 8.]),
        ),
        ("{max_attempts: 4}", seconds(&[1., 2., 4.])),
        (
            "{policy: patient, max_attempts: 5}",
            seconds(&[5., 15., 45., 90.]),
        ),
        (
            "{policy: patient, max_attempts: 4, max_delay: 20s}",
            seconds(&[5., 15., 20.]),
        ),
        (
            "{policy: aggressive, base_delay: 3s, max_attempts: 4}",
            seconds(&[3., 6., 12.]),
        ),
        ("{backoff: fixed, base_delay: 7s}", seconds(&[7., 7.])),
        (
            "{backoff: linear, base_delay: 2s, max_attempts: 4}",
            seconds(&[2., 4., 6.]),
        ),
        (
            "{backoff: exponential, base_delay: 500ms, max_delay: 1s, max_attempts: 4}",
            seconds(&[0.5, 1., 1.]),
        ),
    ]
}

fn steps(table: &[(&str, Vec<Duration>)], work: impl Fn(usize) -> String) -> String {
    let mut file = "steps:\n".to_owned();
    for (number, (retry, _)) in table.iter().enumerate() {
        let work = work(number);
        writeln!(
            file,
            "  - {{id: s{number}, {work}, retry: {retry}, on_failure: continue}}"
        )
        .unwrap();
    }
    file
}

fn check(run: &Run, table: &[(&str, Vec<Duration>)], waits: impl Fn(&Run, &str) -> Vec<Duration>) {
    for (number, (retry, expected)) in table.iter().enumerate() {
        let step = format!("s{number}");
        assert_eq!(&waits(run, &step), expected, "{retry}\n{}", run.dump());
        assert_eq!(run.outcomes(&step), ["continued"], "{retry}");
    }
    assert_eq!((run.code, run.outcome()), (0, "completed"));
}

#[test]
fn command_step_waits_match_policy() {
    let table = table();
    let file = steps(&table, |_| {
        r#"command: "echo 'API error 429' >&2; exit 1""#.to_owned()
    });
    let run = Outlast::new().pipeline(&file);
    check(&run, &table, Run::waits);
    // There is one attempt more than there are waits.
    for (number, (retry, waits)) in table.iter().enumerate() {
        let attempts = run.attempts(&format!("s{number}"));
        assert_eq!(attempts.len(), waits.len() + 1, "{retry}");
    }
}

#[test]
fn prompt_turn_waits_match_policy_without_step_retries() {
    let table = table();
    // Each has a model of its own, so that no gate holds one back for another.
    let file = steps(&table, |number| {
        format!("prompt: hi, model: 'overloaded:{}'", 900 + number)
    });
    let file = format!("runtime: {{max_concurrency: 1}}\n{file}");
    let run = Outlast::new().pipeline(&file);
    check(&run, &table, Run::waits_of_turns);
    for number in 0..table.len() {
        let step = format!("s{number}");
        assert_eq!(run.attempts(&step), ["overloaded: stop"]);
        assert_eq!(run.prompts(&step), ["hi"]);
    }
}

#[test]
fn delays_stay_at_their_cap_at_any_attempt() {
    let run = Outlast {
        scale: "36000",
        ..Outlast::new()
    }
    .pipeline(
        "runtime: {stall_timeout: 0}
steps:
  - id: far
    command: \"echo 'rate limit exceeded' >&2; exit 1\"
    retry: {max_attempts: 40, backoff: exponential, base_delay: 1s, max_delay: 30s}
",
    );
    let waits = run.waits("far");
    assert_eq!(waits.len(), 39, "{}", run.dump());
    assert_eq!(waits[..5], seconds(&[1., 2., 4., 8., 16.])[..]);
    assert!(
        waits[5..].iter().all(|wait| wait.as_secs() == 30),
        "{waits:?}"
    );
}

#[test]
fn stated_retry_time_overrides_schedule() {
    let run = Outlast {
        // A busy machine has a second and a half to see that the command has ended.
        scale: "40",
        ..Outlast::new()
    }
    .pipeline(
        "steps:
  - id: told
    command: \"echo 'Error: 429 rate limit exceeded, try again in 80 seconds' >&2; exit 1\"
    retry: {policy: patient, max_attempts: 2}
",
    );
    let (problem, waits) = (run.problem("told", 0), run.waits("told"));
    let next = &run.of("told", "attempt_ended")[0]["next"];
    assert_eq!(next["until"], problem["not_before"], "{}", run.dump());
    // The wait counts from the end of the command, which is noticed a little later.
    assert!(waits[0] > Duration::from_secs(20), "{waits:?}");
}
