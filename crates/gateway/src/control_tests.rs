//! Tests of the control endpoints: their data, their effects, and access to them.

use super::*;
use crate::observe::log::{Event, EventKind, Sink};
use http::HeaderMap;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::Mode;
use outlast_kernel::verdict::Cause;
use serde_json::Value;
use std::cell::{Cell, RefCell};

const WAITING_ID: &str = "r-1";

/// A fake gateway.
pub(super) struct FakeGateway {
    token: Token,
    metrics: Metrics,
    pub(super) traffic: RequestLog,
    reach: Cell<Exposure>,
    draining: Cell<bool>,
    broken: Cell<bool>,
    pub(super) calls: RefCell<Vec<String>>,
}

/// A response of the fake gateway.
pub(super) struct TestResponse {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl FakeGateway {
    fn note(&self, what: &str) {
        self.calls.borrow_mut().push(what.to_owned());
    }
}

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis((1_794_715_200 + seconds) * 1000)
}

impl GatewayControl for FakeGateway {
    fn token(&self) -> Option<&Token> {
        Some(&self.token)
    }

    fn exposure(&self) -> Exposure {
        self.reach.get()
    }

    fn address(&self) -> SocketAddr {
        "127.0.0.1:8080".parse().unwrap()
    }

    fn request_log(&self) -> &RequestLog {
        &self.traffic
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn now(&self) -> Timestamp {
        at(60)
    }

    fn summary(&self) -> GatewaySummary {
        GatewaySummary {
            now: at(60),
            listening_since: at(0),
            address: "127.0.0.1:8080".to_owned(),
            draining: self.draining.get(),
            upstreams: vec![Upstream {
                dialect: "anthropic".to_owned(),
                provider: "anthropic".to_owned(),
                url: "https://api.anthropic.com".to_owned(),
                policy: "overnight".to_owned(),
            }],
        }
    }

    fn accounts(&self) -> Vec<Account> {
        let account = |name: &str, state, until| Account {
            name: name.to_owned(),
            provider: "anthropic".to_owned(),
            state,
            model: None,
            cause: (state == AccountState::Blocked).then_some(Cause::UsageLimit),
            until,
        };
        vec![
            account("home", AccountState::Free, None),
            account("work", AccountState::Blocked, Some(at(3600))),
        ]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![Gate {
            name: "anthropic/home/claude-opus-5".to_owned(),
            mode: Some(Mode::Down),
            cause: Some(Cause::Overloaded),
            until: Some(at(75)),
            waiting: 1,
            state: "down for 12m; next probe in 1m15s; 1 wait".to_owned(),
        }]
    }

    fn waiting(&self) -> Vec<WaitingRequest> {
        vec![WaitingRequest {
            id: WAITING_ID.to_owned(),
            client: "claude-code".to_owned(),
            dialect: "anthropic".to_owned(),
            model: Some("claude-opus-5".to_owned()),
            account: Some("home".to_owned()),
            path: "/v1/messages".to_owned(),
            since: at(1),
            cause: Some(Cause::Overloaded),
            attempts: 4,
            resent: 1,
            wake: Some(at(90)),
            left: None,
        }]
    }

    fn retry_now(&self, id: Option<&str>) -> usize {
        self.note(&format!("retry {id:?}"));
        usize::from(id.is_none_or(|id| id == WAITING_ID))
    }

    fn cancel(&self, id: &str) -> bool {
        self.note(&format!("cancel {id}"));
        id == WAITING_ID
    }

    fn reload(&self) -> Result<(), String> {
        self.note("reload");
        if self.broken.get() {
            return Err("outlast.toml:3: no such setting".to_owned());
        }
        Ok(())
    }
}

impl FakeGateway {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self {
            token: Token::load_or_create_in(home.path()).unwrap(),
            metrics: Metrics::new(&["claude-code"]),
            traffic: RequestLog::new(at(0)),
            reach: Cell::new(Exposure::Loopback),
            draining: Cell::default(),
            broken: Cell::default(),
            calls: RefCell::default(),
        }
    }

