//! What the gateway will be.
#![allow(dead_code, clippy::unused_async, reason = "it is not there yet")]

use outlast_engine::accounts::Accounts;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::provider::Timeouts;
use outlast_engine::transport::Forwarder;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::policy::Policy;
use outlast_server::gateway::guard::{ClientKeys, Names, Token};
use outlast_server::gateway::log::Sink;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Upstreams {
    pub(super) anthropic: Upstream,
    pub(super) openai: Upstream,
    pub(super) policy: Policy,
    pub(super) policies: Vec<(String, Policy)>,
    pub(super) client: Option<String>,
    pub(super) timeouts: Timeouts,
    pub(super) least_throughput: u32,
}

pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) forward: Forwarder,
    pub(super) accounts: Option<Arc<Accounts>>,
}

pub(super) struct Limits {
    pub(super) body: usize,
    pub(super) connections: usize,
    pub(super) waiting: usize,
    pub(super) drain: Duration,
}

pub(super) struct Setup {
    pub(super) listen: SocketAddr,
    pub(super) upstreams: Upstreams,
    pub(super) limits: Limits,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) knowledge: Knowledge,
    pub(super) holds_file: Option<PathBuf>,
    pub(super) spool: Option<PathBuf>,
    pub(super) names: Names,
    pub(super) token: Option<Token>,
    pub(super) client_keys: Option<ClientKeys>,
    pub(super) log: Arc<dyn Sink>,
}

pub(super) struct Gateway(tokio::net::TcpListener);
#[derive(Clone)]
pub(super) struct Handle;
impl Handle {
    pub(super) fn reload(&self, _: Upstreams) {}
}
impl Gateway {
    pub(super) async fn bind(setup: Setup) -> std::io::Result<Self> {
        tokio::net::TcpListener::bind(setup.listen).await.map(Self)
    }
    pub(super) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap_or(SocketAddr::from(([0; 4], 0)))
    }
    pub(super) fn handle(&self) -> Handle {
        Handle
    }
    pub(super) async fn serve(self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}
