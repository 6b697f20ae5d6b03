//! Unattended operation: signals, closed readers, changed settings at a resume, and tools that write files.

use crate::mock_server::{MockServer, wait_for};
use crate::support::{CommandResult, Outlast, run_script_before};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const AGENT: &str = "ok:agent,times=always";

fn in_real_time() -> Outlast {
    Outlast {
        scale: "1",
        ..Outlast::new()
    }
}

/// Starts a command and waits for its first line on stderr.
fn begin(command: &mut Command) -> Child {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    child
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn states(outlast: &Outlast) -> Vec<String> {
    let ran = outlast.run(&["sessions", "list", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["state"].as_str().unwrap().to_owned())
        .collect()
}

// --- signals ---

#[test]
fn signal_without_session_exits_with_its_own_code() {
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let outlast = in_real_time();
        let arguments = [
            "-p",
            "hi",
            "--model",
            "usage-limit:reset=99",
            "--no-session",
        ];
        let child = begin(&mut outlast.command(&arguments));
        signal(&child, name);
        let ran = CommandResult::ended(child);
        assert_eq!(ran.code, code, "{name}: {}", ran.stderr);
    }
}

#[test]
fn ignored_hangup_stays_ignored() {
    let outlast = in_real_time();
    let inner = outlast.command(&["-p", "hi", "--model", "usage-limit:reset=99"]);
    let mut shell = run_script_before("trap '' HUP", &inner);
    let child = begin(&mut shell);
    signal(&child, "-HUP");
    signal(&child, "-TERM");
    let ran = CommandResult::ended(child);
    assert_eq!(ran.code, 143, "{}", ran.stderr);
}

#[test]
fn second_interrupt_still_kills_tool_and_cancels_turn() {
    let outlast = in_real_time();
    let prompt = "call bash {\"command\":\"trap '' TERM INT; echo $$ >tool; sleep 60\"}";
    let mut command = outlast.command(&["-p", prompt, "--model", AGENT, "--allow", "bash"]);
    let child = begin(&mut command);
    let file = outlast.folder.path().join("tool");
    wait_for("tool", || {
        fs::read_to_string(&file).is_ok_and(|id| id.ends_with('\n'))
    });
    let tool = fs::read_to_string(&file).unwrap().trim().to_owned();
    signal(&child, "-INT");
    signal(&child, "-INT");
    let ran = CommandResult::ended(child);
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    wait_for("end of the tool", || {
        let stat = fs::read_to_string(format!("/proc/{tool}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    assert_eq!(states(&outlast), ["cancelled"]);
}

// --- readers ---

#[test]
fn closed_event_reader_leaves_turn_resumable() {
    // In real time, so that the turn is still waiting when the write fails.
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let model = "rate-limited:retry-after=250";
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = outlast
        .command(&["-p", "hi", "--model", model, "--json"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ran = CommandResult::ended(child);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("Stopped: `outlast resume "),
        "{}",
        ran.stderr
    );
    let mut resume = outlast.command(&["resume"]);
    let resumed = CommandResult::of(resume.env("OUTLAST_TIME_SCALE", "600"));
    assert!(
        resumed.stdout.ends_with("You said: hi\n"),
        "{}{}",
        resumed.stdout,
        resumed.stderr
    );
}

#[test]
fn completion_lost_to_full_stdout_is_printed_by_resume() {
    let outlast = Outlast::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = outlast.command(&["-p", "hi", "--model", "ok"]);
    let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let ran = CommandResult::ended(child);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(states(&outlast), ["undelivered"]);
    let resumed = outlast.run(&["resume"]);
    assert!(
        resumed.stdout.ends_with("You said: hi\n"),
        "{}",
        resumed.stdout
    );
}

#[test]
fn file_size_limit_does_not_kill_process() {
    let outlast = Outlast::new();
    let inner = outlast.command(&["-p", "hi", "--model", "ok"]);
    let mut shell = run_script_before("ulimit -f 1", &inner);
    let ran = CommandResult::of(&mut shell);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stdout.ends_with("You said: hi\n"), "{}", ran.stdout);
}

// --- settings ---

#[test]
fn resume_uses_provider_and_model_of_prompt() {
    let mock = MockServer::start_in(Outlast {
        scale: "20",
        ..Outlast::new()
    });
    let key = ("OPENAI_API_KEY", "sk-test-0123456789abcdef");
    let mut command = mock.outlast.command(&["-p", "hi"]);
    command.envs([
        key,
        ("OPENAI_BASE_URL", &mock.url()),
        ("OUTLAST_PROVIDER", "openai"),
        ("OUTLAST_MODEL", "rate-limited:retry-after=40"),
    ]);
    let child = begin(&mut command);
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    let mut resume = mock.outlast.command(&["resume", "--json"]);
    let ran = CommandResult::of(resume.envs([key]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let start = ran.stdout.lines().next().unwrap();
    assert!(start.contains("\"provider\":\"openai\""), "{start}");
    assert!(start.contains("rate-limited:retry-after=40"), "{start}");
    mock.wait_for_requests(2);
}

#[test]
fn sessions_list_orders_by_activity_despite_clock_change() {
    let mut outlast = Outlast {
        scale: "36000",
        ..Outlast::new()
    };
    outlast.run(&["-p", "from the future", "--model", "ok"]);
    outlast.scale = "1";
    outlast.run(&["-p", "from today", "--model", "ok"]);
    let ran = outlast.run(&["sessions", "list"]);
    let titles: Vec<bool> = ran
        .stdout
        .lines()
        .map(|line| line.ends_with("from today"))
        .collect();
    assert_eq!(titles, [true, false], "{}", ran.stdout);
}

#[test]
fn deleted_session_leaves_no_text_in_files() {
    let outlast = Outlast::new();
    outlast.run(&["-p", "a very private thing", "--model", "ok"]);
    let holds = || {
        let files = fs::read_dir(outlast.home()).unwrap().flatten();
        let files = files.filter(|file| file.path().is_file());
        let mut bytes = files.map(|file| fs::read(file.path()).unwrap());
        bytes.any(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            text.contains("a very private thing")
        })
    };
    assert!(holds());
    let ran = outlast.run(&["sessions", "delete", "--older-than", "0s"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!holds());
}

// --- tools ---

#[test]
fn write_tool_cannot_change_settings_files() {
    let outlast = Outlast::new();
    outlast.write("outlast.toml", "model = \"ok:agent,times=always\"\n");
    assert_eq!(outlast.run(&["trust"]).code, 0);
    for path in ["outlast.toml", "home/outlast.toml", "sub/outlast.toml"] {
        let prompt = format!("call write {{\"path\":\"{path}\",\"content\":\"[tools]\"}}");
        let ran = outlast.run(&["-p", &prompt, "--allow", "write,outside"]);
        let said = format!("`write` was not run: {path} is not yours to change");
        assert!(ran.stdout.contains(&said), "{}", ran.stdout);
        // The progress output reports it as well.
        assert!(ran.stderr.contains("○ write "), "{}", ran.stderr);
    }
    let settings = fs::read_to_string(outlast.folder.path().join("outlast.toml")).unwrap();
    assert!(!settings.contains("[tools]"));
}

// --- times ---

/// Returns the current time in milliseconds.
fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Kills a prompt during a wait of that many seconds; returns the end of the wait.
fn killed_in_a_wait(mock: &MockServer, seconds: u32) -> i64 {
    let script = format!("rate-limited:retry-after={seconds}");
    let mut child = begin(&mut mock.command("openai", &["--model", &script]));
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = mock
        .outlast
        .run(&["sessions", "export", "--format", "jsonl"]);
    let mut entries = ran.stdout.lines().map(|line| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        entry
    });
    let wait = entries.find(|entry| entry["kind"] == "wait_scheduled");
    let until = wait.unwrap()["until"].as_str().unwrap().to_owned();
    until.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

/// Returns the arrival time of the last request.
fn last_request(mock: &MockServer) -> i64 {
    let log: serde_json::Value = serde_json::from_str(&mock.requests()).unwrap();
    let last = log["requests"].as_array().unwrap().last().unwrap();
    let time: jiff::Timestamp = last["time"].as_str().unwrap().parse().unwrap();
    time.as_millisecond()
}

#[test]
fn resumed_wait_keeps_its_time_and_skips_overdue_wait() {
    let mock = MockServer::start_in(in_real_time());
    let resume = || {
        let mut command = mock.outlast.command(&["resume"]);
        let ran = CommandResult::of(command.env("OPENAI_API_KEY", "sk-test-0123456789abcdef"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stderr
    };
    const WAIT: u32 = 6;
    let until = killed_in_a_wait(&mock, WAIT);
    wait_for("most of the wait", || now() > until - 2000);
    let resumed = now();
    resume();
    let asked = last_request(&mock);
    assert!(asked >= until, "{} ms early", until - asked);
    // A wait that starts again would have ended no sooner than that.
    let anew = resumed + 1000 * i64::from(WAIT);
    assert!(asked < anew, "{} ms late", asked - until);

    let until = killed_in_a_wait(&mock, 1);
    wait_for("end of the wait", || now() > until);
    let said = "⚠ Rate limited, retrying now… (1/3, Ctrl-C cancels)\n";
    assert_eq!(resume(), said, "nothing is waited for");
}
