//! Steps without progress: stalls, timeouts and ceilings end them, and a wait for a retry counts as none of these.

use crate::mock_server::wait_for;
use crate::run_driver::{Run, ended, seconds, signal};
use crate::support::Outlast;
use std::fs;
use std::time::Duration;

/// Creates a command with a clock of twenty times real time: a limit of a minute leaves a busy machine three seconds.
fn hasty() -> Outlast {
    Outlast {
        scale: "20",
        ..Outlast::new()
    }
}

/// Whether the process is alive.
fn is_alive(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim();
    !state.is_empty() && !state.starts_with('Z')
}

#[cfg(target_os = "linux")]
#[test]
fn silent_command_is_killed_with_its_children_and_retried() {
    let outlast = hasty();
    let run = outlast.pipeline(
        r#"runtime: {stall_timeout: 60s}
steps:
  - id: silent
    command: "trap '' TERM; echo $$ >> processes; (trap '' TERM; sh -c 'echo $$ >> processes; trap \"\" TERM; sleep 1000; sleep 1000') & echo began; sleep 1000; sleep 1000"
    retry: {max_attempts: 2, base_delay: 2s}
    on_failure: continue
"#,
    );
    assert_eq!(
        run.attempts("silent"),
        ["stalled: wait", "stalled: stop"],
        "{}",
        run.dump()
    );
    let problem = run.problem("silent", 0);
    assert_eq!(
        (&problem["class"], &problem["message"]),
        (&"transient".into(), &"no activity for 1m".into())
    );
    let last = problem["last_events"].as_array().unwrap().last().unwrap();
    assert!(last.as_str().unwrap().ends_with("began"), "{problem}");
    let report = outlast.run(&["runs", "report"]).stdout;
    for part in ["stalled", "no activity for 1m", "began"] {
        assert!(report.contains(part), "{part}\n{report}");
    }
    let processes = outlast.notes("processes");
    assert_eq!(processes.len(), 4, "{processes:?}");
    let alive: Vec<&String> = processes
        .iter()
        .filter(|process| is_alive(process))
        .collect();
    assert_eq!(alive, [""; 0]);
}

#[test]
fn reasoning_alone_is_a_stall_and_text_is_progress() {
    let run = hasty().pipeline(
        r#"runtime: {stall_timeout: 40s}
steps:
  - {id: thinks, prompt: hi, model: "drip:6000,of=reasoning-only,times=always", on_failure: continue}
  - {id: speaks, prompt: hi, model: "drip:6000,of=text,times=always"}
"#,
    );
    assert_eq!(
        run.problem("thinks", 0)["message"],
        "activity, but no progress for 40s",
        "{}",
        run.dump()
    );
    assert_eq!(run.problem("thinks", 0)["cause"], "stalled");
    let last = run.problem("thinks", 0)["last_events"].to_string();
    assert!(last.contains("reasoning"), "{last}");
    assert_eq!(run.attempts("speaks"), ["finish"], "{}", run.dump());
    let started = run.of("speaks", "attempt_started")[0];
    let over = run.of("speaks", "attempt_ended")[0];
    let time = |entry: &serde_json::Value| crate::run_driver::time(&entry["time"]);
    assert!(time(over).since(time(started)) > Duration::from_secs(60));
}

#[test]
fn retry_wait_is_not_a_stall() {
    let run = hasty().pipeline(
        r#"runtime: {stall_timeout: 60s}
steps:
  - {id: command, command: "test $OUTLAST_ATTEMPT = 2 || { echo 'HTTP 429' >&2; exit 1; }", retry: {max_attempts: 2, base_delay: 80s, max_delay: 80s}}
  - {id: prompt, prompt: hi, model: "overloaded:1", retry: {max_attempts: 2, base_delay: 80s, max_delay: 80s}}
"#,
    );
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    assert_eq!(run.attempts("command"), ["rate_limited: wait", "finish"]);
    assert_eq!(run.waits("command"), seconds(&[80.]));
    assert_eq!(run.attempts("prompt"), ["finish"]);
    assert_eq!(run.waits_of_turns("prompt"), seconds(&[80.]));
}

#[test]
fn step_timeout_is_reported_with_and_without_watchdog() {
    // The start of a step takes real time: a limit that must not be reached leaves it seconds of that.
    for stall in ["0", "1800s", "60s"] {
        let run = hasty().pipeline(&format!(
            r#"runtime: {{stall_timeout: {stall}}}
steps:
  - {{id: command, command: sleep 1000, timeout: 15s, retry: {{max_attempts: 2, base_delay: 1s}}, on_failure: continue}}
  - {{id: prompt, prompt: hi, model: "stall:2", timeout: 15s, retry: {{policy: none}}, on_failure: continue}}
  - {{id: waits, prompt: hi, model: "overloaded:1", timeout: 60s, retry: {{max_attempts: 2, base_delay: 80s, max_delay: 80s}}}}
"#
        ));
        assert_eq!(
            run.attempts("command"),
            ["timeout: wait", "timeout: stop"],
            "{stall}\n{}",
            run.dump()
        );
        let problem = run.problem("command", 0);
        assert_eq!(
            problem["message"],
            "it has worked for longer than its timeout of 15s"
        );
        assert_eq!(problem["class"], "transient");
        assert_eq!(
            run.attempts("prompt"),
            ["timeout: stop"],
            "{stall}\n{}",
            run.dump()
        );
        assert_eq!(run.attempts("waits"), ["finish"], "{stall}\n{}", run.dump());
        assert_eq!(run.waits_of_turns("waits"), seconds(&[80.]));
    }
}