    pub(super) fn send(&self, with_token: bool, line: &str, body: &str) -> TestResponse {
        let (method, path) = line.split_once(' ').unwrap();
        assert!(is_control_path(path));
        let mut request = http::Request::builder().method(method).uri(path);
        if with_token {
            request = request.header("x-outlast-token", self.token.reveal());
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let (parts, body) = respond(self, &parts, body.as_bytes()).into_parts();
        let content_type = parts.headers.get("content-type");
        TestResponse {
            status: parts.status.as_u16(),
            content_type: content_type
                .map_or_else(String::new, |form| form.to_str().unwrap().to_owned()),
            headers: parts.headers,
            body: String::from_utf8(body.into()).unwrap(),
        }
    }

    pub(super) fn get(&self, path: &str) -> TestResponse {
        self.send(true, &format!("GET {path}"), "")
    }

    pub(super) fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let reply = self.send(true, &format!("POST {path}"), body);
        (reply.status, serde_json::from_str(&reply.body).unwrap())
    }
}

fn json_of(reply: &TestResponse) -> Value {
    assert_eq!(reply.content_type, "application/json");
    serde_json::from_str(&reply.body).unwrap()
}

#[test]
fn provider_paths_are_not_control_paths() {
    for path in ["/", "/v1/messages", "/_outlastish", "/metrics/x", "/health"] {
        assert!(!is_control_path(path), "{path}");
    }
}

#[test]
fn health_needs_no_token_and_reports_draining() {
    let bench = FakeGateway::new();
    for path in ["/healthz", "/_outlast/health"] {
        let reply = bench.send(false, &format!("GET {path}"), "");
        assert_eq!(reply.status, 200);
        assert_eq!(json_of(&reply)["status"], "ok");
        assert_eq!(json_of(&reply)["version"], env!("CARGO_PKG_VERSION"));
    }
    bench.draining.set(true);
    let reply = bench.send(false, "GET /healthz", "");
    assert_eq!(
        (reply.status, &json_of(&reply)["status"]),
        (503, &json!("draining"))
    );
}

#[test]
fn control_paths_and_exposed_metrics_require_token() {
    let bench = FakeGateway::new();
    for line in [
        "GET /_outlast/status",
        "POST /_outlast/retry-now",
        "POST /_outlast/cancel",
        "POST /_outlast/reload",
    ] {
        let reply = bench.send(false, line, "{\"id\":\"r-1\"}");
        assert_eq!(reply.status, 401, "{line}");
        assert_eq!(json_of(&reply)["error"]["type"], "token_required");
        assert_eq!(
            reply.headers["www-authenticate"],
            "Bearer realm=\"outlast\""
        );
    }
    assert!(bench.calls.borrow().is_empty());
    assert_eq!(bench.send(false, "GET /metrics", "").status, 200);
    bench.reach.set(Exposure::Network);
    assert_eq!(bench.send(false, "GET /metrics", "").status, 401);
    assert_eq!(bench.send(true, "GET /metrics", "").status, 200);
    assert_eq!(bench.send(false, "GET /healthz", "").status, 200);
}

#[test]
fn metrics_report_blocked_accounts_in_scraper_format() {
    let bench = FakeGateway::new();
    let reply = bench.get("/metrics");
    assert_eq!(reply.content_type, metrics::CONTENT_TYPE);
    assert!(
        reply.body.contains("outlast_gateway_accounts_blocked 1\n"),
        "{}",
        reply.body
    );
}

