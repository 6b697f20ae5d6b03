//! What a person, or a program that watches, may ask of a gateway that runs.
//!
//! Pure but for what [`Inspect`] does: a request goes in, an answer comes out. Invariant: nothing is shown and nothing
//! is done without the token, but for whether the gateway is well, and its numbers where only this machine can ask.
//! Not here: the check of Host and Origin, which comes before (see `guard`), and sockets.

mod status;

pub use status::{About, Account, AccountState, Gate, Status, Upstream, Waiting};

use super::metrics::{self, Metrics};
use crate::guard::{self, Reach, Refused, Token};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::json;

/// Where everything of our own is but `/metrics` and `/healthz`.
const ROOT: &str = "/_outlast";
/// The most that is read of a body, in bytes.
pub const BODY_LIMIT: usize = 16 * 1024;

/// What is answered.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// Headers beside the content type.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

/// What the gateway knows and can do; asked in the course of an answer, so it must not take long.
pub trait Inspect {
    /// What opens the endpoints that are not for everybody; without one they stay shut.
    fn token(&self) -> Option<&Token>;

    /// Who can come at all.
    fn reach(&self) -> Reach;

    /// The numbers.
    fn metrics(&self) -> &Metrics;

    /// The gateway itself.
    fn about(&self) -> About;

    /// The accounts that are configured.
    fn accounts(&self) -> Vec<Account>;

    /// The gates that are not closed.
    fn gates(&self) -> Vec<Gate>;

    /// The requests that wait, the oldest first.
    fn waiting(&self) -> Vec<Waiting>;

    /// Ends the wait of one request, or of all; the answer is of how many.
    fn retry_now(&self, id: Option<&str>) -> usize;

    /// Gives a request up; the answer is whether there is one of that id.
    fn cancel(&self, id: &str) -> bool;

    /// Reads the settings again; the answer may be what is wrong with them.
    fn reload(&self) -> Result<(), String>;
}

/// Whether a path is one of ours, and never a provider's.
pub fn is_ours(path: &str) -> bool {
    let within = path.strip_prefix(ROOT);
    let below = within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below || matches!(path, "/metrics" | "/healthz")
}

/// Answers a request for one of our own paths.
pub fn answer(gateway: &dyn Inspect, asked: &Parts, body: &[u8]) -> Response {
    let Some(endpoint) = Endpoint::at(asked.uri.path()) else {
        let message = format!("there is nothing here; see {ROOT}/status");
        return Response::problem(404, "not_found", &message);
    };
    if !endpoint.takes(&asked.method) {
        return endpoint.not_by_that_method();
    }
    let is_known = |token: &Token| token.is_in(&asked.headers);
    if endpoint.needs_token(gateway.reach()) && !gateway.token().is_some_and(is_known) {
        return Response::refused(&Refused::Token);
    }
    if body.len() > BODY_LIMIT {
        return Response::problem(
            413,
            "request_too_large",
            "this takes little more than an id",
        );
    }
    let answered = endpoint.answer(body, gateway);
    let mut response = answered.unwrap_or_else(|problem| *problem);
    if asked.method == Method::HEAD {
        response.body.clear();
    }
    response
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Health,
    Metrics,
    Status,
    RetryNow,
    Cancel,
    Reload,
}

impl Endpoint {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Health,
            "/metrics" => Self::Metrics,
            _ => match path.strip_prefix(ROOT)? {
                "/health" => Self::Health,
                "/status" => Self::Status,
                "/retry-now" => Self::RetryNow,
                "/cancel" => Self::Cancel,
                "/reload" => Self::Reload,
                _ => return None,
            },
        })
    }

    fn only_reads(self) -> bool {
        matches!(self, Self::Health | Self::Metrics | Self::Status)
    }

    fn takes(self, method: &Method) -> bool {
        if self.only_reads() {
            return method == Method::GET || method == Method::HEAD;
        }
        method == Method::POST
    }

    fn not_by_that_method(self) -> Response {
        let allowed = if self.only_reads() {
            "GET, HEAD"
        } else {
            "POST"
        };
        let message = format!("this is asked for by {allowed}");
        let mut reply = Response::problem(405, "method_not_allowed", &message);
        let allowed = HeaderValue::from_static(allowed);
        reply.headers.insert(header::ALLOW, allowed);
        reply
    }

    fn needs_token(self, reach: Reach) -> bool {
        match self {
            Self::Health => false,
            Self::Metrics => reach == Reach::Beyond,
            Self::Status | Self::RetryNow | Self::Cancel | Self::Reload => true,
        }
    }

    fn answer(self, body: &[u8], gateway: &dyn Inspect) -> Result<Response, Box<Response>> {
        match self {
            Self::Health => Ok(health(gateway)),
            Self::Metrics => Ok(numbers(gateway)),
            Self::Status => show(gateway),
            Self::RetryNow => retry_now(body, gateway),
            Self::Cancel => cancel(body, gateway),
            Self::Reload => reload(gateway),
        }
    }
}

