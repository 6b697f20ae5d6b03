//! The API of the page: describes the gateway, its traffic and its waiting requests, and ends waits.
//!
//! The paths and responses are those of `outlast serve` (docs/serve.md), as far as they apply to a gateway, so that one
//! page serves both. Invariant: nothing is shown or done without the token.

use super::{
    Account, ControlResult, Gate, GatewayControl, READ_METHODS, Status, WRITE_METHODS, cancel,
    check_body, check_method, check_token, json, retry_now, status, version,
};
use crate::control::policies::{self, PolicyView};
use crate::problem::Problem;
use http::StatusCode;
use http::request::Parts;
use outlast_kernel::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// The path prefix of each endpoint.
pub(super) const ROOT: &str = "/_outlast/api/";
/// The views of a gateway that the page shows.
const VIEWS: [&str; 3] = ["gateway", "providers", "policies"];

/// The server that the page came from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "About")]
pub struct AboutView {
    /// The version of the program.
    pub version: String,
    /// The gateway's current time.
    pub now: Timestamp,
    /// The names of the views that the page can show.
    pub views: Vec<&'static str>,
}

/// The known gateways.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Gateways {
    /// The gateway's current time.
    pub now: Timestamp,
    /// The status of each known gateway.
    pub gateways: Vec<GatewayView>,
}

/// A gateway.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Gateway")]
pub struct GatewayView {
    /// The port that the gateway listens on; it identifies the gateway.
    pub port: u16,
    /// The address that the gateway listens on.
    pub address: String,
    /// The full status of the gateway.
    pub status: Status,
}

/// The shared state of the providers: accounts and gates.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SharedState {
    /// The gateway's current time.
    pub now: Timestamp,
    /// The accounts that are configured.
    pub accounts: Vec<Account>,
    /// The gates at which calls fail.
    pub gates: Vec<Gate>,
}

/// The retry policies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Policies {
    /// All retry policies.
    pub policies: Vec<PolicyView>,
}

/// Answers a request for one of these paths.
pub(super) fn respond(
    gateway: &dyn GatewayControl,
    asked: &Parts,
    path: &str,
    body: &[u8],
) -> ControlResult {
    let endpoint = Endpoint::at(path)?;
    check_method(asked, endpoint.allowed())?;
    check_token(gateway, asked)?;
    check_body(body)?;
    let about = gateway.summary();
    let now = about.now;
    match endpoint {
        Endpoint::About => json(&AboutView {
            version: version(),
            now,
            views: VIEWS.into(),
        }),
        Endpoint::Gateways => json(&Gateways {
            now,
            gateways: vec![GatewayView {
                port: gateway.address().port(),
                address: about.address,
                status: status(gateway),
            }],
        }),
        Endpoint::SharedState => json(&SharedState {
            now,
            accounts: gateway.accounts(),
            gates: gateway.gates(),
        }),
        Endpoint::Policies => json(&Policies {
            policies: policies::all(),
        }),
        Endpoint::Gateway(port, what) => {
            check_port(gateway, port)?;
            match what {
                GatewayEndpoint::RequestLog => json(
                    &gateway
                        .request_log()
                        .changes_since(after_parameter(asked)?, now),
                ),
                GatewayEndpoint::RetryNow => json(&retry_now(body, gateway)?),
                GatewayEndpoint::Cancel => json(&cancel(body, gateway)?),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint<'a> {
    About,
    Gateways,
    SharedState,
    Policies,
    /// An endpoint of the gateway on that port.
    Gateway(&'a str, GatewayEndpoint),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayEndpoint {
    RequestLog,
    RetryNow,
    Cancel,
}

impl<'a> Endpoint<'a> {
    fn at(path: &'a str) -> Result<Self, Problem> {
        let parts: Vec<&str> = path.splitn(4, '/').collect();
        Ok(match *parts {
            ["about"] => Self::About,
            ["gateways"] => Self::Gateways,
            // The old name is accepted until 0.3.
            ["shared_state" | "knowledge"] => Self::SharedState,
            ["policies"] => Self::Policies,
            ["gateways", port, "traffic"] => Self::Gateway(port, GatewayEndpoint::RequestLog),
            ["gateways", port, "retry_now"] => Self::Gateway(port, GatewayEndpoint::RetryNow),
            ["gateways", port, "cancel"] => Self::Gateway(port, GatewayEndpoint::Cancel),
            _ => {
                let detail = "there is nothing here; docs/gateway.md lists what is";
                return Err(Problem::unknown(detail));
            }
        })
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Gateway(_, GatewayEndpoint::RetryNow | GatewayEndpoint::Cancel) => WRITE_METHODS,
            _ => READ_METHODS,
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

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
