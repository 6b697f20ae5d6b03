//! Arguments of `outlast runs`.

use clap::{Args, Subcommand};

const RUNS_NOTES: &str = "Examples:
  outlast runs                           # one line for each run
  outlast runs show --watch              # follow the newest run until it ends
  outlast runs show 01a1 --step plan     # what was said and done in that step
  outlast runs report 01a1 --format html > report.html
  outlast runs approve 01a1 --choice y
  outlast runs delete --older-than 30d";

const LIST_EXAMPLES: &str = "Examples:
  outlast runs list
  outlast runs list --json";

const SHOW_EXAMPLES: &str = "Examples:
  outlast runs show                      # the newest one
  outlast runs show 01a1 --step plan     # what was said and done in that step
  outlast runs show --watch && echo done";

const REPORT_EXAMPLES: &str = "Examples:
  outlast runs report > report.md        # the newest one
  outlast runs report 01a1 --format html > report.html
  outlast runs report 01a1 --format svg > timeline.svg";

const OUTPUT_EXAMPLES: &str = "Examples:
  outlast runs output 01a1 plan          # what it said in the end
  outlast runs output 01a1 plan notes > notes.md";

const APPROVE_EXAMPLES: &str = "Examples:
  outlast runs approve 01a1              # the one that asks; go on
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

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// One line for each run, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Where a run stands: its steps, their attempts, what they wait for
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
    /// A run as a document, on stdout: what ran, what failed, what was done about it, and a timeline
    #[command(after_help = REPORT_EXAMPLES)]
    Report {
        /// Its id, or the beginning of it [default: the newest one]
        run: Option<String>,
        /// As what
        #[arg(long, value_enum, default_value = "markdown")]
        format: ReportFormat,
    },
    /// Print what a step of a run has made
    #[command(after_help = OUTPUT_EXAMPLES)]
    Output {
        /// The run's id, or the beginning of it
        run: String,
        /// The step
        step: String,
        /// Which of its outputs [default: what it said in the end]
        name: Option<String>,
    },
    /// Answer what a run asks
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve {
        /// Its id, or the beginning of it
        run: String,
        /// The step that asks [default: the only one that does]
        step: Option<String>,
        /// Which of its choices [default: the one to go on]
        #[arg(long, value_name = "KEY")]
        choice: Option<String>,
    },
    /// Have a run try again at once what it waits to try again
    #[command(after_help = RETRY_NOW_EXAMPLES)]
    RetryNow {
        /// Its id, or the beginning of it
        run: String,
        /// Only that step [default: all that wait]
        step: Option<String>,
    },
    /// End a run, as Ctrl-C does where it runs
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel {
        /// Its id, or the beginning of it
        run: String,
    },
    /// Remove runs for good, with what their steps said and made
    #[command(after_help = DELETE_EXAMPLES)]
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required_unless_present = "older_than")]
        runs: Vec<String>,
        /// All in which nothing has happened for that long, such as 30d; those that are not finished stay
        #[arg(long, value_name = "DURATION", conflicts_with = "runs")]
        older_than: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// Its id, or the beginning of it [default: the newest one]
    pub(crate) run: Option<String>,

    /// Every entry as one line of JSON
    #[arg(long, conflicts_with = "step")]
    pub(crate) json: bool,

    /// Follow it until it ends; the exit code is then 0 when it ended well
    #[arg(long, conflicts_with = "step")]
    pub(crate) watch: bool,

    /// What was said and done in that step
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ReportFormat {
    /// To be read and edited, with the timeline as a picture inside
    Markdown,
    /// One page, complete in itself
    Html,
    /// The timeline alone
    Svg,
}
