//! Arguments of the commands that show and change settings: `policy`, `config`, `accounts`, `doctor` and `trust`.

use super::SettingFlags;
use clap::{Args, Subcommand};
use std::path::PathBuf;

pub(super) const POLICY_EXAMPLES: &str = "Examples:
  outlast policy list
  outlast policy show overnight";

const POLICY_LIST_EXAMPLES: &str = "Examples:
  outlast policy list
  outlast policy list --json";

const POLICY_SHOW_EXAMPLES: &str = "Examples:
  outlast policy show overnight
  outlast policy show overnight --plot overnight.svg";

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// One line for each policy
    #[command(after_help = POLICY_LIST_EXAMPLES)]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Every delay of one policy, and when it gives up
    #[command(after_help = POLICY_SHOW_EXAMPLES)]
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

pub(super) const CONFIG_EXAMPLES: &str = "Examples:
  outlast config check
  outlast config show";

const CONFIG_CHECK_EXAMPLES: &str = "Examples:
  outlast config check                   # the user's file, the project's, the environment
  outlast config check outlast.toml      # one file, also of another project";

const CONFIG_SHOW_EXAMPLES: &str = "Examples:
  outlast config show                    # what counts here, and where it comes from
  outlast config show --provider anthropic --json";

const CONFIG_SCHEMA_EXAMPLES: &str = "Examples:
  outlast config schema > outlast.schema.json    # for editors that complete and check";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with the settings; the exit code is then 1
    #[command(after_help = CONFIG_CHECK_EXAMPLES)]
    Check {
        /// Only this file [default: all layers]
        file: Option<PathBuf>,
    },
    /// Every setting, its value and where it comes from
    #[command(after_help = CONFIG_SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        flags: SettingFlags,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The JSON Schema of outlast.toml
    #[command(after_help = CONFIG_SCHEMA_EXAMPLES)]
    Schema,
}

const ACCOUNTS_EXAMPLES: &str = "Examples:
  outlast accounts
  outlast accounts --unblock work        # forget what is held against it
  outlast accounts --json";

#[derive(Debug, Args)]
#[command(after_help = ACCOUNTS_EXAMPLES)]
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

const DOCTOR_EXAMPLES: &str = "The exit code is 1 when something is wrong; a warning is not.

Examples:
  outlast doctor
  outlast doctor --provider anthropic --model claude-sonnet-4-5
  outlast doctor --provider openai --base-url http://localhost:11434/v1 --json";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
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

const TRUST_EXAMPLES: &str = "Examples:
  outlast trust                          # this project
  outlast trust ~/work/project
  outlast trust ~/work/project --remove
  outlast trust --list";

#[derive(Debug, Args)]
#[command(after_help = TRUST_EXAMPLES)]
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
