//! The token of `outlast serve`: the requests that need it, how they carry it, and where it is
//! stored.

use crate::serve_driver::Serve;
use crate::serve_driver::http::RequestBuilder;
use crate::serve_driver::socket::Socket;
use crate::support::Outlast;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// Starts a server that requires a token, and returns the token.
fn server(outlast: &Outlast) -> (Serve, String) {
    outlast.write("home/outlast.toml", "[serve]\nrequire_token = true\n");
    let server = Serve::start(outlast, "ok:text,times=always");
    (server, token(outlast))
}

fn token(outlast: &Outlast) -> String {
    let file = outlast.home().join("serve.token");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Returns every path of the description under `/api`, and those outside of it.
fn all(server: &Serve, outlast: &Outlast) -> Vec<(&'static str, String)> {
    let printed = outlast.run(&["serve", "--openapi"]).stdout;
    let document: Value = serde_json::from_str(&printed).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "01").replace("{port}", "1");
        for method in methods.as_object().unwrap().keys() {
            let method = ["GET", "POST", "PATCH"]
                .into_iter()
                .find(|it| it.eq_ignore_ascii_case(method));
            all.push((method.unwrap(), path.clone()));
        }
    }
    assert!(all.len() > 20, "{all:?}");
    let more = [
        "/api",
        "/api/",
        "/api/ws",
        "/api/openapi.json",
        "/api/nothing",
        "/api/sessions/01/nothing",
    ];
    all.extend(more.map(|path| ("GET", path.to_owned())));
    all.push(("OPTIONS", "/api/sessions".to_owned()));
    all.push(("DELETE", "/api/sessions".to_owned()));
    assert!(!server.address.is_empty());
    all
}

fn is_refused(ask: RequestBuilder, what: &str, token: &str) {
    let answer = ask.send();
    assert_eq!(
        answer.header("www-authenticate"),
        Some("Bearer realm=\"outlast\""),
        "{what}"
    );
    let (status, code, detail) = answer.problem();
    assert_eq!((status, &*code), (401, "token_required"), "{what}");
    assert!(!detail.contains(token), "{what}: {detail}");
}

#[test]
fn every_api_path_requires_token() {
    let outlast = Outlast::new();
    let (server, token) = server(&outlast);
    for (method, path) in all(&server, &outlast) {
        let what = format!("{method} {path}");
        let ask = || server.ask(method, &path);
        is_refused(ask(), &what, &token);
        is_refused(ask().json(&json!({})), &what, &token);
    }
    for path in ["/", "/healthz"] {
        assert_eq!(server.ask("GET", path).send().status, 200, "{path}");
    }
    let list = server
        .ask("GET", "/api/sessions")
        .with("x-outlast-token", &token);
    assert_eq!(
        list.send().well()["sessions"],
        json!([]),
        "nothing was begun"
    );
}

#[test]
fn only_exact_token_in_header_is_accepted() {
    let outlast = Outlast::new();
    let (server, token) = server(&outlast);
    let last = if token.ends_with('0') { "1" } else { "0" };
    let almost = format!("{}{last}", &token[..token.len() - 1]);
    let ask = || server.ask("GET", "/api/sessions");
    for wrong in [
        &*almost,
        "",
        " ",
        "x",
        &token[..token.len() - 1],
        &format!("{token}0"),
        &token.to_uppercase(),
    ] {
        is_refused(ask().with("x-outlast-token", wrong), wrong, &token);
        is_refused(
            ask().with("authorization", &format!("Bearer {wrong}")),
            wrong,
            &token,
        );
    }
    is_refused(
        ask().with("authorization", &format!("Basic {token}")),
        "basic",
        &token,
    );
    is_refused(
        ask().with("cookie", &format!("token={token}")),
        "cookie",
        &token,
    );
    is_refused(
        server.ask("GET", &format!("/api/sessions?token={token}")),
        "address",
        &token,
    );
    for ask in [
        ask().with("authorization", &format!("Bearer {token}")),
        ask().with("authorization", &format!("bearer {token}")),
        ask().with("x-outlast-token", &token),
    ] {
        assert_eq!(ask.send().status, 200);
    }
    // The token does not bypass the other checks.
    let foreign = ask()
        .with("x-outlast-token", &token)
        .with("origin", "https://evil.example");
    assert_eq!(foreign.send().problem().1, "unknown_origin");
}

#[test]
fn websocket_accepts_token_as_subprotocol() {
    let outlast = Outlast::new();
    let (server, token) = server(&outlast);
    let protocol = |token: &str| format!("outlast.token.{token}");
    for wrong in [
        "chat".to_owned(),
        protocol("x"),
        protocol(""),
        token.clone(),
    ] {
        let headers = [("sec-websocket-protocol", &*wrong)];
        let Err(answer) = Socket::try_open(&server, &headers) else {
            panic!("{wrong} was let in")
        };
        assert_eq!(answer.status(), 401);
        let body = String::from_utf8(answer.into_body().unwrap_or_default()).unwrap();
        assert!(body.is_empty() || !body.contains(&token), "{body}");
    }
    let (mut socket, answer) =
        Socket::try_open(&server, &[("sec-websocket-protocol", &protocol(&token))]).unwrap();
    assert_eq!(
        answer.headers()["sec-websocket-protocol"],
        *protocol(&token)
    );
    assert_eq!(
        socket.ask("chat.subscribe", "zz", json!({}))["problem"]["status"],
        404
    );
    assert!(Socket::try_open(&server, &[("x-outlast-token", &token)]).is_ok());
}

#[test]
fn token_is_created_once_with_private_file_mode() {
    let outlast = Outlast::new();
    let (server, token) = server(&outlast);
    let file = outlast.home().join("serve.token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(token.len() == 64 && token.bytes().all(|it| it.is_ascii_hexdigit()));
    server.kill();
    let (server, again) = self::server(&outlast);
    assert!(token == again);
    server.signal("-TERM");
    let (_, said) = server.ended();
    assert!(!said.contains(&token), "{said}");
}

#[test]
fn non_loopback_listener_requires_token() {
    let outlast = Outlast::new();
    let mut command = outlast.command(&["serve", "--listen", "0.0.0.0:0", "--model", "ok"]);
    let mut server = Serve::spawn(&mut command);
    server.address = server.address.replace("0.0.0.0", "127.0.0.1");
    let token = token(&outlast);
    is_refused(server.ask("GET", "/api/sessions"), "sessions", &token);
    let ask = server
        .ask("GET", "/api/sessions")
        .with("x-outlast-token", &token);
    assert_eq!(ask.send().status, 200);
    let warning = "warning: other machines can reach this server; the token and what is said come to it unencrypted\n";
    assert_eq!(server.complaint(), warning);
}

#[test]
fn loopback_listener_needs_and_creates_no_token() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok");
    assert_eq!(server.ask("GET", "/api/sessions").send().status, 200);
    assert!(!outlast.home().join("serve.token").exists());
}
