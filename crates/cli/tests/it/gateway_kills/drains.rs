//! Gateways that receive a signal to stop or to reload their settings: responses under way finish, and held requests
//! are returned in a form that makes each client retry.

use super::scene::{
    Gateway, HttpResponse, LAST_WORDS, PendingRequest, STREAMED, ask, command, free_port, post,
    provider, word,
};
use crate::mock_server::MockServer;
use crate::support::Outlast;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
const WHOLE: &str = r#"{"model":"m","messages":[]}"#;

fn outlast(scale: &'static str) -> Outlast {
    Outlast {
        scale,
        ..Outlast::new()
    }
}

/// Starts a provider of one stream that ends on a message, or never.
fn halting() -> (String, mpsc::Sender<()>) {
    let (sender, receiver) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let address = provider(move |_, mut stream: TcpStream| {
        let beginning = format!("{STREAMED}{}", word("one"));
        stream.write_all(beginning.as_bytes()).unwrap();
        if receiver.lock().unwrap().recv().is_ok() {
            let end = format!("{}{LAST_WORDS}", word("two"));
            stream.write_all(end.as_bytes()).ok();
        } else {
            std::thread::park();
        }
    });
    (format!("http://{address}"), sender)
}

fn first_bytes(asking: &mut PendingRequest) {
    asking.socket.read_exact(&mut [0_u8; 1]).unwrap();
}

