//! A client for the control endpoints of the gateways of this machine: HTTP, with the gateway's token.

use crate::commands::gateway::registry::{self, RunningGateway};
use futures_util::StreamExt;
use futures_util::future::join_all;
use outlast_engine::Transport;
use outlast_engine::transport::{Http, HttpSettings, Method, Request};
use outlast_gateway::auth::Token;
use outlast_kernel::text;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The time limit for a request: the gateway is on this machine and responds at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response body, in bytes: ten thousand held requests are a few MiB.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The error code for an unknown request; another gateway may hold it.
const NO_SUCH_REQUEST: &str = "no_such_request";

/// A request to the control endpoints of a gateway.
#[derive(Clone, Copy)]
pub(crate) enum ControlRequest<'a> {
    /// Lists the held requests.
    Status,
    /// Retries one held request, or all of them, now.
    RetryNow(Option<&'a str>),
    /// Cancels one held request.
    Cancel(&'a str),
    /// Returns the same as `Status`, in the form for a page that shows several gateways.
    Gateways,
    /// Returns the last requests that changed after the given sequence number.
    RequestLog(u64),
}

impl ControlRequest<'_> {
    fn http_request(self, port: u16, token: &str) -> Request {
        let id = |id: &str| json!({ "id": id }).to_string();
        let get = |path: &str| (Method::Get, path.to_owned(), String::new());
        let post = |path: &str, body| (Method::Post, path.to_owned(), body);
        let (method, path, body) = match self {
            Self::Status => get("status"),
            Self::RetryNow(one) => post("retry-now", one.map_or_else(|| "{}".to_owned(), id)),
            Self::Cancel(one) => post("cancel", id(one)),
            Self::Gateways => get("api/gateways"),
            Self::RequestLog(after) => get(&format!("api/gateways/{port}/traffic?after={after}")),
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Request {
            method,
            path: format!("/_outlast/{path}"),
            headers: vec![
                header("x-outlast-token", token),
                header("content-type", "application/json"),
            ],
            body: body.into(),
        }
    }
}

/// An error of a control request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlError {
    /// No gateway runs on that port.
    NoGateway(u16),
    /// The request could not be sent; holds the reason.
    Unreachable(String),
    /// The gateway refused the request.
    Refused {
        /// The address of the gateway.
        url: String,
        /// The HTTP status of the response.
        status: u16,
        /// The error code: one word.
        code: String,
        /// The error in words.
        detail: String,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGateway(port) => write!(f, "no gateway runs on port {port}"),
            Self::Unreachable(why) => f.write_str(why),
            Self::Refused {
                url,
                status,
                detail,
                ..
            } => write!(
                f,
                "the gateway at {url} answers with status {status}: {detail}"
            ),
        }
    }
}

impl std::error::Error for ControlError {}

/// Returns all running gateways, ordered by port: `{port, address, status}` each. A gateway that does not respond has
/// `problem` in place of `status`.
pub(crate) async fn gateways(home: &Path) -> Vec<Value> {
    let running = registry::running(home);
    join_all(running.iter().map(|one| gateway_json(one, home))).await
}

async fn gateway_json(running: &RunningGateway, home: &Path) -> Value {
    let problem = match send(running, home, ControlRequest::Gateways).await {
        Ok(mut answer) if answer["gateways"][0].is_object() => return answer["gateways"][0].take(),
        Ok(_) => "the gateway is of another version".to_owned(),
        Err(unanswered) => unanswered.to_string(),
    };
    json!({ "port": running.address.port(), "address": running.address, "problem": problem })
}

/// Sends a control request to the gateway on that port and returns its JSON.
pub(crate) async fn send_to_port(
    home: &Path,
    port: u16,
    request: ControlRequest<'_>,
) -> Result<Value, ControlError> {
    let mut running = registry::running(home).into_iter();
    let found = running.find(|one| one.address.port() == port);
    let gateway = found.ok_or(ControlError::NoGateway(port))?;
    send(&gateway, home, request).await
}

/// Sends a control request to a gateway of this home and returns its JSON; `Null` if it holds no such request.
pub(super) async fn send_optional(
    running: &RunningGateway,
    home: &Path,
    question: ControlRequest<'_>,
) -> anyhow::Result<Value> {
    match send(running, home, question).await {
        Err(ControlError::Refused { code, .. }) if code == NO_SUCH_REQUEST => Ok(Value::Null),
        answered => Ok(answered?),
    }
}

/// Sends a control request to a gateway of this home and returns its JSON.
pub(super) async fn send(
    running: &RunningGateway,
    home: &Path,
    question: ControlRequest<'_>,
) -> Result<Value, ControlError> {
    let unreachable = |why: String| ControlError::Unreachable(why);
    let token = Token::load_existing(home).map_err(|error| unreachable(error.to_string()))?;
    let token = token
        .ok_or_else(|| unreachable("there is no token of a gateway in this home".to_owned()))?;
    let url = running.url();
    let settings = HttpSettings {
        base_url: url.clone(),
        connect_timeout: REQUEST_TIMEOUT,
        ..HttpSettings::default()
    };
    let http = Http::new(&settings).map_err(|error| unreachable(error.to_string()))?;
    let request = question.http_request(running.address.port(), token.reveal());
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange(&http, request)).await;
    let answer =
        answer.map_err(|_| unreachable(format!("the gateway at {url} does not answer")))?;
    let failed = |why| unreachable(format!("cannot ask the gateway at {url}: {why}"));
    let (status, body) = answer.map_err(failed)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status == 200 {
        return Ok(body);
    }
    // Gateways have two forms of errors; this reads both.
    let said = |name: &str, other: &str| {
        let said = body["error"][name].as_str().or(body[other].as_str());
        text::sanitized_message(said.unwrap_or_default())
    };
    Err(ControlError::Refused {
        url,
        status,
        code: said("code", "code"),
        detail: said("message", "detail"),
    })
}

async fn exchange(http: &Http, request: Request) -> Result<(u16, Vec<u8>), String> {
    let failed = |error: outlast_engine::transport::Error| error.message;
    let mut response = http.send(request).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(piece) = response.body.next().await {
        body.extend_from_slice(&piece.map_err(failed)?);
        if body.len() > MAX_RESPONSE_BYTES {
            return Err("its answer is too long".to_owned());
        }
    }
    Ok((response.status, body))
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
