//! Access to `outlast serve` on this machine: programs, its own page and configured origins are allowed,
//! everything else is refused.

use crate::mock_server::{MockServer, PLANTED};
use crate::serve_driver::Serve;
use crate::serve_driver::http::{HttpResponse, RequestBuilder};
use crate::serve_driver::socket::Socket;
use crate::support::{NO_TIMEOUTS, Outlast};
use serde_json::{Value, json};

fn server(outlast: &Outlast, settings: &str) -> Serve {
    outlast.write("home/outlast.toml", settings);
    Serve::start(outlast, "ok:text,times=always")
}

/// Returns a request that reads, one that writes, and one for a file of the page.
fn asks(server: &Serve) -> Vec<RequestBuilder> {
    vec![
        server.ask("GET", "/api/sessions"),
        server.ask("POST", "/api/sessions").json(&json!({})),
        server.ask("POST", "/api/sessions"),
        server.ask("OPTIONS", "/api/sessions"),
        server.ask("GET", "/api/openapi.json"),
        server.ask("GET", "/api/ws"),
        server.ask("GET", "/"),
        server.ask("GET", "/healthz"),
    ]
}

/// Checks that all of these requests are refused with these headers.
fn refused(server: &Serve, headers: &[(&str, &str)], status: u16, code: &str) {
    for ask in asks(server) {
        let answer = headers
            .iter()
            .fold(ask, |ask, (name, value)| ask.with(name, value))
            .send();
        assert_eq!(answer.header("access-control-allow-origin"), None);
        let problem = answer.problem();
        assert_eq!(
            (problem.0, &*problem.1),
            (status, code),
            "{headers:?}: {}",
            problem.2
        );
    }
    let nothing = server.get("/api/sessions")["sessions"].clone();
    assert_eq!(nothing, json!([]), "{headers:?}");
}

#[test]
fn unknown_host_header_is_refused() {
    let outlast = Outlast::new();
    let server = server(&outlast, "");
    let port = server.address.rsplit(':').next().unwrap();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("my.box:{port}"),
    ] {
        refused(&server, &[("host", &host)], 403, "unknown_host");
    }
    refused(&server, &[("host", "")], 400, "no_host");
    refused(&server, &[("host", "[::1")], 400, "no_host");
    refused(
        &server,
        &[("host", &server.address), ("host", "evil.example")],
        400,
        "no_host",
    );
    for host in [
        &*format!("localhost:{port}"),
        "localhost",
        "[::1]",
        "192.0.2.7",
    ] {
        assert_eq!(
            server
                .ask("GET", "/api/about")
                .with("host", host)
                .send()
                .status,
            200,
            "{host}"
        );
    }
}

fn token(outlast: &Outlast) -> String {
    let file = outlast.home().join("serve.token");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// A client that uses a configured host name comes from elsewhere and needs the token.
#[test]
fn configured_host_name_is_allowed_with_token() {
    let outlast = Outlast::new();
    let server = server(&outlast, "[serve]\nallowed_hosts = [\"my.box\"]\n");
    let port = server.address.rsplit(':').next().unwrap();
    let ask = |host: &str| server.ask("GET", "/api/about").with("host", host);
    let named = format!("my.box:{port}");
    assert_eq!(ask(&named).send().problem().1, "token_required");
    let token = token(&outlast);
    assert_eq!(
        ask(&named).with("x-outlast-token", &token).send().status,
        200
    );
    let other = ask(&format!("x{named}")).with("x-outlast-token", &token);
    assert_eq!(other.send().problem().1, "unknown_host");
}

#[test]
fn requests_from_other_origins_are_refused() {
    let outlast = Outlast::new();
    let server = server(&outlast, "");
    for origin in [
        "https://evil.example",
        "http://127.0.0.1:1",
        "http://localhost",
        "null",
        "file://",
        "",
    ] {
        refused(&server, &[("origin", origin)], 403, "unknown_origin");
        let Err(answer) = Socket::try_open(&server, &[("origin", origin)]) else {
            panic!("{origin} was let in")
        };
        assert_eq!(answer.status(), 403);
    }
    for site in ["cross-site", "same-site"] {
        refused(&server, &[("sec-fetch-site", site)], 403, "cross_site");
    }
    let own = format!("http://{}", server.address);
    let mut asked = asks(&server).into_iter();
    let answer = asked
        .next()
        .unwrap()
        .with("origin", &own)
        .with("sec-fetch-site", "same-origin")
        .send();
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (200, None)
    );
    assert!(Socket::try_open(&server, &[("origin", &own)]).is_ok());
}

#[test]
fn cross_site_navigation_reaches_only_the_page() {
    let outlast = Outlast::new();
    let server = server(&outlast, "");
    let from_elsewhere = |path: &str, dest: &str| -> HttpResponse {
        let ask = server.ask("GET", path).with("sec-fetch-site", "cross-site");
        ask.with("sec-fetch-mode", "navigate")
            .with("sec-fetch-dest", dest)
            .send()
    };
    let page = from_elsewhere("/", "document");
    assert_eq!(page.status, 200);
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(page.text().contains("<!doctype html>"));
    for path in ["/api/sessions", "/api/openapi.json", "/healthz", "/api/ws"] {
        assert_eq!(from_elsewhere(path, "document").problem().0, 403, "{path}");
    }
    assert_eq!(from_elsewhere("/", "iframe").problem().1, "cross_site");
}

