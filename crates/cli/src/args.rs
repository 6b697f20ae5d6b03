//! Command-line arguments of `outlast`: the global options, the subcommands and the session options they share.

mod explain;
mod gateway;
mod manual;
mod rehearsal;
mod run;
mod runs;
mod serve;
mod sessions;
mod settings;

pub(crate) use explain::ExplainArguments;
pub(crate) use gateway::{
    AgentName, EnvFormat, GatewayArguments, GatewayCommand, GatewaySelector, GatewayServeArguments,
    LaunchArguments, LogFormat,
};
pub(crate) use manual::{CompletionsArguments, ManArguments};
pub(crate) use rehearsal::{DemoArguments, MockArguments, SimulateArguments};
pub(crate) use run::RunArguments;
pub(crate) use runs::{ReportFormat, RunsArguments, RunsCommand, ShowArguments};
pub(crate) use serve::ServerArguments;
pub(crate) use sessions::{ExportFormat, ResumeArguments, RpcArguments, SessionsCommand};
pub(crate) use settings::{
    AccountsArguments, ConfigCommand, DoctorArguments, PolicyCommand, TrustArguments,
};

use crate::config::SEPARATOR;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Keeps LLM agents running through provider failure.
#[derive(Debug, Parser)]
#[command(name = "outlast", version, after_help = manual::below_options(), args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) prompt: PromptArguments,

    /// Print only errors, warnings and questions on stderr; stdout and the exit code do not change
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl Arguments {
    /// Parses the command line. Exits the process on a usage error and on `--help`.
    pub(crate) fn from_command_line() -> Self {
        let (words, is_quiet) = strip_leading_quiet(std::env::args_os().collect());
        let arguments = Self::parse_from(words);
        Self {
            quiet: arguments.quiet || is_quiet,
            ..arguments
        }
    }
}

/// Removes `-q` from between the names of subcommands: unlike other options, it is accepted with every subcommand.
fn strip_leading_quiet(words: Vec<OsString>) -> (Vec<OsString>, bool) {
    let mut command = &Arguments::command();
    let (mut kept, mut is_quiet) = (Vec::new(), false);
    let mut words = words.into_iter();
    kept.extend(words.next());
    for word in words.by_ref() {
        if word == "-q" || word == "--quiet" {
            is_quiet = true;
            continue;
        }
        let named = command.find_subcommand(&word);
        kept.push(word);
        match named {
            Some(named) => command = named,
            None => break,
        }
    }
    kept.extend(words);
    (kept, is_quiet)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Demonstrate how outages are handled, in ninety seconds, without a key
    Demo(DemoArguments),
    /// Show the named retry policies
    #[command(subcommand, after_help = settings::POLICY_EXAMPLES)]
    Policy(PolicyCommand),
    /// Explain a failure: its cause, the decision and the reason
    Explain(ExplainArguments),
    /// Simulate an outage or an overload with many agents, and compare retry policies
    Simulate(SimulateArguments),
    /// Check and show the settings
    #[command(subcommand, after_help = settings::CONFIG_EXAMPLES)]
    Config(ConfigCommand),
    /// Serve the scripted provider over HTTP, in three dialects, to rehearse an outage
    Mock(MockArguments),
    /// Run a proxy between agents and their providers that holds and retries failed requests
    Gateway(Box<GatewayArguments>),
    /// Let another program control a session over stdin and stdout: commands in, events out
    Rpc(RpcArguments),
    /// Serve sessions over HTTP and WebSocket, and a page for the browser
    #[command(
        mut_arg("policy", |policy| policy.help("Retry policy of sessions that choose none; see `outlast policy list` [default: overnight]")),
        mut_arg("after_content", |it| it.help("Treatment of a response that breaks off: fail, retract (send the request again) or continue [default: fail]"))
    )]
    Serve(Box<ServerArguments>),
    /// Run a pipeline: steps of models, commands and agent programs, from a YAML file
    #[command(mut_arg("policy", |policy| policy.help("Retry policy of steps that have no `retry` [default: standard]")))]
    Run(Box<RunArguments>),
    /// Resume sessions that a crash, a reboot or a signal interrupted
    Resume(ResumeArguments),
    /// List, show, export, compact and delete sessions
    #[command(subcommand, after_help = sessions::SESSIONS_EXAMPLES)]
    Sessions(SessionsCommand),
    /// List, show, follow, report on, answer and delete runs of pipelines
    Runs(RunsArguments),
    /// Show the accounts: which are free, which are blocked, why and until when
    Accounts(AccountsArguments),
    /// Check files, settings, key, network and clock
    Doctor(DoctorArguments),
    /// Trust a project's outlast.toml: allow it to set everything, addresses and keys included
    Trust(TrustArguments),
    /// Print a shell completion script
    Completions(CompletionsArguments),
    /// Print a manual page, or write all pages to a folder
    Man(ManArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    /// Send one prompt, print the response and exit; `-` reads the prompt from stdin
    #[arg(short = 'p', long, allow_hyphen_values = true, conflicts_with = "mode")]
    pub(crate) prompt: Option<String>,

    /// Let another program control the session over stdin and stdout, like `outlast rpc`
    #[arg(long, value_enum)]
    pub(crate) mode: Option<RpcMode>,

    #[command(flatten)]
    pub(crate) session_arguments: SessionArguments,

    /// Image to send with the prompt; may be given more than once
    #[arg(
        long,
        value_name = "FILE",
        requires = "prompt",
        conflicts_with_all = ["mode", "plain"]
    )]
    pub(crate) image: Vec<PathBuf>,

    /// Request the response as a whole instead of as a stream
    #[arg(long, requires = "prompt", conflicts_with_all = ["mode", "plain"])]
    pub(crate) no_stream: bool,

    /// Print every event as one line of JSON instead of the response
    #[arg(long, requires = "prompt", conflicts_with_all = ["mode", "plain"])]
    pub(crate) json: bool,

    /// Chat line by line, for screen readers; the default if TERM is `dumb`
    #[arg(long, conflicts_with_all = ["mode", "prompt"])]
    pub(crate) plain: bool,
}

