//! Invalid requests: each gets a problem document that describes the problem.

use crate::serve_driver::Serve;
use crate::serve_driver::http::{HttpResponse, RequestBuilder};
use crate::support::Outlast;
use serde_json::{Value, json};

const NOBODY: &str = "01900000-0000-7000-8000-000000000001";

fn server(outlast: &Outlast) -> Serve {
    Serve::start(outlast, "ok:text,times=always")
}

/// Returns the problem for the body of a request that creates a session.
fn begun(server: &Serve, body: &Value) -> (u16, String, String) {
    let ask = server.ask("POST", "/api/sessions");
    ask.json(body).send().problem()
}

fn sessions(server: &Serve) -> usize {
    let list = server.get("/api/sessions");
    list["sessions"].as_array().unwrap().len()
}

#[test]
fn invalid_session_options_are_refused_by_name() {
    let outlast = Outlast::new();
    outlast.write("file", "");
    let server = server(&outlast);
    let table = [
        (json!({ "directory": "missing" }), "missing"),
        (json!({ "directory": "file" }), "file"),
        (json!({ "model": "overloaded:x" }), "overloaded:x"),
        (json!({ "policy": "nonsense" }), "nonsense"),
        (json!({ "provider": "nobody" }), "nobody"),
        (json!({ "after_content": "cry" }), "after_content: "),
        (json!({ "colour": "red" }), "colour"),
        (json!({ "title": 7 }), "title: "),
        (json!([]), "expected struct"),
    ];
    for (body, named) in table {
        let (status, code, detail) = begun(&server, &body);
        assert_eq!((status, &*code), (422, "invalid_value"), "{body}: {detail}");
        assert!(detail.contains(named), "{body}: {detail}");
    }
    assert_eq!(sessions(&server), 0);
}

#[test]
fn provider_without_api_key_is_refused() {
    let outlast = Outlast::new();
    let server = server(&outlast);
    let (status, code, detail) = begun(&server, &json!({ "provider": "anthropic", "model": "m" }));
    assert_eq!((status, &*code), (422, "invalid_value"), "{detail}");
    assert!(detail.contains("ANTHROPIC_API_KEY"), "{detail}");
}

#[test]
fn unreadable_request_body_is_refused() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", "[serve]\nmax_body = \"1KiB\"\n");
    let server = server(&outlast);
    let post = |kind: Option<&str>, body: &[u8]| -> HttpResponse {
        let ask = server.ask("POST", "/api/sessions").body(body);
        match kind {
            Some(kind) => ask.with("content-type", kind).send(),
            None => ask.send(),
        }
    };
    let json = Some("application/json");
    let long = format!("{{\"title\": \"{}\"}}", "x".repeat(2000));
    let table = [
        (json, &b"{\"title\": "[..], 400, "invalid_request"),
        (json, b"nonsense", 400, "invalid_request"),
        (json, b"{} {}", 400, "invalid_request"),
        (json, b"{\"title\": \"\xff\"}", 400, "invalid_request"),
        (Some("text/plain"), b"{}", 415, "unsupported_media_type"),
        (
            Some("application/x-www-form-urlencoded"),
            b"title=x",
            415,
            "unsupported_media_type",
        ),
        (None, b"{}", 415, "unsupported_media_type"),
        (json, long.as_bytes(), 413, "request_too_large"),
    ];
    for (kind, body, status, code) in table {
        let shown = String::from_utf8_lossy(body)
            .chars()
            .take(40)
            .collect::<String>();
        let problem = post(kind, body).problem();
        assert_eq!(
            (problem.0, &*problem.1),
            (status, code),
            "{shown}: {}",
            problem.2
        );
    }
    // The limit also holds without a declared length.
    let chunk = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    let ask = server
        .ask("POST", "/api/sessions")
        .with("content-type", "application/json");
    let ask = ask
        .with("transfer-encoding", "chunked")
        .body(chunk.as_bytes());
    assert_eq!(ask.without_length().send().problem().0, 413);
    assert_eq!(sessions(&server), 0);
    let well = post(Some("application/json; charset=utf-8"), b" {} ");
    assert_eq!(well.status, 201);
    assert_eq!(post(None, b"").status, 201, "nothing at all is no wish");
}

