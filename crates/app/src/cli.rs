//! What can be typed.

mod demo;
mod gateway;
mod run;
mod runs;
mod simulate;

pub(crate) use demo::DemoArguments;
pub(crate) use gateway::{
    AgentName, GatewayArguments, GatewayCommand, LaunchArguments, LogForm, ServeArguments, Shell,
    Which,
};
pub(crate) use run::RunArguments;
pub(crate) use runs::{ReportFormat, RunsArguments, RunsCommand, ShowArguments};
pub(crate) use simulate::SimulateArguments;

use crate::config::list::SEPARATOR;
use crate::explain::Came;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes:
  0    success
  1    failed: trying again cannot help, the model refused or said nothing, or something is wrong here
  2    usage: the command line or a setting is wrong
  3    budget spent: it could have passed, but retries or waiting were used up
  4    answered, but the session could not be written down, or earlier sessions are damaged
  130  cancelled (Ctrl-C); 129 and 143: hung up or terminated, `outlast resume` carries it on

Environment:
  OUTLAST_HOME        the folder where Outlast keeps everything (default: the platform's data folder)
  OUTLAST_PROVIDER, OUTLAST_MODEL, OUTLAST_POLICY, OUTLAST_CA_FILE and the keys, addresses and proxies of
                      providers: see `outlast config show`
  OUTLAST_TIME_SCALE  run the clock N times as fast, for tests and with the scripted provider only

Examples:
  outlast demo
  outlast -p \"Say hello\"
  outlast -p \"Say hello\" --model rate-limited:retry-after=2 --policy overnight
  outlast -p - --json < prompt.txt
  outlast -p \"Fix the failing test\" --allow write,bash --policy overnight
  outlast -p \"And now the other one\" --continue
  outlast -p \"Say hello\" --model claude-sonnet-4-5 --fallback claude-haiku-4-5 --fallback openai:gpt-5.1
  outlast -p /compact --continue
  outlast resume
  outlast gateway run -- claude
  outlast policy show overnight";

/// Keeps LLM agents running through provider failure.
#[derive(Debug, Parser)]
#[command(name = "outlast", version, after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) prompt: PromptArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See an outage outlasted, in ninety seconds, without a key
    Demo(DemoArguments),
    /// Show the named retry policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Say what a failure means, what would be done about it, and why
    Explain(ExplainArguments),
    /// Play an outage or an overload with many agents, and compare what policies make of it
    Simulate(SimulateArguments),
    /// Check and show the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Serve the scripted provider over HTTP, in three dialects, to rehearse an outage
    #[command(after_help = outlast_mock::help())]
    Mock(MockArguments),
    /// Stand between an agent and its provider, and hold what fails until it works
    Gateway(Box<GatewayArguments>),
    /// Be driven by another program over stdin and stdout: commands in, events out
    Rpc(RpcArguments),
    /// Run a pipeline: steps of models, commands and agent programs, from a YAML file
    #[command(mut_arg("policy", |policy| policy.help("The retry policy of steps that have no `retry` [default: standard]")))]
    Run(Box<RunArguments>),
    /// Carry on what a crash, a reboot or a signal has interrupted
    Resume(ResumeArguments),
    /// List, show, export, compact and delete sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// List, show, follow, report on, answer and delete runs of pipelines
    Runs(RunsArguments),
    /// Show the accounts: which are free, which are blocked, why and until when
    Accounts(AccountsArguments),
    /// Check the settings, the key, the way to the provider, the clock and the files
    Doctor(DoctorArguments),
    /// Let a project's outlast.toml set everything, addresses and keys included
    Trust(TrustArguments),
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
    pub(crate) choice: SessionChoice,

    /// A picture to go along with the prompt; may be given more than once
    #[arg(
        long,
        value_name = "FILE",
        requires = "prompt",
        conflicts_with = "mode"
    )]
    pub(crate) image: Vec<PathBuf>,

    /// Ask for the answer as a whole instead of in pieces
    #[arg(long, requires = "prompt", conflicts_with = "mode")]
    pub(crate) no_stream: bool,

    /// Print every event as one line of JSON instead of the answer
    #[arg(long, requires = "prompt", conflicts_with = "mode")]
    pub(crate) json: bool,

    /// Chat line by line, as a screen reader wants it; so it is where TERM is `dumb`
    #[arg(long, conflicts_with_all = ["mode", "prompt"])]
    pub(crate) plain: bool,
}

/// Which session, with whom, and what it may do.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionChoice {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Where the provider is, such as http://localhost:8080/v1 [default: the provider's own address]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Go on with the last session of this folder
    #[arg(long = "continue", conflicts_with_all = ["session", "no_session"])]
    pub(crate) go_on: bool,

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

