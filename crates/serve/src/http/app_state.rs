//! What every request of a server needs.

use super::gateways::HostServices;
use super::problems::HttpError;
use super::rate_limit::RateLimiter;
use crate::live_sessions::LiveSessions;
use crate::runs::{Runs, StartRun};
use axum::Json;
use axum::extract::State;
use outlast_gateway::auth::{AllowedNames, Token};
use outlast_gateway::problem::Problem;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// How much of everything there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a body, and of a message over a WebSocket, in bytes.
    pub body: usize,
    /// How long a body may take.
    pub body_time: Duration,
    /// How long the head of a request may take.
    pub head_time: Duration,
    /// Connections.
    pub connections: usize,
    /// Requests of one address in a second.
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
    pub(super) runs: Runs,
    pub(super) starts: Arc<dyn StartRun>,
    pub(super) around: Arc<dyn HostServices>,
    pub(super) names: AllowedNames,
    /// What everything but the page itself needs, if anything.
    pub(super) token: Option<Token>,
    pub(super) limits: Limits,
    pub(super) rates: RateLimiter,
    pub(super) document: String,
    /// The WebSockets that are open.
    pub(super) sockets: TaskTracker,
}

/// What handlers are given, and what most of them answer.
pub(super) type ExtractState = State<Arc<AppState>>;
pub(super) type JsonResult<T> = Result<Json<T>, HttpError>;

/// Does something to its end, also when whoever asked for it has gone, and before anybody waits for it.
pub(super) fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, HttpError>> + Send {
    let done = tokio::spawn(work);
    async {
        let done = done.await;
        done.map_err(|_| Problem::unavailable("unavailable", "it could not be done").into())
    }
}
