//! Arguments of `outlast explain`.

use crate::commands::explain::TransportKind;
use clap::Args;

const EXPLAIN_EXAMPLES: &str = "Each line of --jsonl is an object with `id`, `provider`, `transport`, `status`, `headers`, `body` and
`now`; only `body` or `status` is needed. For an invalid line, the number of the line and
an error are printed; the exit code is then 1.

Examples:
  outlast explain --status 429 --header 'retry-after: 7' --body 'Rate limit reached'
  outlast explain --body 'read ECONNRESET'
  curl -s https://api.example.com/v1 | outlast explain --status 503 --body -
  outlast explain --jsonl errors.jsonl";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArguments {
    /// Name of the provider that failed
    #[arg(long)]
    pub(crate) provider: Option<String>,

    /// Channel that reported the failure [default: http with a status, else thrown]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportKind>,

    /// HTTP status of the response
    #[arg(long, value_name = "NUMBER")]
    pub(crate) status: Option<u16>,

    /// Response header; may be given more than once
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// Response body, frames of the stream, or error text; `-` reads stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,

    /// Time of the failure, such as 2026-11-15T22:00:00+01:00 [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,

    /// Retry policy to plan with
    #[arg(long, value_name = "NAME", default_value = "session")]
    pub(crate) policy: String,

    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Explain each line of a JSON Lines file; without a file, of stdin
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-",
          conflicts_with_all = ["provider", "transport", "status", "header", "body", "now", "json"])]
    pub(crate) jsonl: Option<String>,
}