#[test]
fn status_json_is_complete_and_round_trips() {
    let bench = FakeGateway::new();
    let resumed = EventKind::Resumed {
        attempts: 1,
        resent: 1,
        since: at(0),
    };
    bench.metrics.emit(&Event {
        at: at(1),
        request: None,
        kind: resumed,
    });
    let reply = bench.get("/_outlast/status");
    assert_eq!(reply.status, 200);
    let shown: Status = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(shown.about, bench.summary());
    assert_eq!(shown.accounts, bench.accounts());
    assert_eq!(shown.gates, bench.gates());
    assert_eq!(shown.waiting, bench.waiting());
    assert_eq!(shown.counters.resumed, 1);
    let mut value = json_of(&reply);
    value["version"] = json!("[version]");
    insta::assert_snapshot!("status", serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn retry_now_ends_one_wait_or_all() {
    let bench = FakeGateway::new();
    let path = "/_outlast/retry-now";
    assert_eq!(
        bench.post(path, "{\"id\":\"r-1\"}"),
        (200, json!({"retried": 1}))
    );
    assert_eq!(bench.post(path, ""), (200, json!({"retried": 1})));
    assert_eq!(bench.post(path, " {} "), (200, json!({"retried": 1})));
    assert_eq!(bench.post(path, "{\"id\":\"r-9\"}").0, 404);
    let done = [
        "retry Some(\"r-1\")",
        "retry None",
        "retry None",
        "retry Some(\"r-9\")",
    ];
    assert_eq!(*bench.calls.borrow(), done);
}

#[test]
fn malformed_control_body_is_rejected_without_effect() {
    let bench = FakeGateway::new();
    for body in ["{\"di\":\"r-1\"}", "{\"id\":7}", "[", "r-1", "\u{0}"] {
        let (status, value) = bench.post("/_outlast/retry-now", body);
        assert_eq!(
            (status, &value["error"]["type"]),
            (400, &json!("invalid_request")),
            "{body}"
        );
        assert_eq!(bench.post("/_outlast/cancel", body).0, 400, "{body}");
    }
    assert!(bench.calls.borrow().is_empty());
}

#[test]
fn cancel_requires_known_request_id() {
    let bench = FakeGateway::new();
    let path = "/_outlast/cancel";
    assert_eq!(
        bench.post(path, "{\"id\":\"r-1\"}"),
        (200, json!({"cancelled": "r-1"}))
    );
    assert_eq!(bench.post(path, "{\"id\":\"r-9\"}").0, 404);
    assert_eq!(bench.post(path, "").0, 400);
}

#[test]
fn reload_reports_invalid_setting() {
    let bench = FakeGateway::new();
    assert_eq!(
        bench.post("/_outlast/reload", ""),
        (200, json!({"reloaded": true}))
    );
    bench.broken.set(true);
    let (status, value) = bench.post("/_outlast/reload", "");
    assert_eq!(status, 422);
    assert_eq!(value["error"]["message"], "outlast.toml:3: no such setting");
}

#[test]
fn unknown_path_wrong_method_and_long_body_get_4xx() {
    let bench = FakeGateway::new();
    for path in [
        "/_outlast/main.js/",
        "/_outlast/../main.js",
        "/_outlast/api",
        "/_outlast/status/",
        "/_outlast/healthz",
    ] {
        let reply = bench.get(path);
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(json_of(&reply)["error"]["type"], "not_found");
    }
    let reply = bench.send(true, "POST /_outlast/status", "");
    assert_eq!(reply.status, 405);
    assert_eq!(reply.headers["allow"], "GET, HEAD");
    let reply = bench.get("/_outlast/reload");
    assert_eq!(reply.status, 405);
    assert_eq!(reply.headers["allow"], "POST");
    let long = " ".repeat(BODY_LIMIT + 1);
    assert_eq!(bench.post("/_outlast/retry-now", &long).0, 413);
    assert_eq!(bench.send(false, "HEAD /healthz", "").status, 200);
}

#[test]
fn page_needs_no_token_and_allows_only_get_and_head() {
    let bench = FakeGateway::new();
    bench.reach.set(Exposure::Network);
    let page = bench.send(false, "GET /_outlast/", "");
    assert_eq!(
        (page.status, page.content_type.as_str()),
        (200, "text/html; charset=utf-8")
    );
    assert!(page.headers.contains_key("content-security-policy"));
    let script = bench.send(false, "HEAD /_outlast/main.js", "");
    assert_eq!(
        (script.status, script.content_type.as_str()),
        (200, "text/javascript; charset=utf-8")
    );
    let moved = bench.send(false, "GET /_outlast", "");
    assert_eq!(moved.status, 307);
    assert_eq!(moved.headers["location"], "/_outlast/");
    for path in ["/_outlast", "/_outlast/", "/_outlast/main.js"] {
        let reply = bench.send(true, &format!("POST {path}"), "");
        assert_eq!(reply.status, 405, "{path}");
        assert_eq!(reply.headers["allow"], "GET, HEAD");
    }
}

#[test]
fn is_page_matches_only_get_and_head_of_page_root() {
    let is = |line: &str| {
        let (method, path) = line.split_once(' ').unwrap();
        let request = http::Request::builder().method(method).uri(path);
        is_page(&request.body(()).unwrap().into_parts().0)
    };
    assert!(is("GET /_outlast") && is("GET /_outlast/") && is("HEAD /_outlast/?x"));
    for line in [
        "POST /_outlast/",
        "GET /_outlast/main.js",
        "GET /_outlast/api/about",
        "GET /_outlast/status",
        "GET /",
    ] {
        assert!(!is(line), "{line}");
    }
}
