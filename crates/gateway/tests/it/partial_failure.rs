//! Tests of partial failure: a failure concerns its own request until nothing works.

use super::rig::{Plan, Rig, limited};
use super::upstream::{EVENTS, ReceivedRequest, ScriptedResponse, Then, Upstream, response};
use super::wire::{Client, TestRequest, TestResponse};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SCALE: u32 = 20;
const ANSWER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
const KEY: &str = "planted-first-key-0123456789";

fn ask() -> TestRequest {
    TestRequest::new(Dialect::OpenaiChat, false)
}

/// Returns a request that the provider of these tests may fail.
fn marked() -> TestRequest {
    ask().member("user", "marked")
}

fn answered() -> ScriptedResponse {
    ScriptedResponse::at_once(response("200 OK", "", ANSWER), Then::Next)
}

/// Starts a provider that gives marked requests the response of `fail`, if there is one, and answers all others.
async fn provider(fail: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static) -> (Upstream, Rig) {
    let upstream = Upstream::start(move |seen: &ReceivedRequest| {
        let failed = seen.holds("marked").then(&fail).flatten();
        failed.map_or_else(answered, |bytes| {
            ScriptedResponse::at_once(bytes, Then::Next)
        })
    });
    let upstream = upstream.await;
    let rig = Plan::before(upstream.address, SCALE).start().await;
    (upstream, rig)
}

fn unavailable() -> Vec<u8> {
    response("503 Service Unavailable", "", "{}")
}

