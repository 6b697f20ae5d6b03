//! Ten sessions at once over one account while the provider is down: each is settled once, and one process probes for
//! all.

use crate::mock_server::{MockServer, PLANTED};
use crate::support::{CommandResult, Outlast};
use serde_json::Value;
use std::process::{Child, Stdio};

const SESSIONS: usize = 10;
/// Milliseconds on the clock that all of them share.
const DOWN: i64 = 120_000;
/// On a busy machine, the last of ten processes begins late on a clock that is ten times as fast.
const LEARNING: i64 = 60_000;
/// Two requests with less time between them were concurrent.
const CLOSEST: i64 = 1_000;

fn start(mock: &MockServer, number: usize) -> Child {
    let url = mock.url();
    let prompt =
        format!("Session {number}\ncall bash {{\"command\":\"echo line-{number} >>lines.txt\"}}\n");
    let script = format!("outage:{}+ok:agent,times=always", DOWN / 1000);
    let mut command = mock
        .outlast
        .command(&["-p", &prompt, "--provider", "openai"]);
    command.args(["--base-url", &url, "--model", &script]);
    command.args(["--policy", "overnight", "--allow", "bash"]);
    command
        .env("OPENAI_API_KEY", PLANTED)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn millis(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millisecond()
}

/// Returns the arrival times of requests, and whether each succeeded.
fn requests(mock: &MockServer) -> Vec<(i64, bool)> {
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let requests = log["requests"].as_array().unwrap().iter();
    requests
        .map(|request| (millis(&request["time"]), request["status"] == 200))
        .collect()
}

/// Checks that each session is finished, with one prompt and one settlement.
fn each_is_settled_once(mock: &MockServer) {
    let listed = mock.outlast.run(&["sessions", "list", "--json"]);
    let sessions: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(sessions.len(), SESSIONS, "{}", listed.stdout);
    for session in &sessions {
        assert_eq!(session["state"], "finished", "{session}");
        let id = session["id"].as_str().unwrap();
        let export = ["sessions", "export", id, "--format", "jsonl"];
        let exported = mock.outlast.run(&export).stdout;
        let of_kind = |kind: &str| exported.matches(&format!(r#""kind":"{kind}""#)).count();
        let counts = ["prompt", "message", "tool_finished", "settled"].map(of_kind);
        assert_eq!(counts, [1, 2, 1, 1], "{exported}");
    }
}

/// Checks that there is one probe at a time once all processes know of the outage, until it is over.
fn one_asks_for_all(mock: &MockServer) {
    let requests = requests(mock);
    let first = requests[0].0;
    let (learnt, recovery) = (first + LEARNING, first + DOWN);
    let refused = requests.iter().filter(|(_, served)| !served);
    let probes = refused.map(|(at, _)| *at).filter(|at| *at >= learnt);
    let probes: Vec<i64> = probes.collect();
    let gaps = probes.windows(2).map(|pair| pair[1] - pair[0]);
    let shortest = gaps.min().unwrap_or(i64::MAX);
    let mut served = requests.iter().filter(|(_, served)| *served);
    let begun = served.clone().map(|(at, _)| *at).min().unwrap() - recovery;
    println!(
        "{} refused at first, {} probes (shortest gap {shortest} ms), first success after {begun} ms",
        requests.len() - served.clone().count() - probes.len(),
        probes.len()
    );
    assert!(served.all(|(at, _)| *at >= recovery), "{requests:?}");
    // The first call of each, the two successful calls of each, and the retries that prove the outage with the probes of its first
    // minute.
    const MAX_EARLY_RETRIES: usize = 40;
    let calls = requests.len() - probes.len();
    assert!(calls <= 3 * SESSIONS + MAX_EARLY_RETRIES, "{requests:?}");
    assert!(!probes.is_empty() && probes.len() <= 30, "{probes:?}");
    assert!(shortest > CLOSEST, "{probes:?}");
}

#[test]
fn ten_sessions_outlast_an_outage_together() {
    let mock = MockServer::start_in(Outlast {
        scale: "10",
        ..Outlast::new()
    });
    let running: Vec<Child> = (0..SESSIONS).map(|number| start(&mock, number)).collect();
    for child in running {
        let ran = CommandResult::ended(child);
        let said = (ran.code, ran.stdout.as_str());
        assert_eq!(
            said,
            (0, "Done after 1 steps. [no output]\n"),
            "{}",
            ran.stderr
        );
        let waits = ["retrying in", "waiting in line"];
        let is_shown = waits.iter().any(|wait| ran.stderr.contains(wait));
        assert!(is_shown, "{}", ran.stderr);
    }
    each_is_settled_once(&mock);
    one_asks_for_all(&mock);
    let lines = std::fs::read_to_string(mock.outlast.folder.path().join("lines.txt")).unwrap();
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..SESSIONS)
        .map(|number| format!("line-{number}"))
        .collect();
    assert_eq!(lines, expected);
    let left = mock.outlast.run(&["resume"]);
    assert_eq!(left.stderr, "Nothing to resume.\n");
}
