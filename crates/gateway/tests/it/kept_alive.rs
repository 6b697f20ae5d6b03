//! Tests of the keep-alives that each client receives on the wire while it waits.

use super::rig::{NO_TIMEOUTS, Plan, Rig, limited};
use super::upstream::{EVENTS, ScriptedResponse, Then, Upstream};
use super::wire::{TestRequest, TestResponse};
use super::{RECORDED, frames};
use futures_util::future::join_all;
use outlast_dialect::Dialect;
use outlast_engine::provider::Timeouts;
use serde_json::Value;
use std::time::Duration;

const SCALE: u32 = 400;

const CLAUDE_CODE: &str = "claude-cli/2.1.325 (external, sdk-cli)";
const CODEX: &str = "codex_exec/0.166.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.166.0)";
const OPENAI_PYTHON: &str = "OpenAI/Python 3.49.0";
const OPENCODE: &str = "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14";
const UNKNOWN: &str = "my-own-agent/1.0";

/// Returns the keep-alive frame that clients know in that dialect.
fn beat(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        Dialect::OpenaiChat => ": outlast\n",
        Dialect::OpenaiResponses => "event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
    }
}

/// Removes the keep-alive frames from a stream, and returns their number. Each is between two frames.
fn without_beats(dialect: Dialect, stream: &str) -> (String, usize) {
    let beat = beat(dialect);
    let mut rest = stream;
    let (mut kept, mut beats) = (String::new(), 0);
    while let Some(place) = rest.find(beat) {
        kept.push_str(&rest[..place]);
        let is_between = kept.is_empty() || kept.ends_with("\n\n");
        assert!(is_between, "a frame was split: {kept}");
        rest = &rest[place + beat.len()..];
        beats += 1;
    }
    kept.push_str(rest);
    (kept, beats)
}

/// Returns the response that a client gets to a request in an outage of ten minutes, and the provider's response after
/// it.
async fn in_an_outage(agent: &str, dialect: Dialect, streamed: bool) -> (TestResponse, String) {
    let rig = Plan::new("outage:600", SCALE).start().await;
    let ask = TestRequest::new(dialect, streamed).with_user_agent(agent);
    let direct = rig.ask_provider(&ask, "ok").await.text();
    let answer = rig.ask(&ask).await;
    assert_eq!(answer.status, 200, "{agent}: {answer:?}");
    assert!(answer.is_whole, "{agent}: {answer:?}");
    (answer, direct)
}

