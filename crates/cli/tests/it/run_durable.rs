//! Runs outlive their processes: work in progress continues, and finished work stays finished.

use crate::mock_server::wait_for;
use crate::run_driver::{FILE, Run, ended, signal, time};
use crate::support::{CommandResult, Outlast};
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use std::process::Child;
use std::time::Duration;

fn kill(mut child: Child) {
    signal("-KILL", &child);
    child.wait().unwrap();
}

fn numbers(run: &Run, step: &str, kind: &str) -> Vec<u64> {
    let entries = run.of(step, kind).into_iter();
    entries
        .map(|entry| entry["attempt"].as_u64().unwrap())
        .collect()
}

#[test]
fn terminated_run_resumes_without_repeating_done_steps() {
    for (name, code) in [("-TERM", 143), ("-HUP", 129)] {
        let outlast = Outlast::in_real_time();
        let child = outlast.begin(
            "steps:
  - {id: first, command: echo x >> first; echo made}
  - {id: second, inputs: {made: first}, command: 'echo x >> second; test -e go || sleep 60; cat $INPUT_MADE_FILE > got'}
",
        );
        outlast.wait_for_entry("second", "process_started");
        wait_for("second", || !outlast.notes("second").is_empty());
        signal(name, &child);
        let run = ended(child);
        assert_eq!((run.code, run.outcome()), (code, ""), "{}", run.dump());
        let says = format!(
            "`outlast run --resume {}` carries on where it stopped",
            run.id()
        );
        assert!(run.stderr.contains(&says), "{}", run.stderr);
        outlast.write("go", "");
        let run = outlast.resume(&[]);
        assert_eq!(
            (run.code, run.outcome()),
            (0, "completed"),
            "{}",
            run.dump()
        );
        assert_eq!(
            (outlast.notes("first").len(), outlast.notes("second").len()),
            (1, 2)
        );
        assert_eq!(outlast.notes("got"), ["made"]);
        let all = outlast.written();
        assert_eq!(
            numbers(&all, "second", "attempt_started"),
            [1],
            "{}",
            all.dump()
        );
        assert_eq!(all.all("run_resumed").len(), 1);
    }
}

#[test]
fn resumed_step_waits_only_until_its_original_time() {
    let outlast = Outlast::new();
    let child = outlast.begin(
        "steps:
  - {id: limited, command: \"echo $OUTLAST_ATTEMPT >> tries; test $OUTLAST_ATTEMPT = 2 || { echo 'HTTP 429' >&2; exit 1; }\", retry: {base_delay: 40m, max_delay: 40m}}
",
    );
    outlast.wait_for_entry("limited", "attempt_ended");
    kill(child);
    let all = outlast.written();
    let until = time(&all.of("limited", "attempt_ended")[0]["next"]["until"]);
    let clock = WallClock::scaled(outlast.scale.parse().unwrap()).unwrap();
    wait_for("most of the wait", || {
        until.since(clock.now()) < Duration::from_secs(10 * 60)
    });
    let resumed = clock.now();
    let run = outlast.resume(&[]);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let all = outlast.written();
    let over = time(&all.of("limited", "wait_ended")[0]["time"]);
    assert!(over >= until, "{}", all.dump());
    // A wait that starts again would have ended no sooner than that.
    let anew = resumed + Duration::from_secs(40 * 60);
    assert!(over < anew, "{}", all.dump());
    assert_eq!(outlast.notes("tries"), ["1", "2"]);
    assert_eq!(numbers(&all, "limited", "attempt_started"), [1, 2]);
}

#[test]
fn resumed_turn_wait_keeps_session_and_repeats_nothing() {
    let outlast = Outlast::new();
    let child = outlast.begin(
        "steps:
  - {id: ask, prompt: What is the time?, model: 'overloaded:1', retry: {base_delay: 40m, max_delay: 40m}}
",
    );
    outlast.wait_for_entry("ask", "attempt_started");
    let shown = || outlast.run(&["runs", "show", "--step", "ask"]);
    wait_for("the wait of its turn", || {
        shown().stdout.contains("A wait from")
    });
    kill(child);
    let run = outlast.resume(&[]);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let all = outlast.written();
    assert_eq!(
        numbers(&all, "ask", "attempt_started"),
        [1],
        "{}",
        all.dump()
    );
    let shown = shown().stdout;
    // Once as the prompt, and once as the scripted completion repeats it.
    assert_eq!(shown.matches("What is the time?").count(), 2, "{shown}");
    assert_eq!(shown.matches("You said:").count(), 1, "{shown}");
}

#[test]
fn killed_run_resumes_with_its_original_pipeline_file() {
    let outlast = Outlast::in_real_time();
    let child = outlast.begin(
        "inputs: {name: world}
steps:
  - {id: a, command: echo x >> a}
  - {id: b, needs: [a], command: 'test -e go || sleep 60; echo old >> b'}
  - {id: c, needs: [b], inputs: {name: inputs.name}, command: echo \"$INPUT_NAME\" >> c}
",
    );
    outlast.wait_for_entry("b", "process_started");
    // No other process can resume it meanwhile.
    let id = outlast.written().id().to_owned();
    let second = outlast.run(&["run", "--resume", &id]);
    let expected = format!(
        "error: run {id} is carried out by another process; `outlast runs show --watch` follows it\n"
    );
    assert_eq!((second.code, second.stderr), (2, expected));
    let none = outlast.run(&["run", "--resume"]);
    assert_eq!(none.code, 0, "{}", none.stderr);
    assert!(
        none.stderr
            .starts_with("There is no run that was interrupted"),
        "{}",
        none.stderr
    );
    kill(child);
    outlast.write(FILE, "steps:\n  - {id: a, command: echo new >> a}\n");
    outlast.write("go", "");
    let run = outlast.resume(&[&id[..20]]);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let notes = ["a", "b", "c"].map(|file| outlast.notes(file));
    assert_eq!(notes, [["x"], ["old"], ["world"]], "{}", run.dump());
}

#[test]
fn resume_of_failed_run_skips_completed_steps() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        "steps:
  - {id: good, command: echo x >> good}
  - {id: bad, needs: [good], command: \"echo x >> bad; test -e mended || { echo 'invalid API key' >&2; exit 1; }\"}
  - {id: after, needs: [bad], command: echo x >> after}
",
    );
    assert_eq!((run.code, run.outcome()), (1, "failed"), "{}", run.dump());
    outlast.write("mended", "");
    let run = outlast.resume(&[run.id()]);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let counts = ["good", "bad", "after"].map(|file| outlast.notes(file).len());
    assert_eq!(counts, [1, 2, 1]);
}

#[test]
fn visit_limit_is_reset_when_failed_run_is_resumed() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        "steps:
  - {id: a, command: test -e mended, max_visits: 1}
",
    );
    assert_eq!((run.code, run.outcome()), (1, "failed"), "{}", run.dump());
    let again = outlast.resume(&[run.id()]);
    assert_eq!(again.attempts("a"), ["unknown: stop"], "{}", again.dump());
    outlast.write("mended", "");
    let again = outlast.resume(&[run.id()]);
    assert_eq!(
        (again.code, again.outcome()),
        (0, "completed"),
        "{}",
        again.dump()
    );
    assert_eq!(again.of("a", "step_started")[0]["visit"], 3);
}

