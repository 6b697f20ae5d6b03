//! Runs of pipelines and gateways, as `outlast serve` reports and starts them.

use crate::gateway_cli::{Gateway, REQUEST_BODY};
use crate::serve_driver::Serve;
use crate::support::{HANG_TIMEOUT, Outlast};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PIPELINE: &str = "name: made\nsteps:\n  - id: one\n    command: echo hello > made\n  - id: two\n    needs: [one]\n    command: cat made\n";

/// Repeats a request until the result satisfies the condition.
fn until(ask: impl Fn() -> Value, is_so: impl Fn(&Value) -> bool) -> Value {
    let limit = Instant::now() + HANG_TIMEOUT;
    loop {
        let answer = ask();
        if is_so(&answer) {
            return answer;
        }
        assert!(Instant::now() < limit, "{answer}");
        // The server limits an address to 1000 requests a second.
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn run_is_started_and_reported_until_completed() {
    let outlast = Outlast::new();
    outlast.write("p.yaml", PIPELINE);
    let mut command = outlast.command(&["serve", "--listen", "127.0.0.1:0"]);
    let server = Serve::spawn(command.env("PATH", "/usr/bin:/bin"));
    let wanted = json!({ "file": "p.yaml" });
    let begun = server.post("/api/runs", &wanted);
    let id = begun["id"].as_str().unwrap();
    let show = || server.get(&format!("/api/runs/{id}"))["run"].clone();
    let run = until(show, |run| run["state"] == "completed");
    assert_eq!(run["steps"][1]["needs"], json!(["one"]), "{run}");
    assert_eq!(run["steps"][1]["attempts"][0]["outcome"], "completed");
    let made = std::fs::read_to_string(outlast.folder.path().join("made"));
    assert_eq!(made.unwrap(), "hello\n");
    let listed = server.get("/api/runs")["runs"].clone();
    assert_eq!(
        (&listed[0]["id"], &listed[0]["pipeline"]),
        (&run["id"], &json!("made"))
    );
    let over = server
        .ask("POST", &format!("/api/runs/{id}/cancel"))
        .send()
        .problem();
    assert_eq!((over.0, &*over.1), (409, "over"));
}

#[test]
fn invalid_run_is_refused_with_reason_and_line() {
    let outlast = Outlast::new();
    outlast.write("p.yaml", "steps:\n  - id: one\n    comand: true\n");
    let server = Serve::start(&outlast, "ok");
    let start = |body: Value| server.ask("POST", "/api/runs").json(&body).send().problem();
    let (status, _, detail) = start(json!({ "file": "p.yaml" }));
    assert_eq!(status, 422);
    assert!(
        detail.contains("comand") && detail.contains('3'),
        "{detail}"
    );
    assert_eq!(start(json!({ "file": "none.yaml" })).0, 422);
    assert_eq!(server.ask("GET", "/api/runs/0000").send().problem().0, 404);
    assert_eq!(server.get("/api/runs")["runs"], json!([]));
}

/// A request that a gateway of this machine holds is listed here, and can be retried from here.
#[test]
fn local_gateway_is_listed_and_controlled() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let server = Serve::start(&outlast, "ok");
    assert_eq!(server.get("/api/gateways")["gateways"], json!([]));
    let gateway = Gateway::start(
        &outlast,
        &["--upstream", "mock:rate-limited:retry-after=900"],
    );
    let _held = gateway.send(REQUEST_BODY);
    let held = |gateways: &Value| gateways[0]["status"]["waiting"][0].is_object();
    let gateways = until(|| server.get("/api/gateways")["gateways"].clone(), held);
    let (port, id) = (
        &gateways[0]["port"],
        &gateways[0]["status"]["waiting"][0]["id"],
    );
    let path = format!("/api/gateways/{port}");
    let retried = server.post(&format!("{path}/retry_now"), &json!({ "id": id }));
    assert_eq!(retried, json!({ "retried": 1 }));
    let tried = |traffic: &Value| traffic["requests"][0]["attempts"][1].is_object();
    until(|| server.get(&format!("{path}/traffic")), tried);
    let cancelled = server.post(&format!("{path}/cancel"), &json!({ "id": id }));
    assert_eq!(cancelled, json!({ "cancelled": id }));
    assert_eq!(
        server
            .ask("GET", "/api/gateways/1/traffic")
            .send()
            .problem()
            .0,
        404
    );
}
