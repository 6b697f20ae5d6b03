//! `outlast gateway retry-now`, `cancel` and `page`: retries and cancels held requests, and prints the address of a
//! gateway's page.

use crate::args::GatewaySelector;
use crate::commands::gateway::client::{ControlRequest, send_optional};
use crate::commands::gateway::registry::{self, RunningGateway};
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use anyhow::Context;
use outlast_gateway::auth::Token;
use outlast_kernel::text;
use serde_json::Value;
use std::path::Path;

/// Retries one held request, or all of them, at once.
pub(super) fn retry_now(which: GatewaySelector, typed: Option<&str>) -> anyhow::Result<Exit> {
    let working = Spinner::start("asking the gateway");
    let woken = runtime::run(async {
        let home = home::path()?;
        let meant = registry::select(&home, which)?;
        if let Some(typed) = typed {
            let (running, id) = find_waiting_request(&home, &meant, typed).await?;
            let answer = send_optional(running, &home, ControlRequest::RetryNow(Some(&id))).await?;
            return Ok(answer["retried"].as_u64().unwrap_or_default());
        }
        let mut woken = 0;
        for running in &meant {
            let answer = send_optional(running, &home, ControlRequest::RetryNow(None)).await?;
            woken += answer["retried"].as_u64().unwrap_or_default();
        }
        Ok(woken)
    })?;
    drop(working);
    match woken {
        0 => print("Nothing waits.\n"),
        1 => print("1 request tries again.\n"),
        woken => print(&format!("{woken} requests try again.\n")),
    }
}

/// Cancels one held request.
pub(super) fn cancel(which: GatewaySelector, typed: &str) -> anyhow::Result<Exit> {
    let _working = Spinner::start("asking the gateway");
    runtime::run(async {
        let home = home::path()?;
        let meant = registry::select(&home, which)?;
        let (running, id) = find_waiting_request(&home, &meant, typed).await?;
        match send_optional(running, &home, ControlRequest::Cancel(&id)).await? {
            Value::Null => print("It does not wait any more.\n"),
            _ => print("It is cancelled.\n"),
        }
    })
}

/// Finds the one held request whose id begins or ends with the given text, and its gateway.
async fn find_waiting_request<'a>(
    home: &Path,
    gateways: &'a [RunningGateway],
    typed: &str,
) -> anyhow::Result<(&'a RunningGateway, String)> {
    let mut found = Vec::new();
    for running in gateways {
        let status = send_optional(running, home, ControlRequest::Status).await?;
        let waiting = status["waiting"].as_array();
        let ids = waiting
            .into_iter()
            .flatten()
            .filter_map(|one| one["id"].as_str());
        let meant = ids.filter(|id| id.starts_with(typed) || id.ends_with(typed));
        found.extend(meant.map(|id| (running, id.to_owned())));
    }
    let shown = text::plain(typed);
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(UsageError(format!(
            "no request `{shown}` waits; `outlast gateway status` shows those that do"
        ))
        .into()),
        (Some(_), more) => Err(UsageError(format!(
            "`{shown}` fits {} requests; give more of the id",
            more + 1
        ))
        .into()),
    }
}

/// Prints the address of a gateway's page, with the token that it needs.
pub(super) fn page(which: GatewaySelector) -> anyhow::Result<Exit> {
    let home = home::path()?;
    let running = select_one(registry::select(&home, which)?)?;
    let token =
        Token::load_existing(&home)?.context("there is no token of a gateway in this home")?;
    // Browsers do not send the part after `#`: the page reads it, and no log does.
    let (url, token) = (running.url(), token.reveal());
    print(&format!("{url}/_outlast/#token={token}\n"))
}

/// Chooses the gateway. A gateway that everyone can use takes precedence over those that serve one program.
fn select_one(mut found: Vec<RunningGateway>) -> Result<RunningGateway, UsageError> {
    if found.iter().any(|one| !one.for_program) {
        found.retain(|one| !one.for_program);
    }
    let ports = registry::list_ports(&found);
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(UsageError(format!(
            "several gateways run, on {ports}; name one with --port"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn gateway(port: u16, for_program: bool) -> RunningGateway {
        RunningGateway {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            pid: 1,
            for_program,
        }
    }

    #[test]
    fn shared_gateway_takes_precedence_over_program_gateways() {
        let port = |found: Vec<RunningGateway>| select_one(found).map(|one| one.address.port());
        assert_eq!(port(vec![gateway(1, true)]).unwrap(), 1);
        let beside = vec![gateway(1, true), gateway(2, false), gateway(3, true)];
        assert_eq!(port(beside).unwrap(), 2);
        let problem = port(vec![gateway(1, false), gateway(2, false)]).unwrap_err();
        let expected = "several gateways run, on 1, 2; name one with --port";
        assert_eq!(problem.0, expected);
        assert!(port(vec![gateway(1, true), gateway(2, true)]).is_err());
    }
}
