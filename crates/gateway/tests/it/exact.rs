//! Tests that bytes pass unchanged, in both directions, however they are cut on their way.

use super::dice::Dice;
use super::rig::{Plan, Rig, limited};
use super::upstream::{EVENTS, ReceivedRequest, ScriptedResponse, Then, Upstream, response};
use super::wire::{Client, TestRequest};
use super::{RECORDED, frames};
use outlast_dialect::Dialect;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Starts a provider that answers everything with these bytes, and a gateway before it.
pub(super) async fn answering(bytes: Vec<u8>, then: Then) -> (Upstream, Rig) {
    let upstream = Upstream::start(move |_| ScriptedResponse::at_once(bytes.clone(), then)).await;
    let rig = Plan::before(upstream.address, 1).start().await;
    (upstream, rig)
}

/// Sends a request in pieces, with a length or in chunks.
async fn send_in_pieces(rig: &Rig, ask: &TestRequest, dice: &mut Dice) -> Client {
    let mut ask = ask.clone();
    if dice.below(2) == 0 {
        ask = ask.with("transfer-encoding", "chunked");
        ask.headers.retain(|(name, _)| name != "content-length");
        let chunked = dice.chunked(&ask.body, 1 + ask.body.len() / 3);
        let head = TestRequest {
            body: Vec::new(),
            ..ask
        };
        let bytes = [head.bytes(rig.gateway), chunked].concat();
        return write(rig, dice.pieces(&bytes, 900)).await;
    }
    let bytes = ask.bytes(rig.gateway);
    write(rig, dice.pieces(&bytes, 900)).await
}

