//! The state that all requests of a gateway share.

use super::body_store::BodyStore;
use super::holds::Holds;
use super::timers::Timers;
use super::upstreams::Upstreams;
use crate::auth::{AllowedNames, ClientKeys, Exposure, Token};
use crate::observe::log::{Event, EventKind, Sink};
use crate::observe::metrics::Metrics;
use crate::observe::request_log::RequestLog;
use outlast_engine::shared_state::SharedState;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::Timestamp;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The limits of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size of a request body, in bytes.
    pub max_body_bytes: usize,
    /// Maximum number of concurrent connections.
    pub max_connections: usize,
    /// Maximum number of requests that wait at once.
    pub max_waiting: usize,
    /// The time that responses may take to end when the gateway stops.
    pub drain_timeout: Duration,
    /// The time that the head of a request may take; no serious client takes longer.
    pub head_timeout: Duration,
    /// The time for which a body may stand still.
    pub body_idle_timeout: Duration,
    /// The time that a body may take in all; no client waits longer.
    pub body_timeout: Duration,
    /// The time for which a connection may be idle between two requests. Longer than clients keep theirs, so that the
    /// clients close them.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 << 20,
            max_connections: 20_000,
            max_waiting: 10_000,
            drain_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(15),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(600),
        }
    }
}

/// The access rules.
pub(super) struct AccessControl {
    pub(super) allowed_names: AllowedNames,
    pub(super) token: Option<Token>,
    pub(super) client_keys: Option<ClientKeys>,
    pub(super) exposure: Exposure,
}

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timers: Timers,
    pub(super) shared_state: SharedState,
    pub(super) holds: Holds,
    pub(super) metrics: Arc<Metrics>,
    pub(super) request_log: Arc<RequestLog>,
    /// All that observe the events: the metrics, the log of recent requests, and the log with the traces.
    pub(super) observers: Vec<Arc<dyn Sink>>,
    /// The number of requests for providers so far.
    pub(super) request_count: AtomicU64,
    pub(super) access: AccessControl,
    pub(super) limits: Limits,
    pub(super) body_store: BodyStore,
    pub(super) upstreams: watch::Sender<Arc<Upstreams>>,
    /// Cancelled when the gateway takes no new requests, and tells waiting clients to come back.
    pub(super) stopping: CancellationToken,
    pub(super) started_at: Timestamp,
    pub(super) address: SocketAddr,
    /// Notified when a reload of the settings is requested.
    pub(super) reload_requested: Notify,
}

impl Shared {
    /// Returns the current providers.
    pub(super) fn upstreams(&self) -> Arc<Upstreams> {
        Arc::clone(&self.upstreams.borrow())
    }

    /// Waits until the providers are others than these.
    pub(super) async fn upstreams_changed(&self, known: &Arc<Upstreams>) {
        let mut changes = self.upstreams.subscribe();
        let is_new = |current: &Arc<Upstreams>| !Arc::ptr_eq(current, known);
        // The sender lives as long as `self`.
        drop(changes.wait_for(is_new).await);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Tells all observers about an event of the gateway itself.
    pub(super) fn emit(&self, kind: EventKind<'_>) {
        let (at, request) = (self.now(), None);
        self.observers.emit(&Event { at, request, kind });
    }
}
