//! The examples run without network, key or server, and print what they promise.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example that cargo has built beside this test.
fn run(example: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.ancestors().nth(2).unwrap().join("examples");
    let output = Command::new(folder.join(example))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{example}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn classify_gives_up_on_spent_quota() {
    let printed = run("classify", &[]);
    assert!(printed.starts_with("billing (Deterministic)"), "{printed}");
    assert!(printed.ends_with("GiveUp(NotRetryable)\n"), "{printed}");
}

#[test]
fn retry_stream_starts_again_after_reset() {
    assert_eq!(run("retry_stream", &[]), "You said: Hello\n");
}

#[test]
fn durable_session_calls_its_tool() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("trip.db");
    let printed = run("durable_session", &[journal.to_str().unwrap()]);
    assert_eq!(printed, "Done after 1 steps. Paris: 21 C\n");
}

#[test]
fn fallback_answers_for_overloaded_model() {
    let printed = run("fallback", &[]);
    let waits = printed.matches("retrying in").count();
    assert_eq!(waits, 2, "{printed}");
    assert!(
        printed.contains("⚠ asking second from here on\nHello from"),
        "{printed}"
    );
}

#[test]
fn custom_strategy_outlasts_three_overloads() {
    assert!(run("custom_strategy", &[]).starts_with("Hello from"));
}
