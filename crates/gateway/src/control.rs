//! The control endpoints of a running gateway, for people and for monitoring programs.
//!
//! Pure but for the effects of [`GatewayControl`]: a request goes in, a response comes out. The paths and responses below
//! `/_outlast/api/` are those of `outlast serve` (docs/serve.md), as far as they apply to a gateway, so that one page
//! serves both. Invariant: nothing is shown or done without the token, except the health check, the files of the page,
//! which hold no data, and the metrics where only this machine can reach the gateway. Not here: the check of Host and
//! Origin, which runs before (see `auth`), and sockets.

pub mod policies;
mod view;

pub use view::{
    About, Account, AccountState, Gate, GatewaySummary, ListedGateway, ListedGateways, Policies,
    SharedState, Status, Upstream, WaitingRequest,
};

use crate::assets;
use crate::auth::{self, AccessDenied, Exposure, Token};
use crate::observe::metrics::{self, Metrics};
use crate::observe::request_log::RequestLog;
use crate::problem::Problem;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use outlast_kernel::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The path of the gateway's own endpoints, except `/metrics` and `/healthz`.
const ROOT: &str = "/_outlast";
/// The path of the page: its files are named relative to it.
const PAGE: &str = "/_outlast/";
/// The path prefix of the endpoints of the page.
const API: &str = "/_outlast/api/";
/// The views of a gateway that the page shows.
const VIEWS: [&str; 3] = ["gateway", "providers", "policies"];
/// Maximum number of bytes that are read of a request body.
const BODY_LIMIT: usize = 16 * 1024;

/// The response of a control endpoint.
pub type Response = http::Response<Bytes>;

/// The state and the commands of a gateway; called while a request is answered, so the methods must return quickly.
pub trait GatewayControl {
    /// Returns the token of the protected endpoints; without one they stay closed.
    fn token(&self) -> Option<&Token>;

    /// Returns the machines that can reach the gateway.
    fn exposure(&self) -> Exposure;

    /// Returns the address on which the gateway listens.
    fn address(&self) -> SocketAddr;

    /// Returns the metrics.
    fn metrics(&self) -> &Metrics;

    /// Returns the log of recent requests.
    fn request_log(&self) -> &RequestLog;

    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns a summary of the gateway itself.
    fn summary(&self) -> GatewaySummary;

    /// Returns the configured accounts.
    fn accounts(&self) -> Vec<Account>;

    /// Returns the gates at which calls fail.
    fn gates(&self) -> Vec<Gate>;

    /// Returns the waiting requests, the oldest first.
    fn waiting(&self) -> Vec<WaitingRequest>;

    /// Ends the wait of one request, or of all; returns their number.
    fn retry_now(&self, id: Option<&str>) -> usize;

    /// Cancels a request; returns whether one with that id exists.
    fn cancel(&self, id: &str) -> bool;

    /// Reloads the settings; the error describes the problem with them.
    fn reload(&self) -> Result<(), String>;
}

/// Returns whether a path belongs to the gateway, and never to a provider.
pub fn is_control_path(path: &str) -> bool {
    let within = path.strip_prefix(ROOT);
    let below = within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below || matches!(path, "/metrics" | "/healthz")
}

/// Returns whether a request is for the page itself, which shows nothing until it is given the token.
pub fn is_page(asked: &Parts) -> bool {
    let is_read = matches!(asked.method, Method::GET | Method::HEAD);
    is_read && matches!(asked.uri.path(), ROOT | PAGE)
}

/// Answers a request for one of the gateway's own paths. The body is included for HEAD, too; the caller must not send
/// it.
pub fn respond(gateway: &dyn GatewayControl, asked: &Parts, body: &[u8]) -> Response {
    let path = asked.uri.path();
    let answered = match Endpoint::at(path) {
        Some((endpoint, port)) => endpoint.respond(gateway, port, asked, body),
        None if path.starts_with(API) => {
            let detail = "there is nothing here; docs/gateway.md lists what is";
            Err(Problem::unknown(detail))
        }
        None => page_response(asked),
    };
    answered.unwrap_or_else(|problem| error_response(path, &problem))
}

/// Formats a problem for the client of that path: as a problem document for the page, for all others in the form that
/// clients of providers read.
pub fn error_response(path: &str, problem: &Problem) -> Response {
    if path.starts_with(API) {
        return problem.response();
    }
    let body = auth::error_body(problem.code, &problem.detail);
    let mut response = build_response(problem.status, "application/json", body);
    problem.add_headers(response.headers_mut());
    response
}

// --- checks before the endpoint ---

