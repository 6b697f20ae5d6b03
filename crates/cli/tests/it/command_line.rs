//! `outlast -p`: its output, errors and exit codes.

use crate::support::{CommandResult, Outlast};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const HELLO: &str =
    "Hello from the scripted provider: no network, no key, no cost. You said: Say hello\n";

fn ask(model: &str, policy: &str) -> CommandResult {
    Outlast::new().run(&[
        "-p",
        "Say hello",
        "--provider",
        "mock",
        "--model",
        model,
        "--policy",
        policy,
    ])
}

fn events(ran: &CommandResult) -> Vec<Value> {
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn first_run_retries_overload_and_prints_completion() {
    let ran = Outlast::new().run(&["-p", "Say hello"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, HELLO));
    insta::assert_snapshot!(ran.stderr, @r"
    No provider is configured: using the scripted one (--provider mock --model overloaded:2).
    ⚠ Server overloaded, retrying in 2s… (1/3, Ctrl-C cancels)
    ⚠ Server overloaded, retrying in 4s… (2/3, Ctrl-C cancels)
    ");
}

#[test]
fn scripts_end_with_documented_exit_code_and_output() {
    let table = [
        ("ok", "session", 0, ""),
        ("overloaded:3", "session", 0, "retrying in 8s… (3/3"),
        (
            "rate-limited:retry-after=2",
            "session",
            0,
            "⚠ Rate limited, retrying in 2s…",
        ),
        (
            "usage-limit:reset=240",
            "session",
            0,
            "⚠ Usage limit reached, retrying in 4m",
        ),
        ("stall", "session", 0, "⚠ Stream stalled, retrying in 2s…"),
        ("flaky:0.3,seed=7", "session", 0, ""),
        (
            "overloaded:2+rate-limited:retry-after=9",
            "session",
            0,
            "⚠ Rate limited, retrying in 9s… (3/3",
        ),
        ("usage-limit", "session", 3, "the provider asks to wait 5h"),
        ("overloaded:4", "session", 3, "gave up after 3 retries"),
        ("overloaded:1", "none", 1, "retries are off"),
        ("overflow", "overnight", 1, "Context window exceeded"),
        (
            "drop-after:5",
            "session",
            0,
            "⚠ Connection failed, retrying in 2s…",
        ),
        ("no-such-fault", "session", 2, "there is no such fault"),
        ("ok", "overnite", 2, "did you mean `overnight`"),
    ];
    for (model, policy, code, part) in table {
        let ran = ask(model, policy);
        assert_eq!(ran.code, code, "{model} {policy}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(part),
            "{model} {policy}: {}",
            ran.stderr
        );
        assert_eq!(
            ran.stdout,
            if code == 0 { HELLO } else { "" },
            "{model} {policy}"
        );
    }
}

#[test]
fn json_events_are_numbered_with_absolute_times() {
    let ran = Outlast::new().run(&["-p", "hi", "--model", "overloaded:1", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let events = events(&ran);
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let retry = events
        .iter()
        .find(|event| event["type"] == "retry_scheduled")
        .unwrap();
    let time = |value: &Value| {
        value
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_millisecond()
    };
    assert_eq!(time(&retry["retry_at"]) - time(&retry["time"]), 2000);
    let fixed = ["session_id", "turn_id", "attempt_id", "time", "retry_at"];
    let mut shape = retry.clone();
    for field in fixed {
        assert!(shape[field].is_string(), "{field}");
        shape[field] = Value::from("…");
    }
    insta::assert_snapshot!(shape.to_string(), @r#"{"attempt":1,"attempt_id":"…","cause":"overloaded","code":"529","delay_ms":2000,"max_attempts":3,"message":"Overloaded","retry_at":"…","seq":4,"session_id":"…","time":"…","turn_id":"…","type":"retry_scheduled","v":1}"#);
    assert_eq!(events.last().unwrap()["status"], "completed");
}

#[test]
fn overnight_outage_makes_21_retries_and_one_error() {
    let outlast = Outlast {
        scale: "36000",
        ..Outlast::new()
    };
    let ran = outlast.run(&[
        "-p",
        "hi",
        "--model",
        "overloaded:99",
        "--policy",
        "overnight",
        "--json",
    ]);
    assert_eq!(ran.code, 3);
    let events = events(&ran);
    let of_type = |kind: &str| {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .collect::<Vec<_>>()
    };
    let slept: u64 = of_type("retry_scheduled")
        .iter()
        .map(|event| event["delay_ms"].as_u64().unwrap())
        .sum();
    assert_eq!((of_type("retry_scheduled").len(), slept), (21, 27_105_000));
    assert_eq!(
        (of_type("error").len(), of_type("retry_ended").len()),
        (1, 1)
    );
    assert_eq!(of_type("retry_ended")[0]["attempt"], 21);
}

#[test]
fn the_prompt_can_come_from_stdin() {
    let ran = Outlast::new().run_with_stdin(&["-p", "-", "--model", "ok"], "line one\nline two");
    assert!(
        ran.stdout.ends_with("You said: line one\nline two\n"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_prompt_may_begin_with_a_dash() {
    let ran = Outlast::new().run(&["-p", "- item one", "--model", "ok"]);
    assert!(
        ran.stdout.ends_with("You said: - item one\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn ten_processes_share_new_home_without_warnings() {
    let outlast = Outlast::new();
    let start = |_| {
        outlast
            .command(&["-p", "hi", "--model", "ok"])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
    };
    let children: Vec<_> = (0..10).map(start).collect();
    for child in children {
        let ran = CommandResult::from(child.unwrap().wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    }
}

#[test]
fn terminal_escapes_are_removed_from_completion() {
    let ran = Outlast::new().run(&["-p", "\u{1b}]0;title\u{7}\u{1b}[2Jboo", "--model", "ok"]);
    assert!(ran.stdout.ends_with("You said: boo\n"), "{:?}", ran.stdout);
}

#[test]
fn closed_stdout_stops_prompt_with_resume_hint() {
    let outlast = Outlast::new();
    let mut child = outlast
        .command(&[
            "-p",
            "hi",
            "--model",
            "overloaded:9",
            "--policy",
            "overnight",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = CommandResult::ended(child);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("Stopped: `outlast resume "),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn the_home_is_made_private() {
    let outlast = Outlast::new();
    outlast.run(&["-p", "hi", "--model", "ok"]);
    let mode =
        |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(outlast.home()), mode(outlast.home().join("VERSION"))),
        (0o700, 0o600)
    );
}

#[test]
fn empty_folder_becomes_home_but_used_one_is_refused() {
    let outlast = Outlast::new();
    let home = outlast.home();
    let set_mode =
        |mode| std::fs::set_permissions(&home, std::fs::Permissions::from_mode(mode)).unwrap();
    let mode = || std::fs::metadata(&home).unwrap().permissions().mode() & 0o777;
    std::fs::create_dir(&home).unwrap();
    set_mode(0o755);
    outlast.run(&["-p", "hi", "--model", "ok"]);
    assert_eq!(mode(), 0o700);

    std::fs::remove_file(home.join("VERSION")).unwrap();
    std::fs::write(home.join("thesis.txt"), "mine").unwrap();
    set_mode(0o755);
    let ran = outlast.run(&["-p", "Say hello", "--model", "ok"]);
    // The prompt succeeds, but is not in the journal.
    assert_eq!((ran.code, ran.stdout.as_str(), mode()), (4, HELLO, 0o755));
    assert!(
        ran.stderr.contains("holds other things; set OUTLAST_HOME"),
        "{}",
        ran.stderr
    );
}

#[test]
fn invalid_time_scale_is_usage_error() {
    let scaled = |scale| {
        Outlast {
            scale,
            ..Outlast::new()
        }
        .run(&["-p", "hi", "--model", "ok"])
    };
    for (scale, part) in [
        ("0", "whole number of at least 1"),
        ("fast", "it is `fast`"),
        ("4294967295", "year 9999"),
    ] {
        let ran = scaled(scale);
        assert_eq!(ran.code, 2);
        assert!(
            ran.stderr.contains("OUTLAST_TIME_SCALE") && ran.stderr.contains(part),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn usage_errors_exit_with_code_2() {
    for arguments in [
        &[][..],
        &["--nonsense"],
        &["--json"],
        &["policy", "show", "nope"],
        &["-p", "x", "--provider", "y"],
        &["-p", " \n", "--model", "ok"],
    ] {
        let ran = Outlast::new().run(arguments);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            ran.stderr
        );
        assert!(ran.stderr.starts_with("error:"), "{}", ran.stderr);
    }
}
