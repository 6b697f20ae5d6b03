//! State shared by all requests of a server.

use super::gateways::HostServices;
use super::problems::HttpError;
use super::rate_limit::RateLimiter;
use crate::live_sessions::LiveSessions;
use crate::runs::StartRun;
use axum::Json;
use axum::extract::State;
use outlast_gateway::auth::{AllowedNames, Token};
use outlast_gateway::problem::Problem;
use outlast_pipeline::run_store::RunStore;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a request body and of a WebSocket message, in bytes.
    pub body: usize,
    /// Time within which a body must arrive.
    pub body_time: Duration,
    /// Time within which the head of a request must arrive.
    pub head_time: Duration,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of requests of one address per second.
    pub requests: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 32 << 20,
            body_time: Duration::from_secs(120),
            head_time: Duration::from_secs(15),
            connections: 4096,
            requests: 1000,
        }
    }
}

pub(super) struct AppState {
    pub(super) sessions: Arc<LiveSessions>,
    pub(super) runs: RunStore,
    pub(super) run_starter: Arc<dyn StartRun>,
    pub(super) host_services: Arc<dyn HostServices>,
    pub(super) names: AllowedNames,
    /// The token that every path but the page's own files needs, if any.
    pub(super) token: Option<Token>,
    pub(super) limits: Limits,
    pub(super) rate_limiter: RateLimiter,
    pub(super) document: String,
    /// The open WebSockets.
    pub(super) sockets: TaskTracker,
}

/// The state that handlers receive; below, the result that most of them return.
pub(super) type ExtractState = State<Arc<AppState>>;
pub(super) type JsonResult<T> = Result<Json<T>, HttpError>;

/// Runs `work` to its end, even if the client disconnects. The work starts at once, before the returned future is
/// polled.
pub(super) fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, HttpError>> + Send {
    let done = tokio::spawn(work);
    async {
        let done = done.await;
        done.map_err(|_| Problem::unavailable("unavailable", "it could not be done").into())
    }
}
