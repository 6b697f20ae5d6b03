//! Tests of the page of a gateway: access to the page, access to data, and the content of the timeline.

use super::rig::{Plan, Rig, limited};
use super::wire::{CLIENT_KEY, Client, TestRequest, TestResponse};
use outlast_dialect::Dialect;
use serde_json::{Value, json};

const API: &str = "/_outlast/api/";
const ABOUT: &str = "/_outlast/api/about";

/// Adds the headers by which a browser describes a request: the relation of the requesting page, the mode, and the
/// destination.
fn as_browser(ask: TestRequest, [site, mode, dest]: [&str; 3]) -> TestRequest {
    ask.with("sec-fetch-site", site)
        .with("sec-fetch-mode", mode)
        .with("sec-fetch-dest", dest)
}

const LINK: [&str; 3] = ["cross-site", "navigate", "document"];
const FRAME: [&str; 3] = ["cross-site", "navigate", "iframe"];
const SCRIPT: [&str; 3] = ["cross-site", "no-cors", "script"];
const FETCH: [&str; 3] = ["cross-site", "cors", "empty"];
const NEIGHBOUR: [&str; 3] = ["same-site", "cors", "empty"];
const OWN: [&str; 3] = ["same-origin", "cors", "empty"];

impl Rig {
    fn port(&self) -> u16 {
        self.gateway.port()
    }

    async fn traffic(&self, after: u64) -> Value {
        let path = format!("{API}gateways/{}/traffic?after={after}", self.port());
        self.ask(&self.own("GET", &path)).await.json()
    }

    /// Returns the gateway's response to a command of the page.
    async fn control(&self, what: &str, body: &Value) -> TestResponse {
        let mut ask = self.own("POST", &format!("{API}gateways/{}/{what}", self.port()));
        ask.body = body.to_string().into_bytes();
        let origin = format!("http://{}", self.gateway);
        self.ask(&as_browser(ask, OWN).with("origin", origin)).await
    }

    /// Returns the only request, once it meets the condition.
    async fn wait_for_request(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut seq = 0;
        loop {
            let changed = self.traffic(seq).await;
            seq = changed["seq"].as_u64().unwrap();
            let requests = changed["requests"].as_array().unwrap();
            assert!(requests.len() <= 1, "{requests:?}");
            if let Some(request) = requests.iter().find(|one| is_so(one)) {
                return request.clone();
            }
            tokio::task::yield_now().await;
        }
    }
}

