//! Two hundred requests at once in ten processes, over one account, while the provider is down: one probe at a time.

use crate::mock_server::MockServer;
use crate::support::{CommandResult, Outlast};
use futures_util::future::join_all;
use outlast_dialect::{Dialect, Message, Request};
use outlast_engine::clock::WallClock;
use outlast_engine::provider::Adapter;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::transport::{Http, HttpSettings};
use outlast_engine::turn::Turn;
use outlast_engine::{Clock, run_turn};
use outlast_kernel::event::TurnStatus;
use outlast_kernel::policy::Policy;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const PROCESSES: usize = 10;
const TURNS: usize = 20;
/// Seconds, on the clock that all of them share.
const DOWN: u64 = 30;
const CAPACITY: u64 = 25;
const LEARNING: f64 = 10.0;

/// Environment variables of a member process: the provider's address, the shared file and the model.
const VARIABLES: [&str; 3] = ["CROWD_URL", "CROWD_FILE", "CROWD_MODEL"];

/// Starts a member process: this test binary again, running only the test `member`.
fn start(mock: &MockServer, script: &str) -> Child {
    let file = mock.outlast.folder.path().join("crowd.db");
    let values = [mock.url(), file.display().to_string(), script.to_owned()];
    Command::new(std::env::current_exe().unwrap())
        .args(["crowd::member", "--exact", "--nocapture"])
        .env_clear()
        .envs(VARIABLES.into_iter().zip(values))
        .env("OUTLAST_TIME_SCALE", mock.outlast.scale)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs many turns at once in a process that [`start`] started, and does nothing otherwise.
#[test]
fn member() {
    let [Ok(base_url), Ok(path), Ok(model)] = VARIABLES.map(std::env::var) else {
        return;
    };
    let scale = std::env::var("OUTLAST_TIME_SCALE")
        .unwrap()
        .parse()
        .unwrap();
    let clock: Arc<dyn Clock> = Arc::new(WallClock::scaled(scale).unwrap());
    let answered = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let http = Http::new(&HttpSettings {
            base_url,
            ..HttpSettings::default()
        });
        let adapter = Adapter::new(Dialect::OpenaiChat, Arc::new(http.unwrap()), clock.clone());
        let listener = Arc::new(|notice| println!("{notice:?}"));
        let knowledge = SharedState::connect(path.into(), clock.clone(), listener).await;
        let policy = Policy::named("overnight").unwrap();
        let request = Request {
            model,
            messages: vec![Message::user("hi")],
            ..Request::default()
        };
        let ask = || async {
            let retry = PolicyRetry::new(policy.clone(), clock.clone());
            let turn = Turn {
                retry: Some(&retry),
                shared_state: Some(&knowledge),
                ..Turn::new(&adapter, request.clone(), &*clock)
            };
            run_turn(turn, &mut |_| {}).await.seal == TurnStatus::Completed
        };
        let answers = join_all((0..TURNS).map(|_| ask())).await;
        answers.into_iter().filter(|answered| *answered).count()
    });
    println!("answered {answered} of {TURNS}");
}

/// Returns the arrival times of requests, in seconds, and whether each succeeded.
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

fn outage(hint: &str) {
    let mock = MockServer::start_in(Outlast {
        // At this speed a busy machine has seconds of real time for the limits below.
        scale: "4",
        ..Outlast::new()
    });
    let script = format!("rate-limited:retry-after={DOWN}{hint}+capacity:requests={CAPACITY}");
    let running: Vec<Child> = (0..PROCESSES).map(|_| start(&mock, &script)).collect();
    for child in running {
        let ran = CommandResult::ended(child);
        let answered = format!("answered {TURNS} of {TURNS}\n");
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(&answered), "{said}");
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
    // In the first seconds every process may send its first request before it knows of the outage; after that there
    // are probes.
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
    assert!(shortest > 0.4, "two probes within {shortest} s");
    // The first success is the next probe: every process learns of it within the interval of a probe, or twice that.
    let longest = refused.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = longest.fold(DOWN as f64, f64::max);
    assert!(begun <= 2.0 * longest, "first success after {begun} s");
    // The pace is unknown: it is found by the first refusals.
    assert!(after <= all / 5, "{after} refused after recovery");
}

#[test]
fn ten_processes_probe_provider_one_at_a_time() {
    for hint in ["", ",as=none"] {
        outage(hint);
    }
}
