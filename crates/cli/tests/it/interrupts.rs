//! Ctrl-C and similar signals, sent to a real process in the middle of an eight-hour wait.

use crate::mock_server::MockServer;
use crate::support::{CommandResult, Outlast};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Starts a wait in real time, sends the signal once the wait has begun, and returns the result. A process that kept
/// waiting would not end before `HANG_TIMEOUT`.
fn interrupted_by(signal: &str) -> CommandResult {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let mut child = outlast
        .command(&[
            "-p",
            "hi",
            "--model",
            "usage-limit",
            "--policy",
            "overnight",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(
        first.contains("Usage limit reached, retrying in 5h"),
        "{first}"
    );
    let kill = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let mut ran = CommandResult::ended(child);
    stderr.read_to_string(&mut ran.stderr).unwrap();
    ran
}

#[test]
fn signal_ends_long_wait_at_once() {
    for (signal, code, says) in [
        ("-INT", 130, "Cancelled.\n"),
        (
            "-TERM",
            143,
            "Stopped: `outlast resume ID` carries it on.\n",
        ),
        ("-HUP", 129, "Stopped: `outlast resume ID` carries it on.\n"),
    ] {
        let ran = interrupted_by(signal);
        let id = ran.stderr.split(['`', ' ']).find(|word| word.len() == 36);
        let stderr = ran.stderr.replace(id.unwrap_or("no id"), "ID");
        assert_eq!(
            (ran.code, ran.stdout.as_str(), stderr.as_str()),
            (code, "", says),
            "{signal}"
        );
    }
}

#[test]
fn ctrl_c_closes_the_connection_to_the_provider() {
    let mock = MockServer::start_in(Outlast {
        scale: "1",
        ..Outlast::new()
    });
    for (script, model) in [("stall", "a"), ("stall:3", "b"), ("hold:3600", "c")] {
        let body = format!(r#"{{"script":"{script}"}}"#);
        mock.control("POST", "/_outlast/script", &body);
        mock.control("DELETE", "/_outlast/requests", "");
        let child = mock
            .command("anthropic", &["--model", model])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        mock.wait_for_request("open");
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap();
        let ran = CommandResult::ended(child);
        assert_eq!((ran.code, ran.stdout.as_str()), (130, ""), "{script}");
        mock.wait_for_request("client_closed");
    }
}
