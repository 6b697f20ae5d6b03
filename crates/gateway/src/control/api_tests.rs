//! Tests of the data that the page gets, and of its commands.

use super::tests::{FakeGateway, TestResponse, at};
use super::{About, BODY_LIMIT, GatewayControl, ListedGateways, Policies, SharedState};
use crate::observe::log::sample::record;
use crate::observe::log::{Event, EventKind, RequestRef, Sink};
use crate::observe::request_log::Changes;
use outlast_dialect::Dialect;
use outlast_kernel::verdict::Cause;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

const ALL: [&str; 8] = [
    "GET /_outlast/api/about",
    "GET /_outlast/api/gateways",
    "GET /_outlast/api/shared_state",
    "GET /_outlast/api/knowledge",
    "GET /_outlast/api/policies",
    "GET /_outlast/api/gateways/8080/traffic",
    "POST /_outlast/api/gateways/8080/retry_now",
    "POST /_outlast/api/gateways/8080/cancel",
];

/// Tells about a request that arrives.
fn start<'a>(bench: &FakeGateway, id: &'a str, dialect: Option<Dialect>) -> RequestRef<'a> {
    let request = RequestRef {
        key: u64::from(id == "r-2"),
        id,
        client: "codex",
        dialect,
    };
    let received = EventKind::Received {
        model: "m",
        path: "/v1/chat/completions",
        is_resent: false,
    };
    tell(bench, request, received);
    request
}

fn tell(bench: &FakeGateway, request: RequestRef<'_>, kind: EventKind<'_>) {
    let (at, request) = (at(1), Some(request));
    bench.traffic.emit(&Event { at, request, kind });
}

/// Returns the body of a successful response.
fn shown(bench: &FakeGateway, path: &str) -> Value {
    let reply = bench.get(&format!("/_outlast/api/{path}"));
    assert_eq!(
        (reply.status, reply.content_type.as_str()),
        (200, "application/json")
    );
    assert_eq!(reply.headers["cache-control"], "no-store");
    serde_json::from_str(&reply.body).unwrap()
}

/// Returns the code of a problem, and its status.
fn problem(reply: &TestResponse) -> (u16, String) {
    assert_eq!(reply.content_type, "application/problem+json");
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(body["type"], "about:blank");
    assert_eq!(body["status"], reply.status);
    assert!(!body["title"].as_str().unwrap().is_empty());
    assert!(!body["detail"].as_str().unwrap().is_empty());
    (reply.status, body["code"].as_str().unwrap().to_owned())
}

#[test]
fn every_api_endpoint_requires_token() {
    let bench = FakeGateway::new();
    for line in ALL {
        let reply = bench.send(false, line, "{\"id\":\"r-1\"}");
        assert_eq!(
            problem(&reply),
            (401, "token_required".to_owned()),
            "{line}"
        );
        assert_eq!(
            reply.headers["www-authenticate"],
            "Bearer realm=\"outlast\""
        );
        let reply = bench.send(true, line, "{\"id\":\"r-1\"}");
        assert_eq!(reply.status, 200, "{line}");
    }
    assert_eq!(*bench.calls.borrow(), ["retry Some(\"r-1\")", "cancel r-1"]);
}

#[test]
fn api_returns_about_gateways_state_and_policies() {
    let bench = FakeGateway::new();
    let version = env!("CARGO_PKG_VERSION");
    let views = ["gateway", "providers", "policies"];
    assert_eq!(
        shown(&bench, "about"),
        json!({ "version": version, "now": at(60), "views": views })
    );
    let state = json!({ "now": at(60), "accounts": bench.accounts(), "gates": bench.gates() });
    for path in ["shared_state", "knowledge"] {
        assert_eq!(shown(&bench, path), state, "{path}");
    }
    let status: Value = serde_json::from_str(&bench.get("/_outlast/status").body).unwrap();
    let gateway = json!({ "port": 8080, "address": "127.0.0.1:8080", "status": status });
    let gateways = json!({ "now": at(60), "gateways": [gateway] });
    assert_eq!(shown(&bench, "gateways"), gateways);
    let policies = &shown(&bench, "policies")["policies"];
    assert_eq!(policies.as_array().unwrap().len(), 8);
    assert_eq!(policies[1]["delays_ms"], json!([1000, 2000]));
}

