//! Tools through the command: permissions, the effect of signals, and secrets that a model must not
//! receive.

use crate::mock_server::{MockServer, PLANTED, wait_for};
use crate::support::{CommandResult, NO_TIMEOUTS, Outlast};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The scripted model that calls the tools in the prompt.
const AGENT: &str = "ok:agent,times=always";

/// Returns the entries of the newest session.
fn entries(outlast: &Outlast) -> Vec<Value> {
    let ran = outlast.run(&["sessions", "export", "--format", "jsonl"]);
    let lines = ran.stdout.lines().skip(1);
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_kind<'a>(entries: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let entries = entries.iter();
    entries.filter(|entry| entry["kind"] == kind).collect()
}

/// Whether a process exists and is not a zombie.
fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

// --- Permissions ---

#[test]
fn unapproved_tools_do_not_run_unattended() {
    let outlast = Outlast::new();
    let prompt = "call write {\"path\":\"made.txt\",\"content\":\"new\"}\ncall bash {\"command\":\"touch made.txt\"}";
    let ran = outlast.run(&["-p", prompt, "--model", AGENT]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!outlast.folder.path().join("made.txt").exists());
    let entries = entries(&outlast);
    assert_eq!(of_kind(&entries, "tool_started").len(), 0);
    let refused = of_kind(&entries, "tool_finished");
    assert_eq!(refused.len(), 2);
    assert!(
        refused.iter().all(|entry| entry["is_error"] == true),
        "{refused:?}"
    );
}

#[test]
fn permission_applies_to_its_prompt_only() {
    let outlast = Outlast::new();
    let prompt = "call write {\"path\":\"made.txt\",\"content\":\"new\"}";
    let made = outlast.folder.path().join("made.txt");
    let ran = outlast.run(&["-p", prompt, "--model", AGENT, "--allow", "write"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&made).unwrap(), "new");
    fs::remove_file(&made).unwrap();
    let ran = outlast.run(&["-p", prompt, "--continue"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!made.exists());
}

#[test]
fn tools_are_offered_unless_no_tools_is_set() {
    let mock = MockServer::start();
    for further in [[].as_slice(), &["--no-tools"]] {
        let ran = mock.ask("openai", &[&["--model", "ok"], further].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let bodies = log["requests"].as_array().unwrap().iter();
    let offered: Vec<bool> = bodies.map(|it| it["body"]["tools"].is_array()).collect();
    assert_eq!(offered, [true, false]);
}

// --- Signals ---

#[cfg(target_os = "linux")]
#[test]
fn signal_during_tool_kills_it_and_resume_reports_it() {
    for (signal, code) in [("-TERM", 143), ("-HUP", 129)] {
        // With a scaled clock, the tool would soon time out.
        let outlast = Outlast {
            scale: "1",
            ..Outlast::new()
        };
        let command = "echo once >> runs; sleep 1000 & echo $$ $! > processes; wait";
        let prompt = format!("call bash {{\"command\":\"{command}\"}}");
        let child = outlast
            .command(&["-p", &prompt, "--model", AGENT, "--allow", "bash"])
            .env("PATH", "/usr/bin:/bin")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let file = outlast.folder.path().join("processes");
        wait_for("tool", || {
            fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
        });
        let processes = fs::read_to_string(&file).unwrap();
        let processes: Vec<&str> = processes.split_whitespace().collect();
        assert!(processes.iter().all(|process| is_running(process)));
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
        let ran = CommandResult::ended(child);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (code, ""),
            "{}",
            ran.stderr
        );
        wait_for("end of the tool", || {
            !processes.iter().any(|process| is_running(process))
        });
        let ran = outlast.run(&["resume"]);
        let told = "it was interrupted by a restart and may have partly run, or may still be running; it was not run again";
        assert_eq!(
            (ran.code, ran.stdout),
            (0, format!("Done after 1 steps. {told}\n"))
        );
        let runs = fs::read_to_string(outlast.folder.path().join("runs")).unwrap();
        assert_eq!(runs, "once\n");
        let entries = entries(&outlast);
        assert_eq!(of_kind(&entries, "tool_started").len(), 1);
        assert_eq!(of_kind(&entries, "settled").len(), 1);
    }
}

// --- Secrets ---

/// Returns the bytes of all files in a folder.
fn bytes(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| match path.is_dir() {
        true => bytes(&path),
        false => fs::read(path).unwrap(),
    };
    entries.flat_map(read).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn tool_environment_contains_no_api_keys() {
    const OF_ACCOUNT: &str = "planted-account-key-0d41c2";
    let mock = MockServer::start();
    let outlast = &mock.outlast;
    let settings = format!(
        "[providers.openai]\nbase_url = \"{}\"\n[accounts.work]\nprovider = \"openai\"\napi_key_env = \"WORK_KEY\"\n",
        mock.url()
    );
    fs::create_dir_all(outlast.home()).unwrap();
    outlast.write("home/outlast.toml", settings + NO_TIMEOUTS);
    let prompt = "call bash {\"command\":\"echo marked; env; export; set\"}";
    let further = ["--provider", "openai", "--model", AGENT, "--allow", "bash"];
    let mut command = outlast.command(&[&["-p", prompt], further.as_slice()].concat());
    command
        .env("PATH", "/usr/bin:/bin")
        .env("OPENAI_API_KEY", PLANTED)
        .env("ANTHROPIC_API_KEY", PLANTED)
        .env("WORK_KEY", OF_ACCOUNT)
        .env("HARMLESS", "something-harmless");
    let ran = CommandResult::of(&mut command);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let written = bytes(&outlast.home());
    // The tool has run, and its output is in the journal.
    assert!(holds(&written, "marked") && holds(&written, "something-harmless"));
    let asked = mock.requests();
    for key in [PLANTED, OF_ACCOUNT] {
        assert!(!holds(&written, key), "{key} is written down");
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(key));
        assert!(!asked.contains(key), "the model was shown {key}");
    }
}
