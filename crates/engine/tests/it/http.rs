//! The HTTP transport over real sockets.

use crate::scripted_transport::question;
use crate::support::{HANG_TIMEOUT, clock};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use outlast_dialect::{Delta, Dialect};
use outlast_engine::provider::Adapter;
use outlast_engine::transport::{Http, HttpSettings, Method, Proxies, Request, Transport};
use outlast_engine::{Provider, transport};
use outlast_kernel::failure::IoKind;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A server that reads each request and then runs a script on its connection.
struct Server {
    address: String,
    requests: mpsc::UnboundedReceiver<String>,
    count: Arc<AtomicUsize>,
}

impl Server {
    async fn start<Done>(answer: impl Fn(TcpStream) -> Done + Clone + Send + 'static) -> Self
    where
        Done: Future<Output = ()> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = mpsc::unbounded_channel();
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (sender, seen, answer) = (sender.clone(), Arc::clone(&seen), answer.clone());
                tokio::spawn(async move {
                    sender.send(head(&mut socket).await).ok();
                    seen.fetch_add(1, Ordering::SeqCst);
                    answer(socket).await;
                });
            }
        });
        Self {
            address,
            requests,
            count,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Reads a request up to its body.
async fn head(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn respond(mut socket: TcpStream, text: String) {
    socket.write_all(text.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    // The client closes first, so that its last bytes do not meet a closed socket.
    socket.read_to_end(&mut Vec::new()).await.ok();
}

fn ok(kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn settings(base_url: String) -> HttpSettings {
    HttpSettings {
        base_url,
        connect_timeout: HANG_TIMEOUT,
        ..HttpSettings::default()
    }
}

async fn get(settings: &HttpSettings) -> Result<(u16, String), transport::Error> {
    get_at("/v1/models", settings).await
}

async fn get_at(path: &str, settings: &HttpSettings) -> Result<(u16, String), transport::Error> {
    let request = Request {
        method: Method::Get,
        path: path.to_owned(),
        headers: vec![],
        body: Bytes::new(),
    };
    let mut response = Http::new(settings).unwrap().send(request).await?;
    let mut body = Vec::new();
    while let Some(bytes) = response.body.next().await {
        body.extend_from_slice(&bytes?);
    }
    Ok((response.status, String::from_utf8_lossy(&body).into_owned()))
}

#[tokio::test]
async fn custom_headers_and_base_path_are_sent() {
    let mut server = Server::start(|socket| respond(socket, ok("text/plain", "hello"))).await;
    let table = [
        ("", "/v1/models"),
        ("/", "/v1/models"),
        ("/v1", "/v1/models"),
        ("/api/v4/", "/api/v4/models"),
        ("/openai", "/openai/v1/models"),
        ("/v1?api-version=7", "/v1/models?api-version=7"),
    ];
    for (base, path) in table {
        let settings = HttpSettings {
            headers: vec![("X-Team".to_owned(), "blue".into())],
            ..settings(server.url() + base)
        };
        assert_eq!(get(&settings).await, Ok((200, "hello".to_owned())));
        let request = server.requests.recv().await.unwrap();
        assert!(
            request.starts_with(&format!("GET {path} HTTP/1.1\r\n")),
            "{request}"
        );
        assert!(request.contains("x-team: blue\r\n"), "{request}");
        assert!(request.contains("user-agent: outlast/"), "{request}");
    }
}

#[tokio::test]
async fn request_query_is_merged_with_base_url_query() {
    let mut server = Server::start(|socket| respond(socket, ok("text/plain", "hello"))).await;
    for (base, query) in [
        ("", "?a=1&b=2"),
        ("/v1?api-version=7", "?api-version=7&a=1&b=2"),
    ] {
        let settings = settings(server.url() + base);
        let answer = get_at("/v1/responses/r?a=1&b=2", &settings).await;
        assert_eq!(answer, Ok((200, "hello".to_owned())));
        let request = server.requests.recv().await.unwrap();
        let expected = format!("GET /v1/responses/r{query} HTTP/1.1\r\n");
        assert!(request.starts_with(&expected), "{request}");
    }
}

#[tokio::test]
async fn dead_connection_is_reset_error_without_retry() {
    let server = Server::start(|socket| async move { drop(socket) }).await;
    let error = get(&settings(server.url())).await.unwrap_err();
    assert_eq!(error.io, IoKind::Reset, "{error:?}");
    assert_eq!(server.count.load(Ordering::SeqCst), 1);

    let reset = |socket: TcpStream| async move { socket.set_zero_linger().unwrap() };
    let server = Server::start(reset).await;
    let error = get(&settings(server.url())).await.unwrap_err();
    assert_eq!(error.io, IoKind::Reset, "{error:?}");
    assert_eq!(server.count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn each_transport_failure_has_its_io_kind() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    let chunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let garbage = "SSH-2.0-OpenSSH_9.6\r\n\r\n";
    let badly = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nhalf";
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let not_secure = plain.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (socket, _) = plain.accept().await.unwrap();
        respond(socket, "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()).await;
    });
    let mut table = vec![
        (format!("http://{gone}"), IoKind::Connect),
        ("http://no-such-host.invalid".to_owned(), IoKind::Dns),
        (format!("https://{not_secure}"), IoKind::Tls),
    ];
    let answers = [
        (half, IoKind::Truncated),
        (chunk, IoKind::Truncated),
        (garbage, IoKind::Protocol),
        (badly, IoKind::Protocol),
    ];
    let mut servers = Vec::new();
    for (answer, io) in answers {
        let server = Server::start(move |socket| respond(socket, answer.to_owned())).await;
        table.push((server.url(), io));
        servers.push(server);
    }
    for (url, io) in table {
        let error = get(&settings(url.clone())).await.unwrap_err();
        assert_eq!(error.io, io, "{url}: {error:?}");
        assert!(!error.message.contains("http"), "{error:?}");
    }
}

#[tokio::test]
async fn redirect_is_returned_and_not_followed() {
    let target = Server::start(|socket| respond(socket, ok("text/plain", "stolen"))).await;
    let location = target.url();
    let answer = format!("HTTP/1.1 307 x\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
    let server = Server::start(move |socket| respond(socket, answer.clone())).await;
    assert_eq!(get(&settings(server.url())).await, Ok((307, String::new())));
    assert_eq!(target.count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn proxy_is_used_except_for_no_proxy_hosts() {
    let direct = Server::start(|socket| respond(socket, ok("text/plain", "direct"))).await;
    let mut proxy = Server::start(|socket| respond(socket, ok("text/plain", "proxied"))).await;
    let through = |except: &str| HttpSettings {
        proxies: Proxies {
            http: Some(format!("http://me:hunter2@{}", proxy.address).into()),
            https: None,
            no_proxy: except.to_owned(),
        },
        ..settings(direct.url())
    };
    let (proxied, excepted) = (through(""), through("localhost,127.0.0.1"));
    assert_eq!(get(&proxied).await, Ok((200, "proxied".to_owned())));
    let request = proxy.requests.recv().await.unwrap();
    assert!(request.contains("proxy-authorization: Basic "), "{request}");
    assert_eq!(get(&excepted).await, Ok((200, "direct".to_owned())));
    assert!(!format!("{proxied:?}").contains("hunter2"));
}

#[tokio::test]
async fn proxy_auth_failure_is_a_misconfigured_error() {
    let answer = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
    let proxy = Server::start(move |socket| respond(socket, answer.to_owned())).await;
    let settings = HttpSettings {
        proxies: Proxies {
            https: Some(proxy.url().into()),
            ..Proxies::default()
        },
        ..settings("https://api.example.invalid".to_owned())
    };
    let error = get(&settings).await.unwrap_err();
    assert_eq!(error.io, IoKind::Misconfigured, "{error:?}");
}

#[tokio::test]
async fn dropping_stream_closes_connection() {
    let (sender, mut closed) = mpsc::unbounded_channel();
    let stall = move |mut socket: TcpStream| {
        let sender = sender.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.read_to_end(&mut Vec::new()).await.ok();
            sender.send(()).ok();
        }
    };
    let mut server = Server::start(stall).await;
    let http = Arc::new(Http::new(&settings(server.url())).unwrap());
    let mut stream = Adapter::new(Dialect::OpenaiChat, http, clock()).stream(&question(), None);
    tokio::select! {
        item = stream.next() => panic!("{item:?}"),
        request = server.requests.recv() => assert!(request.is_some()),
    }
    drop(stream);
    let noticed = tokio::time::timeout(HANG_TIMEOUT, closed.recv()).await;
    assert_eq!(noticed, Ok(Some(())));
}

// --- TLS ---

/// Starts a TLS server of both HTTP versions with its own certificate; its response names the version.
async fn secure() -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(socket) = acceptor.accept(socket).await else {
                    return;
                };
                let service = service_fn(
                    |request: hyper::Request<hyper::body::Incoming>| async move {
                        let body = match request.uri().path() {
                            "/v1/models" => format!("{:?}", request.version()),
                            _ => CHAT.to_owned(),
                        };
                        let answer =
                            hyper::Response::builder().header("content-type", "text/event-stream");
                        Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body))).unwrap())
                    },
                );
                auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await
                    .ok();
            });
        }
    });
    (format!("https://localhost:{port}"), cert.pem())
}

