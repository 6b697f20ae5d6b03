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
    /// List the retry policies
    #[command(after_help = POLICY_LIST_EXAMPLES)]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show every delay of a policy, and its limits
    #[command(after_help = POLICY_SHOW_EXAMPLES)]
    Show {
        /// Policy name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Draw the policy to an SVG file as well
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
    },
}

pub(super) const CONFIG_EXAMPLES: &str = "Examples:
  outlast config check
  outlast config show";

const CONFIG_CHECK_EXAMPLES: &str = "Examples:
  outlast config check                   # the user's file, the project's, the environment
  outlast config check outlast.toml      # one file, of any project";

const CONFIG_SHOW_EXAMPLES: &str = "Examples:
  outlast config show                    # effective values and their sources
  outlast config show --provider anthropic --json";

const CONFIG_SCHEMA_EXAMPLES: &str = "Examples:
  outlast config schema > outlast.schema.json    # for editors";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the settings and print their errors; the exit code is then 1
    #[command(after_help = CONFIG_CHECK_EXAMPLES)]
    Check {
        /// File to check [default: all layers]
        file: Option<PathBuf>,
    },
    /// Show every setting, its value and its source
    #[command(after_help = CONFIG_SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        flags: SettingFlags,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of outlast.toml
    #[command(after_help = CONFIG_SCHEMA_EXAMPLES)]
    Schema,
}

const ACCOUNTS_EXAMPLES: &str = "Examples:
  outlast accounts
  outlast accounts --unblock work        # remove its blocks
  outlast accounts --json";

#[derive(Debug, Args)]
#[command(after_help = ACCOUNTS_EXAMPLES)]
pub(crate) struct AccountsArguments {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Remove all blocks of this account
    #[arg(long, value_name = "NAME")]
    pub(crate) unblock: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_EXAMPLES: &str = "The exit code is 1 if a check fails; warnings do not count.

Examples:
  outlast doctor
  outlast doctor --provider anthropic --model claude-sonnet-4-5
  outlast doctor --provider openai --base-url http://localhost:11434/v1 --json";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Base URL of the provider [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Print JSON
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
    /// Folder of the outlast.toml [default: the one of this project's file, else the current one]
    #[arg(conflicts_with = "list")]
    pub(crate) folder: Option<PathBuf>,
    /// Revoke the trust
    #[arg(long, conflicts_with = "list")]
    pub(crate) remove: bool,
    /// Print the trusted folders
    #[arg(long)]
    pub(crate) list: bool,
}
