//! The gateway: a proxy in front of providers that holds a failing request, keeps its client alive in the client's own
//! way, and lets nothing happen twice.
//!
//! A request is read (`receive`), understood (`asked`) and carried through its attempts and waits (`call`); its response
//! is written as it happens (`reply`). What keeps a client is data (`client`); what is remembered of a request that
//! waits survives the client and the process (`holds`).
//!
//! Invariants: bytes pass unchanged, in both directions; there is no translation between dialects. Before content
//! everything that can pass is tried again, after content nothing. One failure is retried by us or by the client, never
//! by both.
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
use observe::log::{Event, EventKind, Sink};
use observe::metrics::Metrics;
use observe::request_log::RequestLog;
use outlast_engine::admission::Admission;
use outlast_engine::shared_state::{Listener, SharedState};
use outlast_engine::{CancellationToken, Clock};
use shared::{AccessControl, Shared};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use timers::Timers;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// What a gateway is made of.
pub struct Setup {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The providers behind it.
    pub upstreams: Upstreams,
    /// How much of everything there may be.
    pub limits: Limits,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What is known of providers and accounts.
    pub knowledge: SharedState,
    /// Where waits are written down; without it they do not survive the process.
    pub holds_file: Option<PathBuf>,
    /// A folder of ours for the bodies of requests that wait; without it they stay in memory.
    pub spool: Option<PathBuf>,
    /// By which names it may be reached, and which pages may ask.
    pub names: AllowedNames,
    /// The key to what is not for everybody.
    pub token: Option<Token>,
    /// What clients from elsewhere bring when stored accounts are used.
    pub client_keys: Option<ClientKeys>,
    /// Who is told what happens.
    pub log: Arc<dyn Sink>,
    /// Who is told that waits cannot be written down.
    pub notices: Listener,
}

/// An address that cannot be listened on.
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

/// What can be changed while a gateway runs.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Gateway {
    /// Listens.
    pub async fn bind(setup: Setup) -> Result<Self, ListenError> {
        let failed = |source| ListenError {
            address: setup.listen,
            source,
        };
        let listener = TcpListener::bind(setup.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let clock = setup.clock;
        let client_names: Vec<&str> = clients::ALL.iter().map(|client| client.name).collect();
        let shared = Shared {
            alarms: Timers::start(Arc::clone(&clock)),
            desk: Admission::new(setup.knowledge, Arc::clone(&clock)),
            holds: Holds::open(setup.holds_file, Arc::clone(&clock), setup.notices).await,
            metrics: Metrics::new(&client_names),
            traffic: RequestLog::new(clock.now()),
            log: setup.log,
            guard: AccessControl {
                names: setup.names,
                token: setup.token,
                keys: setup.client_keys,
                reach: Exposure::of(address.ip()),
            },
            limits: setup.limits,
            spool: BodyStore::new(setup.spool),
            upstreams: watch::Sender::new(Arc::new(setup.upstreams)),
            stopping: CancellationToken::new(),
            since: clock.now(),
            address,
            reload: Notify::new(),
            clock,
        };
        Ok(Self {
            listener,
            address,
            shared: Arc::new(shared),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What can be changed while it runs.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Answers until it is told to stop. Then whoever waits is made to come back, and answers that are under way have
    /// some time to end.
    pub async fn serve(self, stop: CancellationToken) {
        let version = env!("CARGO_PKG_VERSION");
        let address = self.address;
        self.shared.log.say(&Event {
            at: self.shared.now(),
            request: None,
            what: EventKind::Listening { address, version },
        });
        let stopping = self.shared.stopping.clone();
        let serving = server::listener::serve(self.listener, Arc::clone(&self.shared));
        tokio::join!(serving, async {
            stop.cancelled().await;
            stopping.cancel();
        });
        self.shared.holds.close().await;
    }
}

impl Handle {
    /// Comes when somebody wants the settings to be read again.
    pub async fn reload_requested(&self) {
        self.0.reload.notified().await;
    }

    /// From now on requests go there, those that wait included. What is under way stays where it is.
    pub fn reload(&self, upstreams: Upstreams) {
        self.0.upstreams.send_replace(Arc::new(upstreams));
    }
}
