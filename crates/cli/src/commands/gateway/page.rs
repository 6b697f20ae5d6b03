//! `outlast gateway page`: prints the address of a gateway's page, with the token that it needs.

use crate::args::GatewaySelector;
use crate::commands::gateway::registry::{self, RunningGateway};
use crate::output::print;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use anyhow::Context;
use outlast_gateway::auth::Token;

pub(super) fn run(which: GatewaySelector) -> anyhow::Result<Exit> {
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
