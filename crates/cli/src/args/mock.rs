//! Arguments of `outlast mock`.

use clap::Args;
use std::net::SocketAddr;

const EXAMPLES: &str = "Examples:
  outlast mock --script outage:600                                # down for ten minutes
  outlast mock --script big=overloaded:2 --script small=ok        # for each model
  curl -s http://127.0.0.1:8787/_outlast/script -d '{\"script\":\"overloaded:3\"}'
  curl -s http://127.0.0.1:8787/_outlast/requests                 # what arrived";

fn below_options() -> String {
    format!("{}\n\n{EXAMPLES}", outlast_mock::help().trim_end())
}

#[derive(Debug, Args)]
#[command(after_help = below_options())]
pub(crate) struct MockArguments {
    /// Address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Script for requests that name none by their model or the header `x-outlast-script`; MODEL=SCRIPT applies to
    /// one model only (may be given more than once) [default: ok]
    #[arg(long = "script", value_name = "[MODEL=]SCRIPT")]
    pub(crate) scripts: Vec<String>,

    /// Exit when stdin is closed, so that it does not outlive the program that started it
    #[arg(long)]
    pub(crate) until_stdin_ends: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| "write an address and a port, such as 127.0.0.1:8787".to_owned())
}