/// The methods of read-only endpoints, and of endpoints with an effect.
const READ_METHODS: &str = "GET, HEAD";
const WRITE_METHODS: &str = "POST";

fn check_method(asked: &Parts, allowed: &'static str) -> Result<(), Problem> {
    if allowed.split(", ").any(|method| asked.method == method) {
        return Ok(());
    }
    let message = format!("this is asked for by {allowed}");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Err(Problem::new(status, "method_not_allowed", message).with_allowed_methods(allowed))
}

fn check_token(gateway: &dyn GatewayControl, asked: &Parts) -> Result<(), Problem> {
    let is_known = |token: &Token| token.is_in_headers(&asked.headers);
    match gateway.token().is_some_and(is_known) {
        true => Ok(()),
        false => Err(AccessDenied::TokenRequired.into()),
    }
}

fn check_body(body: &[u8]) -> Result<(), Problem> {
    if body.len() <= BODY_LIMIT {
        return Ok(());
    }
    let message = "this takes little more than an id";
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    Err(Problem::new(status, "request_too_large", message))
}

// --- endpoints ---

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Health,
    Metrics,
    Status,
    RetryNow,
    Cancel,
    Reload,
    About,
    Gateways,
    SharedState,
    Policies,
    RequestLog,
}

impl Endpoint {
    /// Returns the endpoint at a path, and the port of the gateway that the path names, if it names one.
    fn at(path: &str) -> Option<(Self, Option<&str>)> {
        let below = match path {
            "/healthz" => return Some((Self::Health, None)),
            "/metrics" => return Some((Self::Metrics, None)),
            _ => path.strip_prefix(PAGE)?,
        };
        let parts: Vec<&str> = below.splitn(5, '/').collect();
        let (endpoint, port) = match *parts {
            ["health"] => (Self::Health, None),
            ["status"] => (Self::Status, None),
            ["retry-now"] => (Self::RetryNow, None),
            ["cancel"] => (Self::Cancel, None),
            ["reload"] => (Self::Reload, None),
            ["api", "about"] => (Self::About, None),
            ["api", "gateways"] => (Self::Gateways, None),
            // The old name is accepted until 0.3.
            ["api", "shared_state" | "knowledge"] => (Self::SharedState, None),
            ["api", "policies"] => (Self::Policies, None),
            ["api", "gateways", port, "traffic"] => (Self::RequestLog, Some(port)),
            ["api", "gateways", port, "retry_now"] => (Self::RetryNow, Some(port)),
            ["api", "gateways", port, "cancel"] => (Self::Cancel, Some(port)),
            _ => return None,
        };
        Some((endpoint, port))
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::RetryNow | Self::Cancel | Self::Reload => WRITE_METHODS,
            _ => READ_METHODS,
        }
    }

    fn needs_token(self, exposure: Exposure) -> bool {
        match self {
            Self::Health => false,
            Self::Metrics => exposure == Exposure::Network,
            _ => true,
        }
    }

    fn respond(
        self,
        gateway: &dyn GatewayControl,
        port: Option<&str>,
        asked: &Parts,
        body: &[u8],
    ) -> ControlResult {
        check_method(asked, self.allowed())?;
        if self.needs_token(gateway.exposure()) {
            check_token(gateway, asked)?;
        }
        check_body(body)?;
        port.map_or(Ok(()), |port| check_port(gateway, port))?;
        let now = gateway.now();
        match self {
            Self::Health => health(gateway),
            Self::Metrics => Ok(metrics_text(gateway)),
            Self::Status => json(&status(gateway)),
            Self::RetryNow => json(&retry_now(body, gateway)?),
            Self::Cancel => json(&cancel(body, gateway)?),
            Self::Reload => json(&reload(gateway)?),
            Self::About => json(&About {
                version: version(),
                now,
                views: VIEWS.into(),
            }),
            Self::Gateways => json(&ListedGateways {
                now,
                gateways: vec![ListedGateway {
                    port: gateway.address().port(),
                    address: gateway.address().to_string(),
                    status: status(gateway),
                }],
            }),
            Self::SharedState => json(&SharedState {
                now,
                accounts: gateway.accounts(),
                gates: gateway.gates(),
            }),
            Self::Policies => json(&Policies {
                policies: policies::all(),
            }),
            Self::RequestLog => {
                let after = after_parameter(asked)?;
                json(&gateway.request_log().changes_since(after, now))
            }
        }
    }
}

