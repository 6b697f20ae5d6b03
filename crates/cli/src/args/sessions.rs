//! Arguments of `outlast sessions`, `outlast resume` and `outlast rpc`.

use super::{RpcMode, SessionArguments};
use clap::{Args, Subcommand};

const RPC_EXAMPLES: &str = "docs/rpc.md lists every command and every event.

Examples:
  outlast rpc --provider anthropic --model claude-sonnet-4-5 --policy overnight --allow write,bash
  outlast rpc --mode native --continue                # native events, the last session
  outlast rpc --schema > native-events.schema.json";

#[derive(Debug, Args)]
#[command(after_help = RPC_EXAMPLES)]
pub(crate) struct RpcArguments {
    /// Format of events
    #[arg(long, value_enum, default_value = "rpc")]
    pub(crate) mode: RpcMode,

    #[command(flatten)]
    pub(crate) session_arguments: SessionArguments,

    /// Print the JSON Schema of the native events and exit
    #[arg(long)]
    pub(crate) schema: bool,
}

const RESUME_EXAMPLES: &str = "Examples:
  outlast resume                         # all interrupted sessions, in parallel
  outlast resume 01a1                    # only this one, even if it failed or was cancelled
  outlast resume --allow write,bash";

#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArguments {
    /// Session id or a prefix of it [default: all unfinished sessions]
    pub(crate) session: Option<String>,

    /// Additional tools that may run without approval: write, bash, outside, mcp; separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<String>,

    /// Print every event as one line of JSON instead of the responses
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const SESSIONS_EXAMPLES: &str = "Examples:
  outlast sessions list
  outlast sessions show                  # the newest one
  outlast sessions export 01a1 --format html > session.html
  outlast sessions delete --older-than 30d";

const LIST_EXAMPLES: &str = "Examples:
  outlast sessions list
  outlast sessions list --json           # with the folder of each";

const SHOW_EXAMPLES: &str = "Examples:
  outlast sessions show                  # the newest one
  outlast sessions show 01a1";

const EXPORT_EXAMPLES: &str = "Examples:
  outlast sessions export > session.md   # the newest one
  outlast sessions export 01a1 --format html > session.html
  outlast sessions export 01a1 --format jsonl > session.jsonl";

const COMPACT_EXAMPLES: &str = "Examples:
  outlast sessions compact 01a1
  outlast sessions compact 01a1 --focus \"what the tests need\"";

const DELETE_EXAMPLES: &str = "Examples:
  outlast sessions delete 01a1
  outlast sessions delete --older-than 30d";

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the transcript of a session
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Session id or a prefix of it [default: the newest session]
        session: Option<String>,
    },
    /// Export a session as a document on stdout
    #[command(after_help = EXPORT_EXAMPLES)]
    Export {
        /// Session id or a prefix of it [default: the newest session]
        session: Option<String>,
        /// Format of the document
        #[arg(long, value_enum, default_value = "markdown")]
        format: ExportFormat,
    },
    /// Compact the conversation of a session, like `-p /compact`
    #[command(after_help = COMPACT_EXAMPLES)]
    Compact {
        /// Session id or a prefix of it
        session: String,
        /// Focus of the summary
        #[arg(long, value_name = "TEXT")]
        focus: Option<String>,
    },
    /// Delete sessions permanently
    #[command(after_help = DELETE_EXAMPLES)]
    Delete {
        /// Session ids or prefixes of them
        #[arg(required_unless_present = "older_than")]
        sessions: Vec<String>,
        /// Delete all finished sessions without a change for this long, such as 30d
        #[arg(long, value_name = "DURATION", conflicts_with = "sessions")]
        older_than: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// Every entry as one line of JSON
    Jsonl,
    /// Markdown
    Markdown,
    /// One self-contained HTML page
    Html,
}
