//! Arguments of `outlast gateway`.

use clap::{Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "SIGTERM and Ctrl-C shut the gateway down when the requests in progress are finished. SIGHUP or a
change of outlast.toml reloads the settings. docs/gateway.md has the details.

Examples:
  outlast gateway                                  # start, and print the settings for agents
  outlast gateway run -- claude                    # a gateway and an agent together
  outlast gateway --upstream mock:overloaded:3     # try it without a key or a server
  outlast gateway env codex                        # the settings for Codex
  eval \"$(outlast gateway env claude)\"             # set it in this shell
  outlast gateway status --watch                   # waiting requests, with causes and times
  outlast gateway page                             # the address of the page in a browser
  outlast gateway retry-now                        # retry all waiting requests";

const STATUS_EXAMPLES: &str = "Examples:
  outlast gateway status
  outlast gateway status --watch         # refresh until Ctrl-C
  outlast gateway status --port 4180 --json";

const RETRY_NOW_EXAMPLES: &str = "Examples:
  outlast gateway retry-now              # all waiting requests
  outlast gateway retry-now 3f2a         # only this one";

const CANCEL_EXAMPLES: &str = "Examples:
  outlast gateway cancel 3f2a";

const PAGE_EXAMPLES: &str =
    "The address contains the token that controls the gateway: keep it private.

Examples:
  xdg-open \"$(outlast gateway page)\"     # on macOS: open
  outlast gateway page --port 4180";

const ENV_EXAMPLES: &str = "Examples:
  eval \"$(outlast gateway env claude)\"             # sh, bash, zsh
  outlast gateway env codex --shell fish           # pipe it into `source`
  outlast gateway env opencode --port 4180 --shell json";

const RUN_EXAMPLES: &str = "Examples:
  outlast gateway run -- claude
  outlast gateway run --log text -- codex exec \"Fix the failing test\" 2> gateway.log
  outlast gateway run --upstream mock:overloaded:3 -- claude -p \"Say hello\"";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArguments {
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,

    #[command(flatten)]
    pub(crate) serve: GatewayServeArguments,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayServeArguments {
    /// Address to listen on; port 0 takes any free port [default: 127.0.0.1:4180]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,

    #[command(flatten)]
    pub(crate) flags: GatewayFlags,

    /// Format of the log on stderr
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log: LogFormat,
}

/// The settings that can be given as flags when a gateway is started.
#[derive(Debug, Args)]
pub(crate) struct GatewayFlags {
    /// Upstream of all requests, such as https://host/v1; `mock:SCRIPT` is the scripted provider [default: the dialect's provider]
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,

    /// Retry policy; see `outlast policy list` [default: gateway]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Client, such as claude or codex [default: recognised by its headers]
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
}

impl GatewayFlags {
    /// Returns the typed flags as overrides, each keyed by the path of its setting.
    pub(crate) fn overrides(&self) -> Vec<(&'static str, String)> {
        let flags = [
            ("gateway.upstream", self.upstream.clone()),
            ("gateway.policy", self.policy.clone()),
            ("gateway.client", self.client.clone()),
        ];
        let typed = |(path, value): (_, Option<String>)| Some((path, value?));
        flags.into_iter().filter_map(typed).collect()
    }
}

impl GatewayServeArguments {
    /// Returns the typed flags as overrides, each keyed by the path of its setting.
    pub(crate) fn overrides(&self) -> Vec<(&'static str, String)> {
        let listen = self
            .listen
            .clone()
            .map(|address| ("gateway.listen", address));
        listen.into_iter().chain(self.flags.overrides()).collect()
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Short lines for people
    Text,
    /// One line of JSON per event
    Json,
    /// No log
    Off,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Show waiting requests, accounts and failing providers
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        #[command(flatten)]
        which: GatewaySelector,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Refresh until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Retry waiting requests at once
    #[command(after_help = RETRY_NOW_EXAMPLES)]
    RetryNow {
        /// Request id, or its beginning or end [default: all waiting requests]
        id: Option<String>,
        #[command(flatten)]
        which: GatewaySelector,
    },
    /// Cancel a waiting request; its client gets the error
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel {
        /// Request id from `outlast gateway status`, or its beginning or end
        id: String,
        #[command(flatten)]
        which: GatewaySelector,
    },
    /// Print the address of the gateway's page for the browser
    #[command(after_help = PAGE_EXAMPLES)]
    Page {
        #[command(flatten)]
        which: GatewaySelector,
    },
    /// Print the settings with which an agent uses the gateway
    #[command(after_help = ENV_EXAMPLES)]
    Env {
        /// Agent to configure
        #[arg(value_enum)]
        agent: AgentName,
        #[command(flatten)]
        which: GatewaySelector,
        /// Output format: the syntax of a shell, or JSON
        #[arg(long, value_enum, default_value = "sh")]
        shell: EnvFormat,
    },
    /// Start a gateway and an agent that uses it, and end with the agent's exit code
    #[command(after_help = RUN_EXAMPLES)]
    Run(LaunchArguments),
}

/// The choice of a running gateway.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GatewaySelector {
    /// Port of the gateway [default: the only gateway that runs]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) port: Option<u16>,
}

/// Agents whose settings are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentName {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// opencode
    Opencode,
    /// aider
    Aider,
    /// pi
    Pi,
    /// Anything on the SDKs of OpenAI
    Openai,
    /// Anything on the SDKs of Anthropic
    Anthropic,
}

/// The output format of settings for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// sh, bash, zsh
    Sh,
    /// fish
    Fish,
    /// One JSON object
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct LaunchArguments {
    #[command(flatten)]
    pub(crate) flags: GatewayFlags,

    /// Format of the log on stderr; off by default, because the agent uses the terminal
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) log: LogFormat,

    /// Agent program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}
