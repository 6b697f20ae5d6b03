//! Arguments of `outlast serve`.

use super::{SessionArguments, SettingFlags};
use clap::Args;

const EXAMPLES: &str = "Turns run in the server: whoever watches may come and go. What an earlier one left unfinished is
carried on at the start. docs/serve.md has every endpoint.

Examples:
  outlast serve                                            # then open http://127.0.0.1:4190
  outlast serve --model overloaded:3                       # rehearse an outage: no key, no server
  outlast serve --listen 127.0.0.1:0 --provider anthropic --model claude-sonnet-4-5
  outlast serve --openapi > openapi.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServerArguments {
    /// Where to listen; port 0 takes any that is free [default: 127.0.0.1:4190]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,

    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Where the provider is, such as http://localhost:8080/v1 [default: the provider's own address]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// What models may do without being asked about: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Offer models no tools
    #[arg(long)]
    pub(crate) no_tools: bool,

    /// How long a prompt may take in all, such as 8h [default: as long as it takes]
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Option<String>,

    /// Print the OpenAPI document and leave
    #[arg(long)]
    pub(crate) openapi: bool,
}

impl ServerArguments {
    /// Returns the options that apply to every session of the server.
    pub(crate) fn session_arguments(&self) -> SessionArguments {
        SessionArguments {
            flags: self.flags.clone(),
            base_url: self.base_url.clone(),
            continue_last: false,
            session: None,
            no_session: false,
            allow: self.allow.clone(),
            no_tools: self.no_tools,
            deadline: self.deadline.clone(),
        }
    }
}