#[test]
fn configured_origin_is_allowed_with_token() {
    let outlast = Outlast::new();
    let friend = "https://friend.example";
    let server = server(
        &outlast,
        "[serve]\norigins = [\"https://friend.example\"]\n",
    );
    let token = token(&outlast);
    let without = |method| {
        server
            .ask(method, "/api/sessions")
            .with("origin", friend)
            .with("sec-fetch-site", "cross-site")
    };
    let refused = without("POST").json(&json!({})).send();
    assert_eq!(
        (
            refused.status,
            refused.header("access-control-allow-origin")
        ),
        (401, Some(friend))
    );
    let ask = |method| without(method).with("x-outlast-token", &token);
    let preflight = ask("OPTIONS")
        .with("access-control-request-method", "POST")
        .send();
    assert_eq!(preflight.status, 204);
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        Some(friend)
    );
    assert_eq!(
        preflight.header("access-control-allow-methods"),
        Some("GET, POST, PATCH")
    );
    let headers = preflight.header("access-control-allow-headers").unwrap();
    for name in ["content-type", "authorization", "last-event-id"] {
        assert!(headers.contains(name), "{headers}");
    }
    assert_eq!(preflight.header("access-control-allow-credentials"), None);
    let made = ask("POST").json(&json!({})).send();
    assert_eq!(made.status, 201);
    assert_eq!(made.header("access-control-allow-origin"), Some(friend));
    assert_eq!(made.header("vary"), Some("origin"));
    // A configured origin can read error responses, too.
    let wrong = ask("POST").json(&json!({ "policy": "nonsense" })).send();
    assert_eq!(
        (wrong.status, wrong.header("access-control-allow-origin")),
        (422, Some(friend))
    );
    let other = server
        .ask("OPTIONS", "/api/sessions")
        .with("origin", "https://other.example")
        .send();
    assert_eq!(
        (other.status, other.header("access-control-allow-origin")),
        (403, None)
    );
    let headers = [("origin", friend), ("x-outlast-token", &token)];
    assert!(Socket::try_open(&server, &headers).is_ok());
}

#[test]
fn every_response_has_security_headers() {
    let outlast = Outlast::new();
    let server = server(&outlast, "");
    for path in ["/", "/api/sessions", "/api/nothing", "/healthz"] {
        let answer = server.ask("GET", path).send();
        let header = |name: &str| answer.header(name).map(str::to_owned);
        assert_eq!(
            header("x-content-type-options").as_deref(),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(
            header("referrer-policy").as_deref(),
            Some("no-referrer"),
            "{path}"
        );
        assert_eq!(
            header("cross-origin-resource-policy").as_deref(),
            Some("same-origin"),
            "{path}"
        );
        if path != "/" {
            assert_eq!(
                header("cache-control").as_deref(),
                Some("no-store"),
                "{path}"
            );
        }
    }
}

#[test]
fn rate_limited_client_gets_retry_after() {
    let outlast = Outlast::new();
    let server = server(&outlast, "[serve]\nmax_requests_per_second = 1\n");
    let mut socket = Socket::open(&server);
    // The number of requests in a second depends on the machine.
    let mut answers = (0..20).map(|_| server.ask("GET", "/api/about").send());
    let refused = answers.find(|answer| answer.status != 200).unwrap();
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&after), "{after}");
    let (status, code, _) = refused.problem();
    assert_eq!((status, &*code), (429, "too_many_requests"));
    // A WebSocket does not bypass the limit.
    let mut replies = (0..20).map(|_| socket.ask("chat.subscribe", "x", json!({})));
    let is_refused = |reply: &Value| reply["problem"]["code"] == "too_many_requests";
    assert!(replies.any(|reply| is_refused(&reply)));
}

#[test]
fn server_never_reveals_api_key() {
    let mock = MockServer::start();
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", NO_TIMEOUTS);
    let (url, mut command) = (mock.url(), outlast.command(&[]));
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--provider",
        "anthropic",
    ]);
    command.args(["--base-url", &url, "--model", "echo-key"]);
    let server = Serve::spawn(command.env("ANTHROPIC_API_KEY", PLANTED));
    let id = server.session();
    let turn = server.prompt_and_follow(&id, "hi").all();
    assert_eq!(turn.last().unwrap()["status"], "error");
    let mut said = format!("{turn:?}");
    for path in [
        "/api/about".to_owned(),
        "/api/shared_state".to_owned(),
        "/api/knowledge".to_owned(),
        "/api/gateways".to_owned(),
        format!("/api/sessions/{id}"),
        format!("/api/sessions/{id}/snapshot?dialect=native"),
        format!("/api/sessions/{id}/models"),
    ] {
        said += &server.get(&path).to_string();
    }
    let wrong = json!({ "provider": "openai", "model": "m" });
    said += &server
        .ask("POST", "/api/sessions")
        .json(&wrong)
        .send()
        .text();
    server.signal("-TERM");
    said += &server.ended().1;
    assert!(!said.contains(PLANTED), "{said}");
    assert!(mock.requests().contains("echo-key"));
}