#[test]
fn drain_finishes_active_response_and_refuses_new_clients() {
    let outlast = outlast("1");
    let (upstream, finish) = halting();
    let mut gateway = Gateway::start(&outlast, &upstream);
    let mut asking = PendingRequest::send(&gateway.address, post(CHAT, "", STREAM).as_bytes());
    first_bytes(&mut asking);
    gateway.signal("-TERM");
    gateway.wait_for_stderr(r#""event":"drain","in_flight":1"#);
    assert!(TcpStream::connect(&gateway.address).is_err());
    finish.send(()).unwrap();
    let answer = rest(asking);
    assert!(
        answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"),
        "{answer}"
    );
    let ended = gateway.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

/// Returns the bytes after the first one.
fn rest(mut asking: PendingRequest) -> String {
    let mut rest = String::new();
    asking.socket.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn drain_timeout_aborts_response_as_incomplete() {
    let outlast = outlast("1");
    outlast.write("home/outlast.toml", "[gateway]\ndrain = \"1s\"\n");
    let (upstream, _never) = halting();
    let mut gateway = Gateway::start(&outlast, &upstream);
    let asking = PendingRequest::send(&gateway.address, post(CHAT, "", STREAM).as_bytes());
    let mut peeked = [0_u8; 1];
    asking.socket.peek(&mut peeked).unwrap();
    let told = Instant::now();
    gateway.signal("-TERM");
    let ended = gateway.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    // The gateway has waited for the response, and not for its own deadline.
    let waited = told.elapsed();
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    let answer = asking.answer();
    assert_eq!(answer.status, 200);
    assert!(
        answer.text().contains("one") && !answer.is_whole,
        "{answer:?}"
    );
}

/// A client, its request, and the response that makes it retry.
struct Case {
    client: &'static str,
    path: &'static str,
    body: &'static str,
    /// Whether its headers have been sent when the gateway ends.
    is_late: bool,
    is_sent_back: fn(&HttpResponse) -> bool,
}

fn with_status(answer: &HttpResponse, status: u16, longest: u64) -> bool {
    let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    let again = answer.header("x-should-retry") == Some("true");
    answer.status == status && answer.is_whole && (1..=longest).contains(&after) && again
}

const CASES: &[Case] = &[
    Case {
        client: "codex",
        path: "/v1/responses",
        body: r#"{"model":"m","stream":true,"input":"hi"}"#,
        is_late: false,
        is_sent_back: |answer| with_status(answer, 429, 120),
    },
    Case {
        client: "openai-sdk-python",
        path: CHAT,
        body: WHOLE,
        is_late: false,
        is_sent_back: |answer| with_status(answer, 429, 120),
    },
    Case {
        client: "claude-code",
        path: "/v1/messages",
        body: WHOLE,
        is_late: false,
        is_sent_back: |answer| with_status(answer, 503, 60),
    },
    Case {
        client: "claude-code",
        path: "/v1/messages",
        body: STREAM,
        is_late: true,
        // The connection drops, and the client retries.
        is_sent_back: |answer| answer.status == 200 && !answer.is_whole,
    },
    Case {
        client: "opencode",
        path: CHAT,
        body: STREAM,
        is_late: true,
        is_sent_back: |answer| {
            answer.status == 200 && answer.is_whole && answer.text().contains("try again in")
        },
    },
];

#[test]
fn drained_request_is_returned_for_retry_and_resumed() {
    let mock = MockServer::start_in(outlast("100"));
    mock.control("POST", "/_outlast/script", r#"{"script":"outage:86400"}"#);
    let (outlast, port) = (&mock.outlast, free_port());
    for case in CASES {
        let mut gateway = Gateway::on(outlast, port, &mock.url());
        let client = format!("x-outlast-client: {}\r\n", case.client);
        let request = post(case.path, &client, case.body);
        let mut asking = PendingRequest::send(&gateway.address, request.as_bytes());
        gateway.wait_for_stderr(r#""event":"waiting""#);
        let mut before = String::new();
        if case.is_late {
            let mut piece = [0_u8; 4096];
            let length = asking.socket.read(&mut piece).unwrap();
            before = String::from_utf8_lossy(&piece[..length]).into_owned();
            assert!(before.starts_with("HTTP/1.1 200"), "{before}");
        }
        gateway.signal("-TERM");
        let ended = gateway.ended();
        assert_eq!(ended.code, Some(0), "{}: {}", case.client, ended.said);
        let answer = asking.answer_after(before.as_bytes());
        assert!((case.is_sent_back)(&answer), "{}: {answer:?}", case.client);
        assert!(
            ended.said.contains(r#""outcome":"sent_back""#),
            "{}",
            ended.said
        );
        let gateway = Gateway::on(outlast, port, &mock.url());
        let again = PendingRequest::send(&gateway.address, request.as_bytes());
        gateway.wait_for_stderr(r#""event":"resumed""#);
        drop(again);
        gateway.wait_for_stderr(r#""outcome":"left""#);
        gateway.kill();
        std::fs::remove_dir_all(outlast.home()).unwrap();
    }
}

#[test]
fn reload_ignores_broken_settings_and_applies_valid_ones() {
    let outlast = outlast("1");
    let said = |words: &'static str| {
        provider(move |_, mut stream: TcpStream| {
            let length = words.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{words}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        })
    };
    let (one, other) = (said("one"), said("other"));
    let settings = |address| format!("[gateway]\nupstream = \"http://{address}\"\n");
    outlast.write("home/outlast.toml", settings(one));
    let gateway = Gateway::by(&mut command(&outlast, free_port(), &[]));
    let answers = || ask(&gateway.address, post("/v1/echo", "", "").as_bytes()).text();
    assert_eq!(answers(), "one");
    let reloads = |count: usize| {
        crate::mock_server::wait_for("reload", || {
            gateway
                .stderr_so_far()
                .matches(r#""event":"reload""#)
                .count()
                >= count
        });
    };
    let broken = [
        "[gateway\n".to_owned(),
        "[gateway]\nupstream = 5\n".to_owned(),
        "[gateway]\npolicy = \"nonsense\"\n".to_owned(),
        settings(other) + "max_body = \"many\"\n",
        format!("[gateway]\nupstream = \"http://{}\"\n", gateway.address),
        "\u{0}\u{1}".to_owned(),
    ];
    for (number, broken) in broken.iter().enumerate() {
        outlast.write("home/outlast.toml", broken);
        gateway.signal("-HUP");
        reloads(number + 1);
        assert_eq!(answers(), "one", "{broken}");
    }
    let problems = gateway.stderr_so_far().matches(r#""problem":""#).count();
    assert!(problems >= broken.len(), "{}", gateway.stderr_so_far());
    outlast.write("home/outlast.toml", settings(other));
    gateway.signal("-HUP");
    crate::mock_server::wait_for("the other provider", || answers() == "other");
}
