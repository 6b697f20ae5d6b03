//! Gateways that are killed with held requests, and started again: a request that its client repeats continues where it
//! was.

use super::scene::{Gateway, HttpResponse, PendingRequest, ask, command, free_port, post};
use crate::mock_server::MockServer;
use crate::support::{CommandResult, Outlast};
use outlast_kernel::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// A minute takes a second.
const SCALE: &str = "60";
/// A client that waits silently without a limit.
const PATIENT: &str = "x-outlast-client: codex\r\n";

fn mock() -> MockServer {
    MockServer::start_in(Outlast {
        scale: SCALE,
        ..Outlast::new()
    })
}

/// Builds a request in that dialect with that script as the model.
fn request(path: &str, script: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"model":"{script}","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}],"input":"hi"}}"#
    );
    post(path, PATIENT, &body).into_bytes()
}

/// Sets the script of the provider for all further requests.
fn script(mock: &MockServer, script: &str) {
    let body = format!(r#"{{"script":"{script}"}}"#);
    mock.control("POST", "/_outlast/script", &body);
}

/// Returns the times of the provider's requests.
fn request_times(mock: &MockServer) -> Vec<Timestamp> {
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let requests = log["requests"].as_array().unwrap().iter();
    let time = |request: &Value| request["time"].as_str().unwrap().parse().unwrap();
    requests.map(time).collect()
}

fn attempts(answer: &HttpResponse) -> usize {
    answer
        .header("x-outlast-attempts")
        .unwrap()
        .parse()
        .unwrap()
}

fn lose_knowledge(outlast: &Outlast) {
    for name in ["outlast.db", "outlast.db-wal", "outlast.db-shm"] {
        std::fs::remove_file(outlast.home().join(name)).ok();
    }
}

const SCRIPT: &str = "overloaded:2+rate-limited:retry-after=240+ok";

/// Kills the gateway during a wait, starts another one and repeats the request.
fn killed_in_a_wait(path: &str, between: impl Fn(&Outlast)) -> (MockServer, HttpResponse) {
    let mock = mock();
    let (outlast, port) = (&mock.outlast, free_port());
    let request = request(path, SCRIPT);
    let gateway = Gateway::on(outlast, port, &mock.url());
    let first = PendingRequest::send(&gateway.address, &request);
    gateway.wait_for_stderr(r#""event":"waiting","cause":"rate_limited","attempt":3"#);
    gateway.wait_until_written(outlast, 3);
    gateway.kill();
    assert_eq!(first.answer().status, 0);
    between(outlast);
    let gateway = Gateway::on(outlast, port, &mock.url());
    let answer = ask(&gateway.address, &request);
    let said = gateway.kill();
    assert!(
        said.contains(r#""event":"resumed","attempts":3,"resent":1"#),
        "{said}"
    );
    (mock, answer)
}

#[test]
fn killed_gateway_resumes_wait_in_every_dialect() {
    for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
        let (mock, answer) = killed_in_a_wait(path, |_| {});
        assert_eq!((answer.status, attempts(&answer)), (200, 4), "{path}");
        let asked = request_times(&mock);
        assert_eq!(asked.len(), 4, "{path}");
        let waited = asked[3].since(asked[2]);
        assert!(waited >= Duration::from_secs(240), "{path}: {waited:?}");
        // A minute of a busy machine, and far less than any other wait.
        assert!(waited < Duration::from_secs(3600), "{path}: {waited:?}");
    }
}

/// Without shared state the provider gets one request, and states the reset time again.
#[test]
fn wait_and_attempts_survive_loss_of_shared_state() {
    let (mock, answer) = killed_in_a_wait("/v1/messages", lose_knowledge);
    assert_eq!(answer.status, 200);
    let asked = request_times(&mock);
    assert_eq!(asked.len(), attempts(&answer));
    assert!(asked.len() <= 5, "{asked:?}");
    let waited = asked.last().unwrap().since(asked[2]);
    assert!(waited >= Duration::from_secs(240), "{waited:?}");
}

#[test]
fn attempts_are_counted_across_repeated_kills() {
    const KILLS: usize = 6;
    let mock = mock();
    let (outlast, port) = (&mock.outlast, free_port());
    let request = request("/v1/chat/completions", "m");
    script(&mock, "outage:864000");
    for kill in 0..KILLS {
        let gateway = Gateway::on(outlast, port, &mock.url());
        let asking = PendingRequest::send(&gateway.address, &request);
        gateway.wait_for_stderr(r#""event":"waiting""#);
        gateway.wait_until_written(outlast, 1);
        std::thread::sleep(Duration::from_millis(150 * kill as u64));
        let said = gateway.kill();
        assert_eq!(
            said.contains(r#""event":"resumed""#),
            kill > 0,
            "{kill}: {said}"
        );
        assert_eq!(asking.answer().status, 0);
    }
    let gateway = Gateway::on(outlast, port, &mock.url());
    let asking = PendingRequest::send(&gateway.address, &request);
    // The outage ends when there were more attempts than kills.
    mock.wait_for_requests(KILLS + 2);
    script(&mock, "ok");
    let answer = asking.answer();
    let (counted, made) = (attempts(&answer), request_times(&mock).len());
    assert_eq!(answer.status, 200);
    // An attempt that was under way at a kill may be missing in the journal.
    assert!(
        counted <= made && made <= counted + KILLS,
        "{counted} of {made}"
    );
    assert!(counted >= KILLS, "{counted} of {made}");
    gateway.wait_for_stderr(&format!(r#""resent":{KILLS}"#));
}

#[test]
fn gateways_of_one_home_do_not_interfere() {
    let mock = mock();
    let outlast = &mock.outlast;
    let gateways = [free_port(), free_port()].map(|port| Gateway::on(outlast, port, &mock.url()));
    let request = request("/v1/messages", "m");
    script(&mock, "outage:864000");
    let asking = gateways
        .each_ref()
        .map(|gateway| PendingRequest::send(&gateway.address, &request));
    for gateway in &gateways {
        gateway.wait_for_stderr(r#""event":"waiting""#);
        gateway.wait_until_written(outlast, 1);
    }
    let [first, second] = gateways;
    let [asked_first, asked_second] = asking;
    let port = first.port();
    first.kill();
    assert_eq!(asked_first.answer().status, 0);
    script(&mock, "ok");
    assert_eq!(asked_second.answer().status, 200);
    let said = second.kill();
    assert!(!said.contains("warning"), "{said}");
    let first = Gateway::on(outlast, port, &mock.url());
    let answer = ask(&first.address, &request);
    assert_eq!(answer.status, 200);
    first.wait_for_stderr(r#""event":"resumed""#);
}

#[test]
fn second_gateway_on_same_port_fails_and_first_serves() {
    let mock = mock();
    let outlast = &mock.outlast;
    let first = Gateway::start(outlast, &mock.url());
    let mut second = command(outlast, first.port(), &["--upstream", &mock.url()]);
    let ran = CommandResult::of(&mut second);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains(&first.address), "{}", ran.stderr);
    assert!(ran.stderr.contains("--listen"), "{}", ran.stderr);
    let answer = ask(&first.address, &request("/v1/messages", "overloaded:1"));
    assert_eq!((answer.status, attempts(&answer)), (200, 2));
    let status = outlast.run(&["gateway", "status", "--json"]);
    assert!(status.stdout.contains(&first.address), "{}", status.stdout);
    assert!(
        !first.stderr_so_far().contains("warning"),
        "{}",
        first.stderr_so_far()
    );
}
