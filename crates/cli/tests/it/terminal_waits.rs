//! Waits during other changes: shared state from other processes, a killed process, hours.

use crate::mock_server::{MockServer, PLANTED};
use crate::support::Outlast;
use crate::terminal_driver::{DEFAULT_SIZE, Pane, countdown, flat};
use serde_json::Value;
use std::process::Command;

/// Starts a provider in real time, for chats with waits that no test waits out.
fn server() -> MockServer {
    let mock = MockServer::start_in(Outlast {
        scale: "1",
        ..Outlast::new()
    });
    let settings = "[retry]\nbase_delay_ms = 200000\n";
    mock.outlast.write("home/outlast.toml", settings);
    mock
}

fn script(mock: &MockServer, script: &str) {
    let body = format!(r#"{{"script":"{script}"}}"#);
    mock.control("POST", "/_outlast/script", &body);
}

/// Creates a chat with that provider.
fn chat(mock: &MockServer, arguments: &[&str]) -> Command {
    let url = mock.url();
    let usual = ["--provider", "anthropic", "--base-url", &url];
    let mut command = mock.outlast.command(&[&usual, arguments].concat());
    command.env("ANTHROPIC_API_KEY", PLANTED);
    command
}

#[test]
fn long_wait_shows_time_of_day() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let arguments = ["--model", "usage-limit", "--policy", "overnight"];
    let pane = Pane::chat(&outlast, &arguments);
    pane.is_ready();
    pane.say("Say hello");
    let waits = pane.sees("Retrying (1/21) in ");
    let left = countdown(&waits).unwrap();
    assert!((17_900..=18_010).contains(&left), "{waits}");
    let words = flat(&waits);
    let (_, more) = words.split_once("s… (esc to cancel) · ").unwrap();
    let (span, rest) = more.split_once(", at ").unwrap();
    let (time, rest) = rest.split_once(" · r retries now").unwrap();
    assert!(
        span.starts_with("5h") || span.starts_with("4h59m"),
        "{waits}"
    );
    assert!(rest.starts_with(" ─"), "{waits}");
    // A time on the next day has a date before it.
    let clock = time.split(' ').next_back().unwrap();
    let parts: Vec<u32> = clock.split(':').map(|part| part.parse().unwrap()).collect();
    assert!(parts.len() == 2 && parts[0] < 24 && parts[1] < 60, "{time}");
}

#[test]
fn success_of_other_chat_ends_wait_early() {
    let mock = server();
    script(&mock, "overloaded");
    let waiting = Pane::of(&chat(&mock, &["--model", "m"]), DEFAULT_SIZE);
    waiting.is_ready();
    waiting.say("Say hello");
    waiting.sees("Retrying (1/3) in ");
    script(&mock, "ok");
    let other = Pane::of(&chat(&mock, &["--model", "m"]), DEFAULT_SIZE);
    other.is_ready();
    other.say("Are you there");
    other.is_answered("Are you there");
    // Minutes before its scheduled time, and without a key press.
    waiting.is_answered("Say hello");
}

#[test]
fn usage_limit_of_other_chat_moves_countdown() {
    let mock = server();
    script(&mock, "overloaded");
    let waiting = Pane::of(&chat(&mock, &["--model", "m"]), DEFAULT_SIZE);
    waiting.is_ready();
    waiting.say("Say hello");
    let before = countdown(&waiting.sees("Retrying (1/3) in ")).unwrap();
    assert!(before > 100, "{before}");
    script(&mock, "usage-limit:reset=90");
    let other = Pane::of(&chat(&mock, &["--model", "m"]), DEFAULT_SIZE);
    other.is_ready();
    other.say("Are you there");
    let sooner = waiting.wait_for("a countdown that was moved", |screen| {
        countdown(screen).is_some_and(|left| (3..=90).contains(&left))
    });
    assert!(sooner.contains("Retrying (1/3) in "), "{sooner}");
    waiting.press(&["Escape"]);
    waiting.sees("Retry failed after 1 attempts: Retry cancelled");
}

#[test]
fn killed_wait_resumes_with_remaining_time() {
    let mock = server();
    let pane = Pane::of(&chat(&mock, &["--model", "overloaded:1"]), DEFAULT_SIZE);
    pane.is_ready();
    pane.say("Say hello");
    let first = countdown(&pane.sees("Retrying (1/3) in ")).unwrap();
    let killed_at = pane.wait_for("a countdown that moves", |screen| {
        countdown(screen).is_some_and(|left| left < first)
    });
    pane.signal("-KILL");
    assert_eq!(pane.ended(), "signal 9");

    let pane = Pane::of(&chat(&mock, &["--continue"]), DEFAULT_SIZE);
    let goes_on = pane.sees("Retrying (1/3) in ");
    let left = countdown(&goes_on).unwrap();
    assert!(
        left > 100 && Some(left) <= countdown(&killed_at),
        "{goes_on}"
    );
    assert_eq!(goes_on.matches("› Say hello").count(), 1, "{goes_on}");
    insta::assert_snapshot!("carried_on", without_clock(&pane.shown(&goes_on)));
    pane.press(&["r"]);
    let answered = pane.is_answered("Say hello");
    assert_eq!(answered.matches("› Say hello").count(), 1, "{answered}");
    assert_eq!(answered.matches("Hello from").count(), 1, "{answered}");
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    assert_eq!(log["requests"].as_array().unwrap().len(), 2, "{log}");
}

/// Removes the times of a long wait and the server's port from a screen.
fn without_clock(screen: &str) -> String {
    let (before, rest) = screen.split_once("(esc to cancel)").unwrap();
    let (_, after) = rest.split_once(" · r ").unwrap();
    let lines = after
        .lines()
        .map(|line| match line.split_once("@127.0.0.1:") {
            Some((name, _)) => format!("{}…", name.trim_end_matches(|c| c != '-')),
            None => line.to_owned(),
        });
    let after = lines.collect::<Vec<_>>().join("\n");
    format!("{before}(esc to cancel) · TIME · r {after}")
}
