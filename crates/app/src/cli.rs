//! What can be typed.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes:
  0    success
  1    failed: trying again cannot help, or something is wrong here
  2    usage: the command line or a setting is wrong
  3    budget spent: it could have passed, but retries or waiting were used up
  130  cancelled (Ctrl-C)

Environment:
  OUTLAST_HOME        the folder where Outlast keeps everything (default: the platform's data folder)
  OUTLAST_TIME_SCALE  run the clock N times as fast, for tests and with the scripted provider only

Examples:
  outlast -p \"Say hello\"
  outlast -p \"Say hello\" --model rate-limited:retry-after=2 --policy overnight
  outlast -p - --json < prompt.txt
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
    /// Show the named retry policies
    #[command(subcommand)]
    Policy(PolicyCommand),
}

#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    /// Ask once, print the answer and leave; `-` reads the prompt from stdin
    #[arg(short = 'p', long)]
    pub(crate) prompt: Option<String>,

    /// Who answers [default: mock]
    #[arg(long, value_enum, requires = "prompt")]
    pub(crate) provider: Option<Provider>,

    /// The model; for the scripted provider its script, such as `overloaded:3+rate-limited:retry-after=2`
    #[arg(long, requires = "prompt")]
    pub(crate) model: Option<String>,

    /// The retry policy; see `outlast policy list`
    #[arg(
        long,
        value_name = "NAME",
        default_value = "session",
        requires = "prompt"
    )]
    pub(crate) policy: String,

    /// Print every event as one line of JSON instead of the answer
    #[arg(long, requires = "prompt")]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Provider {
    /// The scripted provider inside this program: no network, no key
    Mock,
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
