//! Arguments of `outlast gateway`.

use clap::{Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "SIGTERM and Ctrl-C end it when what is under way is done. SIGHUP, or a change of outlast.toml, has
it read the settings again. docs/gateway.md says more.

Examples:
  outlast gateway                                  # serve, and say what to set
  outlast gateway run -- claude                    # a gateway and an agent together
  outlast gateway --upstream mock:overloaded:3     # try it out: no key, no server
  outlast gateway env codex                        # what to set for Codex
  eval \"$(outlast gateway env claude)\"             # set it in this shell
  outlast gateway status --watch                   # what waits, for what, until when
  outlast gateway page                             # the same in a browser: where to open it
  outlast gateway retry-now                        # all that wait try again at once";

const STATUS_EXAMPLES: &str = "Examples:
  outlast gateway status
  outlast gateway status --watch         # again and again, until Ctrl-C
  outlast gateway status --port 4180 --json";

const RETRY_NOW_EXAMPLES: &str = "Examples:
  outlast gateway retry-now              # all that wait
  outlast gateway retry-now 3f2a         # only that one";

const CANCEL_EXAMPLES: &str = "Examples:
  outlast gateway cancel 3f2a";

const PAGE_EXAMPLES: &str =
    "The address holds the token that steers the gateway: it is for you alone.

Examples:
  xdg-open \"$(outlast gateway page)\"     # on macOS: open
  outlast gateway page --port 4180";

const ENV_EXAMPLES: &str = "Examples:
  eval \"$(outlast gateway env claude)\"             # sh, bash, zsh
  outlast gateway env codex --shell fish           # to be piped into `source`
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
    /// Where to listen; port 0 takes any that is free [default: 127.0.0.1:4180]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,

    #[command(flatten)]
    pub(crate) flags: GatewayFlags,

    /// How what happens is said on stderr
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log: LogFormat,
}

/// The flags that are settings, for whoever starts a gateway.
#[derive(Debug, Args)]
pub(crate) struct GatewayFlags {
    /// Where requests go, such as https://host/v1; `mock:SCRIPT` is the scripted provider [default: the dialect's provider]
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,

    /// The retry policy; see `outlast policy list` [default: overnight]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Who asks, such as claude or codex [default: recognised by its headers]
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

/// How what happens is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Short lines for people
    Text,
    /// One line of JSON each
    Json,
    /// Not at all
    Off,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// What waits, for what and until when; the accounts, and what is known of the providers
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        #[command(flatten)]
        which: GatewaySelector,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Again and again, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Have requests that wait try again at once
    #[command(after_help = RETRY_NOW_EXAMPLES)]
    RetryNow {
        /// Only that one; the beginning or the end of its id is enough [default: all that wait]
        id: Option<String>,
        #[command(flatten)]
        which: GatewaySelector,
    },
    /// End a request that waits; its client is told why it failed
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel {
        /// Its id, as `outlast gateway status` shows it; the beginning or the end of it is enough
        id: String,
        #[command(flatten)]
        which: GatewaySelector,
    },
    /// Print the address of the page that shows the gateway in a browser
    #[command(after_help = PAGE_EXAMPLES)]
    Page {
        #[command(flatten)]
        which: GatewaySelector,
    },
    /// Print what to set so that an agent uses the gateway
    #[command(after_help = ENV_EXAMPLES)]
    Env {
        /// Which agent
        #[arg(value_enum)]
        agent: AgentName,
        #[command(flatten)]
        which: GatewaySelector,
        /// For which shell, or as JSON
        #[arg(long, value_enum, default_value = "sh")]
        shell: EnvFormat,
    },
    /// Start a gateway and an agent that uses it, and end with the agent's exit code
    #[command(after_help = RUN_EXAMPLES)]
    Run(LaunchArguments),
}

/// Which gateway is meant.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GatewaySelector {
    /// The port that it listens on [default: the only gateway that runs]
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

/// How something to set is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// sh, bash, zsh
    Sh,
    /// fish
    Fish,
    /// One object of JSON
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct LaunchArguments {
    #[command(flatten)]
    pub(crate) flags: GatewayFlags,

    /// How what happens is said on stderr; the terminal is the agent's, hence not at all
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) log: LogFormat,

    /// The program and what it is told
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}