impl Response {
    fn new(status: u16, content_type: &'static str, body: String) -> Self {
        let no_store = HeaderValue::from_static("no-store");
        Self {
            status,
            content_type,
            headers: HeaderMap::from_iter([(header::CACHE_CONTROL, no_store)]),
            body,
        }
    }

    fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// A refusal or a mistake of whoever asks.
    pub fn problem(status: u16, kind: &str, message: &str) -> Self {
        let body = guard::problem(kind, message);
        Self::new(status, "application/json", body)
    }

    /// What somebody is told who may not ask.
    pub fn refused(refused: &Refused) -> Self {
        let mut reply = Self::problem(refused.status(), refused.kind(), &refused.to_string());
        if let Some(challenge) = refused.challenge() {
            reply.headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        reply
    }
}

// --- what is shown ---

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Whoever spreads requests over several gateways sends no more to one that is about to end.
fn health(gateway: &dyn Inspect) -> Response {
    let about = gateway.about();
    let (status, word) = if about.draining {
        (503, "draining")
    } else {
        (200, "ok")
    };
    let since = about.listening_since;
    let body = json!({ "status": word, "version": version(), "listening_since": since });
    Response::json(status, &body)
}

fn numbers(gateway: &dyn Inspect) -> Response {
    let accounts = gateway.accounts();
    let is_blocked = |account: &&Account| account.state == AccountState::Blocked;
    let blocked = accounts.iter().filter(is_blocked).count();
    gateway.metrics().accounts_blocked(blocked);
    Response::new(200, metrics::CONTENT_TYPE, gateway.metrics().text())
}

fn show(gateway: &dyn Inspect) -> Result<Response, Box<Response>> {
    let status = Status {
        version: version(),
        about: gateway.about(),
        accounts: gateway.accounts(),
        gates: gateway.gates(),
        waiting: gateway.waiting(),
        counters: gateway.metrics().counters(),
    };
    let body = serde_json::to_string(&status)
        .map_err(|error| Box::new(Response::problem(500, "internal", &error.to_string())))?;
    Ok(Response::new(200, "application/json", body))
}

// --- what is done ---

/// Which request is meant. A word that is not known could have been meant to say so, and is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    id: Option<String>,
}

fn meant(body: &[u8]) -> Result<Option<String>, Box<Response>> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let read = serde_json::from_slice::<Meant>(body);
    read.map(|meant| meant.id).map_err(|error| {
        let message = format!("the body is {{\"id\": \"…\"}} or empty: {error}");
        Box::new(Response::problem(400, "invalid_request", &message))
    })
}

fn no_such_request() -> Response {
    let message = "no request of that id waits";
    Response::problem(404, "no_such_request", message)
}

fn retry_now(body: &[u8], gateway: &dyn Inspect) -> Result<Response, Box<Response>> {
    let id = meant(body)?;
    let retried = gateway.retry_now(id.as_deref());
    if id.is_some() && retried == 0 {
        return Err(Box::new(no_such_request()));
    }
    Ok(Response::json(200, &json!({ "retried": retried })))
}

fn cancel(body: &[u8], gateway: &dyn Inspect) -> Result<Response, Box<Response>> {
    let Some(id) = meant(body)? else {
        let message = "which one is to be cancelled: {\"id\": \"…\"}";
        return Err(Box::new(Response::problem(400, "invalid_request", message)));
    };
    if !gateway.cancel(&id) {
        return Err(Box::new(no_such_request()));
    }
    Ok(Response::json(200, &json!({ "cancelled": id })))
}

fn reload(gateway: &dyn Inspect) -> Result<Response, Box<Response>> {
    let wrong = |message: String| Box::new(Response::problem(422, "settings", &message));
    gateway.reload().map_err(wrong)?;
    Ok(Response::json(200, &json!({ "reloaded": true })))
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