pub(super) async fn write(rig: &Rig, pieces: Vec<Vec<u8>>) -> Client {
    let mut stream = TcpStream::connect(rig.gateway).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        stream.write_all(&piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let got = Vec::new();
    Client { stream, got }
}

// --- streams ---

/// Returns the same stream as other servers would write it.
fn variants(stream: &str) -> Vec<Vec<u8>> {
    let begin = format!("\u{feff}: a comment\n\nretry: 3000\n\n{stream}");
    let odd = frames(stream).join(
        "\n\n: between\n\n: two\nevent: mystery\ndata: {\"type\":\"mystery\",\"x\":[1, 2]}\n\n",
    );
    let without_blanks = stream.replace("data: ", "data:");
    vec![
        stream.into(),
        stream.replace('\n', "\r\n").into(),
        begin.into(),
        format!("{odd}\n\n").into(),
        without_blanks.into(),
        format!("{stream}: an afterword\n\n").into(),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Chunked,
    Length,
    UntilClosed,
}

/// Returns a streamed response as wire bytes.
fn streamed(body: &[u8], framing: Framing, dice: &mut Dice) -> (Vec<u8>, Then) {
    let kind = "content-type: text/event-stream\r\n";
    match framing {
        Framing::Chunked => {
            let head = format!("HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n");
            let chunked = dice.chunked(body, 300);
            ([head.into_bytes(), chunked].concat(), Then::Next)
        }
        Framing::Length => (response("200 OK", kind, body), Then::Next),
        Framing::UntilClosed => ([EVENTS.as_bytes(), body].concat(), Then::Close),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_pass_byte_for_byte_however_they_are_cut() {
    limited(async {
        let framings = [Framing::Chunked, Framing::Length, Framing::UntilClosed];
        let mut dice = Dice::new(7);
        for (dialect, stream) in RECORDED {
            for (body, framing) in variants(stream)
                .into_iter()
                .flat_map(|body| framings.map(|framing| (body.clone(), framing)))
            {
                let most = [3, 40, 700][dice.below(3)];
                let (bytes, then) = streamed(&body, framing, &mut dice);
                let pieces = dice.pieces(&bytes, most);
                let upstream =
                    Upstream::start(move |_| ScriptedResponse::in_pieces(pieces.clone(), then))
                        .await;
                let rig = Plan::before(upstream.address, 1).start().await;
                let ask = TestRequest::new(dialect, true);
                let answer = send_in_pieces(&rig, &ask, &mut dice).await.answer().await;
                let text = String::from_utf8(body).unwrap();
                assert_eq!(answer.text(), text, "{dialect:?} {framing:?} {answer:?}");
                assert!(answer.is_whole, "{answer:?}");
                let seen = upstream.seen();
                assert_eq!(seen.len(), 1);
                assert_eq!(seen[0].body, ask.body);
            }
        }
    })
    .await;
}

// --- requests ---

/// Returns a response that any dialect takes for a whole one.
fn any_answer(dialect: Dialect) -> Vec<u8> {
    let answer = match dialect {
        Dialect::Anthropic => {
            r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#
        }
        Dialect::OpenaiChat => {
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#
        }
        Dialect::OpenaiResponses => {
            r#"{"object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]}"#
        }
    };
    response("200 OK", "content-type: application/json\r\n", answer)
}

fn odd_bodies() -> Vec<Vec<u8>> {
    let long = "gr\u{fc}n \u{1f33f} \\u00e9 ".repeat((5 << 20) / 18);
    vec![
        b" {\n\t\"model\" : \"m\" ,\"model\":\"n\", \"x_unknown\": [ 1.0, 1e400, -0 ], \"\xc3\xa9\\u0000\": null }\r\n ".to_vec(),
        b"{\"model\":\"m\",\"stream\":false,\"bad\":\"\xff\xfe\"}".to_vec(),
        b"not JSON at all\0\x01\x02".to_vec(),
        format!("{{\"model\":\"m\",\"input\":\"{long}\"}}").into_bytes(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_body_arrives_unchanged() {
    limited(async {
        let mut dice = Dice::new(11);
        for (dialect, keeps) in Dialect::ALL
            .into_iter()
            .flat_map(|dialect| [(dialect, false), (dialect, true)])
        {
            let say = ScriptedResponse::at_once(any_answer(dialect), Then::Next);
            let upstream = Upstream::start(move |_| say.clone()).await;
            let mut plan = Plan::before(upstream.address, 1);
            plan.is_persistent = keeps;
            let rig = plan.start().await;
            for (number, body) in odd_bodies().into_iter().enumerate() {
                let ask = TestRequest::with_body(dialect.path(), body);
                let answer = match ask.body.len() {
                    ..1000 => send_in_pieces(&rig, &ask, &mut dice).await.answer().await,
                    _ => rig.ask(&ask).await,
                };
                assert_eq!(answer.status, 200, "{answer:?}");
                let seen = upstream.seen();
                assert_eq!(seen.len(), number + 1);
                assert!(seen[number].body == ask.body, "{dialect:?} {number}");
            }
        }
    })
    .await;
}

/// Claude Code sends such requests: it accepts JSON, and wants a stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_request_gets_streamed_response() {
    limited(async {
        for (dialect, stream) in RECORDED {
            let upstream = Upstream::start(move |_| {
                let begun = &stream[..stream.len() * 3 / 4];
                ScriptedResponse::in_pieces(vec![EVENTS.into(), begun.into()], Then::Silence)
            });
            let upstream = upstream.await;
            let mut plan = Plan::before(upstream.address, 1);
            plan.is_persistent = true;
            let rig = plan.start().await;
            let ask = TestRequest::new(dialect, true).with("accept", "application/json");
            let ask = ask.member("padding", "x".repeat(3 << 20));
            let mut client = Client::asking(rig.gateway, &ask).await;
            client.until(b"text/event-stream").await;
            client.until(frames(stream)[3].as_bytes()).await;
        }
    })
    .await;
}

/// Returns the received headers, sorted by name, except those that concern only the gateway and the provider.
fn passed(seen: &ReceivedRequest) -> Vec<(String, Vec<u8>)> {
    let mut headers = seen.headers();
    headers.retain(|(name, _)| !["host", "content-length"].contains(&name.as_str()));
    headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_headers_arrive_with_values_in_order() {
    limited(async {
        let (upstream, rig) = answering(any_answer(Dialect::Anthropic), Then::Next).await;
        let kept: [(&str, &[u8]); 12] = [
            ("Accept", b"application/json"),
            ("Accept-Language", b"*"),
            ("ANTHROPIC-Beta", b"one,two"),
            ("anthropic-beta", b"three"),
            ("Cookie", b"a=b; c=\"d\""),
            ("X-Empty", b""),
            ("x-odd", b"caf\xe9 \xf0\x9f\x8c\xbf"),
            ("x-repeated", b"first"),
            ("x-Repeated", b"second"),
            ("x-repeated", b"first"),
            ("x-spaced", b"a  b\tc"),
            ("X-Stainless-Retry-Count", b"0"),
        ];
        for target in ["/v1/messages", "/v1/files"] {
            let mut ask = TestRequest::plain("POST", target);
            ask.body = b"{}".to_vec();
            for (name, value) in kept {
                ask = ask.with(name, value);
            }
            ask = ask
                .with("accept-encoding", "gzip, br")
                .with("x-outlast-policy", "standard")
                .with("connection", "close, x-between-us")
                .with("x-between-us", "1")
                .with("te", "trailers")
                .with("proxy-authorization", "planted");
            assert_eq!(rig.ask(&ask).await.status, 200);
            let seen = upstream.seen();
            let encoding: &[u8] = match target {
                // A response that the gateway reads may not be compressed.
                "/v1/messages" => b"identity",
                _ => b"gzip, br",
            };
            let expected = kept
                .iter()
                .map(|(name, value)| (name.to_lowercase(), value.to_vec()));
            let mut expected: Vec<_> = expected.collect();
            expected.push(("accept-encoding".into(), encoding.to_vec()));
            expected.sort_by(|(a, _), (b, _)| a.cmp(b));
            assert_eq!(passed(seen.last().unwrap()), expected, "{target}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_paths_and_queries_arrive_unchanged() {
    limited(async {
        let (upstream, rig) = answering(response("200 OK", "", "{}"), Then::Next).await;
        let targets = [
            "/v1/messages?beta=true",
            "/v1/files/a%2Fb%20c/%E2%82%AC?x=%7B%7D&y=%27q%27&z=a+b&empty=&&flag",
            "/v1/Files/UPPER%2f%2F?Q=%C3%A9",
            "//double//slashes/",
            "/v1/a;b,c=d:e@f!g$h'(i)*~",
            "/v1/models?a=[1]&b|c^d={e}`",
            "/v1/threads/thread_1/runs?after=x/y?z",
            "/v1/a?",
            "/",
        ];
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"];
        for (target, method) in targets
            .into_iter()
            .flat_map(|target| methods.map(|method| (target, method)))
        {
            // On a path for a model, this is no valid response.
            if method == "POST" && target.starts_with("/v1/messages") {
                continue;
            }
            let answer = rig.ask(&TestRequest::plain(method, target)).await;
            assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
            let line = upstream.seen().last().unwrap().line();
            assert_eq!(line, format!("{method} {target} HTTP/1.1"));
        }
    })
    .await;
}