#[tokio::test]
async fn configured_certificate_is_trusted() {
    let (url, pem) = secure().await;
    let trusting = HttpSettings {
        certificates: Some(pem.into_bytes()),
        ..settings(url.clone())
    };
    assert_eq!(get(&trusting).await, Ok((200, "HTTP/2.0".to_owned())));
    let http = Arc::new(Http::new(&trusting).unwrap());
    let adapter = Adapter::new(Dialect::OpenaiChat, http, clock());
    let items: Vec<_> = adapter.stream(&question(), None).collect().await;
    assert_eq!(items.first(), Some(&Ok(Delta::Text("Hi".to_owned()))));
}

#[tokio::test]
async fn unknown_certificate_is_a_misconfigured_error() {
    let (url, _) = secure().await;
    let (_, other) = secure().await;
    let doubting = HttpSettings {
        certificates: Some(other.into_bytes()),
        ..settings(url)
    };
    let error = get(&doubting).await.unwrap_err();
    assert_eq!(error.io, IoKind::Misconfigured, "{error:?}");
    assert!(error.message.contains("certificate"), "{error:?}");
}

#[test]
fn bad_settings_are_named_and_show_no_password() {
    let url = |url: &str| settings(url.to_owned());
    let with_header = |name: &str, value: &str| HttpSettings {
        headers: vec![(name.to_owned(), value.into())],
        ..url("http://localhost")
    };
    let table = [
        (url("localhost:8080"), "is not an http or https address"),
        (url(""), "is not an address"),
        (url("ftp://host"), "is not an http or https address"),
        (
            url("https://me:hunter2@host"),
            "holds a user name or a password",
        ),
        (
            with_header("bad name", "x"),
            "`bad name` is not a valid name",
        ),
        (
            with_header("x", "hunter2\n"),
            "`x` has a value that cannot be sent",
        ),
        (
            HttpSettings {
                certificates: Some(b"hunter2".to_vec()),
                ..url("https://host")
            },
            "not in PEM form",
        ),
        (
            HttpSettings {
                proxies: Proxies {
                    http: Some("http://me:hunter2@:bad".into()),
                    ..Proxies::default()
                },
                ..url("http://host")
            },
            "the address of the proxy is not valid",
        ),
    ];
    for (settings, part) in table {
        let error = Http::new(&settings).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        assert!(!format!("{settings:?}").contains("hunter2") || part.contains("password"));
    }
}
