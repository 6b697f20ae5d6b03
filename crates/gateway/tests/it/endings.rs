//! Tests of failed requests: they end in the provider's own words, and so that no client retries in vain.

use super::rig::{NO_TIMEOUTS, Plan, Rig, limited};
use super::upstream::{ScriptedResponse, Then, Upstream, response};
use super::wire::{TestRequest, TestResponse, headers};
use futures_util::future::join_all;
use outlast_dialect::Dialect;
use outlast_engine::provider::Timeouts;
use std::time::Duration;

/// Slow enough for a busy machine: waits at the gate have their limit.
const SCALE: u32 = 20;
/// The headers of a refusal; none of them is the gateway's.
const HEADERS: &str = "content-type: application/json; odd\r\nx-request-id: req_1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n";
const BODY: &str =
    "{ \"error\" : {\"message\":\"planted \u{e9}\", \"type\":\"odd_error\"} ,\"x\":1 }\n";

/// Starts a provider that answers everything with that refusal, and a gateway before it.
async fn refusing(status: &str, more: &str) -> (Upstream, Rig) {
    let bytes = response(status, &format!("{HEADERS}{more}"), BODY);
    let upstream =
        Upstream::start(move |_| ScriptedResponse::at_once(bytes.clone(), Then::Next)).await;
    let rig = Plan::before(upstream.address, SCALE).start().await;
    (upstream, rig)
}

