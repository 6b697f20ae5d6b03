//! What a gateway is told to do.

use super::GatewayControl;
use crate::problem::Problem;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

/// Which request is meant. A word that is not known could have been meant to say so, and is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestSelector {
    id: Option<String>,
}

fn meant(body: &[u8]) -> Result<Option<String>, Problem> {
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

/// One request that waits, or all, are to try again.
pub(super) fn retry_now(body: &[u8], gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let id = meant(body)?;
    let retried = gateway.retry_now(id.as_deref());
    if id.is_some() && retried == 0 {
        return Err(no_such_request());
    }
    Ok(json!({ "retried": retried }))
}

/// A request that waits is given up.
pub(super) fn cancel(body: &[u8], gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let Some(id) = meant(body)? else {
        let message = "which one is to be cancelled: {\"id\": \"…\"}";
        let status = StatusCode::BAD_REQUEST;
        return Err(Problem::new(status, "invalid_request", message));
    };
    if !gateway.cancel(&id) {
        return Err(no_such_request());
    }
    Ok(json!({ "cancelled": id }))
}

/// The settings are to be read again.
pub(super) fn reload(gateway: &dyn GatewayControl) -> Result<Value, Problem> {
    let wrong = |message| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "settings", message);
    gateway.reload().map_err(wrong)?;
    Ok(json!({ "reloaded": true }))
}