/// Returns every request for the data of a session.
fn about(server: &Serve, id: &str) -> Vec<(String, RequestBuilder)> {
    let gets = ["", "/snapshot", "/events", "/settings", "/models"];
    let posts = [
        "/prompt",
        "/steer",
        "/abort",
        "/abort_retry",
        "/retry_now",
        "/resume",
    ];
    let gets = gets.map(|end| ("GET", end));
    let posts = posts.map(|end| ("POST", end));
    let all = gets
        .into_iter()
        .chain(posts)
        .chain([("PATCH", "/settings")]);
    let asks = all.map(|(method, end)| {
        let path = format!("/api/sessions/{id}{end}");
        let ask = server.ask(method, &path);
        let ask = match end {
            "/prompt" | "/steer" => ask.json(&json!({ "text": "hi" })),
            _ => ask,
        };
        (format!("{method} {path}"), ask)
    });
    asks.collect()
}

#[test]
fn every_request_for_unknown_session_is_not_found() {
    let outlast = Outlast::new();
    let server = server(&outlast);
    let long = "0".repeat(3000);
    for id in [NOBODY, "0", "zz", "..%2f..", "%ff", &long, "a%1b[31m"] {
        for (asked, ask) in about(&server, id) {
            let problem = ask.send().problem();
            assert_eq!((problem.0, &*problem.1), (404, "not_found"), "{asked}");
            assert!(
                problem.2.len() < 300 && !problem.2.contains(char::is_control),
                "{problem:?}"
            );
        }
    }
    assert_eq!(sessions(&server), 0);
    assert!(!outlast.home().join("serve.token").exists());
}

#[test]
fn session_is_found_by_unique_id_prefix() {
    let outlast = Outlast::new();
    let server = server(&outlast);
    let (one, other) = (server.session(), server.session());
    server.prompt_and_follow(&one, "hi").all();
    server.prompt_and_follow(&other, "hi").all();
    assert_eq!(server.show(&one[..30])["id"], json!(one));
    let (status, code, _) = server.ask("GET", "/api/sessions/01").send().problem();
    assert_eq!((status, &*code), (409, "refused"), "there are two");
}

#[test]
fn wrong_method_or_path_gets_problem_document() {
    let outlast = Outlast::new();
    let server = server(&outlast);
    let table = [
        ("DELETE", "/api/sessions", "GET,HEAD,POST"),
        ("PUT", "/api/sessions/x/settings", "GET,HEAD,PATCH"),
        ("GET", "/api/sessions/x/prompt", "POST"),
        ("POST", "/api/about", "GET,HEAD"),
        ("POST", "/api/openapi.json", "GET,HEAD"),
        ("POST", "/healthz", "GET,HEAD"),
        ("POST", "/", "GET, HEAD"),
    ];
    for (method, path, allowed) in table {
        let answer = server.ask(method, path).send();
        let allow = answer.header("allow").map(str::to_owned);
        let (status, code, _) = answer.problem();
        assert_eq!(
            (status, &*code),
            (405, "method_not_allowed"),
            "{method} {path}"
        );
        assert_eq!(allow.as_deref(), Some(allowed), "{method} {path}");
    }
    for path in [
        "/api",
        "/api/",
        "/api/nothing",
        "/nothing",
        "/api/sessions/",
        "//",
    ] {
        let (status, code, _) = server.ask("GET", path).send().problem();
        assert_eq!((status, &*code), (404, "not_found"), "{path}");
    }
    let answer = server.ask("GET", "/api/ws").send();
    let (status, code, _) = answer.problem();
    assert_eq!((status, &*code), (426, "upgrade_required"));
}

#[test]
fn invalid_prompt_fields_are_refused_by_name() {
    let outlast = Outlast::new();
    let server = server(&outlast);
    let id = server.session();
    let path = format!("/api/sessions/{id}/prompt");
    let table = [
        (json!({}), "text"),
        (json!({ "text": " \n" }), "text: there is nothing to say"),
        (json!({ "text": "hi", "deliver": "pigeon" }), "deliver: "),
        (
            json!({ "text": "hi", "images": [{ "data": "" }] }),
            "images[0]",
        ),
        (json!({ "text": "hi", "loud": true }), "loud"),
    ];
    for (body, named) in table {
        let ask = server.ask("POST", &path).json(&body);
        let (status, code, detail) = ask.send().problem();
        assert_eq!((status, &*code), (422, "invalid_value"), "{body}");
        assert!(detail.contains(named), "{body}: {detail}");
    }
    assert_eq!(server.show(&id)["state"], "new");
}
