//! The gateways of this machine, for other views: the running ones, their last requests, and retry and cancel of held
//! requests.

pub(crate) use crate::commands::gateway::client::ControlError;
use crate::commands::gateway::client::{ControlRequest, send};
use crate::commands::gateway::registry::{self, RunningGateway};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::path::Path;

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

/// Returns the last requests of a gateway that changed after the given sequence number.
pub(crate) async fn request_log(home: &Path, port: u16, after: u64) -> Result<Value, ControlError> {
    send(
        &find_gateway(home, port)?,
        home,
        ControlRequest::RequestLog(after),
    )
    .await
}

/// Retries one held request of that gateway, or all of them, at once.
pub(crate) async fn retry_now(
    home: &Path,
    port: u16,
    id: Option<&str>,
) -> Result<Value, ControlError> {
    send(
        &find_gateway(home, port)?,
        home,
        ControlRequest::RetryNow(id),
    )
    .await
}

/// Cancels one held request of that gateway.
pub(crate) async fn cancel(home: &Path, port: u16, id: &str) -> Result<Value, ControlError> {
    send(&find_gateway(home, port)?, home, ControlRequest::Cancel(id)).await
}

fn find_gateway(home: &Path, port: u16) -> Result<RunningGateway, ControlError> {
    let mut running = registry::running(home).into_iter();
    let found = running.find(|one| one.address.port() == port);
    found.ok_or(ControlError::NoGateway(port))
}

#[cfg(test)]
#[path = "local_gateways_tests.rs"]
mod tests;
