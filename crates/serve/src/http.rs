//! Serves sessions, pipeline runs and gateways over HTTP and WebSocket, for programs and for the web page.
//!
//! `access_control` checks every request (host, origin, token, rate) before a route of `api` handles it;
//! `session_events` streams events out. Invariants: every error is a problem document with a code for programs; a
//! client that disconnects ends no turn.

mod access_control;
mod api;
mod app_state;
mod extract;
mod gateways;
mod problems;
mod rate_limit;
mod runs;
mod session_events;
mod sessions;
mod stream_body;
mod turns;
mod websocket;

pub use app_state::Limits;
pub use gateways::{GatewayRequest, HostServices};
pub use session_events::Dialect;

use crate::live_sessions::LiveSessions;
use crate::rpc::MAX_LINE_BYTES;
use crate::runs::StartRun;
use access_control::Peer;
use api::Api;
use app_state::{AppState, run_to_completion};
use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse as _;
use axum::routing::get;
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http::{HeaderMap, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use outlast_engine::CancellationToken;
use outlast_gateway::auth::{AllowedNames, Token};
use outlast_gateway::problem::Problem;
use outlast_pipeline::run_store::RunStore;
use problems::HttpError;
use rate_limit::RateLimiter;
use serde_json::Value;
use socket2::{SockRef, TcpKeepalive};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Maximum size of a request head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum size of a request body, in bytes: a body becomes a command, and a command is one line of `MAX_LINE_BYTES`.
const MAX_BODY_BYTES: usize = MAX_LINE_BYTES - (64 << 10);
/// Idle time before TCP keep-alive probes start; below, the interval between probes and their number.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const TCP_KEEPALIVE_PROBES: u32 = 4;
/// Delay before the next `accept` when the machine has no resources for another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Time that requests in progress get to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// The parts of a server.
pub struct Setup {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The sessions to serve.
    pub sessions: Arc<LiveSessions>,
    /// The runs to report, and the service that starts new ones.
    pub runs: (RunStore, Arc<dyn StartRun>),
    /// Services of the program beside sessions and runs.
    pub host_services: Arc<dyn HostServices>,
    /// The host names under which the server may be reached, and the origins that may call it.
    pub names: AllowedNames,
    /// The token that every path but the page's own files needs, if any.
    pub token: Option<Token>,
    /// Limits on sizes, times, connections and rates.
    pub limits: Limits,
}

/// The error of an address that the server cannot listen on.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address}: {source}; choose another with --listen, port 0 takes any that is free"
)]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A server that listens and does not answer yet.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<AppState>,
    router: Router,
}

impl HttpServer {
    /// Binds the address and starts to listen.
    pub async fn bind(setup: Setup) -> Result<Self, ListenError> {
        let failed = |source| ListenError {
            address: setup.listen,
            source,
        };
        let listener = TcpListener::bind(setup.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let limits = Limits {
            body: setup.limits.body.min(MAX_BODY_BYTES),
            ..setup.limits
        };
        let mut api = routes();
        let shared = Arc::new(AppState {
            sessions: setup.sessions,
            runs: setup.runs.0,
            run_starter: setup.runs.1,
            host_services: setup.host_services,
            names: setup.names,
            token: setup.token,
            limits,
            rate_limiter: RateLimiter::new(limits.requests),
            document: api.document().to_string(),
            sockets: TaskTracker::new(),
        });
        let check =
            axum::middleware::from_fn_with_state(Arc::clone(&shared), access_control::check);
        let router = api
            .router
            .route("/api/ws", get(websocket::upgrade))
            .route("/api/openapi.json", get(openapi))
            .route("/healthz", get(gateways::health))
            .fallback(gateways::page_file)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(check)
            .with_state(Arc::clone(&shared));
        Ok(Self {
            listener,
            address,
            shared,
            router,
        })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` is cancelled.
    pub async fn serve(self, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(self.shared.limits.connections));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            };
            // At the connection limit a new connection is closed at once instead of kept waiting.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                continue;
            };
            let (router, limits) = (self.router.clone(), self.shared.limits);
            let peer = Peer::new(peer, place);
            let stop = stop.clone();
            connections.spawn(connection(stream, peer, router, limits, stop));
        }
        let sockets = &self.shared.sockets;
        connections.close();
        sockets.close();
        let all = async { tokio::join!(connections.wait(), sockets.wait()) };
        tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.ok();
    }
}

fn routes() -> Api {
    let mut api = Api::new();
    sessions::add_routes(&mut api);
    turns::add_routes(&mut api);
    runs::add_routes(&mut api);
    gateways::add_routes(&mut api);
    api
}

/// Returns the OpenAPI document of the routes.
pub fn document() -> Value {
    routes().document()
}

/// Answers the requests of one connection.
async fn connection(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    stream.set_nodelay(true).ok();
    // A client that vanished without closing would occupy its permit for ever.
    let asking = TcpKeepalive::new().with_time(TCP_KEEPALIVE_IDLE);
    let asking = asking
        .with_interval(TCP_KEEPALIVE_INTERVAL)
        .with_retries(TCP_KEEPALIVE_PROBES);
    SockRef::from(&stream).set_tcp_keepalive(&asking).ok();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let changes_something = !request.method().is_safe();
        let answer = router.call(request);
        // hyper drops a response with its connection, even before the handler has run. A request that changes something
        // and was received completely is carried out, however soon its client disconnects.
        match changes_something {
            false => Either::Left(answer),
            true => Either::Right(
                run_to_completion(answer)
                    .map(|answer| answer.unwrap_or_else(|problem| Ok(problem.into_response()))),
            ),
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    // Errors of the connection are the client's business.
    tokio::select! {
        _ = serving.as_mut() => {}
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await.ok();
        }
    }
}

async fn openapi(State(shared): State<Arc<AppState>>) -> (HeaderMap, String) {
    let kind = http::HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
    (headers, shared.document.clone())
}

async fn method_not_allowed() -> HttpError {
    let detail = "this is asked for by another method; /api/openapi.json says by which";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into()
}
