//! Tests of stored accounts: the choice of the account, and that no key goes where it does not belong.

use super::rig::{Plan, Rig, limited};
use super::upstream::{ReceivedRequest, ScriptedResponse, Then, Upstream, response};
use super::wire::{CLIENT_KEY, TestRequest, TestResponse};
use outlast_dialect::Dialect;

const FIRST: &str = "planted-first-key-0123456789";
const SECOND: &str = "planted-second-key-0123456789";
const SCALE: u32 = 20;

/// Returns the response to a request with that account.
type Responder = fn(dialect: Dialect, key: &str) -> Vec<u8>;

fn well(dialect: Dialect, _: &str) -> Vec<u8> {
    let body = match dialect {
        Dialect::Anthropic => {
            r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}"#
        }
        Dialect::OpenaiChat => {
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#
        }
        Dialect::OpenaiResponses => {
            r#"{"object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]}"#
        }
    };
    response("200 OK", "", body)
}

/// Echoes the key in the error, as some providers do.
fn refused(_: Dialect, key: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"error":{{"type":"authentication_error","code":"invalid_api_key","message":"invalid key: {key}."}}}}"#
    );
    // Not every provider writes UTF-8.
    let body = [body.as_bytes(), b" caf\xe9 ", key.as_bytes()].concat();
    response("401 Unauthorized", &format!("x-seen: {key}\r\n"), body)
}

/// Reports that the window of the account's plan is used up for an hour.
fn used_up(dialect: Dialect, _: &str) -> Vec<u8> {
    let (headers, body) = match dialect {
        Dialect::Anthropic => (
            "retry-after: 3600\r\nanthropic-ratelimit-unified-status: rejected\r\n",
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit."}}"#,
        ),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => (
            "",
            r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":3600}}"#,
        ),
    };
    response("429 Too Many Requests", headers, body)
}

fn dialect_of(seen: &ReceivedRequest) -> Dialect {
    let line = seen.line();
    let found = Dialect::ALL
        .into_iter()
        .find(|dialect| line.contains(dialect.path()));
    found.unwrap_or(Dialect::OpenaiChat)
}

/// Starts a provider that knows both accounts, and a gateway that has their keys.
async fn rig(first: Responder, second: Responder) -> (Upstream, Rig) {
    let upstream = Upstream::start(move |seen: &ReceivedRequest| {
        let dialect = dialect_of(seen);
        let bytes = match (seen.holds(FIRST), seen.holds(SECOND)) {
            (true, false) => first(dialect, FIRST),
            (false, true) => second(dialect, SECOND),
            // The client uses a key of its own.
            _ => well(dialect, ""),
        };
        ScriptedResponse::at_once(bytes, Then::Next)
    });
    let upstream = upstream.await;
    let mut plan = Plan::before(upstream.address, SCALE);
    plan.accounts = vec![("first", FIRST), ("second", SECOND)];
    (upstream, plan.start().await)
}

/// Returns a request that has the client's key in every place where there may be one.
fn ask(dialect: Dialect) -> TestRequest {
    TestRequest::new(dialect, false)
        .with("authorization", format!("Bearer {CLIENT_KEY}"))
        .with("api-key", CLIENT_KEY)
        .with("x-goog-api-key", CLIENT_KEY)
}