/// Checks that the port is that of this gateway, as it describes no other.
fn check_port(gateway: &dyn GatewayControl, port: &str) -> Result<(), Problem> {
    let own = gateway.address().port();
    if port.parse() == Ok(own) {
        return Ok(());
    }
    let detail = format!("this gateway is {own}, and knows of no other");
    let status = StatusCode::NOT_FOUND;
    Err(Problem::new(status, "no_such_gateway", detail))
}

/// Returns the sequence number after which changes are requested; without one, all are.
fn after_parameter(asked: &Parts) -> Result<u64, Problem> {
    let pairs = asked.uri.query().unwrap_or_default().split('&');
    let mut values = pairs.filter_map(|pair| pair.strip_prefix("after="));
    let Some(value) = values.next() else {
        return Ok(0);
    };
    let detail = "`after` is the number that an earlier answer has as `seq`";
    value.parse().map_err(|_| Problem::unreadable(detail))
}

// --- responses ---

type ControlResult = Result<Response, Problem>;

fn build_response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json(what: &impl Serialize) -> ControlResult {
    let body = serde_json::to_string(what).map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "internal", error.to_string())
    })?;
    Ok(build_response(StatusCode::OK, "application/json", body))
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Reports the health, so that a load balancer sends no more requests to a gateway that is about to end.
fn health(gateway: &dyn GatewayControl) -> ControlResult {
    let about = gateway.summary();
    let (status, word) = if about.draining {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ok")
    };
    let since = about.listening_since;
    let mut response =
        json(&json!({ "status": word, "version": version(), "listening_since": since }))?;
    *response.status_mut() = status;
    Ok(response)
}

fn metrics_text(gateway: &dyn GatewayControl) -> Response {
    let accounts = gateway.accounts();
    let is_blocked = |account: &&Account| account.state == AccountState::Blocked;
    let blocked = accounts.iter().filter(is_blocked).count();
    let metrics = gateway.metrics();
    metrics
        .blocked
        .set(i64::try_from(blocked).unwrap_or(i64::MAX));
    build_response(StatusCode::OK, metrics::CONTENT_TYPE, metrics.text())
}

fn status(gateway: &dyn GatewayControl) -> Status {
    Status {
        version: version(),
        about: gateway.summary(),
        accounts: gateway.accounts(),
        gates: gateway.gates(),
        waiting: gateway.waiting(),
        counters: gateway.metrics().counters(),
    }
}

/// Serves a file of the page. Without the trailing slash, relative file names would resolve to the wrong folder.
fn page_response(asked: &Parts) -> ControlResult {
    let path = asked.uri.path();
    let file = path.strip_prefix(PAGE).and_then(assets::file);
    if file.is_none() && path != ROOT {
        let message = format!("there is nothing here; the page is at {PAGE}");
        return Err(Problem::unknown(message));
    }
    check_method(asked, READ_METHODS)?;
    if let Some(file) = file {
        return Ok(file.response(&asked.headers));
    }
    let mut moved = Response::new(Bytes::new());
    *moved.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let place = HeaderValue::from_static(PAGE);
    moved.headers_mut().insert(header::LOCATION, place);
    Ok(moved)
}

// --- commands ---

/// The request that a command is for. An unknown member could be a misspelt selector, so it is rejected.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestSelector {
    id: Option<String>,
}

fn parse_request_id(body: &[u8]) -> Result<Option<String>, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let read = serde_json::from_slice::<RequestSelector>(body);
    read.map(|meant| meant.id).map_err(|error| {
        let message = format!("the body is {{\"id\": \"…\"}} or empty: {error}");
        Problem::unreadable(message)
    })
}

fn no_such_request() -> Problem {
    let message = "no request of that id waits";
    Problem::new(StatusCode::NOT_FOUND, "no_such_request", message)
}

/// Makes one waiting request, or all of them, retry now.
fn retry_now(body: &[u8], gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let id = parse_request_id(body)?;
    let retried = gateway.retry_now(id.as_deref());
    if id.is_some() && retried == 0 {
        return Err(no_such_request());
    }
    Ok(json!({ "retried": retried }))
}

/// Cancels a waiting request.
fn cancel(body: &[u8], gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let Some(id) = parse_request_id(body)? else {
        let message = "which one is to be cancelled: {\"id\": \"…\"}";
        return Err(Problem::unreadable(message));
    };
    if !gateway.cancel(&id) {
        return Err(no_such_request());
    }
    Ok(json!({ "cancelled": id }))
}

/// Makes the gateway reload its settings.
fn reload(gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let wrong = |message| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "settings", message);
    gateway.reload().map_err(wrong)?;
    Ok(json!({ "reloaded": true }))
}

#[cfg(test)]
#[path = "control/api_tests.rs"]
mod api_tests;
#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
