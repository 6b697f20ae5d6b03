//! Control of the server: scripts, the log, the list of models, both versions of HTTP, and its stop.

use crate::client::{TestServer, request, streamed_completion_request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use outlast_dialect::Dialect;
use outlast_mock::Options;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(start_paused = true)]
async fn control_sets_script_for_all_or_one_model() {
    let server = TestServer::start().await;
    let dialect = Dialect::OpenaiChat;
    let status = async |model: &str| server.ask(dialect, model).await.status();
    server
        .control("POST", "script", r#"{"script":"error:418"}"#)
        .await;
    let setting = r#"{"script":"error:451","model":"gpt-4o"}"#;
    server.control("POST", "script", setting).await;
    assert_eq!([status("gpt-4o").await, status("m").await], [451, 418]);
    assert_eq!([status("gpt-4o").await, status("m").await], [200, 200]);
    server.control("POST", "script", setting).await;
    assert_eq!(status("gpt-4o").await, 451);
    server.control("DELETE", "script", "").await;
    assert_eq!(status("error:402").await, 402);
}

#[tokio::test(start_paused = true)]
async fn server_plays_a_script_per_model_and_logs_the_model() {
    let options = Options::new("ok".parse().unwrap());
    let options = options.with_argument("big=overloaded:2").unwrap();
    let server = TestServer::start_with(options.with_argument("small=error:418").unwrap()).await;
    let dialect = Dialect::Anthropic;
    let mut statuses = Vec::new();
    for model in ["big", "small", "big", "small", "big", "other"] {
        statuses.push(server.ask(dialect, model).await.status());
    }
    assert_eq!(statuses, [529, 418, 529, 200, 200, 200]);
    let log = server.requests().await;
    let models: Vec<&Value> = log.iter().map(|entry| &entry["model"]).collect();
    assert_eq!(models, ["big", "small", "big", "small", "big", "other"]);
    assert_eq!(log[0]["script"], "overloaded:2");
}

#[tokio::test(start_paused = true)]
async fn invalid_script_setting_is_a_400_with_help() {
    let server = TestServer::start().await;
    let table = [
        (r#"{"script":"overlaoded"}"#, "there is no such fault"),
        (r#"{"scripts":"ok"}"#, "unknown field"),
        ("", "the body looks like"),
    ];
    for (body, part) in table {
        let received = server
            .send(&request("POST", "/_outlast/script", &[], body))
            .await;
        assert_eq!(received.status(), 400, "{body}");
        assert!(received.body().contains(part), "{}", received.body());
    }
    let nowhere = server.send(&request("GET", "/_outlast/x", &[], "")).await;
    assert_eq!(nowhere.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn foreign_host_or_origin_is_forbidden() {
    let server = TestServer::start().await;
    let table: [(&[(&str, &str)], u16); 9] = [
        (&[("host", "127.0.0.1:8080")], 200),
        (&[("host", "[::1]:8080")], 200),
        (&[("host", "LocalHost")], 200),
        (&[("host", "rehearsal:80")], 200),
        (&[("host", "evil.example")], 403),
        (&[("host", "localhost.evil.example")], 403),
        (
            &[("host", "127.0.0.1"), ("origin", "http://localhost:3000")],
            200,
        ),
        (
            &[("host", "127.0.0.1"), ("origin", "https://evil.example")],
            403,
        ),
        (&[("host", "127.0.0.1"), ("origin", "null")], 403),
    ];
    for (headers, status) in table {
        let received = server
            .send(&request("GET", "/_outlast/requests", headers, ""))
            .await;
        assert_eq!(received.status(), status, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_records_request_script_and_outcome() {
    let server = TestServer::start().await;
    let headers = [
        ("authorization", "Bearer planted-key"),
        ("x-api-key", "planted-key"),
        ("cookie", "planted-key"),
        ("user-agent", "test"),
    ];
    let dialect = Dialect::Anthropic;
    for script in [
        "overloaded",
        "reset",
        "close",
        "cut:9",
        "drop-after:1",
        "ok:tool",
    ] {
        server
            .send(&streamed_completion_request(dialect, script, &headers))
            .await;
    }
    let log = server.requests().await;
    let ended: Vec<&Value> = log.iter().map(|entry| &entry["ended"]).collect();
    assert_eq!(
        ended,
        ["answered", "reset", "closed", "closed", "reset", "answered"]
    );
    assert!(
        !Value::from(log.clone()).to_string().contains("planted"),
        "{log:?}"
    );
    let last = &log[5];
    assert_eq!(last["number"], 6);
    assert_eq!(last["time"], "2027-01-15T08:00:00.000Z");
    assert_eq!(
        (&last["method"], &last["path"]),
        (&"POST".into(), &"/v1/messages".into())
    );
    assert_eq!(last["headers"]["x-api-key"], "(hidden)");
    assert_eq!(last["headers"]["user-agent"], "test");
    assert_eq!(last["body"]["messages"][0]["role"], "user");
    assert_eq!(
        (&last["script"], &last["fault"]),
        (&"ok:tool".into(), &"ok:tool".into())
    );
    server.control("DELETE", "requests", "").await;
    assert_eq!(server.requests().await, [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn client_disconnect_is_logged() {
    let server = TestServer::start().await;
    for script in ["hold:3600", "stall", "pings", "endless-error"] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let question = streamed_completion_request(Dialect::Anthropic, script, &[]);
        socket.write_all(question.as_bytes()).await.unwrap();
        if script != "hold:3600" {
            socket.read_exact(&mut [0; 100]).await.unwrap();
        }
        drop(socket);
        let last = server.last_request().await;
        assert_eq!(
            (&last["fault"], &last["ended"]),
            (&script.into(), &"client_closed".into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn models_are_listed_for_openai_and_anthropic_clients() {
    let server = TestServer::start().await;
    for (path, headers, id) in [
        ("/v1/models", &[][..], "object"),
        (
            "/models",
            &[("anthropic-version", "2023-06-01")],
            "display_name",
        ),
    ] {
        let received = server.send(&request("GET", path, headers, "")).await;
        let models: Value = serde_json::from_str(&received.body()).unwrap();
        assert_eq!(models["data"][0]["id"], "ok");
        assert!(models["data"][0][id].is_string(), "{models}");
    }
}

async fn ask_in_version_2(server: &TestServer, model: &str) -> Result<(u16, String), hyper::Error> {
    let socket = TcpStream::connect(server.address).await.unwrap();
    let io = TokioIo::new(socket);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    let body = format!(
        r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"hi"}}]}}"#
    );
    let request = hyper::Request::post(format!("http://{}/v1/messages", server.address))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = client.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[tokio::test(start_paused = true)]
async fn http2_is_served_to_http2_clients() {
    let server = TestServer::start().await;
    let (status, body) = ask_in_version_2(&server, "ok").await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("message_stop"), "{body}");
    let (status, _) = ask_in_version_2(&server, "overloaded").await.unwrap();
    assert_eq!(status, 529);
    for script in ["reset", "close", "drop-after:1", "cut:10"] {
        assert!(ask_in_version_2(&server, script).await.is_err(), "{script}");
    }
}

#[tokio::test(start_paused = true)]
async fn stop_finishes_active_streams_but_not_stalled_ones() {
    let server = TestServer::start().await;
    let address = server.address;
    let ask = async |model: &str| {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let question = streamed_completion_request(Dialect::Anthropic, model, &[]);
        socket.write_all(question.as_bytes()).await.unwrap();
        socket.read_exact(&mut [0; 12]).await.unwrap();
        socket
    };
    let mut dripping = ask("drip:50").await;
    let mut silent = ask("stall").await;
    let start = tokio::time::Instant::now();
    server.stop.cancel();
    let mut rest = String::new();
    dripping.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("message_stop"), "{rest}");
    silent.read_to_end(&mut Vec::new()).await.ok();
    server.serving.await.unwrap();
    assert!(
        start.elapsed() <= Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(TcpStream::connect(address).await.is_err());
}
