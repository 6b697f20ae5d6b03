//! Keys of clients reach only their providers, and stored files are readable by the user alone.

use super::scene::{Gateway, ask, command, free_port, lossy, post, provider};
use crate::mock_server::MockServer;
use crate::support::{Outlast, run_script_before};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// None of these has the form of a real key.
const KEYS: [&str; 4] = [
    "planted-in-x-api-key-1",
    "planted-in-authorization-2",
    "planted-in-query-3",
    "planted-in-cookie-4",
];

fn with_keys(path: &str, model: &str) -> Vec<u8> {
    let headers = format!(
        "x-api-key: {}\r\nauthorization: Bearer {}\r\ncookie: {}\r\nx-outlast-client: codex\r\n",
        KEYS[0], KEYS[1], KEYS[3]
    );
    // Long enough to be stored in a file of its own while it is held.
    let said = "hi ".repeat(4000);
    let body = format!(
        r#"{{"model":"{model}","max_tokens":9,"messages":[{{"role":"user","content":"{said}"}}],"input":"hi"}}"#
    );
    post(&format!("{path}?key={}", KEYS[2]), &headers, &body).into_bytes()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all
}

fn has_no_key(what: &str, text: &str) {
    for key in KEYS {
        assert!(!text.contains(key), "{key} in {what}: {text}");
    }
}

/// Checks that no file that the gateway has open or has written contains a key, in its content or
/// its name.
fn has_no_key_in_files(gateway: &Gateway, home: &Path) {
    for file in files(home) {
        has_no_key("a name", &file.to_string_lossy());
        if file.is_file() {
            let bytes = std::fs::read(&file).unwrap();
            has_no_key(&file.to_string_lossy(), &lossy(&bytes));
        }
    }
    for entry in std::fs::read_dir(format!("/proc/{}/fd", gateway.id())).unwrap() {
        let name = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        has_no_key("an open file", &name.to_string_lossy());
    }
}

fn get(gateway: &Gateway, path: &str, token: &str) -> String {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-outlast-token: {token}\r\n\r\n"
    );
    let answer = ask(&gateway.address, request.as_bytes());
    assert_eq!(answer.status, 200, "{path}");
    answer.text()
}

fn keys_stay_where_they_belong(log: &str) {
    let mock = MockServer::start_in(Outlast {
        scale: "100",
        ..Outlast::new()
    });
    let outlast = &mock.outlast;
    let (url, port) = (mock.url(), free_port());
    let mut command = outlast.command(&[
        "gateway",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--log",
        log,
        "--upstream",
        &url,
    ]);
    let gateway = Gateway::by(&mut command);
    // The response body is the provider's own and may contain anything.
    for script in [
        "ok",
        "overloaded:2",
        "echo-key",
        "error:400",
        "garbage+ok",
        "reset+ok",
        "json-error+ok",
    ] {
        for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
            ask(&gateway.address, &with_keys(path, script));
        }
    }
    // Error responses of the gateway itself.
    let ours = [
        ("host: localhost", "host: evil.example"),
        (
            "host: localhost",
            "host: localhost\r\norigin: https://evil.example",
        ),
        (
            "host: localhost",
            "host: localhost\r\nx-outlast-policy: nonsense",
        ),
        ("host: localhost", "host: localhost\r\nupgrade: websocket"),
        ("content-length: ", "content-length: 9999999999"),
    ];
    for (from, to) in ours {
        let request = lossy(&with_keys("/v1/messages", "ok")).replacen(from, to, 1);
        let answer = ask(&gateway.address, request.as_bytes());
        assert!((400..500).contains(&answer.status), "{to}: {answer:?}");
        has_no_key(to, &format!("{}{}", answer.head, answer.text()));
    }
    // A request that is held while everything is searched.
    let waiting = super::scene::PendingRequest::send(
        &gateway.address,
        &with_keys("/v1/messages", "outage:86400"),
    );
    let token = std::fs::read_to_string(outlast.home().join("gateway.token")).unwrap();
    let status = || get(&gateway, "/_outlast/status", token.trim());
    crate::mock_server::wait_for("a wait", || status().contains("outage:86400"));
    gateway.wait_until_written(outlast, 1);
    has_no_key("the status", &status());
    has_no_key("the numbers", &get(&gateway, "/metrics", ""));
    has_no_key_in_files(&gateway, &outlast.home());
    let shown = outlast.run(&["gateway", "status"]);
    has_no_key(
        "the shown status",
        &format!("{}{}", shown.stdout, shown.stderr),
    );
    drop(waiting);
    gateway.wait_for_stderr("outage:86400");
    let said = gateway.kill();
    assert!(said.contains("echo-key"), "{said}");
    has_no_key("the log", &said);
}

