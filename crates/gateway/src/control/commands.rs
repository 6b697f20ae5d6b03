//! The commands to a running gateway.

use super::GatewayControl;
use crate::problem::Problem;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

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
        Problem::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    })
}

fn no_such_request() -> Problem {
    let message = "no request of that id waits";
    Problem::new(StatusCode::NOT_FOUND, "no_such_request", message)
}

/// Makes one waiting request, or all of them, retry now.
pub(super) fn retry_now(body: &[u8], gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let id = parse_request_id(body)?;
    let retried = gateway.retry_now(id.as_deref());
    if id.is_some() && retried == 0 {
        return Err(no_such_request());
    }
    Ok(json!({ "retried": retried }))
}

/// Cancels a waiting request.
pub(super) fn cancel(body: &[u8], gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let Some(id) = parse_request_id(body)? else {
        let message = "which one is to be cancelled: {\"id\": \"…\"}";
        let status = StatusCode::BAD_REQUEST;
        return Err(Problem::new(status, "invalid_request", message));
    };
    if !gateway.cancel(&id) {
        return Err(no_such_request());
    }
    Ok(json!({ "cancelled": id }))
}

/// Makes the gateway reload its settings.
pub(super) fn reload(gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let wrong = |message| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "settings", message);
    gateway.reload().map_err(wrong)?;
    Ok(json!({ "reloaded": true }))
}