#[derive(Debug, Args)]
pub(crate) struct RpcArguments {
    /// How events are said
    #[arg(long, value_enum, default_value = "rpc")]
    pub(crate) mode: RpcMode,

    #[command(flatten)]
    pub(crate) choice: SessionChoice,

    /// Print the JSON Schema of the native dialect and leave
    #[arg(long)]
    pub(crate) schema: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArguments {
    /// Only that session; the beginning of its id is enough [default: all that are not finished]
    pub(crate) session: Option<String>,

    /// What may run without being asked about, beside what was allowed before: write, bash, outside, mcp
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Print every event as one line of JSON instead of the answers
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// One line for each session, the newest first
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// What was said and done in a session
    Show {
        /// Its id, or the beginning of it [default: the newest one]
        session: Option<String>,
    },
    /// A session as a document, on stdout
    Export {
        /// Its id, or the beginning of it [default: the newest one]
        session: Option<String>,
        /// As what
        #[arg(long, value_enum, default_value = "markdown")]
        format: ExportFormat,
    },
    /// Make the conversation of a session smaller, as `-p /compact` does
    Compact {
        /// Its id, or the beginning of it
        session: String,
        /// What the summary should look at
        #[arg(long, value_name = "TEXT")]
        focus: Option<String>,
    },
    /// Remove sessions for good
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required_unless_present = "older_than")]
        sessions: Vec<String>,
        /// All in which nothing has happened for that long, such as 30d; those that are not finished stay
        #[arg(long, value_name = "DURATION", conflicts_with = "sessions")]
        older_than: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// Every entry as one line of JSON
    Jsonl,
    /// To be read and edited
    Markdown,
    /// One page, complete in itself
    Html,
}

const EXPLAIN_EXAMPLES: &str = "Examples:
  outlast explain --status 429 --header 'retry-after: 7' --body 'Rate limit reached'
  outlast explain --body 'read ECONNRESET'
  curl -s https://api.example.com/v1 | outlast explain --status 503 --body -
  outlast explain --jsonl errors.jsonl

Each line of --jsonl is {\"id\",\"provider\",\"transport\",\"status\",\"headers\",\"body\",\"now\"}; only `body` or
`status` is needed. A line that cannot be read is answered with its number and an error; the exit code is then 1.";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArguments {
    /// The provider that failed
    #[arg(long)]
    pub(crate) provider: Option<String>,

    /// How the failure came [default: http with a status, else thrown]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Came>,

    /// The HTTP status
    #[arg(long, value_name = "NUMBER")]
    pub(crate) status: Option<u16>,

    /// A response header; may be given more than once
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// The body, the stream's frames, or the error's text; `-` reads stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,

    /// The time to judge by, such as 2026-11-15T22:00:00+01:00 [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,

    /// The policy to plan by
    #[arg(long, value_name = "NAME", default_value = "session")]
    pub(crate) policy: String,

    /// As one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Explain each line of a file of JSON; without a file, of stdin
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-",
          conflicts_with_all = ["provider", "transport", "status", "header", "body", "now", "json"])]
    pub(crate) jsonl: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// One line for each policy
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Every delay of one policy, and when it gives up
    Show {
        /// Its name
        name: String,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Draw it into an SVG file as well
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with the settings; the exit code is then 1
    Check {
        /// Only this file [default: all layers]
        file: Option<PathBuf>,
    },
    /// Every setting, its value and where it comes from
    Show {
        #[command(flatten)]
        flags: SettingFlags,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The JSON Schema of outlast.toml
    Schema,
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
    /// What was typed, by the settings that it overrides.
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

#[derive(Debug, Args)]
pub(crate) struct AccountsArguments {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Forget what is held against that account
    #[arg(long, value_name = "NAME")]
    pub(crate) unblock: Option<String>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MockArguments {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    pub(crate) listen: SocketAddr,

    /// What happens to requests that name no script by their model or the header `x-outlast-script`; with a model before it,
    /// what happens to requests for that one (may be given several times) [default: ok]
    #[arg(long = "script", value_name = "[MODEL=]SCRIPT")]
    pub(crate) scripts: Vec<String>,

    /// End when stdin does, for programs that start it: it does not outlive them
    #[arg(long)]
    pub(crate) until_stdin_ends: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Where the provider is [default: the provider's own address]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArguments {
    /// The folder that holds the file [default: the one of this project's outlast.toml, else the current one]
    #[arg(conflicts_with = "list")]
    pub(crate) folder: Option<PathBuf>,
    /// Trust it no longer
    #[arg(long, conflicts_with = "list")]
    pub(crate) remove: bool,
    /// Print the folders that are trusted
    #[arg(long)]
    pub(crate) list: bool,
}
