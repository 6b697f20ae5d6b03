//! `outlast gateway retry-now` and `cancel`: retries and cancels held requests.

use crate::args::GatewaySelector;
use crate::commands::gateway::client::{ControlRequest, send_optional};
use crate::commands::gateway::registry::{self, RunningGateway};
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
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
