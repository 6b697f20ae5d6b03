//! Tests of clients that disconnect: the upstream request is cancelled, and the progress is resumed when they come
//! back.

use super::rig::{Plan, Rig, limited};
use super::upstream::{EVENTS, ScriptedResponse, Then, Upstream, response};
use super::wire::{Client, TestRequest};
use super::{RECORDED, frames};
use outlast_dialect::Dialect;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SCALE: u32 = 20;

/// Asserts that the upstream request is cancelled if the client of this request leaves when that much of the response
/// has come. No time passes meanwhile: no timer of the gateway has a part in it.
async fn client_and_gateway_leave(ask: &TestRequest, answered: &[Vec<u8>], seen: &[u8]) {
    let say = ScriptedResponse::in_pieces(answered.to_vec(), Then::Silence);
    let upstream = Upstream::start(move |_| say.clone()).await;
    let rig = Plan::before(upstream.address, 1).start().await;
    rig.clock.pause();
    let mut client = Client::asking(rig.gateway, ask).await;
    upstream.until(|counts| counts.requests == 1).await;
    if !seen.is_empty() {
        client.until(seen).await;
    }
    assert_eq!(upstream.counts().disconnected, 0);
    drop(client);
    upstream.until(|counts| counts.disconnected == 1).await;
    assert_eq!(upstream.counts().requests, 1, "nothing more is asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_before_headers_cancels_upstream() {
    limited(async {
        for streamed in [true, false] {
            let ask = TestRequest::new(Dialect::Anthropic, streamed);
            client_and_gateway_leave(&ask, &[], b"").await;
        }
        client_and_gateway_leave(&TestRequest::plain("GET", "/v1/models"), &[], b"").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_mid_response_cancels_upstream() {
    limited(async {
        for (dialect, stream) in RECORDED {
            let begun = stream.as_bytes()[..stream.len() / 2].to_vec();
            let seen = frames(stream)[1].as_bytes();
            let pieces = [EVENTS.into(), begun];
            client_and_gateway_leave(&TestRequest::new(dialect, true), &pieces, seen).await;
        }
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun".to_vec();
        client_and_gateway_leave(&TestRequest::plain("GET", "/v1/files/1"), &[head], b"begun")
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_during_wait_is_noticed_at_once() {
    limited(async {
        let bytes = response("503 Odd", "retry-after: 3600\r\n", "{}");
        let upstream =
            Upstream::start(move |_| ScriptedResponse::at_once(bytes.clone(), Then::Next)).await;
        let rig = Plan::before(upstream.address, 1).start().await;
        rig.clock.pause();
        for number in 0..5 {
            // Each at a gate of its own.
            let ask = TestRequest::new(Dialect::Anthropic, true).model(&format!("m-{number}"));
            let client = Client::asking(rig.gateway, &ask).await;
            rig.until_held(1).await;
            drop(client);
            rig.until_held(0).await;
        }
        assert_eq!(upstream.counts().requests, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_applies_backpressure_upstream() {
    limited(async {
        let text = "x".repeat(2000);
        let frame = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
        );
        let many = frame.repeat(20_000).into_bytes();
        let total = many.len();
        let upstream = Upstream::start(move |_| {
            ScriptedResponse::in_pieces(vec![EVENTS.into(), many.clone()], Then::Silence)
        });
        let upstream = upstream.await;
        let rig = Plan::before(upstream.address, 1).start().await;
        let ask = TestRequest::new(Dialect::Anthropic, true);
        let mut client = Client::asking(rig.gateway, &ask).await;
        client.until(b"xxxx").await;
        // The number of sent bytes stays the same once all buffers in between are full.
        let mut taken = 0;
        while taken != upstream.counts().taken || taken == 0 {
            taken = upstream.counts().taken;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert!(taken < total / 2, "{taken} of {total}");
        rig.clock.pause();
        drop(client);
        upstream.until(|counts| counts.disconnected == 1).await;
    })
    .await;
}

// --- resume ---

const MESSAGE: &str = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}"#;

/// Starts a provider that refuses the first request, a gateway before it, and a client that has left its wait. Time
/// passes from then on.
async fn left(ask: &TestRequest, keeps: bool) -> Rig {
    let mut plan = Plan::new("error:503", SCALE);
    plan.is_persistent = keeps;
    let rig = plan.start().await;
    rig.clock.pause();
    let client = Client::asking(rig.gateway, ask).await;
    rig.until_held(1).await;
    drop(client);
    rig.until_held(0).await;
    assert_eq!(rig.held().await.len(), 1, "it is remembered");
    rig.clock.resume();
    rig
}

/// Returns the number of attempts after which that request is answered, and the number of requests to the provider in
/// all.
async fn answered(rig: &Rig, ask: &TestRequest) -> (u32, usize) {
    let answer = rig.ask(ask).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let attempts = answer.header("x-outlast-attempts").unwrap();
    (
        attempts.parse().unwrap(),
        rig.provider_requests().await.len(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identical_resend_resumes_spent_attempts() {
    limited(async {
        for (dialect, streamed) in Dialect::ALL
            .into_iter()
            .flat_map(|dialect| [(dialect, true), (dialect, false)])
        {
            let ask = TestRequest::new(dialect, streamed).with("x-stainless-retry-count", "0");
            let rig = left(&ask, false).await;
            let again = ask.with_only("x-stainless-retry-count", "1");
            assert_eq!(answered(&rig, &again).await, (2, 2), "{dialect:?}");
            assert!(rig.held().await.is_empty());
            // It was answered: the same body is another request now.
            assert_eq!(answered(&rig, &again).await, (1, 3), "{dialect:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_abandoned_in_flight_still_counts() {
    limited(async {
        let asked = AtomicUsize::new(0);
        let upstream = Upstream::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => ScriptedResponse::at_once(response("503 Odd", "", "{}"), Then::Next),
            1 => ScriptedResponse::in_pieces(Vec::new(), Then::Silence),
            _ => ScriptedResponse::at_once(response("418 Odd", "", "{}"), Then::Next),
        });
        let upstream = upstream.await;
        let rig = Plan::before(upstream.address, SCALE).start().await;
        let ask = TestRequest::new(Dialect::Anthropic, true);
        let client = Client::asking(rig.gateway, &ask).await;
        upstream.until(|counts| counts.requests == 2).await;
        drop(client);
        upstream.until(|counts| counts.disconnected == 1).await;
        rig.until_held(0).await;
        let answer = rig.ask(&ask).await;
        assert_eq!(answer.status, 418, "{answer:?}");
        assert_eq!(answer.header("x-outlast-attempts"), Some("3"), "{answer:?}");
        assert_eq!(upstream.counts().requests, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_request_does_not_resume_hold() {
    limited(async {
        let ask =
            TestRequest::new(Dialect::Anthropic, true).with("x-claude-code-session-id", "one");
        let others = [
            ask.clone().member("max_tokens", 101),
            ask.clone()
                .with_only("x-api-key", "planted-key-of-somebody-else"),
            ask.clone().with_only("x-claude-code-session-id", "two"),
            ask.clone().with_user_agent("another-agent/1.0"),
            TestRequest {
                target: "/v1/messages?beta=true".to_owned(),
                ..ask.clone()
            },
        ];
        for other in others {
            let rig = left(&ask, false).await;
            assert_eq!(answered(&rig, &other).await, (1, 2), "{other:?}");
            assert_eq!(rig.held().await.len(), 1, "it is still there");
            assert_eq!(answered(&rig, &ask).await, (2, 3));
        }
    })
    .await;
}

/// Codex writes this member in another order each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_metadata_order_does_not_prevent_resume() {
    limited(async {
        let body = |metadata: &str| {
            let body = format!(
                r#"{{"model":"m-000","stream":true,"input":"Say hello","client_metadata":{metadata}}}"#
            );
            TestRequest::with_body("/v1/responses", body)
        };
        let rig = left(&body(r#"{"a":"1","b":"2"}"#), false).await;
        let again = body(r#"{"b":"2","a":"1"}"#);
        assert_eq!(answered(&rig, &again).await, (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_identical_requests_are_separate() {
    limited(async {
        let rig = Plan::new("error:503+error:503", SCALE).start().await;
        rig.clock.pause();
        let ask = TestRequest::new(Dialect::OpenaiChat, true);
        let first = Client::asking(rig.gateway, &ask).await;
        rig.until_held(1).await;
        let second = Client::asking(rig.gateway, &ask).await;
        rig.until_held(2).await;
        rig.clock.resume();
        let (first, second) = tokio::join!(first.answer(), second.answer());
        let attempts = [first, second].map(|answer| {
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.header("x-outlast-attempts").unwrap().to_owned()
        });
        assert_eq!(attempts, ["2", "2"]);
        assert_eq!(rig.provider_requests().await.len(), 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_sent_for_disconnected_client() {
    limited(async {
        let ask = TestRequest::new(Dialect::Anthropic, true);
        let rig = left(&ask, false).await;
        // It waits at the same gate, so that when it is let through the other's turn is over.
        let other = ask.clone().member("max_tokens", 101);
        assert_eq!(answered(&rig, &other).await, (1, 2));
        let asked = rig.provider_requests().await;
        let sizes = asked
            .iter()
            .map(|asked| asked["body"]["max_tokens"].clone());
        assert_eq!(sizes.collect::<Vec<_>>(), [json!(100), json!(101)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_stop_lets_clients_resume_at_next_gateway() {
    limited(async {
        for keeps_its_client in [true, false] {
            let ask = TestRequest::new(Dialect::OpenaiResponses, true);
            let mut plan = Plan::new("error:503", SCALE);
            plan.is_persistent = true;
            let mut rig = plan.start().await;
            rig.clock.pause();
            let client = Client::asking(rig.gateway, &ask).await;
            rig.until_held(1).await;
            let told = match keeps_its_client {
                true => Some(tokio::spawn(client.answer())),
                false => None,
            };
            rig.restart().await;
            rig.clock.resume();
            if let Some(told) = told {
                let told = told.await.unwrap();
                assert_eq!(told.status, 429, "{told:?}");
                assert_eq!(told.header("x-should-retry"), Some("true"), "{told:?}");
                assert!(told.header("retry-after").is_some(), "{told:?}");
            }
            assert_eq!(answered(&rig, &ask).await, (2, 2));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_attempts_survive_gateway_crash() {
    limited(async {
        // The client is still there when it happens, and when it has left before.
        for leaves in [true, false] {
            let ask = TestRequest::new(Dialect::Anthropic, true);
            let mut plan = Plan::new("error:503", SCALE);
            plan.is_persistent = true;
            let mut rig = plan.start().await;
            rig.clock.pause();
            let client = Client::asking(rig.gateway, &ask).await;
            rig.until_held(1).await;
            let client = Some(client).filter(|_| !leaves);
            // The hold is written soon, and nobody waits for the write.
            let next = loop {
                let next = rig.as_after_a_crash().await;
                if next.held().await.len() == 1 {
                    break next;
                }
            };
            // It must not send attempts as well when time passes again.
            rig.stop_gateway().await;
            drop(client);
            next.clock.resume();
            assert_eq!(answered(&next, &ask).await, (2, 2));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_hold_resumes_when_client_retries() {
    limited(async {
        let is_up = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_up);
        let upstream = Upstream::start(move |_| {
            let answer = match told.load(Ordering::Acquire) {
                true => response("200 OK", "", MESSAGE),
                false => response("503 Odd", "", "{}"),
            };
            ScriptedResponse::at_once(answer, Then::Next)
        })
        .await;
        // A document is waited for 285 s at a time.
        let rig = Plan::before(upstream.address, 600).start().await;
        let ask = TestRequest::new(Dialect::Anthropic, false)
            .with_user_agent("claude-cli/2.1.325 (external, cli)");
        let mut attempts = Vec::new();
        loop {
            let answer = rig.ask(&ask).await;
            let said: u32 = answer
                .header("x-outlast-attempts")
                .unwrap()
                .parse()
                .unwrap();
            attempts.push(said);
            if answer.status == 200 {
                break;
            }
            assert_eq!(answer.status, 503, "{answer:?}");
            is_up.store(attempts.len() >= 3, Ordering::Release);
        }
        assert!(attempts.len() > 2, "{attempts:?}");
        assert!(attempts.is_sorted(), "{attempts:?}");
        // An attempt that is in progress when a hold ends may not have reached the provider.
        let asked = u32::try_from(upstream.counts().requests).unwrap();
        let holds = u32::try_from(attempts.len()).unwrap();
        let last = attempts[attempts.len() - 1];
        assert!(
            (asked..=asked + holds).contains(&last),
            "{asked} {attempts:?}"
        );
    })
    .await;
}