#[test]
fn interrupt_cancels_hour_long_waits_at_once() {
    let outlast = Outlast::in_real_time();
    let child = outlast.begin(
        r#"steps:
  - {id: command, command: "echo 'HTTP 429' >&2; exit 1", retry: {base_delay: 1h, max_delay: 1h}}
  - {id: prompt, prompt: hi, model: "overloaded:1", retry: {base_delay: 1h, max_delay: 1h}}
  - {id: gate, gate: {type: approval, message: Well?}}
  - {id: timer, gate: {type: timer, timeout: 1h}}
"#,
    );
    for (step, kind) in [
        ("command", "attempt_ended"),
        ("prompt", "attempt_started"),
        ("gate", "gate_opened"),
        ("timer", "gate_opened"),
    ] {
        outlast.wait_for_entry(step, kind);
    }
    let shown = || outlast.run(&["runs", "show", "--step", "prompt"]);
    wait_for("the wait of its turn", || {
        shown().stdout.contains("A wait from")
    });
    signal("-INT", &child);
    let run = ended(child);
    assert_eq!(
        (run.code, run.outcome()),
        (130, "canceled"),
        "{}",
        run.dump()
    );
    assert_eq!(
        run.waits_of_turns("prompt"),
        [Duration::from_secs(3600)],
        "{}",
        run.dump()
    );
    for step in ["command", "prompt", "gate", "timer"] {
        assert_eq!(run.outcomes(step), ["canceled"], "{step}");
    }
}

fn budget(said: &str, steps: &str) -> Run {
    let outlast = Outlast::new();
    outlast.write("home/VERSION", "1\n");
    outlast.write(
        "home/outlast.toml",
        "[models.ok]\nprice.input = 1000000\nprice.output = 1000000\n",
    );
    outlast.pipeline(&format!(
        "runtime: {{budget: {said}}}\nmodel: ok\nsteps:\n{steps}"
    ))
}

#[test]
fn budget_limit_ends_run_without_retry() {
    let steps = r#"  - {id: first, prompt: hi}
  - {id: second, needs: [first], prompt: hi, retry: {policy: aggressive}}
  - {id: third, needs: [second], command: echo x}
"#;
    for (said, expected) in [
        ("{tokens: 40}", "tokens, and may use 40 (runtime.budget)"),
        ("{cost: 40}", "and may cost $40.0000 (runtime.budget)"),
    ] {
        let run = budget(said, steps);
        assert_eq!(
            (run.code, run.outcome()),
            (3, "failed"),
            "{said}\n{}",
            run.dump()
        );
        assert_eq!(run.outcomes("third"), [""; 0]);
        let attempts: Vec<String> = ["first", "second"]
            .iter()
            .flat_map(|step| run.attempts(step))
            .collect();
        let stopped = attempts.last().map(String::as_str);
        assert_eq!(
            stopped,
            Some("ceiling_reached: stop"),
            "{said}\n{}",
            run.dump()
        );
        let reason = run.all("run_ended")[0]["reason"].as_str().unwrap();
        assert!(reason.contains(expected), "{reason}");
        let failed = run
            .all("attempt_ended")
            .into_iter()
            .find(|entry| !entry["problem"].is_null());
        assert_eq!(failed.unwrap()["problem"]["class"], "budget_exhausted");
    }
}

#[test]
fn time_budget_ends_run_and_skips_later_retry() {
    let run = budget(
        "{time: 30m}",
        "  - {id: late, command: \"echo 'HTTP 429' >&2; exit 1\", retry: {base_delay: 1h, max_delay: 1h}, on_failure: continue}\n  \
           - {id: long, command: sleep 1000}\n",
    );
    assert!(
        run.reason("late")
            .contains("the run is over before the next attempt could begin"),
        "{}",
        run.dump()
    );
    assert_eq!(
        run.attempts("long"),
        ["deadline_passed: stop"],
        "{}",
        run.dump()
    );
    let reason = run.all("run_ended")[0]["reason"].as_str().unwrap();
    assert_eq!(reason, "the run's time of 30m is over");
    assert_eq!((run.code, run.outcome()), (3, "canceled"));
}