/// Returns the headers that a client sees, without those that the gateway adds.
fn providers_own(answer: &TestResponse) -> Vec<(String, Vec<u8>)> {
    let ours = ["connection", "content-length"];
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| !ours.contains(&name.as_str()) && !name.starts_with("x-outlast-"));
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_retryable_4xx_is_relayed_at_once() {
    limited(async {
        for status in ["400", "401", "403", "404", "422"] {
            let more = "retry-after: 7\r\nx-should-retry: maybe\r\n";
            let (upstream, rig) = refusing(&format!("{status} Odd"), more).await;
            for (dialect, streamed) in Dialect::ALL
                .into_iter()
                .flat_map(|dialect| [(dialect, true), (dialect, false)])
            {
                let asked = upstream.counts().requests;
                let answer = rig.ask(&TestRequest::new(dialect, streamed)).await;
                assert_eq!(answer.status.to_string(), status);
                assert_eq!(answer.text(), BODY, "{answer:?}");
                let expected = headers(format!("{HEADERS}{more}").as_bytes());
                assert_eq!(providers_own(&answer), expected, "{answer:?}");
                assert_eq!(answer.header("x-outlast-attempts"), Some("1"));
                assert_eq!(answer.header("x-outlast-waited-ms"), Some("0"));
                assert_eq!(
                    upstream.counts().requests,
                    asked + 1,
                    "{status} {dialect:?}"
                );
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_retries_relay_provider_error_without_retry_after() {
    limited(async {
        for (dialect, status) in Dialect::ALL
            .into_iter()
            .flat_map(|dialect| [(dialect, "503"), (dialect, "429")])
        {
            let more = "retry-after: 2\r\nretry-after-ms: 2000\r\nx-should-retry: true\r\n";
            let (upstream, rig) = refusing(&format!("{status} Odd"), more).await;
            let ask = TestRequest::new(dialect, true).with("x-outlast-policy", "standard");
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.status.to_string(), status);
            assert_eq!(answer.text(), BODY);
            let mut expected = headers(HEADERS.as_bytes());
            expected.push(("x-should-retry".to_owned(), b"false".to_vec()));
            let mut own = providers_own(&answer);
            own.sort();
            expected.sort();
            assert_eq!(own, expected, "{answer:?}");
            assert_eq!(answer.header("x-outlast-attempts"), Some("3"));
            let waited = answer.header("x-outlast-waited-ms").unwrap();
            assert!(waited.parse::<u64>().unwrap() >= 1000, "{waited}");
            assert_eq!(upstream.counts().requests, 3);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_none_relays_error_unchanged() {
    limited(async {
        let more = "retry-after: 90\r\n";
        let (upstream, rig) = refusing("503 Odd", more).await;
        let ask = TestRequest::new(Dialect::Anthropic, true).with("x-outlast-policy", "none");
        for asked in 1..4 {
            let answer = rig.ask(&ask).await;
            assert_eq!((answer.status, answer.text().as_str()), (503, BODY));
            let expected = headers(format!("{HEADERS}{more}").as_bytes());
            assert_eq!(providers_own(&answer), expected, "{answer:?}");
            assert_eq!(answer.header("x-outlast-attempts"), Some("1"));
            assert_eq!(upstream.counts().requests, asked);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_policy_is_a_400_without_upstream_request() {
    limited(async {
        let (upstream, rig) = refusing("200 OK", "").await;
        let ask = TestRequest::new(Dialect::OpenaiChat, true).with("x-outlast-policy", "forever");
        let answer = rig.ask(&ask).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let message = answer.json()["error"]["message"].to_string();
        for part in ["`forever`", "x-outlast-policy", "overnight", "standard"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(upstream.counts().requests, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_beyond_budget_fails_at_once_with_both_times() {
    limited(async {
        for dialect in Dialect::ALL {
            let rig = Plan::new("usage-limit:reset=259200", SCALE).start().await;
            for asked in 1..3 {
                let ask = TestRequest::new(dialect, true);
                let answer = rig.ask(&ask).await;
                assert_eq!(answer.status, 429, "{answer:?}");
                assert_eq!(answer.header("x-should-retry"), Some("false"), "{answer:?}");
                assert_eq!(answer.header("x-outlast-attempts"), Some("1"), "{answer:?}");
                assert_eq!(answer.header("retry-after"), None, "{answer:?}");
                assert_eq!(rig.provider_requests().await.len(), asked);
                let why = answer.header("x-outlast-gave-up").unwrap_or_default();
                assert!(why.contains("8h"), "{answer:?}");
                assert!(why.contains("3d") || why.contains("2d"), "{answer:?}");
            }
        }
    })
    .await;
}

/// Asserts the response to a client if the provider never answers.
async fn unreachable(dialect: Dialect, script: &str, status: u16) {
    let mut plan = Plan::new(script, 10);
    plan.timeouts = Timeouts {
        connect: Duration::from_secs(1),
        headers: Duration::from_secs(2),
        ..NO_TIMEOUTS
    };
    let rig = plan.start().await;
    let ask = TestRequest::new(dialect, false).with("x-outlast-policy", "aggressive");
    let answer = rig.ask(&ask).await;
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("false"), "{answer:?}");
    let error = &answer.json()["error"];
    assert!(error["type"].is_string(), "{answer:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("4 retries"), "{answer:?}");
    assert_eq!(rig.provider_requests().await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_provider_error_uses_client_dialect() {
    let scripts = [
        ("reset:times=always", 502),
        ("hold:90000,times=always", 504),
    ];
    let asking = Dialect::ALL.into_iter().flat_map(|dialect| {
        scripts.map(|(script, status)| Box::pin(unreachable(dialect, script, status)))
    });
    limited(join_all(asking)).await;
}

/// The gateway has not retried for the clients, so they may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unretried_failure_leaves_retry_to_client() {
    limited(async {
        let upstream =
            Upstream::start(|_| ScriptedResponse::in_pieces(Vec::new(), Then::Reset)).await;
        let rig = Plan::before(upstream.address, SCALE).start().await;
        let once = TestRequest::new(Dialect::OpenaiChat, true).with("x-outlast-policy", "none");
        for ask in [TestRequest::plain("GET", "/v1/models"), once] {
            let asked = upstream.counts().requests;
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.status, 502, "{answer:?}");
            assert_eq!(answer.header("x-should-retry"), None, "{answer:?}");
            assert_eq!(upstream.counts().requests, asked + 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_policy_gives_up_within_its_budget() {
    limited(async {
        let rig = Plan::new("error:503,times=always", 14_400).start().await;
        for (policy, retries) in [("overnight", "21 retries"), ("gateway", "24 retries")] {
            gives_up_within_budget(&rig, policy, retries).await;
        }
    })
    .await;
}

async fn gives_up_within_budget(rig: &Rig, policy: &str, retries: &str) {
    let ask = TestRequest::new(Dialect::Anthropic, true).with("x-outlast-policy", policy);
    let answer = rig.ask(&ask).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let why = answer.header("x-outlast-gave-up").unwrap();
    assert!(why.contains(retries) || why.contains("8h"), "{why}");
    let waited = answer.header("x-outlast-waited-ms").unwrap();
    let hours = waited.parse::<f64>().unwrap() / 3_600_000.0;
    // By a clock that runs so fast, the attempts take their time as well.
    assert!((4.0..=9.0).contains(&hours), "{hours}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_has_attempts_wait_and_request_id() {
    limited(async {
        let upstream = Upstream::start(|_| {
            let bytes = response("200 OK", "x-outlast-attempts: 99\r\n", "{}");
            ScriptedResponse::at_once(bytes, Then::Next)
        });
        let upstream = upstream.await;
        let rig = Plan::before(upstream.address, 1).start().await;
        let mut ids = Vec::new();
        for _ in 0..2 {
            let answer = rig.ask(&TestRequest::plain("GET", "/v1/models")).await;
            let said = |name: &str| {
                let all = answer.headers.iter().filter(|(known, _)| known == name);
                let all = all.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                all.collect::<Vec<String>>()
            };
            assert_eq!(said("x-outlast-attempts"), ["1"]);
            assert_eq!(said("x-outlast-waited-ms"), ["0"]);
            assert!(said("x-outlast-account").is_empty());
            ids.extend(said("x-outlast-request-id"));
        }
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
    })
    .await;
}
