//! Hooks through the commands: their input, who may configure them, and that no command waits for them for long.

use crate::mock_server::{PLANTED, wait_for};
use crate::support::{CommandResult, Outlast};
use crate::written;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const ID: &str = "01900000-0000-7000-8000-000000000001";
const ALL: &str = "auto_retry_start, auto_retry_end, turn_end, tool_start, tool_end, account_blocked, session_stopped";

const WAIT: &str = "[retry]\nbase_delay_ms = 600000\n";

/// Returns the settings of a hook on every event.
fn hook(command: &str) -> String {
    format!("[[hooks]]\non = \"{ALL}\"\ncommand = '''{command}'''\n")
}

/// Returns the lines that a hook has appended to `lines`.
fn lines(outlast: &Outlast) -> Vec<Value> {
    let file = outlast.folder.path().join("lines");
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect()
}

#[test]
fn retried_prompt_runs_hooks_in_order() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", hook("cat >> lines; echo noise"));
    let ran = outlast.run(&["-p", "hi", "--model", "overloaded:2"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("noise"), "{}", ran.stdout);
    let lines = lines(&outlast);
    let expected = [
        "auto_retry_start",
        "auto_retry_start",
        "auto_retry_end",
        "turn_end",
        "session_stopped",
    ];
    assert_eq!(kinds(&lines), expected);
    let attempts: Vec<&Value> = lines[..3].iter().map(|line| &line["attempt"]).collect();
    assert_eq!(attempts, [&json!(1), &json!(2), &json!(2)]);
    assert_eq!(lines[3]["status"], "completed");
    assert_eq!(lines[4]["reason"], "ended");
    let folder = outlast.folder.path().canonicalize().unwrap();
    assert!(
        lines
            .iter()
            .all(|line| line["folder"] == folder.to_str().unwrap())
    );
}

#[test]
fn hook_output_does_not_mix_with_json_events() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", hook("echo noise; echo quiet >&2"));
    let ran = outlast.run(&["-p", "hi", "--model", "overloaded:1", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.lines().all(|line| line.starts_with('{')));
}

#[test]
fn hooks_receive_tool_calls_but_no_api_keys() {
    let outlast = Outlast::new();
    let settings =
        hook("cat >> lines; env >> variables") + "[providers.openai]\napi_key_env = \"MINE\"\n";
    outlast.write("home/outlast.toml", settings);
    let keys = [
        ("ANTHROPIC_API_KEY", PLANTED),
        ("MINE", PLANTED),
        ("OTHER", "seen"),
    ];
    let prompt = "call bash {\"command\":\"echo made\"}";
    let arguments = [
        "-p",
        prompt,
        "--model",
        "ok:agent,times=always",
        "--allow",
        "bash",
    ];
    let ran = outlast.run_with(&arguments, &keys);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines = lines(&outlast);
    assert_eq!(
        kinds(&lines),
        ["tool_start", "tool_end", "turn_end", "session_stopped"]
    );
    assert_eq!(lines[0]["args"], json!({"command": "echo made"}));
    assert_eq!(
        (&lines[1]["toolName"], &lines[1]["output"]),
        (&json!("bash"), &json!("made\n"))
    );
    let variables = fs::read_to_string(outlast.folder.path().join("variables")).unwrap();
    assert!(variables.contains("OTHER=seen") && !variables.contains(PLANTED));
}

#[test]
fn failing_or_hanging_hook_only_warns() {
    let outlast = Outlast::new();
    let settings = "[[hooks]]\non = [\"turn_end\"]\ncommand = \"echo no such thing >&2; exit 3\"\n\
                    [[hooks]]\non = [\"auto_retry_start\"]\ncommand = \"sleep 600\"\ntimeout = \"200ms\"\n";
    outlast.write("home/outlast.toml", settings);
    let ran = outlast.run(&["-p", "hi", "--model", "overloaded:1"]);
    assert_eq!(ran.code, 0);
    let said = |part: &str| assert!(ran.stderr.contains(part), "{}", ran.stderr);
    said(
        "warning: hook `echo no such thing >&2; exit 3` on turn_end: exit status 3: no such thing\n",
    );
    said(
        "warning: hook `sleep 600` on auto_retry_start: killed, since it took longer than 0.2 s\n",
    );
}

/// Sends a signal to a prompt that waits for ten minutes. It ends without waiting for the delay or for a hook that
/// sleeps as long.
fn signalled(outlast: &Outlast, signal: &str) -> CommandResult {
    let arguments = ["-p", "hi", "--model", "overloaded:1", "--policy", "session"];
    let mut child = outlast
        .command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &id])
            .status()
            .unwrap()
            .success()
    );
    let mut ran = CommandResult::ended(child);
    stderr.read_to_string(&mut ran.stderr).unwrap();
    ran
}

