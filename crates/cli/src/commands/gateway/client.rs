//! Asking a gateway that runs, over HTTP on this machine, with its token.

use crate::commands::gateway::registry::RunningGateway;
use futures_util::StreamExt;
use outlast_engine::Transport;
use outlast_engine::transport::{Http, HttpSettings, Method, Request};
use outlast_gateway::auth::Token;
use outlast_kernel::text;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// It is on this machine, and answers at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Ten thousand requests that wait are a few MiB.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Another gateway may have it.
const NO_SUCH_REQUEST: &str = "no_such_request";

/// What can be asked of a gateway.
#[derive(Clone, Copy)]
pub(in crate::commands::gateway) enum ControlRequest<'a> {
    /// What waits.
    Status,
    /// Let one that waits, or all, try again.
    RetryNow(Option<&'a str>),
    /// End one that waits.
    Cancel(&'a str),
    /// The same as its status, in the form of a page that shows several.
    Gateways,
    /// The last requests, those that changed after that number.
    Traffic(u64),
}

impl ControlRequest<'_> {
    fn request(self, port: u16, token: &str) -> Request {
        let id = |id: &str| json!({ "id": id }).to_string();
        let get = |path: &str| (Method::Get, path.to_owned(), String::new());
        let post = |path: &str, body| (Method::Post, path.to_owned(), body);
        let (method, path, body) = match self {
            Self::Status => get("status"),
            Self::RetryNow(one) => post("retry-now", one.map_or_else(|| "{}".to_owned(), id)),
            Self::Cancel(one) => post("cancel", id(one)),
            Self::Gateways => get("api/gateways"),
            Self::Traffic(after) => get(&format!("api/gateways/{port}/traffic?after={after}")),
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

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlError {
    /// None runs on that port.
    NoGateway(u16),
    /// It could not be asked, and why.
    Unreachable(String),
    /// It was asked and will not.
    Refused {
        /// Where it is.
        url: String,
        /// The status that it answers with.
        status: u16,
        /// One word for why.
        code: String,
        /// The same in words.
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

/// Asks a gateway of this home; the answer is its JSON, or nothing where no such request waits.
pub(in crate::commands::gateway) async fn ask(
    running: &RunningGateway,
    home: &Path,
    question: ControlRequest<'_>,
) -> anyhow::Result<Value> {
    match put(running, home, question).await {
        Err(ControlError::Refused { code, .. }) if code == NO_SUCH_REQUEST => Ok(Value::Null),
        answered => Ok(answered?),
    }
}

/// Asks a gateway of this home; the answer is its JSON.
pub(in crate::commands::gateway) async fn put(
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
    let request = question.request(running.address.port(), token.reveal());
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange(&http, request)).await;
    let answer =
        answer.map_err(|_| unreachable(format!("the gateway at {url} does not answer")))?;
    let failed = |why| unreachable(format!("cannot ask the gateway at {url}: {why}"));
    let (status, body) = answer.map_err(failed)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status == 200 {
        return Ok(body);
    }
    // One of both forms of errors that gateways have.
    let said = |name: &str, other: &str| {
        let said = body["error"][name].as_str().or(body[other].as_str());
        text::message(said.unwrap_or_default())
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