fn code(answer: &TestResponse) -> (u16, String) {
    let form = answer.header("content-type");
    assert_eq!(form, Some("application/problem+json"), "{answer:?}");
    let code = answer.json()["code"].as_str().unwrap().to_owned();
    (answer.status, code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_opens_by_navigation_but_not_cross_site_fetch() {
    limited(async {
        let rig = Plan::new("ok", 1).start().await;
        let get = |path: &str| TestRequest::plain("GET", path);
        let page = rig.ask(&get("/_outlast/")).await;
        assert_eq!(page.status, 200);
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'"),
            "{policy}"
        );
        let head = rig.ask(&TestRequest::plain("HEAD", "/_outlast/")).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), page.header("content-length"));
        let etag = page.header("etag").unwrap();
        let again = rig
            .ask(&get("/_outlast/").with("if-none-match", etag))
            .await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        let moved = rig.ask(&get("/_outlast")).await;
        assert_eq!(
            (moved.status, moved.header("location")),
            (307, Some("/_outlast/"))
        );
        for path in ["/_outlast", "/_outlast/"] {
            let linked = rig.ask(&as_browser(get(path), LINK)).await;
            assert!(matches!(linked.status, 200 | 307), "{linked:?}");
            let elsewhere = as_browser(get(path), LINK).with("origin", "https://a.example");
            assert_eq!(rig.ask(&elsewhere).await.status, 403);
            for foreign in [FRAME, SCRIPT, FETCH, NEIGHBOUR] {
                let answer = rig.ask(&as_browser(get(path), foreign)).await;
                assert_eq!(answer.status, 403, "{foreign:?}");
            }
        }
        let script = get("/_outlast/main.js");
        assert_eq!(rig.ask(&as_browser(script.clone(), OWN)).await.status, 200);
        assert_eq!(rig.ask(&as_browser(script, LINK)).await.status, 403);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_api_needs_token_and_same_origin() {
    limited(async {
        let rig = Plan::new("ok", 1).start().await;
        let refused = |status: u16, code: &str| (status, code.to_owned());
        assert_eq!(rig.ask(&rig.own("GET", ABOUT)).await.status, 200);
        let own = as_browser(rig.own("GET", ABOUT), OWN);
        assert_eq!(rig.ask(&own).await.status, 200);
        let stranger = as_browser(TestRequest::plain("GET", ABOUT), OWN);
        let answer = rig.ask(&stranger).await;
        assert_eq!(code(&answer), refused(401, "token_required"));
        assert!(answer.header("www-authenticate").is_some());
        // A page of another site that has got hold of the token is still refused.
        for foreign in [LINK, FRAME, SCRIPT, FETCH, NEIGHBOUR] {
            let answer = rig.ask(&as_browser(rig.own("GET", ABOUT), foreign)).await;
            assert_eq!(code(&answer), refused(403, "cross_site"), "{foreign:?}");
        }
        let elsewhere = rig.own("GET", ABOUT).with("origin", "https://a.example");
        assert_eq!(
            code(&rig.ask(&elsewhere).await),
            refused(403, "unknown_origin")
        );
        let old = as_browser(rig.own("GET", "/_outlast/status"), LINK);
        let answer = rig.ask(&old).await;
        assert_eq!(answer.json()["error"]["type"], "cross_site", "{answer:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeline_shows_every_attempt_and_outcome() {
    limited(async {
        let rig = Plan::new("overloaded:2", 200).start().await;
        let ask = TestRequest::new(Dialect::Anthropic, true);
        let answer = rig
            .ask(&ask.with_only("x-outlast-client", "claude-code"))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let request = rig
            .wait_for_request(|request| !request["ended"].is_null())
            .await;
        let id = answer.header("x-outlast-request-id").unwrap();
        assert_eq!(request["id"], id);
        let expected = json!(["anthropic", "m-000", "/v1/messages", "answered", 200]);
        let shown = ["dialect", "model", "path", "outcome", "status"].map(|name| &request[name]);
        assert_eq!(json!(shown), expected);
        let attempts = request["attempts"].as_array().unwrap();
        let counts: Vec<_> = attempts.iter().map(|one| one["attempt"].clone()).collect();
        assert_eq!(counts, [1, 2, 3]);
        let time = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        for failed in &attempts[..2] {
            assert_eq!(
                (&failed["cause"], &failed["status"]),
                (&json!("overloaded"), &json!(529))
            );
            assert!(
                failed["message"].as_str().unwrap().contains("verloaded"),
                "{failed}"
            );
            let times = ["began", "failed_at", "wake"].map(|name| time(failed, name));
            assert!(times.is_sorted() && !times[0].is_empty(), "{times:?}");
        }
        assert!(time(&attempts[2], "began") >= time(&attempts[1], "failed_at"));
        assert!(attempts[2]["failed_at"].is_null());
        // Nothing of the prompt, and no key.
        let all = rig.traffic(0).await.to_string();
        assert!(
            !all.contains(CLIENT_KEY) && !all.contains("Say hello"),
            "{all}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_api_shows_wait_and_can_retry_or_cancel() {
    limited(async {
        let rig = Plan::new("outage:90000", 1).start().await;
        let client =
            Client::asking(rig.gateway, &TestRequest::new(Dialect::OpenaiChat, false)).await;
        let waits = |request: &Value| {
            let last = request["attempts"].as_array().unwrap().last();
            last.is_some_and(|last| !last["wake"].is_null())
        };
        let waiting = rig.wait_for_request(waits).await;
        let id = json!({ "id": waiting["id"] });
        let gateways = rig
            .ask(&rig.own("GET", &format!("{API}gateways")))
            .await
            .json();
        assert_eq!(gateways["gateways"][0]["port"], rig.port());
        let status = &gateways["gateways"][0]["status"];
        assert_eq!(status["waiting"][0]["id"], waiting["id"]);
        let retried = rig.control("retry_now", &id).await.json();
        assert_eq!(retried, json!({ "retried": 1 }));
        rig.wait_for_request(|one| one["attempts"].as_array().unwrap().len() == 2 && waits(one))
            .await;
        assert_eq!(rig.control("cancel", &id).await.status, 200);
        assert_eq!(client.answer().await.status, 503);
        let ended = rig
            .wait_for_request(|request| !request["ended"].is_null())
            .await;
        assert_eq!(
            (&ended["outcome"], &ended["status"]),
            (&json!("cancelled"), &json!(503))
        );
        let gone = rig.control("cancel", &id).await;
        assert_eq!(code(&gone), (404, "no_such_request".to_owned()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeline_keeps_last_500_requests() {
    limited(async {
        let rig = Plan::new("ok", 1).start().await;
        let ask = TestRequest::new(Dialect::OpenaiChat, false);
        for _ in 0..510 {
            rig.ask(&ask).await;
        }
        let last = rig.ask(&ask).await;
        let kept = rig.traffic(0).await;
        let kept = kept["requests"].as_array().unwrap();
        assert_eq!(kept.len(), 500);
        let id = last.header("x-outlast-request-id").unwrap();
        assert_eq!(kept[499]["id"], id);
    })
    .await;
}
