//! Arguments of `outlast run`.

use super::SettingFlags;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "A pipeline runs like a script: its commands run without approval. A model may write files or run
commands only in steps that allow it (`allow`), or with --allow. Exit codes are those of
`outlast --help`; 1 means that the run failed.

Examples:
  outlast run pipeline.yaml --input topic='retry storms'
  outlast run pipeline.yaml --check
  outlast run pipeline.yaml --plan
  outlast run --resume
  outlast runs";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// Pipeline file
    #[arg(
        value_name = "FILE",
        required_unless_present_any = ["resume", "schema"],
        conflicts_with_all = ["resume", "schema"]
    )]
    pub(crate) file: Option<PathBuf>,

    /// Input of the pipeline; may be given more than once
    #[arg(long = "input", value_name = "NAME=VALUE", conflicts_with = "resume")]
    pub(crate) inputs: Vec<String>,

    /// Check the file and print its errors with line and column; run nothing
    #[arg(long, conflicts_with_all = ["resume", "plan"])]
    pub(crate) check: bool,

    /// Draw the plan of the run; run nothing
    #[arg(long, conflicts_with = "resume")]
    pub(crate) plan: bool,

    /// Resume an interrupted run, or retry the failed steps of a finished one; RUN is an id or a prefix of it [default: an interrupted run]
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resume: Option<String>,

    /// Folder to work in [default: the current one]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Base URL of the provider, such as http://localhost:8080/v1 [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Tools that models may use without approval in every step, in addition to the step's own: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Print every event as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print only the id of the run, and outlive the parent process; used by the server
    #[arg(long, hide = true, conflicts_with_all = ["resume", "check", "plan", "schema", "json"])]
    pub(crate) detached: bool,

    /// Print the JSON Schema of the file and exit
    #[arg(long)]
    pub(crate) schema: bool,
}
