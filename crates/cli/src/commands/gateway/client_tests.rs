//! Tests of running gateways as other views query them.

use super::*;
use crate::commands::gateway::registry::Registration;
use outlast_engine::clock::WallClock;
use outlast_engine::provider::Timeouts;
use outlast_engine::shared_state::SharedState;
use outlast_engine::transport::{Forwarder, HttpSettings};
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::auth::{AllowedNames, Token};
use outlast_gateway::{Gateway, Limits, Setup, Upstream, Upstreams};
use outlast_kernel::policy::Policy;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANY: &str = "127.0.0.1:0";
/// An address without a listener: every request fails and is held.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Starts a gateway that is registered in the given home.
async fn start(home: &Path) -> (SocketAddr, Registration) {
    let clock: Arc<dyn Clock> = Arc::new(WallClock::scaled(NonZeroU32::MIN).unwrap());
    let settings = HttpSettings {
        base_url: NOWHERE.to_owned(),
        ..HttpSettings::default()
    };
    let upstream = |name: &str| Upstream {
        name: name.to_owned(),
        address: String::new(),
        forward: Forwarder::new(&settings).unwrap(),
        accounts: None,
    };
    let gateway = Gateway::bind(Setup {
        listen: ANY.parse().unwrap(),
        upstreams: Upstreams {
            anthropic: upstream("anthropic"),
            openai: upstream("openai"),
            policy: Policy::named("overnight").unwrap().into(),
            policies: Vec::new(),
            client: None,
            timeouts: Timeouts::default(),
            min_throughput: 0,
        },
        limits: Limits::default(),
        shared_state: SharedState::process_local(clock.clone()),
        clock,
        holds_file: None,
        body_dir: None,
        allowed_names: AllowedNames::new("gateway", [], []),
        token: Some(Token::load_or_create_in(home).unwrap()),
        client_keys: None,
        log: Arc::new(()),
        store_listener: Arc::new(|_| {}),
    });
    let gateway = gateway.await.unwrap();
    let left = known(home, gateway.address());
    let address = gateway.address();
    tokio::spawn(gateway.serve(CancellationToken::new()));
    (address, left)
}

fn known(home: &Path, address: SocketAddr) -> Registration {
    let running = RunningGateway {
        address,
        pid: std::process::id(),
        for_program: false,
    };
    Registration::register(home, &running).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_request_can_be_listed_retried_and_cancelled() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (address, _left) = start(home).await;
    let port = address.port();
    let send = |request| send_to_port(home, port, request);
    let mut client = TcpStream::connect(address).await.unwrap();
    let asked = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    client.write_all(asked.as_bytes()).await.unwrap();
    let id = loop {
        let all = gateways(home).await;
        assert_eq!((all.len(), &all[0]["port"]), (1, &json!(port)));
        if let Some(id) = all[0]["status"]["waiting"][0]["id"].as_str() {
            break id.to_owned();
        }
    };
    let seen = send(ControlRequest::RequestLog(0)).await.unwrap();
    assert_eq!(seen["requests"][0]["id"], *id);
    let seq = seen["seq"].as_u64().unwrap();
    assert_eq!(
        send(ControlRequest::RetryNow(Some(&id))).await,
        Ok(json!({ "retried": 1 }))
    );
    assert_eq!(
        send(ControlRequest::Cancel(&id)).await,
        Ok(json!({ "cancelled": id }))
    );
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("cancelled at the gateway"), "{answer}");
    let later = send(ControlRequest::RequestLog(seq)).await.unwrap();
    assert_eq!(later["requests"][0]["outcome"], "cancelled");
    assert_eq!(
        send_to_port(
            home,
            port,
            ControlRequest::RequestLog(later["seq"].as_u64().unwrap())
        )
        .await
        .unwrap()["requests"],
        json!([])
    );
    assert_eq!(
        send(ControlRequest::RetryNow(None)).await,
        Ok(json!({ "retried": 0 }))
    );
    let refused = send(ControlRequest::Cancel(&id)).await.unwrap_err();
    let ControlError::Refused { status, code, .. } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!((*status, code.as_str()), (404, "no_such_request"));
    assert!(
        refused.to_string().contains("no request of that id waits"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_gateway_is_listed_with_its_problem() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(gateways(home).await, [json!(null); 0]);
    assert_eq!(
        send_to_port(home, 9, ControlRequest::RequestLog(0)).await,
        Err(ControlError::NoGateway(9))
    );
    let (address, _left) = start(home).await;
    let _other = known(home, "127.0.0.1:9".parse().unwrap());
    let all = gateways(home).await;
    assert_eq!(all.len(), 2);
    assert_eq!(
        (&all[0]["port"], &all[0]["status"]),
        (&json!(9), &Value::Null)
    );
    let problem = all[0]["problem"].as_str().unwrap();
    assert!(
        problem.starts_with("cannot ask the gateway at http://127.0.0.1:9: "),
        "{problem}"
    );
    assert_eq!(all[1]["address"], json!(address));
    assert!(all[1]["status"].is_object());
    let failed = send_to_port(home, 9, ControlRequest::Cancel("x"))
        .await
        .unwrap_err();
    assert!(matches!(failed, ControlError::Unreachable(_)), "{failed:?}");
}