#[test]
fn client_keys_appear_in_no_log_file_or_status() {
    for log in ["json", "text"] {
        keys_stay_where_they_belong(log);
    }
}

#[test]
fn unreachable_provider_error_contains_no_keys() {
    let outlast = Outlast::new();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let gateway = Gateway::start(&outlast, &nobody);
    for (path, policy) in [
        ("/v1/messages", "x-outlast-policy: none\r\n"),
        ("/v1/models", ""),
    ] {
        let request =
            lossy(&with_keys(path, "m")).replacen("x-api-key", &format!("{policy}x-api-key"), 1);
        let answer = ask(&gateway.address, request.as_bytes());
        assert_eq!(answer.status, 502, "{answer:?}");
        has_no_key("the answer", &format!("{}{}", answer.head, answer.text()));
    }
    gateway.wait_for_stderr("attempt_failed");
    has_no_key("the log", &gateway.stderr_so_far());
}

/// A provider's words about keys are for its client and are not written to the log.
#[test]
fn keys_echoed_by_provider_are_not_logged() {
    let outlast = Outlast::new();
    let parrot = provider(|request, mut stream: TcpStream| {
        let heard: Vec<&str> = KEYS
            .into_iter()
            .filter(|key| lossy(&request).contains(key))
            .collect();
        let said = format!("I heard {} from you", heard.join(", then "));
        let body = format!(
            r#"{{"error":{{"message":"{said}","type":"{}"}}}}"#,
            heard[0]
        );
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 400 No\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let gateway = Gateway::start(&outlast, &format!("http://{parrot}"));
    for path in [
        "/v1/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/models",
    ] {
        let answer = ask(&gateway.address, &with_keys(path, "m"));
        // Exactly the bytes that the provider sent.
        assert_eq!(answer.status, 400);
        for key in KEYS {
            assert!(answer.text().contains(key), "{path}: {}", answer.text());
        }
    }
    gateway.wait_for_stderr("I heard ");
    has_no_key("the log", &gateway.kill());
}

#[test]
fn stored_files_are_private_to_user() {
    let outlast = Outlast::new();
    let port = free_port();
    let inner = command(&outlast, port, &["--upstream", "mock:outage:86400"]);
    let gateway = Gateway::by(&mut run_script_before("umask 000", &inner));
    let waiting =
        super::scene::PendingRequest::send(&gateway.address, &with_keys("/v1/messages", "m"));
    gateway.wait_for_stderr(r#""event":"waiting""#);
    gateway.wait_until_written(&outlast, 1);
    let all = files(&outlast.home());
    let names: Vec<String> = all
        .iter()
        .map(|path| outlast.anonymous(&path.to_string_lossy()))
        .collect();
    for wanted in [
        format!("gateway-{port}.db"),
        format!("gateway-{port}.json"),
        "gateway.token".to_owned(),
        "spool".to_owned(),
    ] {
        assert!(
            names.iter().any(|name| name.ends_with(&wanted)),
            "{wanted} in {names:?}"
        );
    }
    for path in all {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let right = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, right, "{}: {mode:o}", path.display());
    }
    drop(waiting);
}