fn check_secrets(upstream: &Upstream, answer: &TestResponse) {
    for seen in upstream.seen() {
        assert!(!seen.holds(CLIENT_KEY), "{}", seen.line());
    }
    for key in [FIRST, SECOND] {
        let found = memchr::memmem::find(&answer.raw, key.as_bytes());
        assert!(found.is_none(), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_account_is_used_when_first_is_refused_or_limited() {
    limited(async {
        for (dialect, first) in Dialect::ALL
            .into_iter()
            .flat_map(|dialect| [(dialect, refused as Responder), (dialect, used_up)])
        {
            let (upstream, rig) = rig(first, well).await;
            let answer = rig.ask(&ask(dialect)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(
                answer.header("x-outlast-account"),
                Some("second"),
                "{answer:?}"
            );
            assert_eq!(answer.header("x-outlast-attempts"), Some("2"), "{answer:?}");
            let waited: u64 = answer
                .header("x-outlast-waited-ms")
                .unwrap()
                .parse()
                .unwrap();
            assert!(
                waited < 3_600_000,
                "nobody waited for the first: {answer:?}"
            );
            check_secrets(&upstream, &answer);
            // From now on every request begins with the other account.
            let answer = rig.ask(&ask(dialect)).await;
            assert_eq!(answer.header("x-outlast-attempts"), Some("1"), "{answer:?}");
            assert_eq!(
                answer.header("x-outlast-account"),
                Some("second"),
                "{answer:?}"
            );
            assert_eq!(upstream.counts().requests, 3);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_echoed_by_provider_is_not_relayed() {
    limited(async {
        for dialect in Dialect::ALL {
            let (upstream, rig) = rig(refused, refused).await;
            let answer = rig.ask(&ask(dialect)).await;
            assert_eq!(answer.status, 401, "{answer:?}");
            assert!(answer.text().contains("invalid key"), "{answer:?}");
            assert!(answer.is_whole, "{answer:?}");
            assert_eq!(upstream.counts().requests, 2, "{answer:?}");
            check_secrets(&upstream, &answer);
            // Nor is it when the request is not retried at all.
            let answer = rig
                .ask(&ask(dialect).with("x-outlast-policy", "none"))
                .await;
            assert_eq!(answer.status, 401, "{answer:?}");
            check_secrets(&upstream, &answer);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_echoed_by_scripted_provider_is_hidden() {
    limited(async {
        for (dialect, streamed) in Dialect::ALL
            .into_iter()
            .flat_map(|dialect| [(dialect, true), (dialect, false)])
        {
            let mut plan = Plan::new("echo-key", SCALE);
            plan.accounts = vec![("first", FIRST), ("second", SECOND)];
            let rig = plan.clone().start().await;
            let ask = TestRequest::new(dialect, streamed);
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(
                answer.header("x-outlast-account"),
                Some("second"),
                "{answer:?}"
            );
            plan.script = "echo-key:times=always".to_owned();
            let rig = plan.start().await;
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.status, 401, "{answer:?}");
            for key in [FIRST, SECOND, CLIENT_KEY] {
                assert!(!answer.text().contains(key), "{answer:?}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_paths_forward_client_key_not_account_key() {
    limited(async {
        let (upstream, rig) = rig(refused, refused).await;
        for (method, target) in [
            ("GET", "/v1/models"),
            ("GET", "/v1/files/1"),
            ("DELETE", "/v1/responses/resp_1"),
        ] {
            let ask = TestRequest::plain(method, target);
            let ask = ask.with("authorization", format!("Bearer {CLIENT_KEY}"));
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.header("x-outlast-account"), None, "{answer:?}");
            let seen = upstream.seen();
            let seen = seen.last().unwrap();
            assert_eq!(
                seen.header("authorization"),
                Some(format!("Bearer {CLIENT_KEY}"))
            );
            assert!(!seen.holds(FIRST) && !seen.holds(SECOND));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_accounts_limited_waits_for_earliest_reset() {
    limited(async {
        let mut plan = Plan::new("usage-limit:reset=60+usage-limit:reset=1", 200);
        plan.accounts = vec![("first", FIRST), ("second", SECOND)];
        let rig = plan.start().await;
        let answer = rig.ask(&TestRequest::new(Dialect::Anthropic, true)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.header("x-outlast-account").is_some(), "{answer:?}");
        let waited: u64 = answer
            .header("x-outlast-waited-ms")
            .unwrap()
            .parse()
            .unwrap();
        assert!(waited > 30_000, "{answer:?}");
        let asked = rig.provider_requests().await.len().to_string();
        assert_eq!(answer.header("x-outlast-attempts"), Some(asked.as_str()));
    })
    .await;
}
