//! Command-line arguments of `outlast`: the global options, the subcommands and the session options they share.

mod demo;
mod explain;
mod gateway;
pub(crate) mod help;
mod manual;
mod mock;
mod run;
mod runs;
mod serve;
mod sessions;
mod settings;
mod simulate;

pub(crate) use demo::DemoArguments;
pub(crate) use explain::ExplainArguments;
pub(crate) use gateway::{
    AgentName, EnvFormat, GatewayArguments, GatewayCommand, GatewaySelector, GatewayServeArguments,
    LaunchArguments, LogFormat,
};
pub(crate) use manual::{CompletionsArguments, ManArguments};
pub(crate) use mock::MockArguments;
pub(crate) use run::RunArguments;
pub(crate) use runs::{ReportFormat, RunsArguments, RunsCommand, ShowArguments};
pub(crate) use serve::ServerArguments;
pub(crate) use sessions::{ExportFormat, ResumeArguments, RpcArguments, SessionsCommand};
pub(crate) use settings::{
    AccountsArguments, ConfigCommand, DoctorArguments, PolicyCommand, TrustArguments,
};
pub(crate) use simulate::SimulateArguments;

use crate::config::list::SEPARATOR;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Keeps LLM agents running through provider failure.
#[derive(Debug, Parser)]
#[command(name = "outlast", version, after_help = help::below_options(), args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) prompt: PromptArguments,

    /// Say nothing on stderr but errors, warnings and questions; stdout and the exit code stay as they are
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
    /// See an outage outlasted, in ninety seconds, without a key
    Demo(DemoArguments),
    /// Show the named retry policies
    #[command(subcommand, after_help = settings::POLICY_EXAMPLES)]
    Policy(PolicyCommand),
    /// Say what a failure means, what would be done about it, and why
    Explain(ExplainArguments),
    /// Play an outage or an overload with many agents, and compare what policies make of it
    Simulate(SimulateArguments),
    /// Check and show the settings
    #[command(subcommand, after_help = settings::CONFIG_EXAMPLES)]
    Config(ConfigCommand),
    /// Serve the scripted provider over HTTP, in three dialects, to rehearse an outage
    Mock(MockArguments),
    /// Stand between an agent and its provider, and hold what fails until it works
    Gateway(Box<GatewayArguments>),
    /// Be driven by another program over stdin and stdout: commands in, events out
    Rpc(RpcArguments),
    /// Serve sessions over HTTP and WebSocket, and a page for the browser
    #[command(
        mut_arg("policy", |policy| policy.help("The retry policy of sessions that choose none; see `outlast policy list` [default: overnight]")),
        mut_arg("after_content", |it| it.help("What becomes of an answer that breaks off: fail, retract (ask anew) or continue [default: fail]"))
    )]
    Serve(Box<ServerArguments>),
    /// Run a pipeline: steps of models, commands and agent programs, from a YAML file
    #[command(mut_arg("policy", |policy| policy.help("The retry policy of steps that have no `retry` [default: standard]")))]
    Run(Box<RunArguments>),
    /// Carry on what a crash, a reboot or a signal has interrupted
    Resume(ResumeArguments),
    /// List, show, export, compact and delete sessions
    #[command(subcommand, after_help = sessions::SESSIONS_EXAMPLES)]
    Sessions(SessionsCommand),
    /// List, show, follow, report on, answer and delete runs of pipelines
    Runs(RunsArguments),
    /// Show the accounts: which are free, which are blocked, why and until when
    Accounts(AccountsArguments),
    /// Check the settings, the key, the way to the provider, the clock and the files
    Doctor(DoctorArguments),
    /// Let a project's outlast.toml set everything, addresses and keys included
    Trust(TrustArguments),
    /// Print a script that completes commands and options in a shell
    Completions(CompletionsArguments),
    /// Print the manual, or write all of its pages into a folder
    Man(ManArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    /// Ask once, print the answer and leave; `-` reads the prompt from stdin
    #[arg(short = 'p', long, allow_hyphen_values = true, conflicts_with = "mode")]
    pub(crate) prompt: Option<String>,

    /// Be driven by another program over stdin and stdout, as `outlast rpc` is
    #[arg(long, value_enum)]
    pub(crate) mode: Option<RpcMode>,

    #[command(flatten)]
    pub(crate) session_arguments: SessionArguments,

    /// A picture to go along with the prompt; may be given more than once
    #[arg(
        long,
        value_name = "FILE",
        requires = "prompt",
        conflicts_with_all = ["mode", "plain"]
    )]
    pub(crate) image: Vec<PathBuf>,

    /// Ask for the answer as a whole instead of in pieces
    #[arg(long, requires = "prompt", conflicts_with_all = ["mode", "plain"])]
    pub(crate) no_stream: bool,

    /// Print every event as one line of JSON instead of the answer
    #[arg(long, requires = "prompt", conflicts_with_all = ["mode", "plain"])]
    pub(crate) json: bool,

    /// Chat line by line, as a screen reader wants it; so it is where TERM is `dumb`
    #[arg(long, conflicts_with_all = ["mode", "prompt"])]
    pub(crate) plain: bool,
}

/// Which session, with whom, and what it may do.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionArguments {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Where the provider is, such as http://localhost:8080/v1 [default: the provider's own address]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Go on with the last session of this folder
    #[arg(long = "continue", conflicts_with_all = ["session", "no_session"])]
    pub(crate) continue_last: bool,

    /// Go on with that session; the beginning of its id is enough
    #[arg(long, value_name = "ID", conflicts_with = "no_session")]
    pub(crate) session: Option<String>,

    /// Write nothing down: what a crash interrupts cannot be carried on
    #[arg(long)]
    pub(crate) no_session: bool,

    /// What may run without being asked about: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Offer the model no tools
    #[arg(long)]
    pub(crate) no_tools: bool,

    /// How long a prompt may take in all, such as 8h [default: as long as it takes]
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Option<String>,
}

/// How events are said to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RpcMode {
    /// The pi RPC protocol
    Rpc,
    /// The same commands, with our own events
    Native,
}

/// The flags that are settings.
#[derive(Clone, Debug, Args)]
pub(crate) struct SettingFlags {
    /// Who answers: mock, anthropic, openai or openai-responses [default: mock]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The model; for the scripted provider its script, such as `overloaded:3+rate-limited:retry-after=2`
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The retry policy; see `outlast policy list` [default: session]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,
    /// A model to ask when the first one cannot be asked, MODEL or PROVIDER:MODEL; may be given more than once, `''` means none
    #[arg(long, value_name = "MODEL")]
    pub(crate) fallback: Vec<String>,
    /// What becomes of an answer that breaks off: fail, retract (ask anew) or continue [default: retract]
    #[arg(long, value_name = "WHAT")]
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