#[test]
fn traffic_returns_requests_after_sequence_number() {
    let bench = FakeGateway::new();
    let begin = |id: &str| {
        start(&bench, id, None);
    };
    begin("r-1");
    let all = shown(&bench, "gateways/8080/traffic");
    assert_eq!(
        (&all["now"], &all["requests"][0]["id"]),
        (&json!(at(60)), &json!("r-1"))
    );
    begin("r-2");
    let later = shown(
        &bench,
        &format!("gateways/8080/traffic?x=1&after={}", all["seq"]),
    );
    assert_eq!(later["requests"].as_array().unwrap().len(), 1);
    assert_eq!(later["requests"][0]["id"], "r-2");
    for wrong in ["after=", "after=-1", "after=x"] {
        let reply = bench.get(&format!("/_outlast/api/gateways/8080/traffic?{wrong}"));
        assert_eq!(
            problem(&reply),
            (400, "invalid_request".to_owned()),
            "{wrong}"
        );
    }
}

#[test]
fn api_errors_are_problem_documents() {
    let bench = FakeGateway::new();
    let code = |line: &str, body: &str| problem(&bench.send(true, line, body));
    let coded = |status: u16, code: &str| (status, code.to_owned());
    let gone = "{\"id\":\"r-9\"}";
    for what in ["retry_now", "cancel"] {
        let line = format!("POST /_outlast/api/gateways/8080/{what}");
        assert_eq!(code(&line, gone), coded(404, "no_such_request"));
        assert_eq!(code(&line, "{\"di\":1}"), coded(400, "invalid_request"));
        let long = " ".repeat(BODY_LIMIT + 1);
        assert_eq!(code(&line, &long), coded(413, "request_too_large"));
        let other = line.replace("8080", "8081");
        assert_eq!(code(&other, gone), coded(404, "no_such_gateway"));
        let by_get = line.replace("POST", "GET");
        assert_eq!(code(&by_get, ""), coded(405, "method_not_allowed"));
    }
    let cancel = "POST /_outlast/api/gateways/8080/cancel";
    assert_eq!(code(cancel, ""), coded(400, "invalid_request"));
    let traffic = "GET /_outlast/api/gateways/8081/traffic";
    assert_eq!(code(traffic, ""), coded(404, "no_such_gateway"));
    for path in [
        "",
        "x",
        "about/",
        "gateways/8080",
        "gateways/8080/traffic/x",
        "../status",
    ] {
        let line = format!("GET /_outlast/api/{path}");
        assert_eq!(code(&line, ""), coded(404, "not_found"), "{path}");
    }
    let posted = bench.send(true, "POST /_outlast/api/about", "");
    assert_eq!(posted.headers["allow"], "GET, HEAD");
}

#[test]
fn retry_now_without_id_retries_all() {
    let bench = FakeGateway::new();
    let (status, said) = bench.post("/_outlast/api/gateways/8080/retry_now", "");
    assert_eq!((status, said), (200, json!({ "retried": 1 })));
    assert_eq!(*bench.calls.borrow(), ["retry None"]);
}

/// Returns the violations of a response against the published schema of its type.
fn misfits<Shown: JsonSchema>(answer: &Value) -> Vec<String> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Shown>();
    let schema = jsonschema::validator_for(schema.as_value()).unwrap();
    schema
        .iter_errors(answer)
        .map(|error| error.to_string())
        .collect()
}

#[test]
fn api_responses_match_published_schema() {
    let bench = FakeGateway::new();
    let request = start(&bench, "r-1", Some(Dialect::OpenaiChat));
    let failed = EventKind::AttemptFailed {
        cause: Cause::Overloaded,
        attempt: 1,
        status: Some(529),
        account: None,
        message: "no",
    };
    tell(&bench, request, failed);
    tell(&bench, request, EventKind::Finished(&record()));
    let none: [String; 0] = [];
    assert_eq!(misfits::<About>(&shown(&bench, "about")), none);
    assert_eq!(misfits::<ListedGateways>(&shown(&bench, "gateways")), none);
    assert_eq!(misfits::<SharedState>(&shown(&bench, "shared_state")), none);
    assert_eq!(misfits::<Policies>(&shown(&bench, "policies")), none);
    let mut traffic = shown(&bench, "gateways/8080/traffic");
    assert_eq!(misfits::<Changes>(&traffic), none);
    traffic["requests"][0]["outcome"] = json!("well");
    assert_eq!(misfits::<Changes>(&traffic).len(), 1);
}
