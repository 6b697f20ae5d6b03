//! Arguments of `outlast sessions`, `outlast resume` and `outlast rpc`.

use super::{RpcMode, SessionArguments};
use clap::{Args, Subcommand};

const RPC_EXAMPLES: &str = "docs/rpc.md has every command and every event.

Examples:
  outlast rpc --provider anthropic --model claude-sonnet-4-5 --policy overnight --allow write,bash
  outlast rpc --mode native --continue                # our own events, the last session
  outlast rpc --schema > native-events.schema.json";

#[derive(Debug, Args)]
#[command(after_help = RPC_EXAMPLES)]
pub(crate) struct RpcArguments {
    /// How events are said
    #[arg(long, value_enum, default_value = "rpc")]
    pub(crate) mode: RpcMode,

    #[command(flatten)]
    pub(crate) session_arguments: SessionArguments,

    /// Print the JSON Schema of the native dialect and leave
    #[arg(long)]
    pub(crate) schema: bool,
}

const RESUME_EXAMPLES: &str = "Examples:
  outlast resume                         # all that was interrupted, side by side
  outlast resume 01a1                    # only that one, also when it failed or was cancelled
  outlast resume --allow write,bash";

#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
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

pub(super) const SESSIONS_EXAMPLES: &str = "Examples:
  outlast sessions list
  outlast sessions show                  # the newest one
  outlast sessions export 01a1 --format html > session.html
  outlast sessions delete --older-than 30d";

const LIST_EXAMPLES: &str = "Examples:
  outlast sessions list
  outlast sessions list --json           # with the folder in which each began";

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
    /// One line for each session, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// What was said and done in a session
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Its id, or the beginning of it [default: the newest one]
        session: Option<String>,
    },
    /// A session as a document, on stdout
    #[command(after_help = EXPORT_EXAMPLES)]
    Export {
        /// Its id, or the beginning of it [default: the newest one]
        session: Option<String>,
        /// As what
        #[arg(long, value_enum, default_value = "markdown")]
        format: ExportFormat,
    },
    /// Make the conversation of a session smaller, as `-p /compact` does
    #[command(after_help = COMPACT_EXAMPLES)]
    Compact {
        /// Its id, or the beginning of it
        session: String,
        /// What the summary should look at
        #[arg(long, value_name = "TEXT")]
        focus: Option<String>,
    },
    /// Remove sessions for good
    #[command(after_help = DELETE_EXAMPLES)]
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