fn attempts(answer: &TestResponse) -> u32 {
    let attempts = answer.header("x-outlast-attempts").unwrap();
    attempts.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_headers_are_followed_by_dialect_heartbeats() {
    limited(async {
        let table = [
            (CLAUDE_CODE, Dialect::Anthropic),
            (OPENCODE, Dialect::Anthropic),
            (OPENCODE, Dialect::OpenaiChat),
            (OPENCODE, Dialect::OpenaiResponses),
            (UNKNOWN, Dialect::Anthropic),
            (UNKNOWN, Dialect::OpenaiChat),
            (UNKNOWN, Dialect::OpenaiResponses),
        ];
        let asking = table.map(|(agent, dialect)| in_an_outage(agent, dialect, true));
        let answers = join_all(asking).await;
        for ((agent, dialect), (answer, direct)) in table.into_iter().zip(answers) {
            let (body, beats) = without_beats(dialect, &answer.text());
            assert_eq!(body, direct, "{agent} {dialect:?}");
            assert!(beats >= 2, "{agent} {dialect:?}: {answer:?}");
            assert!(answer.text().starts_with(beat(dialect)), "{answer:?}");
            let kind = answer.header("content-type").unwrap();
            assert!(kind.starts_with("text/event-stream"), "{answer:?}");
            assert_eq!(answer.interims, 0, "{agent} {dialect:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_gets_no_keepalive_while_waiting() {
    limited(async {
        let dialect = Dialect::OpenaiResponses;
        let asking = [true, false].map(|streamed| in_an_outage(CODEX, dialect, streamed));
        for (answer, direct) in join_all(asking).await {
            assert_eq!(answer.interims, 0, "{answer:?}");
            assert!(attempts(&answer) > 2, "the headers came with the answer");
            assert!(direct.starts_with(&answer.text()[..60]), "{answer:?}");
            let (body, _) = without_beats(dialect, &answer.text());
            assert_eq!(body, direct);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_python_gets_interim_responses_and_real_status() {
    limited(async {
        let table = [
            (Dialect::OpenaiChat, true),
            (Dialect::OpenaiChat, false),
            (Dialect::OpenaiResponses, true),
        ];
        let asking =
            table.map(|(dialect, streamed)| in_an_outage(OPENAI_PYTHON, dialect, streamed));
        let answers = join_all(asking).await;
        for ((dialect, _), (answer, direct)) in table.into_iter().zip(answers) {
            assert!((2..=20).contains(&answer.interims), "{answer:?}");
            let interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
            assert!(answer.raw.starts_with(interim), "{answer:?}");
            assert!(attempts(&answer) > 2, "the headers came with the answer");
            let (body, _) = without_beats(dialect, &answer.text());
            assert_eq!(body, direct);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_response_starts_with_keepalive_newlines() {
    limited(async {
        let table = [
            (UNKNOWN, Dialect::Anthropic),
            (UNKNOWN, Dialect::OpenaiChat),
            (OPENCODE, Dialect::OpenaiChat),
            (OPENCODE, Dialect::OpenaiResponses),
        ];
        let asking = table.map(|(agent, dialect)| in_an_outage(agent, dialect, false));
        let answers = join_all(asking).await;
        for ((agent, _), (answer, direct)) in table.into_iter().zip(answers) {
            let text = answer.text();
            assert!(text.starts_with("\n\n"), "{agent}: {answer:?}");
            assert_eq!(text.trim_start(), direct, "{agent}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let direct: Value = serde_json::from_str(&direct).unwrap();
            assert_eq!(answer.json(), direct);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quick_recovery_keeps_provider_headers() {
    limited(async {
        for agent in [CLAUDE_CODE, OPENCODE, UNKNOWN] {
            // Three seconds, by a clock that is slow enough for a busy machine.
            let rig = Plan::new("error:529", 4).start().await;
            let answer = rig
                .ask(&TestRequest::new(Dialect::Anthropic, true).with_user_agent(agent))
                .await;
            assert_eq!(attempts(&answer), 2, "{answer:?}");
            assert!(answer.header("request-id").is_some(), "{answer:?}");
            let (_, beats) = without_beats(Dialect::Anthropic, &answer.text());
            assert_eq!(beats, 0, "{answer:?}");
        }
    })
    .await;
}

// --- within a response ---

/// Returns a stream that falls silent again and again, mostly amid a frame.
fn halting(stream: &str) -> ScriptedResponse {
    let mut say = ScriptedResponse::at_once(EVENTS, Then::Close);
    let pause = Duration::from_millis(250);
    for (number, piece) in stream.as_bytes().chunks(stream.len() / 7).enumerate() {
        let wait = if number == 0 { Duration::ZERO } else { pause };
        say.pieces.push((wait, piece.to_vec()));
    }
    say
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_never_splits_a_frame() {
    limited(async {
        let asking = RECORDED.map(|(dialect, stream)| async move {
            let upstream = Upstream::start(move |_| halting(stream)).await;
            let rig = Plan::before(upstream.address, SCALE).start().await;
            let ask = TestRequest::new(dialect, true).with_user_agent(UNKNOWN);
            let answer = rig.ask(&ask).await;
            let (body, beats) = without_beats(dialect, &answer.text());
            // The recorded stream contains keep-alives of its own.
            let (quiet, own) = without_beats(dialect, stream);
            assert_eq!(body, quiet, "{dialect:?}");
            assert!(beats > own + 3, "{dialect:?}: {beats}");
            assert!(answer.is_whole);
        });
        join_all(asking).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_never_splits_an_oversized_frame() {
    limited(async {
        let dialect = Dialect::OpenaiChat;
        let delta = |text: &str| {
            format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
        };
        let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let long = delta(&"long ".repeat(60_000));
        let stream = [delta("short").as_str(), &long, end].concat();
        let said = stream.clone();
        let upstream = Upstream::start(move |_| halting(&stream)).await;
        let rig = Plan::before(upstream.address, SCALE).start().await;
        let ask = TestRequest::new(dialect, true).with_user_agent(UNKNOWN);
        let answer = rig.ask(&ask).await;
        assert!(without_beats(dialect, &answer.text()).0 == said);
    })
    .await;
}

// --- failures after the headers ---

/// Starts a provider that stalls once, and then refuses.
async fn late_refusal() -> Rig {
    let mut plan = Plan::new("stall:0+error:503,times=always", 150);
    plan.timeouts = Timeouts {
        first_event: Duration::from_secs(300),
        idle: Duration::from_secs(300),
        ..NO_TIMEOUTS
    };
    plan.start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_after_early_headers_is_sent_in_stream() {
    limited(async {
        for (agent, dialect) in [
            (CLAUDE_CODE, Dialect::Anthropic),
            (OPENCODE, Dialect::OpenaiChat),
            (UNKNOWN, Dialect::OpenaiResponses),
        ] {
            let rig = late_refusal().await;
            let ask = TestRequest::new(dialect, true).with_user_agent(agent);
            let ask = ask.with("x-outlast-policy", "patient");
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(answer.is_whole, "{answer:?}");
            let (body, beats) = without_beats(dialect, &answer.text());
            assert!(beats > 0, "{answer:?}");
            // The real cause, and nothing of the response that stalled.
            assert!(body.contains("answers with status 503"), "{answer:?}");
            assert!(body.contains("2 retries"), "{answer:?}");
            let (count, name) = match dialect {
                Dialect::Anthropic => (1, "event: error\n"),
                Dialect::OpenaiChat => (1, "data: {\"error\":"),
                Dialect::OpenaiResponses => (2, "event: error\n"),
            };
            assert_eq!(frames(&body).len(), count, "{answer:?}");
            assert!(body.starts_with(name), "{answer:?}");
            assert!(rig.provider_requests().await.len() >= 3);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_after_early_newlines_is_the_json_body() {
    limited(async {
        for (agent, dialect) in [
            (UNKNOWN, Dialect::Anthropic),
            (OPENCODE, Dialect::OpenaiChat),
        ] {
            let rig = late_refusal().await;
            let ask = TestRequest::new(dialect, false).with_user_agent(agent);
            let ask = ask.with("x-outlast-policy", "patient");
            let answer = rig.ask(&ask).await;
            assert!(answer.is_whole && answer.status == 200, "{answer:?}");
            assert!(answer.text().starts_with('\n'), "{answer:?}");
            let message = answer.json()["error"]["message"].to_string();
            assert!(message.contains("answers with status 503"), "{answer:?}");
        }
    })
    .await;
}

// --- holds that have to end ---

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_ends_retryably_before_client_timeout() {
    limited(async {
        // Twenty-eight heartbeats are used up after 4,880 s: no end that looks whole.
        let rig = Plan::new("outage:90000", 6_000).start().await;
        let ask = TestRequest::new(Dialect::Anthropic, true).with_user_agent(CLAUDE_CODE);
        let answer = rig.ask(&ask).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.is_whole, "{answer:?}");
        let (body, beats) = without_beats(Dialect::Anthropic, &answer.text());
        assert_eq!(body, "");
        assert!((10..=28).contains(&beats), "{beats}");
        // Without streaming it waits for 300 s, and obeys at most 60.
        let ask = TestRequest::new(Dialect::Anthropic, false).with_user_agent(CLAUDE_CODE);
        let answer = rig.ask(&ask).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("x-should-retry"), Some("true"), "{answer:?}");
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{answer:?}");
        assert_eq!(answer.json()["type"], "error", "{answer:?}");
    })
    .await;
}