#[test]
fn printed_events_equal_journal_entries() {
    let outlast = Outlast::new();
    let run = outlast.pipeline(
        "steps:
  - {id: a, command: \"test $OUTLAST_ATTEMPT = 2 || { echo 'HTTP 429' >&2; exit 1; }\"}
  - {id: b, needs: [a], prompt: hi}
",
    );
    let said: Vec<_> = run
        .lines
        .iter()
        .filter(|line| line["type"] != "session")
        .collect();
    let written = outlast.written();
    assert_eq!(said, written.lines.iter().collect::<Vec<_>>());
}

#[test]
fn once_step_is_not_rerun_after_crash() {
    let outlast = Outlast::in_real_time();
    let child =
        outlast.begin("steps:\n  - {id: pay, once: true, command: echo x >> paid; sleep 60}\n");
    outlast.wait_for_entry("pay", "process_started");
    wait_for("payment", || !outlast.notes("paid").is_empty());
    kill(child);
    let run = outlast.resume(&[]);
    assert_eq!((run.code, run.outcome()), (1, "failed"), "{}", run.dump());
    assert!(
        run.reason("pay")
            .contains("it was interrupted, and may be begun once only"),
        "{}",
        run.reason("pay")
    );
    assert_eq!(outlast.notes("paid").len(), 1);
}

#[test]
fn open_gate_keeps_its_deadline_after_crash() {
    let outlast = Outlast::new();
    let child = outlast.begin("steps:\n  - {id: gate, gate: {type: approval, message: Well?, default: y, timeout: 40m}}\n");
    outlast.wait_for_entry("gate", "gate_opened");
    kill(child);
    let run = outlast.resume(&[]);
    assert_eq!(
        (run.code, run.outcome()),
        (0, "completed"),
        "{}",
        run.dump()
    );
    let all = outlast.written();
    assert_eq!(all.of("gate", "gate_opened").len(), 1);
    let until = time(&all.of("gate", "gate_opened")[0]["until"]);
    assert!(time(&all.of("gate", "gate_closed")[0]["time"]) >= until);
}

#[test]
fn resume_reports_missing_folder() {
    let outlast = Outlast::new();
    outlast.write(FILE, "steps:\n  - {id: a, command: exit 3}\n");
    outlast.write("work/x", "");
    let ran: CommandResult = outlast.run(&["run", FILE, "--folder", "work"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    std::fs::remove_dir_all(outlast.folder.path().join("work")).unwrap();
    let id = outlast.written().id().to_owned();
    let ran = outlast.run(&["run", "--resume", &id]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("work is gone; make it again"),
        "{}",
        ran.stderr
    );
}

#[test]
fn unwritable_artifacts_stop_run_without_failing_step() {
    let outlast = Outlast::new();
    // Once, the step blocks the path at which its own output would be stored.
    let source = "steps:
  - id: a
    command: 'if [ ! -e tried ]; then touch tried; mv home/artifacts away; touch home/artifacts; fi; echo made'
  - {id: b, needs: [a], command: echo done}
";
    outlast.write("p.yaml", source);
    let stopped = outlast.run(&["run", "p.yaml"]);
    assert_eq!(stopped.code, 1, "{}", stopped.stderr);
    assert!(stopped.stderr.contains("--resume"), "{}", stopped.stderr);
    let folder = outlast.folder.path();
    std::fs::remove_file(folder.join("home/artifacts")).unwrap();
    std::fs::rename(folder.join("away"), folder.join("home/artifacts")).unwrap();
    let resumed = outlast.run(&["run", "--resume"]);
    assert_eq!(
        (resumed.code, resumed.stdout.as_str()),
        (0, "done\n"),
        "{}",
        resumed.stderr
    );
}
