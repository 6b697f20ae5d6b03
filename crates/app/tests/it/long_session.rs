//! A session of ten thousand turns is carried on as soon as it is asked for, and fits into little memory.

use crate::mock_server::MockServer;
use crate::support::Ran;
use crate::written::{self, Left, answer, completed, prompt};
use outlast_engine::journal::Entry;
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

const TURNS: usize = 10_000;
/// For an unoptimised build on a busy machine; optimised, it takes a fraction of a second.
const LONGEST: Duration = Duration::from_secs(3);
const MOST_MEMORY: u64 = 100 << 20;
const ID: &str = "01900000-0000-7000-8000-000000000001";

/// Ten thousand turns that are over, and one that is not.
fn turns(typed: &Value) -> Vec<Vec<Entry>> {
    let said =
        "What a person asks is a sentence or two, and sometimes a piece of a file. ".repeat(3);
    let turn = |number: usize| {
        vec![
            prompt(&format!("{number}: {said}"), typed.clone()),
            Entry::AttemptStarted { attempt: 1 },
            answer(&format!("{number}: {}", said.repeat(2))),
            completed(),
        ]
    };
    let last = vec![
        prompt("And now?", typed.clone()),
        Entry::AttemptStarted { attempt: 1 },
    ];
    (1..=TURNS).map(turn).chain([last]).collect()
}

/// Waits for the end of a process; the answer is the most memory that it was seen to have used.
fn memory_until_the_end(child: &mut Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        // The system keeps the highest value, so that between two looks nothing but the very end is missed.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        most = most.max(kib.unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(1));
    }
    most
}

#[test]
fn ten_thousand_turns_are_carried_on_at_once() {
    // The provider is a process of its own, so that what it needs is not counted.
    let mock = MockServer::start();
    let typed = json!({"settings": {"provider": "openai", "model": "ok"}, "base_url": mock.url()});
    written::session(&mock.outlast, ID, (&turns(&typed), Left::Free));
    let started = SystemTime::now();
    let mut child = mock
        .outlast
        .command(&["resume"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let memory = memory_until_the_end(&mut child);
    let took = started.elapsed().unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    println!("{TURNS} turns: {took:?}, {} MiB", memory >> 20);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.ends_with("You said: And now?\n"),
        "{}",
        ran.stdout
    );
    assert!(took < LONGEST, "{took:?}");
    assert!((1..MOST_MEMORY).contains(&memory), "{} MiB", memory >> 20);
}
