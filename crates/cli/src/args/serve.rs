//! Arguments of `outlast serve`.

use super::{SessionArguments, SettingFlags};
use clap::Args;

const EXAMPLES: &str = "Turns run in the server: clients may disconnect and come back. Turns that an earlier server left
unfinished are resumed at the start. docs/serve.md lists every endpoint.

Examples:
  outlast serve                                            # then open http://127.0.0.1:4190
  outlast serve --model overloaded:3                       # rehearse an outage: no key, no server
  outlast serve --listen 127.0.0.1:0 --provider anthropic --model claude-sonnet-4-5
  outlast serve --openapi > openapi.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServerArguments {
    /// Address to listen on; port 0 takes any free port [default: 127.0.0.1:4190]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,

    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Base URL of the provider, such as http://localhost:8080/v1 [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Tools that may run without approval: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Offer models no tools
    #[arg(long)]
    pub(crate) no_tools: bool,

    /// Maximum duration of a prompt, such as 8h [default: no limit]
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Option<String>,

    /// Print the OpenAPI document and exit
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