/// The same with a hook that records its input. A busy machine may need more than the second that a hook has after a
/// signal; then that is reported, and the test tries again.
fn run_with_recording_hook(signal: &str) -> (Outlast, CommandResult) {
    loop {
        let outlast = Outlast {
            scale: "1",
            ..Outlast::new()
        };
        outlast.write("home/outlast.toml", hook("cat >> lines") + WAIT);
        let ran = signalled(&outlast, signal);
        if !ran.stderr.contains("was stopped: it was not done") {
            return (outlast, ran);
        }
    }
}

#[test]
fn hooks_run_on_signal_with_reason_and_on_resume() {
    let table = [
        ("-INT", 130, "interrupted"),
        ("-TERM", 143, "terminated"),
        ("-HUP", 129, "hung_up"),
    ];
    for (signal, code, reason) in table {
        let (outlast, ran) = run_with_recording_hook(signal);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        let before = lines(&outlast);
        let last = before.last().unwrap();
        assert_eq!(
            (&last["type"], &last["reason"]),
            (&json!("session_stopped"), &json!(reason))
        );
        if signal == "-TERM" {
            let faster = Outlast {
                scale: "600",
                folder: outlast.folder,
            };
            let ran = faster.run(&["resume"]);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let after = lines(&faster);
            assert_eq!(
                kinds(&after[before.len()..]).last(),
                Some(&"session_stopped")
            );
            assert_eq!(after.last().unwrap()["sessionId"], last["sessionId"]);
        }
    }
}

#[test]
fn hanging_hook_is_killed_after_signal() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    outlast.write(
        "home/outlast.toml",
        hook("echo $$ > process; sleep 600") + WAIT,
    );
    let ran = signalled(&outlast, "-TERM");
    assert_eq!(ran.code, 143, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("was stopped: it was not done 1 s after the end"),
        "{}",
        ran.stderr
    );
    let process = fs::read_to_string(outlast.folder.path().join("process")).unwrap();
    let place = format!("/proc/{}/cmdline", process.trim());
    let is_gone = || fs::read(&place).unwrap_or_default().is_empty();
    wait_for("end of the hook", is_gone);
}

#[test]
fn manual_compaction_runs_hooks() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", hook("cat >> lines"));
    written::long_session(&outlast, ID, "ok:agent,times=always");
    let ran = outlast.run(&["-p", "/compact", "--session", ID]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(kinds(&lines(&outlast)).last(), Some(&"session_stopped"));
}

// --- Settings ---

#[test]
fn project_hooks_run_only_when_trusted() {
    let outlast = Outlast::new();
    let stopped =
        |command: &str| format!("[[hooks]]\non = [\"session_stopped\"]\ncommand = \"{command}\"\n");
    outlast.write("home/outlast.toml", stopped("echo user >> ran"));
    outlast.write("outlast.toml", stopped("echo project >> ran"));
    let ask = || {
        let ran = outlast.run(&["-p", "hi", "--model", "ok"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stderr
    };
    let ran = || {
        let text = fs::read_to_string(outlast.folder.path().join("ran")).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let said = ask();
    assert!(
        said.contains("ignoring hooks.1.command, hooks.1.on in "),
        "{said}"
    );
    assert_eq!(ran(), ["user"]);
    assert_eq!(outlast.run(&["trust"]).code, 0);
    assert_eq!(ask(), "");
    assert_eq!(ran(), ["project", "user", "user"]);
    let shown = outlast.run(&["config", "show"]).stdout;
    for part in ["hooks.1.command", "hooks.2.command"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn invalid_hook_settings_are_errors_with_location() {
    let outlast = Outlast::new();
    let settings = r#"[[hooks]]
on = ["turn_ends"]
command = ""
timeout = "11m"

[[hooks]]
on = []
command = "true"
timeout = 0

[[hooks]]
onn = ["turn_end"]

[[hooks]]
"#;
    outlast.write("bad.toml", settings);
    let ran = outlast.run(&["config", "check", "bad.toml"]);
    assert_eq!(ran.code, 1);
    insta::assert_snapshot!(ran.stdout);
    for (settings, found) in [
        ("hooks = \"true\"\n", "found text"),
        (
            "[hooks]\non = [\"turn_end\"]\ncommand = \"true\"\n",
            "found a table",
        ),
        ("hooks = [\"true\"]\n", "found text"),
    ] {
        outlast.write("home/outlast.toml", settings);
        let ran = outlast.run(&["-p", "hi", "--model", "ok"]);
        assert_eq!(ran.code, 2, "{settings}");
        let says = ran
            .stderr
            .contains("expected tables that begin with [[hooks]]");
        assert!(says && ran.stderr.contains(found), "{}", ran.stderr);
    }
}
