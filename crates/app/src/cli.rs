//! What can be typed.

use crate::config::duration;
use crate::explain::Came;
use clap::{Args, Parser, Subcommand};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "Exit codes:
  0    success
  1    failed: trying again cannot help, or something is wrong here
  2    usage: the command line or a setting is wrong
  3    budget spent: it could have passed, but retries or waiting were used up
  130  cancelled (Ctrl-C)

Environment:
  OUTLAST_HOME        the folder where Outlast keeps everything (default: the platform's data folder)
  OUTLAST_PROVIDER, OUTLAST_MODEL, OUTLAST_POLICY, OUTLAST_CA_FILE and the keys, addresses and proxies of
                      providers: see `outlast config show`
  OUTLAST_TIME_SCALE  run the clock N times as fast, for tests and with the scripted provider only

Examples:
  outlast -p \"Say hello\"
  outlast -p \"Say hello\" --model rate-limited:retry-after=2 --policy overnight
  outlast -p - --json < prompt.txt
  outlast policy show overnight";

/// Keeps LLM agents running through provider failure.
#[derive(Debug, Parser)]
#[command(name = "outlast", version, after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) prompt: PromptArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the named retry policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Say what a failure means, what would be done about it, and why
    Explain(ExplainArguments),
    /// Play an outage or an overload with many agents, and compare what policies make of it
    Simulate(SimulateArguments),
    /// Check and show the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check the settings, the key, the way to the provider, the clock and the files
    Doctor(DoctorArguments),
    /// Let a project's outlast.toml set everything, addresses and keys included
    Trust(TrustArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    /// Ask once, print the answer and leave; `-` reads the prompt from stdin
    #[arg(short = 'p', long, allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    #[command(flatten)]
    pub(crate) flags: SettingFlags,

    /// Where the provider is, such as http://localhost:8080/v1 [default: the provider's own address]
    #[arg(long, value_name = "URL", requires = "prompt")]
    pub(crate) base_url: Option<String>,

    /// A picture to go along with the prompt; may be given more than once
    #[arg(long, value_name = "FILE", requires = "prompt")]
    pub(crate) image: Vec<PathBuf>,

    /// Ask for the answer as a whole instead of in pieces
    #[arg(long, requires = "prompt")]
    pub(crate) no_stream: bool,

    /// Print every event as one line of JSON instead of the answer
    #[arg(long, requires = "prompt")]
    pub(crate) json: bool,
}

const EXPLAIN_EXAMPLES: &str = "Examples:
  outlast explain --status 429 --header 'retry-after: 7' --body 'Rate limit reached'
  outlast explain --body 'read ECONNRESET'
  curl -s https://api.example.com/v1 | outlast explain --status 503 --body -
  outlast explain --jsonl errors.jsonl

Each line of --jsonl is {\"id\",\"provider\",\"transport\",\"status\",\"headers\",\"body\",\"now\"}; only `body` or
`status` is needed. A line that cannot be read is answered with its number and an error; the exit code is then 1.";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArguments {
    /// The provider that failed
    #[arg(long)]
    pub(crate) provider: Option<String>,

    /// How the failure came [default: http with a status, else thrown]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Came>,

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

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// One line for each policy
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Every delay of one policy, and when it gives up
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

const SIMULATE_NOTES: &str = "Examples:
  outlast simulate                                    500 agents, 25 calls a second, an outage of 30 minutes
  outlast simulate --load 200 --outage 0              sustained overload
  outlast simulate --policy standard --outage 4h --plot outage.svg
  outlast simulate --store-down 15m..20m              the gate's store is lost in the outage

Always compared: overnight behind the gate; each agent for itself with full jitter (1 s doubled up to 60 s); overnight
without the gate; and what client libraries do by default (2 retries, then the call is started again after 30 s).

Columns:
  in outage    calls made while the provider was down
  per success  calls made for each that was accepted, over the whole run
  first        from the recovery to the first success
  drained      from the recovery until every agent that waited had its call
  refused      calls refused after the recovery
  peak         the most calls in any one second, for each that the provider can carry
  goodput      what was accepted, for all that could have been, under overload
  fairness     Jain's index over the completed calls of the agents: 1 when all had the same
  wasted       tokens of calls that were refused
  given up     calls that were given up, and started again by whoever runs the agent";

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_NOTES)]
pub(crate) struct SimulateArguments {
    /// How many agents make one call after another
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = range(1, 100_000))]
    pub(crate) agents: u32,

    /// Over how many processes they are spread
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = range(1, 1000))]
    pub(crate) processes: u32,

    /// What the provider can carry, in calls a second
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = range(1, 1000))]
    pub(crate) capacity: u32,

    /// Count the capacity in tokens: so many a second
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_second: Option<u32>,

    /// What the agents want, in percent of the capacity; 200 is an overload of 2:1
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = range(1, 10_000))]
    pub(crate) load: u32,

    /// How long the provider is down, from the tenth minute on; 0 for no outage
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration)]
    pub(crate) outage: Duration,

    /// The provider says when to come back when it is asked too much
    #[arg(long)]
    pub(crate) retry_after: bool,

    /// How long each operation of the gate's store takes
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = duration)]
    pub(crate) store_latency: Duration,

    /// When the gate's store cannot be reached, such as 15m..20m
    #[arg(long, value_name = "FROM..TO", value_parser = time_range)]
    pub(crate) store_down: Option<Range<Duration>>,

    /// How many agents die while they probe for the others
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) dead_probes: u32,

    /// Compare this policy too, with and without the gate; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,

    /// How long it all lasts [default: an hour and the outage]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) length: Option<Duration>,

    /// Where all chance comes from: the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// As JSON, with a fingerprint of each run
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the calls over time into an SVG file as well
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

fn range(least: u32, most: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "write a duration such as 90s, 30m or 1h30m".to_owned())
}

fn time_range(text: &str) -> Result<Range<Duration>, String> {
    let times = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (duration::parse(from)?, duration::parse(to)?);
        (from < to).then_some(from..to)
    });
    times.ok_or_else(|| {
        "write two times from the beginning, the first one earlier, such as 15m..20m".to_owned()
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with the settings; the exit code is then 1
    Check {
        /// Only this file [default: all layers]
        file: Option<PathBuf>,
    },
    /// Every setting, its value and where it comes from
    Show {
        #[command(flatten)]
        flags: SettingFlags,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The JSON Schema of outlast.toml
    Schema,
}

/// The flags that are settings.
#[derive(Debug, Args)]
pub(crate) struct SettingFlags {
    /// Who answers: mock, anthropic, openai or openai-responses [default: mock]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The model; for the scripted provider its script, such as `overloaded:3+rate-limited:retry-after=2`
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The retry policy; see `outlast policy list` [default: session]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,
}

impl SettingFlags {
    /// What was typed, by the settings that it overrides.
    pub(crate) fn overrides(&self) -> Vec<(&str, &str)> {
        let flags = [
            ("provider", &self.provider),
            ("model", &self.model),
            ("retry.policy", &self.policy),
        ];
        flags
            .into_iter()
            .filter_map(|(path, value)| Some((path, value.as_deref()?)))
            .collect()
    }
}

#[derive(Debug, Args)]
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

#[derive(Debug, Args)]
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