fn marked_requests(upstream: &Upstream) -> usize {
    let seen = upstream.seen();
    seen.iter().filter(|seen| seen.holds("marked")).count()
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// Returns the requests of the timeline.
async fn timeline(rig: &Rig) -> Vec<Value> {
    let path = format!("/_outlast/api/gateways/{}/traffic", rig.gateway.port());
    let traffic = rig.ask(&rig.own("GET", &path)).await.json();
    traffic["requests"].as_array().unwrap().clone()
}

/// Returns the waits after the failed attempts of a request, as they were announced.
fn waits(request: &Value) -> Vec<Duration> {
    let attempts = request["attempts"].as_array().unwrap().iter();
    let failed = attempts.filter(|attempt| !attempt["failed_at"].is_null());
    failed
        .map(|attempt| time(&attempt["wake"]).since(time(&attempt["failed_at"])))
        .collect()
}

/// Asserts that a request was answered at its first attempt, without a wait.
fn assert_not_delayed(answer: &TestResponse) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-outlast-attempts"), Some("1"), "{answer:?}");
    assert_eq!(
        answer.header("x-outlast-waited-ms"),
        Some("0"),
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_request_is_retried_by_gateway_policy() {
    limited(async {
        let failures = AtomicUsize::new(0);
        let fail = move || (failures.fetch_add(1, Ordering::Relaxed) < 5).then(unavailable);
        let (upstream, rig) = provider(fail).await;
        let answer = rig.ask(&marked()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(upstream.counts().requests, 6);
        let shown = timeline(&rig).await;
        let waits = waits(&shown[0]);
        let steps = [500, 1000, 2000, 5000, 10_000].map(Duration::from_millis);
        assert_eq!(waits.len(), steps.len(), "{waits:?}");
        for (wait, step) in waits.iter().zip(steps) {
            // Quick retries are spread by a quarter, later ones are not.
            let least = match step <= Duration::from_secs(2) {
                true => step * 3 / 4 - Duration::from_millis(1),
                false => step,
            };
            assert!(*wait >= least && *wait <= step, "{waits:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_always_fails_delays_no_other() {
    limited(async {
        let (upstream, rig) = provider(|| Some(unavailable())).await;
        let _poison = Client::asking(rig.gateway, &marked()).await;
        rig.until_held(1).await;
        while marked_requests(&upstream) < 8 {
            assert_not_delayed(&rig.ask(&ask()).await);
        }
        // While others succeed, it is retried quickly.
        let shown = timeline(&rig).await;
        let poison = shown.iter().find(|request| request["ended"].is_null());
        let mut waits = waits(poison.unwrap());
        waits.truncate(7);
        let is_quick = |wait: &Duration| *wait <= Duration::from_secs(8);
        assert!(waits.len() == 7 && waits.iter().all(is_quick), "{waits:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_with_retry_after_delays_only_refused_request() {
    limited(async {
        let is_first = AtomicBool::new(true);
        let refused = || response("429 Too Many Requests", "retry-after: 5\r\n", "{}");
        let fail = move || is_first.swap(false, Ordering::Relaxed).then(refused);
        let (_upstream, rig) = provider(fail).await;
        rig.clock.pause();
        let client = Client::asking(rig.gateway, &marked()).await;
        rig.until_held(1).await;
        for _ in 0..20 {
            assert_not_delayed(&rig.ask(&ask()).await);
        }
        let held = rig.held().await;
        let wait = time(&held[0]["wake"]).since(time(&held[0]["since"]));
        assert_eq!(wait, Duration::from_secs(5));
        rig.clock.resume();
        let answer = client.answer().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("x-outlast-attempts"), Some("2"), "{answer:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_limit_holds_everybody_on_the_account_until_its_reset() {
    limited(async {
        let is_first = AtomicBool::new(true);
        let upstream = Upstream::start(move |seen: &ReceivedRequest| {
            let body = r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":3600}}"#;
            let is_limited = seen.holds(KEY) && is_first.swap(false, Ordering::Relaxed);
            match is_limited {
                true => ScriptedResponse::at_once(
                    response("429 Too Many Requests", "", body),
                    Then::Next,
                ),
                false => answered(),
            }
        });
        let upstream = upstream.await;
        let mut plan = Plan::before(upstream.address, 4000);
        plan.accounts = vec![("first", KEY)];
        let rig = plan.start().await;
        rig.clock.pause();
        let mut clients = Vec::new();
        for number in 0..4 {
            clients.push(Client::asking(rig.gateway, &ask().member("number", number)).await);
            rig.until_held(number + 1).await;
        }
        assert_eq!(upstream.counts().requests, 1);
        let held = rig.held().await;
        let reset = time(&held[0]["since"]) + Duration::from_secs(3600);
        for request in &held {
            assert!(time(&request["wake"]) >= reset, "{request}");
        }
        let state = rig.gate_state().await;
        assert!(state.contains("stated reset in 1h"), "{state}");
        rig.clock.resume();
        for client in clients {
            assert_eq!(client.answer().await.status, 200);
        }
        assert_eq!(upstream.counts().requests, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_with_one_permit_holds_second_request_until_first_ends() {
    limited(async {
        let upstream = Upstream::start(|seen: &ReceivedRequest| match seen.holds("marked") {
            true => {
                let began = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
                ScriptedResponse::at_once(format!("{EVENTS}{began}"), Then::Silence)
            }
            false => answered(),
        });
        let upstream = upstream.await;
        let mut plan = Plan::before(upstream.address, SCALE);
        plan.accounts = vec![("first", KEY)];
        plan.max_in_flight = Some(1);
        let rig = plan.start().await;
        let streamed = TestRequest::new(Dialect::OpenaiChat, true);
        let mut first = Client::asking(rig.gateway, &streamed.member("user", "marked")).await;
        first.until(b"content").await;
        let second = Client::asking(rig.gateway, &ask()).await;
        rig.until_held(1).await;
        assert_eq!(upstream.counts().requests, 1);
        drop(first);
        let answer = second.answer().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("x-outlast-attempts"), Some("1"), "{answer:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_does_not_wait_for_a_provider_that_is_replaced() {
    limited(async {
        let refused = || response("429 Too Many Requests", "retry-after: 3600\r\n", "{}");
        let (limited, mut rig) = provider(move || Some(refused())).await;
        rig.clock.pause();
        let client = Client::asking(rig.gateway, &marked()).await;
        rig.until_held(1).await;
        let other = Upstream::start(|_| answered()).await;
        rig.change_provider(other.address);
        let answer = client.answer().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(limited.counts().requests, 1);
    })
    .await;
}
