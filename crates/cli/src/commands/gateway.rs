//! `outlast gateway`: runs a proxy between agents and their providers that holds failed requests until they succeed.
//!
//! Not here: the gateway itself (see `outlast_gateway`).

mod agents;
pub(crate) mod client;
mod control;
mod launch;
mod log;
mod registry;
mod serve;
mod start;
mod status;

use crate::args::{GatewayArguments, GatewayCommand};
use crate::platform::exit::Exit;

pub(crate) fn run(arguments: GatewayArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        None => serve::run(&arguments.serve),
        Some(GatewayCommand::Run(arguments)) => launch::run(&arguments),
        Some(GatewayCommand::Status { which, json, watch }) => {
            status::run(which, status::StatusOptions { json, watch })
        }
        Some(GatewayCommand::RetryNow { id, which }) => control::retry_now(which, id.as_deref()),
        Some(GatewayCommand::Cancel { id, which }) => control::cancel(which, &id),
        Some(GatewayCommand::Page { which }) => control::page(which),
        Some(GatewayCommand::Env {
            agent,
            which,
            shell,
        }) => agents::print_env(agent, which, shell),
    }
}
