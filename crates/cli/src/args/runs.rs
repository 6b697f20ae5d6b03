//! Arguments of `outlast runs`.

use clap::{Args, Subcommand};

const RUNS_NOTES: &str = "Examples:
  outlast runs                           # one line for each run
  outlast runs show --watch              # follow the newest run until it ends
  outlast runs show 01a1 --step plan     # the transcript of one step
  outlast runs report 01a1 --format html > report.html
  outlast runs approve 01a1 --choice y
  outlast runs delete --older-than 30d";

const LIST_EXAMPLES: &str = "Examples:
  outlast runs list
  outlast runs list --json";

const SHOW_EXAMPLES: &str = "Examples:
  outlast runs show                      # the newest one
  outlast runs show 01a1 --step plan     # the transcript of one step
  outlast runs show --watch && echo done";

const REPORT_EXAMPLES: &str = "Examples:
  outlast runs report > report.md        # the newest one
  outlast runs report 01a1 --format html > report.html";

const OUTPUT_EXAMPLES: &str = "Examples:
  outlast runs output 01a1 plan          # the final text of the step
  outlast runs output 01a1 plan notes > notes.md";

const APPROVE_EXAMPLES: &str = "Examples:
  outlast runs approve 01a1              # the step that asks; continue
  outlast runs approve 01a1 review --choice n";

const RETRY_NOW_EXAMPLES: &str = "Examples:
  outlast runs retry-now 01a1
  outlast runs retry-now 01a1 plan";

const CANCEL_EXAMPLES: &str = "Examples:
  outlast runs cancel 01a1";

const DELETE_EXAMPLES: &str = "Examples:
  outlast runs delete 01a1
  outlast runs delete --older-than 30d";

#[derive(Debug, Args)]
#[command(after_help = RUNS_NOTES, args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the status of a run: its steps, their attempts and waits
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
    /// Write a report of a run to stdout: steps, failures, retries and a timeline
    #[command(after_help = REPORT_EXAMPLES)]
    Report {
        /// Run id or a prefix of it [default: the newest run]
        run: Option<String>,
        /// Format of the report
        #[arg(long, value_enum, default_value = "markdown")]
        format: ReportFormat,
    },
    /// Print an output of a step
    #[command(after_help = OUTPUT_EXAMPLES)]
    Output {
        /// Run id or a prefix of it
        run: String,
        /// Step id
        step: String,
        /// Name of the output [default: the final text of the step]
        name: Option<String>,
    },
    /// Answer the question of a run
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve {
        /// Run id or a prefix of it
        run: String,
        /// Step that asks [default: the only step that asks]
        step: Option<String>,
        /// Key of the choice [default: the one that continues the run]
        #[arg(long, value_name = "KEY")]
        choice: Option<String>,
    },
    /// Retry the waiting steps of a run at once
    #[command(after_help = RETRY_NOW_EXAMPLES)]
    RetryNow {
        /// Run id or a prefix of it
        run: String,
        /// Step id [default: all waiting steps]
        step: Option<String>,
    },
    /// Cancel a run, like Ctrl-C in its terminal
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel {
        /// Run id or a prefix of it
        run: String,
    },
    /// Delete runs permanently, with their transcripts and outputs
    #[command(after_help = DELETE_EXAMPLES)]
    Delete {
        /// Run ids or prefixes of them
        #[arg(required_unless_present = "older_than")]
        runs: Vec<String>,
        /// Delete all finished runs without a change for this long, such as 30d
        #[arg(long, value_name = "DURATION", conflicts_with = "runs")]
        older_than: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// Run id or a prefix of it [default: the newest run]
    pub(crate) run: Option<String>,

    /// Print every entry as one line of JSON
    #[arg(long, conflicts_with = "step")]
    pub(crate) json: bool,

    /// Follow the run until it ends; the exit code is 0 if it succeeded
    #[arg(long, conflicts_with = "step")]
    pub(crate) watch: bool,

    /// Show the transcript of this step
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ReportFormat {
    /// Markdown, with the timeline as text
    Markdown,
    /// One self-contained HTML page
    Html,
}
