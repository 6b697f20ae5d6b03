//! Two hundred requests at once in ten processes, over one account, while the provider is down: one probe at a time.

use crate::mock_server::MockServer;
use crate::support::Outlast;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const PROCESSES: usize = 10;
const TURNS: usize = 20;
/// Seconds, on the clock that all of them share.
const DOWN: u64 = 30;
const CAPACITY: u64 = 25;
const LEARNING: f64 = 10.0;

/// The example of the engine that asks many times at once.
fn crowd() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--package",
            "outlast-engine",
            "--example",
            "crowd",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success());
    let outlast = assert_cmd::cargo::cargo_bin("outlast");
    outlast.with_file_name("examples").join("crowd")
}

fn start(program: &PathBuf, mock: &MockServer, script: &str) -> Child {
    let file = mock.outlast.folder.path().join("crowd.db");
    Command::new(program)
        .args([&mock.url(), &TURNS.to_string()])
        .arg(file)
        .arg(script)
        .env_clear()
        .env("OUTLAST_TIME_SCALE", mock.outlast.scale)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The times, in seconds, at which requests came, and whether each was served.
fn requests(mock: &MockServer) -> Vec<(f64, bool)> {
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let time = |text: &str| {
        let (_, clock) = text.trim_end_matches('Z').split_once('T').unwrap();
        let parts: Vec<f64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
        parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]
    };
    let request = |entry: &Value| {
        let served = entry["status"].as_u64() == Some(200);
        (time(entry["time"].as_str().unwrap()), served)
    };
    log["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(request)
        .collect()
}

fn outage(program: &PathBuf, hint: &str) {
    let mock = MockServer::start_in(Outlast {
        // All that is asked for below leaves a busy machine seconds of its own.
        scale: "4",
        ..Outlast::new()
    });
    let script = format!("rate-limited:retry-after={DOWN}{hint}+capacity:requests={CAPACITY}");
    let running: Vec<Child> = (0..PROCESSES)
        .map(|_| start(program, &mock, &script))
        .collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let answered = format!("answered {TURNS} of {TURNS}\n");
        assert_eq!(
            said,
            answered,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let requests = requests(&mock);
    let all = PROCESSES * TURNS;
    let first = requests[0].0;
    let recovery = first + DOWN as f64;
    let refused: Vec<f64> = requests
        .iter()
        .filter(|(_, ok)| !ok)
        .map(|(at, _)| *at)
        .collect();
    // In the first seconds everyone's first request may go out before anybody knows; after that there are probes.
    let learnt = first + LEARNING;
    let probes: Vec<f64> = refused
        .iter()
        .copied()
        .filter(|at| (learnt..recovery).contains(at))
        .collect();
    let gaps = probes.windows(2).map(|pair| pair[1] - pair[0]);
    let shortest = gaps.fold(f64::INFINITY, f64::min);
    let served: Vec<f64> = requests
        .iter()
        .filter(|(_, ok)| *ok)
        .map(|(at, _)| *at)
        .collect();
    let (begun, done) = (served[0] - recovery, served.last().unwrap() - recovery);
    let after = refused.iter().filter(|at| **at >= recovery).count();
    println!(
        "{all} requests, down {DOWN} s{hint}: {} refused at first, {} probes (shortest gap {shortest:.1} s), \
         first success after {begun:.1} s, all served after {done:.1} s, {after} refused after recovery",
        refused.iter().filter(|at| **at < learnt).count(),
        probes.len(),
    );
    assert_eq!(served.len(), all);
    assert!(probes.len() <= 30, "{} probes", probes.len());
    assert!(shortest > 1.0, "two probes within {shortest} s");
    assert!(begun <= 20.0, "first success after {begun} s");
    let most = 1.5 * all as f64 / CAPACITY as f64 + 20.0;
    assert!(done <= most, "all served after {done} s, allowed {most} s");
    assert!(after <= all / 10, "{after} refused after recovery");
}

#[test]
fn a_crowd_in_ten_processes_makes_one_probe_at_a_time() {
    let program = crowd();
    for hint in ["", ",as=none"] {
        outage(&program, hint);
    }
}
