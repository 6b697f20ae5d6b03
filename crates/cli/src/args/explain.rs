//! Arguments of `outlast explain`.

use crate::commands::explain::TransportKind;
use clap::Args;

const EXPLAIN_EXAMPLES: &str = "Each line of --jsonl is an object with `id`, `provider`, `transport`, `status`, `headers`, `body` and
`now`; only `body` or `status` is needed. A line that cannot be read is answered with its number and
an error; the exit code is then 1.

Examples:
  outlast explain --status 429 --header 'retry-after: 7' --body 'Rate limit reached'
  outlast explain --body 'read ECONNRESET'
  curl -s https://api.example.com/v1 | outlast explain --status 503 --body -
  outlast explain --jsonl errors.jsonl";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArguments {
    /// The provider that failed
    #[arg(long)]
    pub(crate) provider: Option<String>,

    /// How the failure came [default: http with a status, else thrown]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportKind>,

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
