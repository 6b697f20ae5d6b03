//! The plain client against a server that sends scripted bytes.

use super::*;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answers the requests of each connection with the given responses in order, in pieces of `piece` bytes, then closes.
async fn server(answers: &[&str], piece: usize) -> (PlainClient, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base: Url = format!("http://{}/v1", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let mut left: VecDeque<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
    let serving = tokio::spawn(async move {
        let mut asked = Vec::new();
        while !left.is_empty() {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            while let Some(request) = request(&mut stream).await {
                asked.push(request);
                let answer = left.pop_front().unwrap_or_default();
                for piece in answer.as_bytes().chunks(piece) {
                    stream.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                if answer.contains("close") || left.is_empty() {
                    break;
                }
            }
        }
        asked
    });
    let plain = PlainClient::new(&HttpSettings::default(), &base, HeaderMap::new()).unwrap();
    (plain, serving)
}

async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() == length.map_or(0, |length| length.parse().unwrap()) {
            return Some(text);
        }
    }
}

async fn ask(plain: &PlainClient, method: Method) -> Result<(StatusCode, String), Error> {
    let body = match method {
        Method::POST => Bytes::from_static(b"{}"),
        _ => Bytes::new(),
    };
    let path = "/v1/messages?beta=true";
    let headers = HeaderMap::from_iter([(
        ::http::header::ACCEPT,
        ::http::HeaderValue::from_static("*/*"),
    )]);
    let (status, _, mut body) = plain
        .send(method, path, &headers, Payload::Whole(body))
        .await?;
    let mut all = Vec::new();
    while let Some(piece) = body.next().await? {
        all.extend_from_slice(&piece);
    }
    Ok((status, String::from_utf8(all).unwrap()))
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n7;x=y\r\n second\r\nA\r\n and third\r\n0\r\nx-end: 1\r\n\r\n";
const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfour";

#[tokio::test]
async fn response_does_not_depend_on_read_sizes() {
    for piece in 1..CHUNKED.len() {
        let (plain, serving) = server(
            &[CHUNKED, LENGTH, "HTTP/1.1 200 OK\r\n\r\nuntil the close"],
            piece,
        )
        .await;
        let ok = |text: &str| Ok((StatusCode::OK, text.to_owned()));
        assert_eq!(
            ask(&plain, Method::POST).await,
            ok("first second and third")
        );
        assert_eq!(ask(&plain, Method::POST).await, ok("four"));
        assert_eq!(ask(&plain, Method::POST).await, ok("until the close"));
        assert_eq!(serving.await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn bytes_received_together_are_yielded_together() {
    let (plain, _serving) = server(&[CHUNKED], usize::MAX).await;
    let (_, _, mut body) = plain
        .send(
            Method::POST,
            "/",
            &HeaderMap::new(),
            Payload::Whole(Bytes::new()),
        )
        .await
        .unwrap();
    assert_eq!(
        body.next().await.unwrap().unwrap(),
        "first second and third"
    );
    assert_eq!(body.next().await.unwrap(), None);
}

#[tokio::test]
async fn request_is_written_exactly_with_host_and_length() {
    let (plain, serving) = server(&[LENGTH], 99).await;
    ask(&plain, Method::POST).await.unwrap();
    let asked = serving.await.unwrap().pop().unwrap();
    let host = plain.0.authority.clone();
    assert_eq!(
        asked,
        format!(
            "POST /v1/messages?beta=true HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\ncontent-length: 2\r\n\r\n{{}}"
        )
    );
}

#[tokio::test]
async fn connection_is_reused_only_after_complete_response() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    for (answers, kept) in [(&[LENGTH, LENGTH][..], 1), (&[closing, LENGTH], 0)] {
        let (plain, _serving) = server(answers, 99).await;
        ask(&plain, Method::POST).await.unwrap();
        assert_eq!(plain.0.idle.lock().len(), kept);
        ask(&plain, Method::POST).await.unwrap();
    }
    let (plain, _serving) = server(&[CHUNKED, LENGTH], 99).await;
    drop(
        plain
            .send(
                Method::POST,
                "/",
                &HeaderMap::new(),
                Payload::Whole(Bytes::new()),
            )
            .await
            .unwrap(),
    );
    assert_eq!(plain.0.idle.lock().len(), 0);
}

#[tokio::test]
async fn closed_idle_connection_is_not_reused() {
    let (plain, serving) = server(&[LENGTH], 99).await;
    ask(&plain, Method::POST).await.unwrap();
    serving.await.unwrap();
    while plain
        .0
        .idle
        .lock()
        .front()
        .is_some_and(|idle| idle.is_reusable())
    {
        tokio::task::yield_now().await;
    }
    let refused = ask(&plain, Method::POST).await.unwrap_err();
    assert_eq!(refused.io, IoKind::Connect);
}

#[tokio::test]
async fn interim_responses_are_skipped_and_head_has_no_body() {
    let interim = format!("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{LENGTH}");
    let (plain, _serving) = server(
        &[
            &interim,
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n",
            LENGTH,
        ],
        7,
    )
    .await;
    let four = (StatusCode::OK, "four".to_owned());
    assert_eq!(ask(&plain, Method::POST).await, Ok(four.clone()));
    assert_eq!(
        ask(&plain, Method::HEAD).await,
        Ok((StatusCode::OK, String::new()))
    );
    assert_eq!(ask(&plain, Method::GET).await, Ok(four));
}

#[tokio::test]
async fn truncated_or_malformed_response_is_an_error() {
    let cases = [
        ("close", IoKind::Protocol),
        ("", IoKind::Reset),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfour",
            IoKind::Truncated,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfour",
            IoKind::Truncated,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n",
            IoKind::Truncated,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfour\r\n",
            IoKind::Protocol,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
            IoKind::Protocol,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nfour\r\n",
            IoKind::Protocol,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: +4\r\n\r\nfour",
            IoKind::Protocol,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nfour",
            IoKind::Protocol,
        ),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", IoKind::Protocol),
    ];
    for (answer, io) in cases {
        let (plain, _serving) = server(&[answer], 99).await;
        let error = ask(&plain, Method::POST).await.unwrap_err();
        assert_eq!(error.io, io, "{answer:?}: {}", error.message);
    }
}

#[tokio::test]
async fn refusal_before_full_upload_is_returned() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let plain = PlainClient::new(&HttpSettings::default(), &base, HeaderMap::new()).unwrap();
    let refusing = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut Vec::with_capacity(1)).await.unwrap();
        let answer =
            "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        // Reads the rest of the request, so that the response is not lost.
        tokio::io::copy(&mut stream, &mut tokio::io::sink())
            .await
            .unwrap();
    });
    let body = Payload::Whole(Bytes::from(vec![b' '; 8 << 20]));
    let (status, _, _) = plain
        .send(Method::POST, "/", &HeaderMap::new(), body)
        .await
        .unwrap();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    refusing.abort();
}

#[tokio::test]
async fn unreadable_request_body_is_a_misconfigured_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let base = base.parse().unwrap();
    let plain = PlainClient::new(&HttpSettings::default(), &base, HeaderMap::new()).unwrap();
    let pieces = [
        Ok(Bytes::from_static(b"begin")),
        Err(io::Error::other("gone")),
    ];
    let body = Payload::Pieces {
        length: 10,
        pieces: futures_util::stream::iter(pieces).boxed(),
    };
    let error = plain.send(Method::POST, "/", &HeaderMap::new(), body).await;
    assert_eq!(error.unwrap_err().io, IoKind::Misconfigured);
}

#[tokio::test]
async fn plain_client_declines_https_and_proxies() {
    let settings = HttpSettings::default();
    let none = |settings: &HttpSettings, url: &str| {
        PlainClient::new(settings, &url.parse().unwrap(), HeaderMap::new()).is_none()
    };
    assert!(none(&settings, "https://host"));
    let mut proxied = settings.clone();
    proxied.proxies.http = Some("http://proxy".to_owned().into());
    assert!(none(&proxied, "http://host"));
    assert!(!none(&settings, "http://host"));
}
