//! Arguments of `outlast run`.

use super::SettingFlags;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "A pipeline is run like a script: its commands are run as they stand. A model may write files or run
commands only in steps that say so (`allow`), or where --allow does. Exit codes are those of
`outlast --help`; 1 means that the run has failed.

Examples:
  outlast run pipeline.yaml --input topic='retry storms'
  outlast run pipeline.yaml --check
  outlast run pipeline.yaml --plan
  outlast run --resume
  outlast runs";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// The pipeline's file
    #[arg(
        value_name = "FILE",
        required_unless_present_any = ["resume", "schema"],
        conflicts_with_all = ["resume", "schema"]
    )]
    pub(crate) file: Option<PathBuf>,

    /// What the pipeline is given; may be given more than once
    #[arg(long = "input", value_name = "NAME=VALUE", conflicts_with = "resume")]
    pub(crate) inputs: Vec<String>,

    /// Say what is wrong with the file, with line and column, and run nothing
    #[arg(long, conflicts_with_all = ["resume", "plan"])]
    pub(crate) check: bool,

    /// Draw what would be run, and run nothing
    #[arg(long, conflicts_with = "resume")]
    pub(crate) plan: bool,

    /// Go on with a run that was interrupted, or try again what did not end well; the beginning of its id is enough
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resume: Option<String>,

    /// The folder to work in [default: the current one]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Where the provider is, such as http://localhost:8080/v1 [default: the provider's own address]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// What models may do in every step, beside what the step says: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Print everything that happens as one line of JSON each
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the id of the run and nothing else, and outlive whoever has started it: for a server
    #[arg(long, hide = true, conflicts_with_all = ["resume", "check", "plan", "schema", "json"])]
    pub(crate) detached: bool,

    /// Print the JSON Schema of the file and leave
    #[arg(long)]
    pub(crate) schema: bool,
}
