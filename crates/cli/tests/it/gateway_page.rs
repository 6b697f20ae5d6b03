//! `outlast gateway page`, and the page that a browser gets at that address.

use crate::gateway_cli::{Gateway, REQUEST_BODY};
use crate::support::Outlast;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Returns the head and the body of the gateway's response.
fn get(address: &str, path: &str, token: &str) -> (String, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         sec-fetch-site: same-origin\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Returns the printed address: the gateway, the path, and the token.
fn printed(outlast: &Outlast, arguments: &[&str]) -> (String, String, String) {
    let ran = outlast.run(&[&["gateway", "page"], arguments].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let url = ran.stdout.strip_suffix('\n').unwrap();
    let rest = url.strip_prefix("http://").unwrap();
    let (address, rest) = rest.split_once('/').unwrap();
    let (path, token) = rest.split_once("#token=").unwrap();
    let texts = [address, &format!("/{path}"), token].map(str::to_owned);
    texts.into()
}

#[test]
fn gateway_page_serves_html_and_request_log() {
    let outlast = Outlast::new();
    let gateway = Gateway::start(&outlast, &["--upstream", "mock:overloaded:2"]);
    let mut answer = String::new();
    gateway
        .send(REQUEST_BODY)
        .read_to_string(&mut answer)
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (address, path, token) = printed(&outlast, &[]);
    assert_eq!(
        (address.as_str(), path.as_str()),
        (gateway.address.as_str(), "/_outlast/")
    );
    let (head, body) = get(&address, &path, "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(body.contains("<!doctype html>"), "{body}");
    let api = |path: &str| {
        let (head, body) = get(&address, &format!("/_outlast/api/{path}"), &token);
        assert!(head.starts_with("HTTP/1.1 200"), "{head} {body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let port = api("gateways")["gateways"][0]["port"].as_u64().unwrap();
    assert!(address.ends_with(&format!(":{port}")));
    let traffic = api(&format!("gateways/{port}/traffic"));
    let request = &traffic["requests"][0];
    assert_eq!(
        (&request["outcome"], &request["model"]),
        (&json!("answered"), &json!("m"))
    );
    let attempts = request["attempts"].as_array().unwrap();
    let causes: Vec<&Value> = attempts.iter().map(|one| &one["cause"]).collect();
    assert_eq!(
        causes,
        [&json!("overloaded"), &json!("overloaded"), &Value::Null]
    );
    let (head, body) = get(
        &address,
        "/_outlast/api/gateways",
        &token.replace(&token[..1], "x"),
    );
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    assert!(body.contains("\"code\":\"token_required\""), "{body}");
}

#[test]
fn gateway_page_needs_port_among_several_gateways() {
    let outlast = Outlast::new();
    let one = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    let other = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    let ran = outlast.run(&["gateway", "page"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(
        ran.stderr.contains("name one with --port"),
        "{}",
        ran.stderr
    );
    for gateway in [&one, &other] {
        let port = gateway.address.split_once(':').unwrap().1;
        let (address, ..) = printed(&outlast, &["--port", port]);
        assert_eq!(address, gateway.address);
    }
}