/// The options of a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionArguments {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Base URL of the provider, such as http://localhost:8080/v1 [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Continue the last session of this folder
    #[arg(long = "continue", conflicts_with_all = ["session", "no_session"])]
    pub(crate) continue_last: bool,

    /// Continue the session with this id; a prefix is enough
    #[arg(long, value_name = "ID", conflicts_with = "no_session")]
    pub(crate) session: Option<String>,

    /// Save nothing: an interrupted prompt cannot be resumed
    #[arg(long)]
    pub(crate) no_session: bool,

    /// Tools that may run without approval: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Offer the model no tools
    #[arg(long)]
    pub(crate) no_tools: bool,

    /// Maximum duration of a prompt, such as 8h [default: no limit]
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Option<String>,
}

/// The format of events for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RpcMode {
    /// Events of the pi RPC protocol
    Rpc,
    /// Outlast's own events, with the same commands
    Native,
}

/// The flags that are settings.
#[derive(Clone, Debug, Args)]
pub(crate) struct SettingFlags {
    /// Provider: mock, anthropic, openai or openai-responses [default: mock]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Model; for the scripted provider a script, such as `overloaded:3+rate-limited:retry-after=2`
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Retry policy; see `outlast policy list` [default: session]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,
    /// Fallback model, MODEL or PROVIDER:MODEL; may be given more than once, `''` means none
    #[arg(long, value_name = "MODEL")]
    pub(crate) fallback: Vec<String>,
    /// Treatment of a response that breaks off: fail, retract (send the request again) or continue [default: retract]
    #[arg(long, value_name = "ACTION")]
    pub(crate) after_content: Option<String>,
}

impl SettingFlags {
    /// Returns the typed flags as overrides, each keyed by the path of its setting.
    pub(crate) fn overrides(&self) -> Vec<(&'static str, String)> {
        let separator = SEPARATOR.to_string();
        let fallback = (!self.fallback.is_empty()).then(|| self.fallback.join(&separator));
        let flags = [
            ("provider", self.provider.clone()),
            ("model", self.model.clone()),
            ("retry.policy", self.policy.clone()),
            ("fallback.models", fallback),
            ("after_content", self.after_content.clone()),
        ];
        flags
            .into_iter()
            .filter_map(|(path, value)| Some((path, value?)))
            .collect()
    }
}
