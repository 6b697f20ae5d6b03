//! The gateway: a proxy in front of LLM providers that retries failed requests and keeps clients alive meanwhile.
//!
//! A request is read (`server`), parsed (`inbound_request`) and carried through its attempts and waits (`call`).
//! Keep-alives are data (`clients`); the progress of a waiting request survives the client and the process (`holds`).
//! Invariants: bytes pass unchanged in both directions, without translation between dialects. Before content, transient
//! failures are retried; after content, none is. One failure is retried by the gateway or by the client, never by both.
#![warn(missing_docs)]

pub mod assets;
pub mod auth;
mod body_store;
mod call;
pub mod clients;
pub mod control;
mod finish;
pub mod holds;
mod inbound_request;
pub mod observe;
pub mod problem;
mod relay;
mod route;
mod server;
mod shared;
mod timers;
mod upstreams;

pub use shared::Limits;
pub use upstreams::{Upstream, Upstreams};

use crate::auth::{AllowedNames, ClientKeys, Exposure, Token};
use body_store::BodyStore;
use holds::Holds;
use observe::log::{EventKind, Sink};
use observe::metrics::Metrics;
use observe::request_log::RequestLog;
use outlast_engine::shared_state::{Listener, SharedState};
use outlast_engine::{CancellationToken, Clock};
use shared::{AccessControl, Shared};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use timers::Timers;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// The parts of a gateway.
pub struct Setup {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The providers behind the gateway.
    pub upstreams: Upstreams,
    /// The limits of sizes, counts and times.
    pub limits: Limits,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The shared state of providers and accounts.
    pub shared_state: SharedState,
    /// The file that records waits; without it they do not survive the process.
    pub holds_file: Option<PathBuf>,
    /// A private folder for the bodies of waiting requests; without it they stay in memory.
    pub body_dir: Option<PathBuf>,
    /// The host names of the gateway, and the origins of pages that may send requests.
    pub allowed_names: AllowedNames,
    /// The token of the protected endpoints.
    pub token: Option<Token>,
    /// The keys that clients from other machines must send when stored accounts are used.
    pub client_keys: Option<ClientKeys>,
    /// The sink that receives all events.
    pub log: Arc<dyn Sink>,
    /// The listener that is told that waits cannot be recorded.
    pub store_listener: Listener,
}

/// An address on which the gateway cannot listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address}: {source}; choose another with --listen, port 0 takes any that is free"
)]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A gateway that listens and does not answer yet.
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A handle to change a running gateway.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Gateway {
    /// Binds the address and prepares the gateway.
    pub async fn bind(setup: Setup) -> Result<Self, ListenError> {
        let failed = |source| ListenError {
            address: setup.listen,
            source,
        };
        let listener = TcpListener::bind(setup.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let clock = setup.clock;
        let client_names: Vec<&str> = clients::ALL.iter().map(|client| client.name).collect();
        let metrics = Arc::new(Metrics::new(&client_names));
        let request_log = Arc::new(RequestLog::new(clock.now()));
        let shared = Shared {
            timers: Timers::start(Arc::clone(&clock)),
            shared_state: setup.shared_state,
            holds: Holds::open(setup.holds_file, Arc::clone(&clock), setup.store_listener).await,
            observers: vec![metrics.clone(), request_log.clone(), setup.log],
            metrics,
            request_log,
            request_count: AtomicU64::new(0),
            access: AccessControl {
                allowed_names: setup.allowed_names,
                token: setup.token,
                client_keys: setup.client_keys,
                exposure: Exposure::for_address(address.ip()),
            },
            limits: setup.limits,
            body_store: BodyStore::new(setup.body_dir),
            upstreams: watch::Sender::new(Arc::new(setup.upstreams)),
            stopping: CancellationToken::new(),
            started_at: clock.now(),
            address,
            reload_requested: Notify::new(),
            clock,
        };
        Ok(Self {
            listener,
            address,
            shared: Arc::new(shared),
        })
    }

    /// Returns the address on which the gateway listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle to change the gateway while it runs.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves requests until `stop` is cancelled. Then waiting clients are told to come back, and responses in progress
    /// have some time to end.
    pub async fn serve(self, stop: CancellationToken) {
        let version = env!("CARGO_PKG_VERSION");
        let address = self.address;
        self.shared.emit(EventKind::Listening { address, version });
        let stopping = self.shared.stopping.clone();
        let serving = server::listener::serve(self.listener, Arc::clone(&self.shared));
        let stopped = async {
            stop.cancelled().await;
            stopping.cancel();
        };
        tokio::select! {
            _ = async { tokio::join!(serving, stopped) } => {}
            () = observe::gate_log::run(&self.shared) => {}
        }
        self.shared.holds.close().await;
    }
}

impl Handle {
    /// Waits until a reload of the settings is requested.
    pub async fn reload_requested(&self) {
        self.0.reload_requested.notified().await;
    }

    /// Sends all further attempts to the given providers, those of waiting requests included. Attempts in progress stay
    /// where they are.
    pub fn reload(&self, upstreams: Upstreams) {
        self.0.upstreams.send_replace(Arc::new(upstreams));
    }
}
