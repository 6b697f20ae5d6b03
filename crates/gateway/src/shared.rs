//! What all requests of a gateway have in common.

use super::body_store::BodyStore;
use super::holds::Holds;
use super::timers::Timers;
use super::upstreams::Upstreams;
use crate::auth::{AllowedNames, ClientKeys, Exposure, Token};
use crate::observe::log::Sink;
use crate::observe::metrics::Metrics;
use crate::observe::request_log::RequestLog;
use outlast_engine::admission::Admission;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::Timestamp;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How much of everything there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest body of a request.
    pub body: usize,
    /// Connections at once.
    pub connections: usize,
    /// Requests that wait at once.
    pub waiting: usize,
    /// How long answers may take to end when the gateway stops.
    pub drain: Duration,
    /// How long the head of a request may take: one that takes longer is that of nobody who means it.
    pub head_time: Duration,
    /// How long a body may stand still.
    pub body_pause: Duration,
    /// How long a body may take in all; no client waits longer.
    pub body_time: Duration,
    /// How long a connection may lie idle between two requests. Longer than clients keep theirs, so that it is they who
    /// end them.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            connections: 20_000,
            waiting: 10_000,
            drain: Duration::from_secs(30),
            head_time: Duration::from_secs(15),
            body_pause: Duration::from_secs(30),
            body_time: Duration::from_secs(600),
            idle: Duration::from_secs(600),
        }
    }
}

/// Who may ask what.
pub(super) struct AccessControl {
    pub(super) names: AllowedNames,
    pub(super) token: Option<Token>,
    pub(super) keys: Option<ClientKeys>,
    pub(super) reach: Exposure,
}

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) alarms: Timers,
    pub(super) desk: Admission,
    pub(super) holds: Holds,
    pub(super) metrics: Metrics,
    pub(super) traffic: RequestLog,
    pub(super) log: Arc<dyn Sink>,
    pub(super) guard: AccessControl,
    pub(super) limits: Limits,
    pub(super) spool: BodyStore,
    pub(super) upstreams: watch::Sender<Arc<Upstreams>>,
    /// No new request is taken, and who waits is told to come back.
    pub(super) stopping: CancellationToken,
    pub(super) since: Timestamp,
    pub(super) address: SocketAddr,
    /// Somebody wants the settings to be read again.
    pub(super) reload: Notify,
}

impl Shared {
    /// The providers as they are now.
    pub(super) fn upstreams(&self) -> Arc<Upstreams> {
        Arc::clone(&self.upstreams.borrow())
    }

    /// Comes when they are others.
    pub(super) async fn upstreams_changed(&self) {
        let mut changes = self.upstreams.subscribe();
        // They last as long as we do.
        changes.changed().await.ok();
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
