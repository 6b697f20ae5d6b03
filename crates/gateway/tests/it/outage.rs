//! Tests of many requests in one outage: one attempt at a time, each request in its turn, and afterwards all in that
//! order.

use super::rig::{Plan, Rig, limited};
use super::upstream::{ReceivedRequest, ScriptedResponse, Then, Upstream, response};
use super::wire::{Client, TestRequest};
use futures_util::future::join_all;
use outlast_dialect::Dialect;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const MANY: usize = 50;
const SCALE: u32 = 20;
const ANSWER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;

/// Starts a provider that is down until it is switched on. It responds slowly, so that two requests at once would be
/// seen.
async fn down() -> (Upstream, Arc<AtomicBool>) {
    let is_up = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_up);
    let upstream = Upstream::start(move |_| match told.load(Ordering::Acquire) {
        true => ScriptedResponse::at_once(response("200 OK", "", ANSWER), Then::Next),
        false => {
            let down = response("503 Service Unavailable", "", "{}");
            ScriptedResponse::at_once(down, Then::Next).after(Duration::from_millis(30))
        }
    });
    (upstream.await, is_up)
}

fn ask(number: usize) -> TestRequest {
    TestRequest::new(Dialect::OpenaiChat, false).member("number", number)
}

fn number(seen: &ReceivedRequest) -> usize {
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    usize::try_from(body["number"].as_u64().unwrap()).unwrap()
}

impl Rig {
    /// Returns what the gateway says of its only failing gate.
    pub(super) async fn gate_state(&self) -> String {
        let status = self.ask(&self.own("GET", "/_outlast/status")).await.json();
        let gates = status["gates"].as_array().unwrap();
        assert_eq!(gates.len(), 1, "{gates:?}");
        gates[0]["state"].as_str().unwrap().to_owned()
    }
}

/// Starts that many clients, one after the other, each of which waits.
async fn all_waiting(rig: &Rig) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..MANY {
        clients.push(Client::asking(rig.gateway, &ask(number)).await);
        rig.until_held(number + 1).await;
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_requests_probe_one_at_a_time_then_run_in_order() {
    limited(async {
        let (upstream, is_up) = down().await;
        let rig = Plan::before(upstream.address, SCALE).start().await;
        let clients = all_waiting(&rig).await;
        let state = rig.gate_state().await;
        assert!(state.starts_with("down for "), "{state}");
        // One of them may be probing.
        let all = ["; 50 wait", "; 49 wait"];
        assert!(all.iter().any(|all| state.ends_with(all)), "{state}");
        // The outage goes on for a few probes more.
        upstream.reset_max_in_flight();
        let probes = upstream.counts().requests + 4;
        let counts = upstream.until(|counts| counts.requests == probes).await;
        assert_eq!(counts.max_in_flight, 1, "one at a time");
        is_up.store(true, Ordering::Release);
        let answers = join_all(clients.into_iter().map(Client::answer)).await;
        for answer in &answers {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        let asked: Vec<usize> = upstream.seen().iter().map(number).collect();
        let (_, after) = asked.split_at(asked.len() - MANY);
        let mut each = after.to_vec();
        each.sort_unstable();
        assert_eq!(
            each,
            (0..MANY).collect::<Vec<_>>(),
            "each is asked once: {asked:?}"
        );
        // The first was the probe. Requests that start at nearly the same time may overtake each other on their way.
        let is_near = |(place, number): (usize, &usize)| place.abs_diff(*number) <= 5;
        assert!(after.iter().enumerate().skip(1).all(is_near), "{asked:?}");
        let waited: u64 = answers[0]
            .header("x-outlast-waited-ms")
            .unwrap()
            .parse()
            .unwrap();
        assert!(waited > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_does_not_block_other_model_or_key() {
    limited(async {
        let upstream = Upstream::start(|seen: &ReceivedRequest| {
            let is_ours = seen.holds("m-000") && seen.holds("planted-client-key");
            match is_ours {
                true => ScriptedResponse::at_once(
                    response("503 Service Unavailable", "", "{}"),
                    Then::Next,
                ),
                false => ScriptedResponse::at_once(response("200 OK", "", ANSWER), Then::Next),
            }
        });
        let upstream = upstream.await;
        let rig = Plan::before(upstream.address, 1).start().await;
        let _waiting = Client::asking(rig.gateway, &ask(0)).await;
        rig.until_held(1).await;
        for other in [
            ask(1).model("another"),
            ask(1).with_only("x-api-key", "planted-key-of-somebody-else"),
        ] {
            let answer = rig.ask(&other).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(
                answer.header("x-outlast-waited-ms"),
                Some("0"),
                "{answer:?}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_requests_fail_when_stated_reset_exceeds_budget() {
    limited(async {
        // First it is down, then it states for how long: half a day, and a night is eight hours.
        let asked = AtomicUsize::new(0);
        let upstream = Upstream::start(move |_| {
            let answer = match asked.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => response("503 Service Unavailable", "", "{}"),
                _ => response("429 Too Many Requests", "retry-after: 43200\r\n", "{}"),
            };
            ScriptedResponse::at_once(answer, Then::Next)
        })
        .await;
        let rig = Plan::before(upstream.address, 200).start().await;
        let mut clients = Vec::new();
        for number in 0..3 {
            clients.push(Client::asking(rig.gateway, &ask(number)).await);
        }
        for answer in join_all(clients.into_iter().map(Client::answer)).await {
            assert!([429, 503].contains(&answer.status), "{answer:?}");
            assert_eq!(answer.header("x-should-retry"), Some("false"), "{answer:?}");
            let waited = answer.header("x-outlast-waited-ms").unwrap();
            let waited = Duration::from_millis(waited.parse().unwrap());
            assert!(waited < Duration::from_secs(3600), "{answer:?}");
        }
        assert!(upstream.counts().requests <= 6, "{:?}", upstream.counts());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn success_clears_stated_reset_time() {
    limited(async {
        let asked = AtomicUsize::new(0);
        let upstream = Upstream::start(move |_| {
            let answer = match asked.fetch_add(1, Ordering::Relaxed) {
                0 => response("429 Too Many Requests", "retry-after: 43200\r\n", "{}"),
                2 => response("503 Service Unavailable", "", "{}"),
                _ => response("200 OK", "", ANSWER),
            };
            ScriptedResponse::at_once(answer, Then::Next)
        })
        .await;
        let rig = Plan::before(upstream.address, 200).start().await;
        let mut answers = Vec::new();
        for number in 0..3 {
            let client = Client::asking(rig.gateway, &ask(number)).await;
            answers.push(client.answer().await);
        }
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [429, 200, 200], "{answers:?}");
        assert_eq!(answers[2].header("x-outlast-attempts"), Some("2"));
    })
    .await;
}
