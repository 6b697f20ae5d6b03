//! The state that prompts share, and failures of its file.

use crate::mock_server::MockServer;
use crate::support::{CommandResult, NO_TIMEOUTS, Outlast, run_script_before};
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU32;
use std::process::Stdio;
use std::time::Duration;

const HELLO: &str =
    "Hello from the scripted provider: no network, no key, no cost. You said: Say hello\n";

/// Starts a mock server whose home has been prepared.
fn with_home(prepare: impl FnOnce(&std::path::Path)) -> MockServer {
    let mock = MockServer::start();
    // The first prompt creates the home.
    mock.ask("openai", &["--model", "ok"]);
    prepare(&mock.outlast.home());
    mock
}

fn warnings(ran: &CommandResult) -> Vec<&str> {
    let lines = ran.stderr.lines();
    lines.filter(|line| line.starts_with("warning")).collect()
}

#[test]
fn unusable_shared_state_warns_once_and_prompt_succeeds() {
    let remove = |home: &std::path::Path| {
        for name in ["outlast.db", "outlast.db-wal", "outlast.db-shm"] {
            std::fs::remove_file(home.join(name)).ok();
        }
    };
    let damaged = with_home(|home| {
        remove(home);
        std::fs::write(home.join("outlast.db"), "no database").unwrap();
    });
    let ran = damaged.ask("openai", &["--model", "overloaded:1"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, HELLO),
        "{}",
        ran.stderr
    );
    assert_eq!(warnings(&ran).len(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("outlast.db.damaged-1, and a new file is begun"),
        "{}",
        ran.stderr
    );
    let kept = std::fs::read(damaged.outlast.home().join("outlast.db.damaged-1")).unwrap();
    assert_eq!(kept, b"no database");

    let folder = with_home(|home| {
        remove(home);
        std::fs::create_dir(home.join("outlast.db")).unwrap();
    });
    let ran = folder.ask("openai", &["--model", "overloaded:1"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, HELLO),
        "{}",
        ran.stderr
    );
    assert_eq!(warnings(&ran).len(), 1, "{}", ran.stderr);
}

#[test]
fn full_disk_does_not_stop_prompt() {
    let mock = MockServer::start();
    let inner = mock.command("openai", &["--model", "overloaded:2"]);
    // A file may not grow beyond half a kilobyte; writes are refused as on a full disk.
    let mut shell = run_script_before("trap '' XFSZ; ulimit -f 1", &inner);
    let ran = CommandResult::of(&mut shell);
    // The prompt succeeds, but neither the shared state nor the session is written.
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (4, HELLO),
        "{}",
        ran.stderr
    );
    assert_eq!(warnings(&ran).len(), 2, "{}", ran.stderr);
}

#[test]
fn waiting_process_takes_over_probe_of_killed_one() {
    const SCALE: NonZeroU32 = NonZeroU32::new(10).unwrap();
    let mock = MockServer::start_in(Outlast {
        // A lease of twenty seconds takes two.
        scale: "10",
        ..Outlast::new()
    });
    // The first call takes the gate down for a minute; the second, the probe, hangs.
    let script = "usage-limit:reset=60+hold:86400+ok";
    let prompt = || {
        mock.command("openai", &["--model", script, "--policy", "overnight"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut first = prompt();
    mock.wait_for_requests(2);
    let mut second = prompt();
    let mut told = BufReader::new(second.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("waiting in line") {
        assert_ne!(told.read_line(&mut said).unwrap(), 0, "{said}");
    }
    first.kill().unwrap();
    let clock = WallClock::scaled(SCALE).unwrap();
    let killed = clock.now();
    first.wait().unwrap();
    told.read_to_string(&mut said).unwrap();
    let ran = CommandResult {
        stderr: said,
        ..CommandResult::ended(second)
    };
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, HELLO),
        "{}",
        ran.stderr
    );
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let requests = log["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 3, "{log}");
    // The lease is twenty seconds; the probe would have hung for a day.
    let asked = crate::run_driver::time(&requests[2]["time"]);
    let taken_over = asked.since(killed);
    assert!(
        taken_over <= Duration::from_secs(3600),
        "taken over after {taken_over:?}"
    );
}

#[test]
fn usage_limit_at_one_base_url_does_not_block_another() {
    let (limited, well) = (MockServer::start(), MockServer::start());
    let ask = |mock: &MockServer, policy: &str| {
        let url = mock.url();
        let mut command = limited.outlast.command(&[
            "-p",
            "Say hello",
            "--provider",
            "openai",
            "--base-url",
            &url,
            "--model",
            "m",
            "--policy",
            policy,
        ]);
        CommandResult::of(command.env("OPENAI_API_KEY", "planted-key-0123456789"))
    };
    limited.control(
        "POST",
        "/_outlast/script",
        r#"{"script":"usage-limit:reset=7200"}"#,
    );
    assert_eq!(ask(&limited, "session").code, 3);
    let ran = ask(&well, "overnight");
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, HELLO, "")
    );
}

#[test]
fn accounts_are_listed_with_state_and_can_be_unblocked() {
    let mock = with_home(|_| {});
    mock.control("DELETE", "/_outlast/requests", "");
    let settings = format!(
        "provider = \"openai\"\n[providers.openai]\nbase_url = \"{}\"\n\
         [accounts.work]\nprovider = \"openai\"\napi_key_env = \"WORK_KEY\"\n\
         [accounts.home]\nprovider = \"openai\"\napi_key_file = \"home.key\"\n",
        mock.url()
    );
    let settings = settings + NO_TIMEOUTS;
    std::fs::write(mock.outlast.home().join("outlast.toml"), settings).unwrap();
    std::fs::write(mock.outlast.home().join("home.key"), "planted-home-key\n").unwrap();
    let ask = || {
        let mut command = mock.command("openai", &["--model", "usage-limit"]);
        CommandResult::of(command.env("WORK_KEY", "planted-work-key"))
    };
    let ran = ask();
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    // One request with each: no account is tried twice.
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    assert_eq!(log["requests"].as_array().unwrap().len(), 2, "{log}");

    let listed = mock.outlast.run(&["accounts"]);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", listed.stdout);
    for (line, (name, key)) in lines
        .iter()
        .zip([("home", "file "), ("work", "variable WORK_KEY")])
    {
        assert!(line.starts_with(name) && line.contains(key), "{line}");
        assert!(
            line.contains("Usage limit reached, next try in 4h"),
            "{line}"
        );
        assert!(line.contains("(the provider says)"), "{line}");
    }
    let freed = mock
        .outlast
        .run(&["accounts", "--unblock", "work", "--json"]);
    let rows: Value = serde_json::from_str(&freed.stdout).unwrap();
    assert_eq!(
        (&rows[0]["state"], &rows[1]["state"]),
        (&"blocked".into(), &"free".into())
    );
    let unknown = mock.outlast.run(&["accounts", "--unblock", "nobody"]);
    assert_eq!(unknown.code, 2);
    assert!(
        unknown.stderr.contains("there are: home@"),
        "{}",
        unknown.stderr
    );
    for ran in [&ran, &listed, &freed] {
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("planted-"));
    }
}
