//! What every request of a server needs.

use super::around::Around;
use super::rate::Rates;
use crate::guard::{Names, Token};
use crate::problem::Problem;
use crate::runs::{Runs, StartRun};
use crate::sessions::Sessions;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use std::time::Duration;

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

pub(super) struct Shared {
    pub(super) sessions: Arc<Sessions>,
    pub(super) runs: Runs,
    pub(super) starts: Arc<dyn StartRun>,
    pub(super) around: Arc<dyn Around>,
    pub(super) names: Names,
    /// What everything but the page itself needs, if anything.
    pub(super) token: Option<Token>,
    pub(super) limits: Limits,
    pub(super) rates: Rates,
    pub(super) document: String,
}

/// What handlers are given, and what most of them answer.
pub(super) type Server = State<Arc<Shared>>;
pub(super) type Answer<T> = Result<Json<T>, Problem>;
